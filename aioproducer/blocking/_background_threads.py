"""The two threads behind a `BlockingProducer`: its event loop's, and the one that emits log events.

A caller that waits for the event loop's thread may hold a lock of `logging`: that of a handler that sends its lines to
Kafka, or the module's while `logging.config.dictConfig` closes such a handler. A loop's thread that emitted an event
would wait for that lock, and the caller for the loop's thread. So events go through a queue, as with
`logging.handlers.QueueHandler`.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
from _queue import SimpleQueue
from asyncio.log import logger as asyncio_logger
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from aioproducer._logs import LogMethods, event_log
from aioproducer._native.locked import locked
from aioproducer._native.unraisable import report_unraisable
from aioproducer._threads.calls import GRACE_S, CallFuture, CallTimeout, call_on_loop, wait_for
from aioproducer._threads.installed_uvloop import installed_uvloop
from aioproducer._threads.real_threads import (
    RealRLock,
    allocate_lock,
    are_patched,
    start_thread,
    thread_id,
    thread_pool,
    wait_for_lock,
)
from aioproducer.errors import IllegalStateError, KafkaError, ProducerClosedError

if TYPE_CHECKING:
    import _thread
    import concurrent.futures
    import logging
    from collections.abc import Awaitable, Callable, Coroutine

    from aioproducer._logs import EventLog

    Emit = Callable[[EventLog], object]

ResultT = TypeVar("ResultT")


class BackgroundLoop:
    """An event loop on a thread of its own: started once, stopped once, callable from every other thread in between.

    Ctrl-C may end a caller between any two steps of the interpreter; the loop's thread takes none of the locks here.

    Args:
        defer: calls a function later, on a thread that may wait for locks of `logging`.
        last: called on the loop before it ends; a close that was given up may not have closed the producer.
    """

    # This is not anyio's blocking portal (4.16), with which these files of tests/blocking fail:
    # test_blocking_limits.py, since its `start_task_soon` waits without a limit for a loop that a callback blocks, and
    # callers wait for a loop that the user's code has ended;
    # test_blocking_interrupted.py, since later calls hang after Ctrl-C cancelled the task that hands records over;
    # test_blocking_start.py, under gevent, under eventlet, and with closed standard streams.

    def __init__(
        self, defer: Callable[[Callable[[], object]], object], *, last: Callable[[], Awaitable[object]]
    ) -> None:
        self._defer = defer
        self._last = last
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unclaimed: list[asyncio.AbstractEventLoop] = []
        """The loop, until its thread takes it, or `stop` does because the thread never began; `pop` is atomic."""
        self._end = asyncio.Event()
        self._thread: threading.Thread | None = None
        self._lock = RealRLock()  # of the callers only; reentrant, since a signal handler may be a caller too
        self._thread_id = 0
        self._process_id = 0
        self._is_launched = False
        self._is_stopped = False
        self._has_ended = False
        self._unanswered: dict[Callable[[], bool], None] = {}  # cancels each call that has no result yet
        self._rests = False  # between calls
        self._is_resting = False
        self._gates: list[_thread.LockType] = []  # opened as it begins to rest
        self._called = allocate_lock()  # released by each call, for the thread that rests; no caller waits for it

    @property
    def is_running(self) -> bool:
        """Whether it was started, in this process, and not stopped."""
        is_launched = self._is_launched or not self._unclaimed  # neither, when Ctrl-C came before the thread
        return self._loop is not None and is_launched and not self._is_stopped and self._process_id == os.getpid()

    @property
    def has_ended(self) -> bool:
        """Whether no thread of it runs, nor will."""
        return self._loop is None or self._has_ended

    def mark_forked(self) -> None:
        """Take a new lock: this process is a fork, and a thread of the parent may hold the old one."""
        self._lock = RealRLock()

    @property
    def is_current_thread(self) -> bool:
        return self._thread_id == thread_id()

    def start(self, job: Callable[[], Coroutine[object, object, None]]) -> None:
        """Start the thread, and a job that runs until the end; a second call does nothing."""
        locked(self._lock, self._start_thread, job)

    def _start_thread(self, job: Callable[[], Coroutine[object, object, None]]) -> None:
        if self._loop is not None or self._is_stopped:
            return
        loop = _new_loop()
        if are_patched():
            loop.set_default_executor(thread_pool(1, "aioproducer-job"))
        loop.set_exception_handler(self._handle_exception)
        self._process_id = os.getpid()
        self._unclaimed.append(loop)
        self._loop = loop
        try:
            self._thread = start_thread(partial(self._run, job), "aioproducer")
        except RuntimeError:
            self._close_unclaimed()
            raise
        self._is_launched = True

    def _handle_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        self._defer(partial(loop.default_exception_handler, context))  # logs

    def _run(self, job: Callable[[], Coroutine[object, object, None]]) -> None:
        try:
            loop = self._unclaimed.pop()
        except IndexError:
            return  # stopped before it began
        self._thread_id = thread_id()
        try:
            # Debug mode is off regardless of the environment: it logs slow callbacks on this thread.
            with asyncio.Runner(debug=False, loop_factory=lambda: loop) as runner:
                try:
                    self._run_to_the_end(runner.get_loop(), job)
                finally:
                    self._is_stopped = True  # also if the user's code stopped the loop
        finally:
            # The loop never runs a call that was submitted as it ended. Such a call is either among these, or its
            # thread sees that the loop has ended.
            self._thread_id = 0  # the system may give the id to another thread
            self._is_stopped = self._has_ended = True
            for cancel in list(self._unanswered):
                cancel()

    def _run_to_the_end(
        self, loop: asyncio.AbstractEventLoop, job: Callable[[], Coroutine[object, object, None]]
    ) -> None:
        serving = loop.create_task(self._serve(job))
        while not serving.done():
            try:
                loop.run_until_complete(serving)
            except (SystemExit, KeyboardInterrupt) as error:  # of the user's code: no program ends by another thread's
                text = f"{type(error).__name__} on the thread of a BlockingProducer, which goes on"
                self._handle_exception(loop, {"message": text, "exception": error})

    async def _serve(self, job: Callable[[], Coroutine[object, object, None]]) -> None:
        working = asyncio.create_task(job(), name="aioproducer-handover")
        if not self._is_stopped:  # while it was starting
            await self._end.wait()
        with contextlib.suppress(KafkaError):
            await self._last()
        working.cancel()

    def stop(self) -> None:
        """End the job, the other tasks and the thread; waiting calls raise that the producer was closed.

        A thread that does not end within `GRACE_S` is left to end by itself: it is a daemon.
        """
        locked(self._lock, self._refuse_calls)
        if self._process_id != os.getpid() or self.is_current_thread or self._loop is None:
            return
        self._close_unclaimed()
        ended = self._register(CallFuture[None](self._loop, CallTimeout(0, TimeoutError), is_loop_thread=lambda: False))
        with contextlib.suppress(RuntimeError):  # it has ended already
            self._loop.call_soon_threadsafe(self._end.set)
        self._end_rest()
        with contextlib.suppress(TimeoutError):
            ended.wait(GRACE_S)
            if self._thread is not None:
                with contextlib.suppress(RuntimeError):  # never started: its launcher ran the loop
                    self._thread.join(GRACE_S)

    def rest(self) -> None:
        """Let the thread run the loop during calls only, from now on: the interpreter may end between them.

        The thread would still wait within uvloop after the end of the interpreter, take its lock for the next event,
        and crash. A thread that waits for a lock of Python's stays where it is.
        """
        self._rests = True
        if self._loop is None or self.is_current_thread:
            return
        gate = allocate_lock()
        gate.acquire()
        self._gates.append(gate)
        if not self._is_resting:  # else nothing opens it
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._rest)
                wait_for_lock(gate, GRACE_S)  # or the interpreter may end before the thread has left the loop

    def _rest(self) -> None:
        self._is_resting = True
        while self._gates:
            self._gates.pop().release()
        while not (self._unanswered or self._is_stopped):
            self._called.acquire()
        self._is_resting = False

    def _end_rest(self) -> None:
        with contextlib.suppress(RuntimeError):  # released already
            self._called.release()

    def _close_unclaimed(self) -> None:
        with contextlib.suppress(IndexError):
            loop = self._unclaimed.pop()
            self._is_stopped = self._has_ended = True
            loop.close()
            for cancel in list(self._unanswered):
                cancel()

    def _refuse_calls(self) -> None:
        self._is_stopped = True  # the end of the loop ends calls submitted before

    def call(self, function: Callable[[], Awaitable[ResultT]], timeout: CallTimeout) -> ResultT:
        """Call a coroutine function on the loop and wait for it; the limit holds while the loop does not run.

        Raises:
            IllegalStateError: not started, in a forked child, or on the loop's own thread.
            ProducerClosedError: stopped, before or meanwhile.
        """
        return wait_for(self.submit(function, timeout))

    def submit(self, function: Callable[[], Awaitable[ResultT]], timeout: CallTimeout) -> CallFuture[ResultT]:
        """Call a coroutine function on the loop; arguments and errors as `call`, its own by the future."""
        loop = self.check_caller()
        future = CallFuture[ResultT](loop, timeout, is_loop_thread=lambda: self.is_current_thread)
        locked(self._lock, self._hand_over, loop, function, future)
        return future

    def _hand_over(
        self, loop: asyncio.AbstractEventLoop, function: Callable[[], Awaitable[ResultT]], future: CallFuture[ResultT]
    ) -> None:
        if self._is_stopped:
            raise ProducerClosedError("the producer is closed: it takes no more records")
        self._register(future)
        with contextlib.suppress(RuntimeError):  # it has ended, from within
            call_on_loop(loop, function, future)
        self._end_rest()

    def _register(self, future: CallFuture[ResultT]) -> CallFuture[ResultT]:
        self._unanswered[future.cancel] = None
        future.add_done_callback(self._forget)
        if self._has_ended:
            future.cancel()
        return future

    def _forget(self, future: concurrent.futures.Future[ResultT]) -> None:
        self._unanswered.pop(future.cancel, None)
        if self._rests and not self._unanswered and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._rest)

    def check_caller(self) -> asyncio.AbstractEventLoop:
        """Return the loop, for a caller that may wait for it."""
        if self._process_id not in {0, os.getpid()}:
            raise IllegalStateError(
                "the producer was started before a fork: its thread and connections are the parent's; "
                "create a new producer in this process"
            )
        if self._loop is None and self._is_stopped:
            raise ProducerClosedError("the producer was closed; make a new one")
        if self._loop is None:
            raise IllegalStateError("the producer is not started: use `with BlockingProducer(...)`, or call start()")
        if self.is_current_thread:
            raise IllegalStateError("a callback runs on the producer's own thread, where waiting for it would deadlock")
        return self._loop


def _new_loop() -> asyncio.AbstractEventLoop:
    """Make the event loop on the caller's thread: asyncio's own logs a line, and may take locks of `logging`."""
    uvloop = installed_uvloop()
    if uvloop is not None:
        return uvloop()
    thread = threading.get_ident()

    def is_of_another_thread(record: logging.LogRecord) -> bool:
        return record.thread != thread

    # "Using selector: ..." would return to a logging handler that starts a producer for its first line.
    asyncio_logger.addFilter(is_of_another_thread)
    try:
        return asyncio.new_event_loop()
    finally:
        asyncio_logger.removeFilter(is_of_another_thread)


MAX_EVENTS: Final = 1_000  # events queued behind a handler that blocks; further ones are counted and dropped
LONGEST_STOP_S: Final = 0.5  # how long closing waits for events to be emitted
LONGEST_DRAIN_S: Final = 3.0  # the same at the end of the process, when the machine may be busy


class LogThread(LogMethods):
    """Log of events that never blocks its caller; emits in the order of the calls."""

    def __init__(self, client_id: Callable[[], str]) -> None:
        self._client_id = client_id
        self._events: SimpleQueue[Emit | None] = SimpleQueue()
        self._dropped = 0  # written by the event loop's thread only
        self._reported_dropped = 0  # written by this log's thread only
        self._has_ended = allocate_lock()
        self._thread: threading.Thread | None = None
        self._is_running = False

    def start(self) -> None:
        """Start the thread; a second call does nothing."""
        if self._is_running:
            return
        self._has_ended = allocate_lock()
        self._has_ended.acquire()
        self._thread = start_thread(partial(self._run, self._client_id()), "aioproducer-log")
        self._is_running = True

    def stop(self) -> None:
        """Emit queued events and end the thread.

        The wait for a handler that blocks is limited to `LONGEST_STOP_S`, since the caller may hold its lock. The
        thread ends when the handler returns.
        """
        self._events.put(None)  # also if Ctrl-C came between the start of the thread and `_is_running`
        if self._is_running and wait_for_lock(self._has_ended, LONGEST_STOP_S):
            self._has_ended.release()
            if self._thread is not None:
                with contextlib.suppress(RuntimeError):  # never started: its launcher ran the log
                    self._thread.join(LONGEST_STOP_S)
        self._is_running = False

    def drain(self) -> None:
        """Wait until queued events were emitted, for at most `LONGEST_DRAIN_S`."""
        if self._is_running:
            drained = allocate_lock()
            drained.acquire()
            self._events.put(lambda _log: drained.release())
            wait_for_lock(drained, LONGEST_DRAIN_S)

    def call(self, function: Callable[[], object]) -> None:
        self._queue(lambda _log: function())

    def _write(self, level: str, event: str, values: dict[str, object]) -> None:
        self._queue(lambda log: getattr(log, level)(event, **values))

    def _queue(self, emit: Emit) -> None:
        if self._events.qsize() >= MAX_EVENTS:
            self._dropped += 1
            return
        context = contextvars.copy_context()  # structlog's context variables
        self._events.put(lambda log: context.run(emit, log))

    def mark_forked(self) -> None:
        """Forget the thread: this process is a fork, and the thread is the parent's."""
        self._is_running = False

    def _run(self, client_id: str) -> None:
        try:
            # Here and not in `start`, whose caller may hold a lock of `logging` that `event_log` takes.
            log = event_log(client_id)
            while (emit := self._events.get()) is not None:
                self._emit(emit, log)
                self._emit(self._report_dropped, log)
        finally:
            self._has_ended.release()

    def _emit(self, emit: Emit, log: EventLog) -> None:
        try:
            emit(log)
        except BaseException as error:  # noqa: BLE001  # of the application's handler: later events are still emitted
            report_unraisable(error, self)

    def _report_dropped(self, log: EventLog) -> None:
        new = self._dropped - self._reported_dropped
        if new:
            self._reported_dropped += new
            log.warning("events_dropped", count=new)
