"""One event loop on a thread of its own, for callers that have none: uvloop's where it is installed."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import importlib.util
import os
import threading
from typing import TYPE_CHECKING, TypeVar

from aioproducer.errors import IllegalStateError, ProducerClosedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ResultT = TypeVar("ResultT")


class BackgroundLoop:
    """Started once, stopped once; in between every other thread may call."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leave = contextlib.ExitStack()
        self._job: concurrent.futures.Future[None] | None = None
        self._lock = threading.Lock()
        self._thread_id = 0
        self._process_id = 0
        self._is_stopped = False

    @property
    def is_running(self) -> bool:
        """Whether it was started, in this process, and not stopped."""
        return self._loop is not None and not self._is_stopped and self._process_id == os.getpid()

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller runs on its thread."""
        return self._thread_id == threading.get_ident()

    def start(self, job: Callable[[], Awaitable[None]]) -> None:
        """Start the thread, and a job that runs until the end; a second call does nothing."""
        from anyio.from_thread import start_blocking_portal  # noqa: PLC0415  # only who uses it pays for it

        with self._lock:
            if self._loop is not None:
                return
            has_uvloop = importlib.util.find_spec("uvloop") is not None
            portal = self._leave.enter_context(
                start_blocking_portal("asyncio", {"use_uvloop": has_uvloop}, name="aioproducer")
            )
            self._process_id = os.getpid()
            self._loop, self._thread_id = portal.call(_where)
            self._job = portal.start_task_soon(job)

    def stop(self) -> None:
        """End the job and what else still runs, and the thread; those who wait are told that it was closed."""
        with self._lock:  # what was submitted before is ended by the loop's own end
            self._is_stopped = True
        if self._job is not None:
            self._job.cancel()
        self._leave.close()

    def call(self, function: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Call a coroutine function on the loop and wait for it; raises what it raises.

        Raises:
            IllegalStateError: not started, in a forked child, or on the loop's own thread.
            ProducerClosedError: stopped, before or meanwhile.
        """
        return wait_for(self.submit(function))

    def submit(self, function: Callable[[], Awaitable[ResultT]]) -> concurrent.futures.Future[ResultT]:
        """Call a coroutine function on the loop; errors as `call`, its own by the future.

        Raises:
            IllegalStateError: as `call`.
            ProducerClosedError: stopped.
        """
        loop = self.check_caller()
        with self._lock:
            if self._is_stopped:
                raise ProducerClosedError("the producer is closed: it takes no more records")
            return asyncio.run_coroutine_threadsafe(_awaited(function), loop)

    def check_caller(self) -> asyncio.AbstractEventLoop:
        """Return the loop, for a caller that may wait for it.

        Raises:
            IllegalStateError: as `call`.
        """
        if self._loop is None:
            text = "the producer is not started: use `with BlockingProducer(...)`, or call start()"
            raise IllegalStateError(text)
        if self._process_id != os.getpid():
            text = "the producer was started before a fork: its thread and connections are the parent's; make one here"
            raise IllegalStateError(text)
        if self.is_current_thread:
            text = "a callback runs on the producer's own thread, where waiting for it would be for ever"
            raise IllegalStateError(text)
        return self._loop


def wait_for(future: concurrent.futures.Future[ResultT]) -> ResultT:
    """Wait for what runs on the loop; a caller that is interrupted takes its call along.

    Raises:
        ProducerClosedError: the loop ended meanwhile.
    """
    try:
        return future.result()
    except concurrent.futures.CancelledError:
        raise ProducerClosedError("the producer was closed while this call waited") from None
    except BaseException:
        future.cancel()  # Ctrl-C: nobody waits any more
        raise


async def _awaited(function: Callable[[], Awaitable[ResultT]]) -> ResultT:
    return await function()


async def _where() -> tuple[asyncio.AbstractEventLoop, int]:
    return asyncio.get_running_loop(), threading.get_ident()
