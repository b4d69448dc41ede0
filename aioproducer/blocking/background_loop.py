"""One event loop on a thread of its own, for callers that have none: uvloop's where it is installed."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from typing import TYPE_CHECKING, TypeVar

from aioproducer.errors import IllegalStateError, ProducerClosedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

ResultT = TypeVar("ResultT")


class BackgroundLoop:
    """Started once, stopped once; in between every other thread may call."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
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

    def start(self, job: Callable[[], Coroutine[object, object, None]]) -> None:
        """Start the thread, and a job that runs until the end; a second call does nothing."""
        with self._lock:
            if self._thread is not None:
                return
            self._process_id = os.getpid()
            is_ready = threading.Event()
            # A daemon: the interpreter's end, and a forked child's, must never wait for it.
            self._thread = threading.Thread(target=self._run, args=(job, is_ready), name="aioproducer", daemon=True)
            self._thread.start()
            is_ready.wait()

    def _run(self, job: Callable[[], Coroutine[object, object, None]], is_ready: threading.Event) -> None:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(self._serve(job, is_ready))

    async def _serve(self, job: Callable[[], Coroutine[object, object, None]], is_ready: threading.Event) -> None:
        self._end = asyncio.Event()
        self._thread_id = threading.get_ident()
        self._loop = asyncio.get_running_loop()
        working = asyncio.create_task(job(), name="aioproducer-handover")
        is_ready.set()
        await self._end.wait()
        working.cancel()

    def stop(self) -> None:
        """End the job and what else still runs, and the thread; those who wait are told that it was closed."""
        with self._lock:  # what was submitted before is ended by the loop's own end
            self._is_stopped = True
        if self._loop is not None and self._end is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()

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


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415  # only who uses it pays for it
    except ImportError:
        return None
    return uvloop.new_event_loop
