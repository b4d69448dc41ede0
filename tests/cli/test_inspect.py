"""`--inspect PORT` of `aioproducer produce` and `load`: the inspector's page while the command runs."""

import asyncio
import re
import socket
from pathlib import Path

import httpx
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aioproducer.testing import FakeCluster
from tests.cli.commands import arrival, ended, feed, run, started, values

pytestmark = [pytest.mark.slow, pytest.mark.timing]  # each starts a process


async def address_from(process: asyncio.subprocess.Process) -> str:
    """The page's address, from the line on standard error."""
    assert process.stderr is not None
    async with asyncio.timeout(60):
        async for line in process.stderr:
            if match := re.search(rb"inspect at (http://127\.0\.0\.1:[0-9]+/)", line):
                return match[1].decode()
    raise AssertionError


async def test_produce_serves_the_page_while_it_runs(cluster: FakeCluster) -> None:
    arguments = ["produce", "t", "-b", cluster.bootstrap_servers, "--inspect", "0"]
    async with started(*arguments) as process, httpx.AsyncClient() as client:
        url = await address_from(process)
        page = await client.get(url)
        await feed(process, b"a\nb\n")
        await arrival(cluster, 2)
        (now,) = (await client.get(f"{url}?state")).json()["producers"]
        elsewhere = await client.get(url, headers={"Host": "evil.example"})
        listening = listeners_of(process)
        command = await ended(process, b"")

    assert listening == [("127.0.0.1", int(url.rpartition(":")[2].strip("/")))]
    assert "<title>Producers</title>" in page.text
    assert (now["client_id"], now["state"]) == ("aioproducer-produce", "running")
    assert elsewhere.status_code == 403
    assert command.code == 0
    assert command.errors[-1].startswith("2 records delivered to t")


async def test_produce_listens_only_if_it_is_asked_to(cluster: FakeCluster) -> None:
    async with started("produce", "t", "-b", cluster.bootstrap_servers) as process:
        await feed(process, b"a\n")
        await arrival(cluster, 1)
        listening = listeners_of(process)
        command = await ended(process, b"")

    assert listening == []
    assert command.code == 0


def listeners_of(process: asyncio.subprocess.Process) -> list[tuple[str, int]]:
    """Addresses on which a process accepts connections."""
    connections = psutil.Process(process.pid).net_connections("inet")
    return [(each.laddr.ip, each.laddr.port) for each in connections if each.status == psutil.CONN_LISTEN]


async def test_load_serves_the_page_while_it_runs(cluster: FakeCluster, tmp_path: Path) -> None:
    pq.write_table(pa.table({"value": [b"v"] * 60}), tmp_path / "a.parquet", row_group_size=5)
    arguments = ["load", str(tmp_path), "-t", "t", "-b", cluster.bootstrap_servers, "--inspect", "0", "--rate", "20"]
    async with started(*arguments) as process, httpx.AsyncClient() as client:
        url = await address_from(process)
        (now,) = (await client.get(f"{url}?state")).json()["producers"]
        command = await ended(process)

    assert now["client_id"] == "aioproducer-load"
    assert command.code == 0
    assert command.errors[-1].startswith("60 records delivered to t")


@pytest.mark.parametrize("command", ["produce", "load"])
async def test_port_in_use_is_told_before_anything_is_sent(cluster: FakeCluster, tmp_path: Path, command: str) -> None:
    pq.write_table(pa.table({"value": [b"v"]}), tmp_path / "a.parquet")
    arguments = {"produce": ["t"], "load": [str(tmp_path), "-t", "t"]}[command]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = await run(command, *arguments, "-b", cluster.bootstrap_servers, "--inspect", port, stdin=b"v\n")

    assert done.code == 2
    assert done.errors == [f"--inspect {port}: Address already in use; 0 picks a free port"]
    assert values(cluster) == []


@pytest.mark.parametrize(
    "arguments,said",
    [
        (["--inspect", "65536"], "less than or equal to 65535"),
        (["--inspect", "0", "--dry-run"], "--inspect and --dry-run exclude each other: nothing is sent"),
        (["--inspect", "0", "--master", "local"], "--inspect is for loads without --master"),
    ],
)
async def test_invalid_uses_are_usage_errors(arguments: list[str], said: str) -> None:
    done = await run("load", "a.parquet", "-t", "t", *arguments)

    assert done.code == 2
    assert said in " ".join(line.strip("│ ") for line in done.errors)
