"""Commands run in a folder whose files are named like modules of Python: none of them is executed."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from aioproducer._version import VERSION
from aioproducer.cli.benchmark import embedded_cluster
from aioproducer.cli.benchmark.brokers import embedded_broker
from aioproducer.cli.demonstration.transfers.worker_process import WorkerEndedError, WorkerProcess
from aioproducer.cli.python_child import python_command
from aioproducer.testing.kafka import BrokerStartError

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-P", "-c", "from aioproducer.cli.main import app; app()"]
"""As the script `aioproducer`, whose own path begins with the folder of the script."""

NAMES = ("asyncio", "json", "random", "selectors", "typer", "aiokafka", "aioproducer")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files that say so when they are imported."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'a').write({name!r})\n")
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["demo", "--records", "1000", "--speed", "max"],
        ["demo", "--transactions", "--records", "450", "--speed", "150"],
        ["bench", "--embedded", "--quick", "--only", "import", "--only", "stalled", "--client", "aioproducer"],
    ],
    ids=["demo", "demo --transactions", "bench"],
)
def test_files_of_the_current_folder_are_not_executed(folder: Path, arguments: list[str]) -> None:
    """Neither by the command nor by the processes that it starts."""
    ended = subprocess.run([*COMMAND, *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=200)

    assert not (folder / "executed").exists()
    assert "Traceback" not in ended.stderr
    assert ended.returncode == 0, ended.stderr


def test_child_takes_the_package_from_where_its_parent_has_it(folder: Path) -> None:
    """Also where the package is not installed, as in a clone: `-S` hides the installation here."""
    interpreter, *rest = python_command("aioproducer")
    environment = {**os.environ, "PYTHONPATH": sysconfig.get_path("purelib")}
    command = [interpreter, "-S", *rest, "--version"]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.strip().endswith(VERSION)
    assert not (folder / "executed").exists()


async def test_worker_that_cannot_start_says_why() -> None:
    """The demo shows it, instead of waiting for orders that nothing carries out."""
    worker = WorkerProcess("no address")
    with pytest.raises(WorkerEndedError):
        worker.check()
    await worker.start()
    try:
        assert worker._process is not None  # noqa: SLF001  # its end is not announced
        await worker._process.wait()  # noqa: SLF001  # as above
        with pytest.raises(WorkerEndedError, match=r"(?s)the worker ended unexpectedly:.*Error"):
            worker.check()
    finally:
        await worker.kill()


async def test_embedded_cluster_of_the_bench_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the last lines of the process."""
    monkeypatch.setattr(embedded_cluster, "__name__", "aioproducer.missing_module")
    with pytest.raises(BrokerStartError, match=r"(?s)did not start\n.*No module named aioproducer.missing_module"):
        async with embedded_broker():
            pass
