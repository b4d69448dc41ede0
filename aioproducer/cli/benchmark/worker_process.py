"""A worker: the fresh process in which one client does one job."""

import asyncio
import os
import sys
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from aioproducer.cli.benchmark import worker
from aioproducer.cli.benchmark.job import Job, Outcome
from aioproducer.cli.python_child import python_command
from aioproducer.testing.kafka import tether

WORK_TIMEOUT_S = 180.0
"""How long any one job may take before it counts as hung."""

SAID_LINES = 8
"""How much of a failed worker's last words goes into the error."""

STREAM_LIMIT_BYTES = 2**20
"""The longest line a program may print."""


class WorkerError(Exception):
    """A worker failed, hung, or counted otherwise than the broker."""


class Worker:
    """A running worker process; made by `running_worker`."""

    def __init__(self, job: Job, process: Process) -> None:
        self._job = job
        self._process = process

    async def wait_until_ready(self) -> None:
        """Return once it has got to where something must happen to the broker.

        Raises:
            WorkerError: it ended before.
        """
        while line := await pipe(self._process.stdout).readline():
            if line.decode().strip() == worker.READY:
                return
        raise await self._failure()

    def go_on(self) -> None:
        """Let a worker that is ready do the rest."""
        pipe(self._process.stdin).write(b"\n")

    async def outcome(self) -> Outcome:
        """What it found, once it has ended.

        Raises:
            WorkerError: it failed; with the last lines it said.
        """
        printed, said = await self._process.communicate()
        lines = printed.decode().splitlines()
        if self._process.returncode != 0 or not lines:
            raise self._failed(said)
        return Outcome.from_json(lines[-1])

    async def _failure(self) -> WorkerError:
        _, said = await self._process.communicate()
        return self._failed(said)

    def _failed(self, said: bytes) -> WorkerError:
        return WorkerError(failure_text(f"{self._job.work} ended with exit code {self._process.returncode}", said))


def failure_text(what: str, said: bytes) -> str:
    """Return what failed, and below it the last lines that the process wrote to standard error."""
    return "\n".join([what, *said.decode(errors="replace").splitlines()[-SAID_LINES:]])


Stream = TypeVar("Stream", StreamReader, StreamWriter)


def pipe(stream: Stream | None) -> Stream:
    """A stream of a `python_process`, which has all of them.

    Raises:
        ValueError: it has not.
    """
    if stream is None:
        raise ValueError("this process was started without that pipe")
    return stream


@asynccontextmanager
async def running_worker(job: Job) -> AsyncIterator[Worker]:
    """A worker that is killed at the end of the block if it has not ended by itself.

    Raises:
        WorkerError: the block took longer than `WORK_TIMEOUT_S`.
    """
    async with python_process(*python_command(worker.__name__, job.to_json())) as process:
        try:
            async with asyncio.timeout(WORK_TIMEOUT_S):
                yield Worker(job, process)
        except TimeoutError as late:
            raise WorkerError(f"{job.work} did not end in {WORK_TIMEOUT_S:.0f} s") from late


@asynccontextmanager
async def python_process(*command: str) -> AsyncIterator[Process]:
    """A fresh interpreter with pipes to all its streams; it dies with this process and at the end of the block.

    Args:
        command: its command line, interpreter first.
    """
    tied = [sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), *command]
    process = await asyncio.create_subprocess_exec(
        *tied, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=STREAM_LIMIT_BYTES, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
