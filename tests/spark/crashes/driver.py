"""Runs driver programs and kills what belongs to them; every process by its own id."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import psutil

from tests.spark.crashes.faulty_source import HALT, HALTED, Faults, Point
from tests.spark.crashes.query import Job

ROOT = Path(__file__).parents[3]
PATIENCE_S = 600.0
"""A very busy machine takes minutes to start a JVM and its Python workers, and again for each attempt of a task."""
POLL_S = 0.02


class CaseError(AssertionError):
    """Something did not happen in time, or a driver died that should live; has the end of its log."""


def spark_environment() -> dict[str, str]:
    """Environment of every process of Spark that a case starts."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYTEST_"))},
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def wait_until(is_so: Callable[[], bool], what: Callable[[], str], timeout_s: float = PATIENCE_S) -> None:
    """Return once something is so.

    Raises:
        CaseError: it is not in time.
    """
    until = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > until:
            raise CaseError(what())
        time.sleep(POLL_S)


class Program:
    """One run of a program that uses Spark, and all processes below it; ended with a `with`.

    Args:
        arguments: of Python.
        folder: for its log.
    """

    def __init__(self, arguments: Sequence[str], folder: Path) -> None:
        self._log = folder / "log"
        self._seen: dict[int, psutil.Process] = {}
        environment = {**spark_environment(), "SPARK_LOCAL_DIRS": str(folder / "local")}
        self.begun = stamp(folder / "begun")
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def wait_for_end(self) -> str:
        """Return what the program printed, once it has ended by itself."""
        wait_until(lambda: not self.is_running, lambda: f"the driver goes on\n{self.log[-3000:]}")
        return self.log

    def say(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def processes(self) -> list[psutil.Process]:
        """The program, its JVM, and the Python processes below it, as far as they live."""
        with contextlib.suppress(psutil.NoSuchProcess):
            top = psutil.Process(self._process.pid)
            self._seen |= {each.pid: each for each in [top, *top.children(recursive=True)]}
        return [each for each in self._seen.values() if each.is_running()]

    def kill(self, *, spare: int | None = None) -> None:
        """SIGKILL the program and every process below it, but one."""
        for each in self.processes():
            if each.pid != spare:
                send(each.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def require_running(self) -> None:
        """Raise CaseError if it has ended."""
        if not self.is_running:
            raise CaseError(f"the driver ended with {self._process.returncode}\n{self.log[-6000:]}")


class Driver(Program):
    """One run of a driver program with one query or job.

    Args:
        job: what it does.
        folder: for its log.
        faults: of its processes.
    """

    def __init__(self, job: Job, folder: Path, faults: Faults) -> None:
        self._job = job
        self._faults = faults
        super().__init__(["-m", "tests.spark.crashes.query", job.text()], folder)

    def wait_for_point(self, point: Point) -> int:
        """Return the id of the process that stopped there."""
        file = self._faults.file_of(point)

        def is_stopped() -> bool:
            self.require_running()
            text = file.read_text("utf-8") if file.exists() else ""
            if not text.endswith("\n"):
                return False
            return point.action != "stop" or psutil.Process(int(text)).status() == psutil.STATUS_STOPPED

        wait_until(is_stopped, lambda: f"{point} was not reached\n{self.log[-3000:]}")
        return int(file.read_text("utf-8"))

    def wait_for_batch(self, batch: int) -> float:
        """Return the time at which Spark's log has the batch as committed."""
        committed = self.try_batch(batch)
        if committed is None:
            self.require_running()
        assert committed is not None
        return committed

    def try_batch(self, batch: int) -> float | None:
        """Do as `wait_for_batch`; but return None if the driver ends before."""
        file = Path(self._job.checkpoint, "commits", str(batch))
        wait_until(
            lambda: file.exists() or not self.is_running, lambda: f"batch {batch} was not committed\n{self.log[-3000:]}"
        )
        return file.stat().st_mtime if file.exists() else None

    def halt(self) -> int:
        """Stop the query between two batches and kill it; return the last decided batch."""
        folder = Path(self._faults.folder)
        folder.joinpath(HALT).touch()
        halted = folder / HALTED

        def is_halted() -> bool:
            self.require_running()
            return halted.exists() and halted.read_text("utf-8").endswith("\n")

        wait_until(is_halted, lambda: f"the query did not come to its next batch\n{self.log[-3000:]}")
        self.kill()
        return int(halted.read_text("utf-8").split()[1])

    def stop_query(self) -> str:
        """Tell the program to stop its query; return what it printed."""
        self.say("stop")
        return self.wait_for_end()


def send(process_id: int, number: signal.Signals) -> None:
    """Send a signal to a process, if it is there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process_id, number)


def stamp(file: Path) -> float:
    """Return the current time as file systems have it, with which the times of files are compared."""
    file.touch()
    return file.stat().st_mtime
