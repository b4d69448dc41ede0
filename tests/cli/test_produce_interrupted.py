"""`aioproducer produce` after a signal."""

import asyncio
import os
import pty
import re
import signal
import socket

import pytest

from aioproducer.testing import FakeCluster
from tests.cli.commands import PROGRAM, TIMEOUT_S, arrival, ended, feed, started, values

pytestmark = [pytest.mark.slow, pytest.mark.timing]  # each starts a process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_signal_delivers_what_was_accepted(cluster: FakeCluster, number: signal.Signals) -> None:
    arguments = "--property linger.ms=3600000 --property delivery.timeout.ms=7200000 --property batch.size=1000"
    fills_a_batch = b"x" * 2_000
    async with started("produce", "t", "-b", cluster.bootstrap_servers, *arguments.split()) as process:
        await feed(process, fills_a_batch + b"\na\nb\nc")
        await arrival(cluster, 1)
        process.send_signal(number)

        command = await ended(process)

    assert values(cluster) == [fills_a_batch, b"a", b"b"]
    assert command.code == 128 + number
    assert command.errors[-2].startswith("interrupted: 3 records delivered to t")
    assert command.errors[-1] == "everything up to standard input:3 was delivered"


async def test_hang_up_is_ignored_under_nohup(cluster: FakeCluster) -> None:
    program = [
        "/bin/sh",
        "-c",
        'trap "" HUP; exec "$@"',
        "sh",
        *PROGRAM,
        "produce",
        "t",
        "-b",
        cluster.bootstrap_servers,
    ]
    process = await asyncio.create_subprocess_exec(*program, stdin=asyncio.subprocess.PIPE)
    await feed(process, b"a\n")
    await arrival(cluster, 1)
    process.send_signal(signal.SIGHUP)

    await asyncio.wait_for(process.communicate(b"b\n"), TIMEOUT_S)

    assert (process.returncode, values(cluster)) == (0, [b"a", b"b"])


async def test_wait_after_a_signal_is_bounded(cluster: FakeCluster) -> None:
    arguments = ["--drain-timeout", "0.3"]
    async with started("produce", "t", "-b", cluster.bootstrap_servers, *arguments) as process:
        await feed(process, b"a\n")
        await arrival(cluster, 1)
        for node_id in (1, 2):
            await cluster.kill(node_id)
        await feed(process, b"b\nc\n")
        await asyncio.sleep(0.3)
        process.send_signal(signal.SIGINT)

        command = await ended(process)

    assert command.code == 130
    assert command.errors[1].startswith("2 records: ")
    assert command.errors[2].startswith("standard input:2-3: 2 records: not acknowledged before the command ended")
    assert command.errors[-1] == "everything up to standard input:1 was delivered"


async def test_second_signal_ends_at_once(cluster: FakeCluster) -> None:
    async with started("produce", "t", "-b", cluster.bootstrap_servers, "--drain-timeout", "600") as process:
        await feed(process, b"a\n")
        await arrival(cluster, 1)
        for node_id in (1, 2):
            await cluster.kill(node_id)
        await feed(process, b"b\n")
        await asyncio.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        await process.stderr.readuntil(b"a second signal stops immediately\n")
        process.send_signal(signal.SIGINT)

        command = await asyncio.wait_for(ended(process), 30)

    assert command.code == 130
    assert command.errors[-1] == "everything up to standard input:1 was delivered"


async def test_signal_while_connecting_ends_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with started("produce", "t", "-b", f"127.0.0.1:{silent.getsockname()[1]}") as process:
            assert process.stderr is not None
            await process.stderr.readuntil(b"at most\n")
            process.send_signal(signal.SIGINT)

            command = await asyncio.wait_for(ended(process), 30)

    assert command.code == 130


async def test_narrow_terminal_gets_one_line_of_figures(cluster: FakeCluster) -> None:
    terminal, stderr = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "40", "LINES": "24"}
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, "produce", "t", "-b", cluster.bootstrap_servers,
        stdin=asyncio.subprocess.PIPE, stderr=stderr, env=environment,
    )  # fmt: skip
    os.close(stderr)
    await feed(process, b"a\nb\nc\n")
    await arrival(cluster, 3)
    await asyncio.sleep(0.5)  # two updates
    assert process.stdin is not None
    process.stdin.close()
    code = await asyncio.wait_for(process.wait(), TIMEOUT_S)
    shown = os.read(terminal, 65_536).decode()
    os.close(terminal)

    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).replace("\r", "\n").splitlines()
    progress = [line for line in lines if line and not line.startswith("aioproducer:")]
    assert code == 0
    assert progress[-1].startswith("3 delivered"), lines
    assert max(map(len, progress)) <= 40, lines
