"""`aioproducer produce` before its broker has started: it reports the error at once, and retries."""

import pytest

from aioproducer.testing import FakeCluster
from tests.cli.commands import started

pytestmark = [pytest.mark.slow, pytest.mark.timing]  # starts a process


async def free_port() -> int:
    async with FakeCluster(1) as cluster:
        return int(cluster.bootstrap_servers.rpartition(":")[2])


async def test_refused_connection_is_told_at_once_and_tried_again() -> None:
    """The broker may be just starting; else the user has the address wrong and need not wait to see it."""
    port = await free_port()
    async with started("produce", "t", "-b", f"127.0.0.1:{port}", "-X", "max.block.ms=300000") as process:
        assert process.stderr is not None
        line = (await process.stderr.readline()).decode()
        async with FakeCluster(1, topics={"t": 1}, ports=[port]) as cluster:
            await process.communicate(b"a\n")
            values = [record.value for record in cluster.records("t", 0)]

    assert line.startswith(f"aioproducer: waiting for t on 127.0.0.1:{port}, 300 s at most: ")
    assert "Connection refused" in line
    assert (process.returncode, values) == (0, [b"a"])
