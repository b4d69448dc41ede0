"""`aioproducer produce --report`: an exit code 2 means that nothing was sent, also when it is the report that fails."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aioproducer.testing import FakeCluster
from tests.cli.commands import run, values

pytestmark = pytest.mark.slow  # each starts a process


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """With topic `t`."""
    async with FakeCluster(1, topics={"t": 1}) as running:
        yield running


@pytest.mark.parametrize("report, redirection", [("/dev/full", ""), ("-", ">/dev/full")])
async def test_report_that_cannot_be_written_says_what_was_delivered(
    cluster: FakeCluster, report: str, redirection: str
) -> None:
    """Exit code 1: a script that sends again after a 2 would send everything twice."""
    ended = await run(
        "produce", "t", "-b", cluster.bootstrap_servers, "--report", report, stdin=b"a\n", redirection=redirection
    )

    assert ended.code == 1
    assert values(cluster) == [b"a"]
    assert ended.errors[0].startswith("1 record delivered to t in ")
    assert ended.errors[1:] == [
        f"--report {report}: No space left on device; the report is missing, what became of the records is as told"
    ]


async def test_report_that_cannot_be_opened_ends_it_before_anything_is_sent(cluster: FakeCluster) -> None:
    """Exit code 2."""
    ended = await run("produce", "t", "-b", cluster.bootstrap_servers, "--report", "/nonexistent/report", stdin=b"a\n")

    assert (ended.code, ended.errors) == (2, ["--report /nonexistent/report: No such file or directory"])
    assert values(cluster) == []


async def test_standard_error_that_is_full_changes_nothing(cluster: FakeCluster) -> None:
    """The exit code says it all."""
    ended = await run("produce", "t", "-b", cluster.bootstrap_servers, stdin=b"a\n", redirection="2>/dev/full")

    assert ended.code == 0
    assert values(cluster) == [b"a"]


async def test_report_names_a_file_whose_name_is_no_text(cluster: FakeCluster, tmp_path: Path) -> None:
    """A byte that is no UTF-8 is an escape in it."""
    (tmp_path / "\udcff").write_bytes(b"a\n")

    ended = await run("produce", "t", f"{tmp_path}/\udcff", "-b", cluster.bootstrap_servers, "--report", "-")

    assert ended.code == 0
    assert json.loads(ended.output)["inputs"] == [{"name": f"{tmp_path}/\udcff", "lines_read": 1}]
