"""The programs of docs/how-to/deploys.md, each ended by SIGTERM as it stands: every record that it enqueued arrives."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aioproducer.testing import FakeCluster, ThreadedFakeCluster

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs/how-to/deploys.md"
PROGRAM = re.compile(r"^~~~python\n# (?P<name>\S+)\n(?P<code>.*?)^~~~", re.DOTALL | re.MULTILINE)
PATIENCE_S = 60

pytestmark = [pytest.mark.slow, pytest.mark.timing]


@pytest.fixture
def cluster() -> Iterator[ThreadedFakeCluster]:
    with FakeCluster.in_thread(1, topics={"orders": 1}) as running:
        yield running


def ended_by_sigterm(name: str, cluster: ThreadedFakeCluster, folder: Path) -> tuple[int, str, int]:
    """Return the exit code, what the program wrote, and how many records arrived."""
    programs = {match["name"]: match["code"] for match in PROGRAM.finditer(PAGE.read_text("utf-8"))}
    (folder / name).write_text(programs[name].replace("localhost:9092", cluster.bootstrap_servers), "utf-8")
    with subprocess.Popen(
        [sys.executable, name],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as program:
        assert program.stdout is not None
        try:
            assert program.stdout.readline() == "working\n"
            program.send_signal(signal.SIGTERM)
            written, _ = program.communicate(timeout=PATIENCE_S)
        finally:
            program.kill()
    return program.returncode, written, len(cluster.records("orders", 0))


def test_asyncio_program_of_the_page_delivers_at_sigterm(cluster: ThreadedFakeCluster, tmp_path: Path) -> None:
    code, written, arrived = ended_by_sigterm("worker.py", cluster, tmp_path)

    assert (code, written) == (0, f"{arrived} records delivered\n")


def test_asyncio_program_ends_before_kubernetes_kills() -> None:
    """Also without a broker: a start, or an `enqueue`, and then the end of the block."""
    (worker,) = (match["code"] for match in PROGRAM.finditer(PAGE.read_text("utf-8")) if match["name"] == "worker.py")

    times = re.findall(r"(?:max_block_ms|close_timeout_ms)=(\d+_000)", worker)

    assert len(times) == 2
    assert sum(map(int, times)) < 30_000


def test_script_of_the_page_delivers_at_sigterm(cluster: ThreadedFakeCluster, tmp_path: Path) -> None:
    code, written, arrived = ended_by_sigterm("script.py", cluster, tmp_path)

    assert (code, written, arrived) == (128 + signal.SIGTERM, "", 100)
