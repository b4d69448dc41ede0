"""Runs the `aioproducer` command: as a process beside brokers on the test's event loop, or in this process."""

import asyncio
import multiprocessing
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import NamedTuple, Self

from typer.testing import CliRunner

from aioproducer.cli.main import command_line
from aioproducer.testing import FakeCluster
from tests.canaries import WATCH
from tests.cli.forked_command import PRELOADED, Call, run_command

TIMEOUT_S = 60
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(PRELOADED)
PROGRAM = [sys.executable, "-c", "from aioproducer.cli.main import app; app()"]


class Ended(NamedTuple):
    code: int
    output: str
    errors: list[str]
    """Lines on standard error, without the command's name and without `waiting for ...` of a busy machine."""

    @classmethod
    def of(cls, code: int, output: str, errors: str) -> Self:
        """Split standard error into lines."""
        WATCH.look_at("the output of a command", f"{output}{errors}")
        lines = [line.removeprefix("aioproducer: ") for line in errors.splitlines() if line]
        return cls(code, output, [line for line in lines if not line.startswith("waiting for ")])


def restore_hang_up() -> None:
    """Undo the effect of `nohup` on the tests."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@asynccontextmanager
async def started(
    *arguments: str,
    stdin: int = asyncio.subprocess.PIPE,
    stdout: int = asyncio.subprocess.PIPE,
    redirection: str = "",
    environment: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start the command with pipes to its standard streams; it is killed after the block."""
    shell = ["/bin/sh", "-c", f'exec "$@" {redirection}', "sh"] if redirection else []
    process = await asyncio.create_subprocess_exec(
        *shell,
        *PROGRAM,
        *arguments,
        stdin=stdin,
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "NO_COLOR": "1", **environment},
        preexec_fn=restore_hang_up,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def ended(process: asyncio.subprocess.Process, stdin: bytes | None = None) -> Ended:
    output, errors = await asyncio.wait_for(process.communicate(stdin), TIMEOUT_S)
    assert process.returncode is not None
    return Ended.of(process.returncode, (output or b"").decode(), errors.decode())


async def run(
    *arguments: str, stdin: bytes = b"", redirection: str = "", environment: Mapping[str, str] = MappingProxyType({})
) -> Ended:
    """Run the command to its end; in a fork if nothing depends on how its interpreter begins."""
    if not redirection and not environment:
        return await asyncio.to_thread(run_in_a_fork, arguments, stdin)
    async with started(*arguments, redirection=redirection, environment=environment) as process:
        return await ended(process, stdin)


def run_in_a_fork(arguments: Sequence[str], stdin: bytes) -> Ended:
    with TemporaryDirectory() as folder:
        return end_of(Call(arguments, {**os.environ, "NO_COLOR": "1"}, Path.cwd(), Path(folder)), stdin)


def end_of(call: Call, stdin: bytes) -> Ended:
    for name, text in (("in", stdin), ("out", b""), ("err", b"")):
        (call.streams / name).write_bytes(text)
    process = FORKS.Process(target=run_command, args=(call,))
    process.start()
    process.join(TIMEOUT_S)
    process.kill()
    process.join()
    assert process.exitcode is not None
    output, errors = ((call.streams / name).read_text("utf-8") for name in ("out", "err"))
    return Ended.of(process.exitcode, output, errors)


def refused(*arguments: str) -> Ended:
    """Run the command in this process, which nothing is connected from."""
    result = CliRunner().invoke(command_line(arguments), arguments)
    return Ended.of(result.exit_code, result.stdout, result.stderr)


def values(cluster: FakeCluster, topic: str = "t") -> list[bytes | None]:
    return [record.value for record in cluster.records(topic, 0)]


async def arrival(cluster: FakeCluster, count: int, topic: str = "t") -> None:
    async with asyncio.timeout(15):
        while cluster.end_offset(topic, 0) < count:  # noqa: ASYNC110 - another process sends
            await asyncio.sleep(0.01)


def read_to_end(descriptor: int) -> bytes:
    """Read a pipe until its other side is closed."""
    read = b""
    while piece := os.read(descriptor, 65_536):
        read += piece
    os.close(descriptor)
    return read


async def feed(process: Process, lines: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(lines)
    await process.stdin.drain()
