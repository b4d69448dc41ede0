"""Threads of one producer for work that takes long in the event loop's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from concurrent.futures import ThreadPoolExecutor

ResultT = TypeVar("ResultT")


class OwnThreads:
    """Threads that are started for the first job; those of the event loop may be busy with the application's work.

    Args:
        at_once: how many jobs run at the same time.
        name: of the threads.
    """

    def __init__(self, at_once: int, name: str) -> None:
        self._at_once = at_once
        self._name = name
        self._pool: ThreadPoolExecutor | None = None
        self._is_closed = False

    def run(self, loop: asyncio.AbstractEventLoop, job: Callable[[], ResultT]) -> asyncio.Future[ResultT] | None:
        """Return the future of a job.

        None if no thread starts: these are closed, the interpreter exits, or the system is out of threads.
        """
        if self._is_closed:
            return None
        try:
            return loop.run_in_executor(self._started(), job)
        except RuntimeError:
            return None

    def close(self) -> None:
        """Take no further job, and let each thread end with its own."""
        self._is_closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    def _started(self) -> ThreadPoolExecutor:
        if self._pool is None:
            from aioproducer._threads.real_threads import thread_pool  # noqa: PLC0415  # most producers need none

            self._pool = thread_pool(self._at_once, self._name)
        return self._pool
