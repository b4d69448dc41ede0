"""A worker, the new process in which one client does one job: its program, and how the main process runs it.

`python -m tests.benchmarks.worker JOB`, with the job as JSON, imports the client that the job names, does the work and
prints the outcome as its last line. Work that needs the broker stopped on the way prints `READY` and waits for a line
on standard input.
"""

import asyncio
import importlib
import os
import sys
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from aioproducer.testing.kafka import tether
from tests.benchmarks.job import Job, Outcome

READY = "ready"


def main() -> None:
    job = Job.from_json(sys.argv[1])
    outcome = _work_of(job)(job)
    print(outcome.to_json(), flush=True)


def wait_for_go() -> None:
    """Tell the main process that this worker is ready, and block until it answers."""
    print(READY, flush=True)
    sys.stdin.readline()


def _work_of(job: Job) -> Callable[[Job], Outcome]:
    module, _, function = job.work.partition(".")
    work: Callable[[Job], Outcome] = getattr(importlib.import_module(f"{__package__}.clients.{module}"), function)
    return work


ROOT = Path(__file__).parents[2]
"""Folder from which `python -m tests.benchmarks...` runs."""

WORK_TIMEOUT_S = 600.0
ERROR_LINES = 8
"""Lines of a failed worker's standard error that its error repeats."""

STREAM_LIMIT_BYTES = 2**20
"""The longest line a worker may print."""


class WorkerError(Exception):
    """A worker failed, hung, or counted other records than the broker."""


class Worker:
    """A running worker process; made by `running_worker`."""

    def __init__(self, job: Job, process: Process) -> None:
        self._job = job
        self._process = process

    async def wait_until_ready(self) -> None:
        """Wait until the worker needs the broker stopped or resumed."""
        while line := await pipe(self._process.stdout).readline():
            if line.decode().strip() == READY:
                return
        _, errors = await self._process.communicate()
        raise self._failed(errors)

    def go_on(self) -> None:
        pipe(self._process.stdin).write(b"\n")

    async def outcome(self) -> Outcome:
        """Wait for the worker's end and return its outcome."""
        printed, errors = await self._process.communicate()
        lines = printed.decode().splitlines()
        if self._process.returncode != 0 or not lines:
            raise self._failed(errors)
        return Outcome.from_json(lines[-1])

    def _failed(self, errors: bytes) -> WorkerError:
        return WorkerError(failure_text(f"{self._job.work} ended with exit code {self._process.returncode}", errors))


def failure_text(what: str, errors: bytes) -> str:
    """Return what failed, and below it the last lines of the process's standard error."""
    return "\n".join([what, *errors.decode(errors="replace").splitlines()[-ERROR_LINES:]])


Stream = TypeVar("Stream", StreamReader, StreamWriter)


def pipe(stream: Stream | None) -> Stream:
    """Return a stream of a `python_process`, which has pipes to all of them."""
    assert stream is not None
    return stream


@asynccontextmanager
async def running_worker(job: Job) -> AsyncIterator[Worker]:
    """Start a worker, and kill it at the end of the block if it has not ended."""
    async with python_process("-m", "tests.benchmarks.worker", job.to_json()) as process:
        try:
            async with asyncio.timeout(WORK_TIMEOUT_S):
                yield Worker(job, process)
        except TimeoutError as late:
            raise WorkerError(f"{job.work} did not end in {WORK_TIMEOUT_S:.0f} s") from late


@asynccontextmanager
async def python_process(*arguments: str) -> AsyncIterator[Process]:
    """Start a new interpreter with these arguments; it dies with this process and at the end of the block."""
    tied = [sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), sys.executable, *arguments]
    process = await asyncio.create_subprocess_exec(
        *tied, cwd=ROOT, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=STREAM_LIMIT_BYTES, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


if __name__ == "__main__":
    main()
