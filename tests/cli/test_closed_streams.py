"""Commands whose standard streams were closed by who started them: `<&-`, `>&-`, `2>&-`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aioproducer import Producer
from aioproducer.testing import FakeCluster
from tests.cli.commands import run, values

pytestmark = pytest.mark.slow  # each starts a process

CLOSED = ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"]


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(1, topics={"t": 1}) as running:
        async with Producer(running.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"there")
        yield running


@pytest.mark.parametrize("redirection", CLOSED)
async def test_tail_ends_as_ever(cluster: FakeCluster, redirection: str) -> None:
    arguments = ["--from-beginning", "-n", "1", "--format", "value"]
    ended = await run("tail", "t", "-b", cluster.bootstrap_servers, *arguments, redirection=redirection)

    assert ended.code == 0
    assert ended.output == ("" if ">&-" in redirection.split() else "there\n")


@pytest.mark.parametrize("redirection", CLOSED)
async def test_produce_of_a_file_ends_as_ever(cluster: FakeCluster, tmp_path: Path, redirection: str) -> None:
    (tmp_path / "lines").write_bytes(b"a\n")

    ended = await run("produce", "t", f"{tmp_path}/lines", "-b", cluster.bootstrap_servers, redirection=redirection)

    assert ended.code == 0
    assert values(cluster) == [b"there", b"a"]


async def test_txn_list_ends_as_ever(cluster: FakeCluster) -> None:
    ended = await run("txn", "list", "-b", cluster.bootstrap_servers, redirection="<&-")

    assert (ended.code, ended.output, ended.errors) == (0, "no transactions\n", [])


async def test_closed_standard_input_is_no_empty_one(cluster: FakeCluster) -> None:
    """What was to be sent is not there: nothing is sent, and that is said."""
    ended = await run("produce", "t", "-b", cluster.bootstrap_servers, redirection="<&-")

    assert (ended.code, ended.errors) == (2, ["standard input: bad file descriptor"])
    assert values(cluster) == [b"there"]
