"""One event loop on a thread of its own, for callers that have none: uvloop's where it is installed."""

from __future__ import annotations

import _thread
import asyncio
import concurrent.futures
import contextlib
import os
import threading
from functools import partial, wraps
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from aioproducer._native.locked import locked
from aioproducer.errors import IllegalStateError, ProducerClosedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

ResultT = TypeVar("ResultT")
AnswerT = TypeVar("AnswerT")
ArgumentsT = ParamSpec("ArgumentsT")

LONGEST_SLEEP_S: Final = 0.25
"""How long a thread that waits sleeps at a time. A signal that comes between the interpreter's look for signals and
the system call does not end the sleep, and Ctrl-C would be heard only when what is waited for comes."""


class BackgroundLoop:
    """Started once, stopped once; in between every other thread may call.

    Ctrl-C may end a caller between any two steps; the loop's thread takes none of the locks here.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.RLock()  # of the callers alone; a signal's handler may be one more of them
        self._is_ready = threading.Lock()
        self._thread_id = 0
        self._process_id = 0
        self._is_stopped = False
        self._has_ended = False
        self._unanswered: dict[Callable[[], bool], None] = {}
        """How to cancel each call that has no result yet."""

    @property
    def is_running(self) -> bool:
        """Whether it was started, in this process, and not stopped."""
        return self._loop is not None and not self._is_stopped and self._process_id == os.getpid()

    def mark_forked(self) -> None:
        """Take new locks: this process is a fork, and whoever holds the old ones is a thread of the parent's."""
        self._lock = threading.RLock()
        self._is_ready = threading.Lock()

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller runs on its thread."""
        return self._thread_id == threading.get_ident()

    def start(self, job: Callable[[], Coroutine[object, object, None]]) -> None:
        """Start the thread, and a job that runs until the end; a second call does nothing."""
        locked(self._lock, self._start_thread, job)
        locked(self._is_ready, _pass)  # again and again: whoever passes leaves it open

    def _start_thread(self, job: Callable[[], Coroutine[object, object, None]]) -> None:
        if self._thread is None:
            self._process_id = os.getpid()
            self._is_ready.acquire()  # released by the loop
            # A daemon: the interpreter's end, and a forked child's, must never wait for it.
            self._thread = threading.Thread(target=self._run, args=(job,), name="aioproducer", daemon=True)
            # `Thread.start` waits by a Condition, and Ctrl-C in that could leave the new thread locked: it meets
            # the main thread alone.
            _thread.start_new_thread(self._launch, (self._thread,))

    def _launch(self, thread: threading.Thread) -> None:
        try:
            thread.start()
        except RuntimeError:  # no more threads: callers find that it is not started
            self._is_ready.release()

    def _run(self, job: Callable[[], Coroutine[object, object, None]]) -> None:
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                try:
                    runner.run(self._serve(job))
                finally:
                    self._is_stopped = True  # also if the user's code ended it from within
        finally:
            # The loop never runs a call that was being handed over as it ended: it is either among these, or its
            # thread sees that the loop has ended.
            self._is_stopped = self._has_ended = True
            for cancel in list(self._unanswered):
                cancel()

    async def _serve(self, job: Callable[[], Coroutine[object, object, None]]) -> None:
        self._end = asyncio.Event()
        self._thread_id = threading.get_ident()
        self._loop = asyncio.get_running_loop()
        working = asyncio.create_task(job(), name="aioproducer-handover")
        self._is_ready.release()
        if not self._is_stopped:  # while it was starting
            await self._end.wait()
        working.cancel()

    def stop(self) -> None:
        """End the job and what else still runs, and the thread; those who wait are told that it was closed."""
        locked(self._lock, self._refuse_calls)
        if self._process_id != os.getpid() or self.is_current_thread:
            return
        if self._loop is not None and self._end is not None and self._thread is not None:
            with contextlib.suppress(RuntimeError):  # it has ended already
                self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()

    def _refuse_calls(self) -> None:
        self._is_stopped = True  # what was submitted before is ended by the loop's own end

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
        future: CallFuture[ResultT] = CallFuture()
        locked(self._lock, self._hand_over, loop, function, future)
        return future

    def _hand_over(
        self,
        loop: asyncio.AbstractEventLoop,
        function: Callable[[], Awaitable[ResultT]],
        future: CallFuture[ResultT],
    ) -> None:
        if self._is_stopped:
            raise ProducerClosedError("the producer is closed: it takes no more records")
        self._unanswered[future.cancel] = None
        future.add_done_callback(self._forget)
        with contextlib.suppress(RuntimeError):  # it has ended, from within
            loop.call_soon_threadsafe(_begin, loop, function, future)
        if self._has_ended:
            future.cancel()

    def _forget(self, future: concurrent.futures.Future[ResultT]) -> None:
        self._unanswered.pop(future.cancel, None)

    def check_caller(self) -> asyncio.AbstractEventLoop:
        """Return the loop, for a caller that may wait for it.

        Raises:
            IllegalStateError: as `call`.
            ProducerClosedError: closed before it was started.
        """
        if self._process_id not in {0, os.getpid()}:
            text = (
                "the producer was started before a fork: its thread and connections are the parent's; "
                "create a new producer in this process"
            )
            raise IllegalStateError(text)
        if self._loop is None and self._is_stopped:
            raise ProducerClosedError("the producer was closed; make a new one")
        if self._loop is None:
            text = "the producer is not started: use `with BlockingProducer(...)`, or call start()"
            raise IllegalStateError(text)
        if self.is_current_thread:
            text = "a callback runs on the producer's own thread, where waiting for it would deadlock"
            raise IllegalStateError(text)
        return self._loop


def _unlocked_if_cut_short(
    method: Callable[Concatenate[CallFuture[ResultT], ArgumentsT], AnswerT],
) -> Callable[Concatenate[CallFuture[ResultT], ArgumentsT], AnswerT]:
    """Let a method of the future unlock it when Ctrl-C has ended it between the steps of a `with`."""

    @wraps(method)
    def unlocked(future: CallFuture[ResultT], /, *args: ArgumentsT.args, **kwargs: ArgumentsT.kwargs) -> AnswerT:
        try:
            return method(future, *args, **kwargs)
        except BaseException:
            future.unlock()
            raise

    return unlocked


class CallFuture(concurrent.futures.Future[ResultT]):
    """What a call on the loop will return; Ctrl-C in a thread that waits for it never stops the loop.

    The loop's thread has a result to tell, and would wait for ever for a lock that such a thread has left locked.
    """

    def unlock(self) -> None:
        """Give back what this thread still holds of the lock, when none of its calls is inside it any more."""
        with contextlib.suppress(RuntimeError):  # it holds nothing
            while True:
                self._condition.release()

    add_done_callback = _unlocked_if_cut_short(concurrent.futures.Future.add_done_callback)
    cancel = _unlocked_if_cut_short(concurrent.futures.Future.cancel)
    cancelled = _unlocked_if_cut_short(concurrent.futures.Future.cancelled)
    done = _unlocked_if_cut_short(concurrent.futures.Future.done)
    exception = _unlocked_if_cut_short(concurrent.futures.Future.exception)
    result = _unlocked_if_cut_short(concurrent.futures.Future.result)
    running = _unlocked_if_cut_short(concurrent.futures.Future.running)


def wait_for(future: concurrent.futures.Future[ResultT]) -> ResultT:
    """Wait for what runs on the loop; a caller that is interrupted takes its call along.

    Raises:
        ProducerClosedError: the loop ended meanwhile.
    """
    gate = threading.Lock()
    gate.acquire()
    try:
        future.add_done_callback(lambda _: gate.release())
        while not gate.acquire(timeout=LONGEST_SLEEP_S):  # unlike `result`, raises nothing but KeyboardInterrupt
            pass
        return future.result()
    except concurrent.futures.CancelledError:
        raise ProducerClosedError("the producer was closed while this call waited") from None
    except BaseException:
        future.cancel()  # Ctrl-C: nobody waits any more
        raise


def _begin(
    loop: asyncio.AbstractEventLoop, function: Callable[[], Awaitable[ResultT]], future: CallFuture[ResultT]
) -> None:
    task = loop.create_task(_awaited(function))
    task.add_done_callback(partial(_tell, future))
    future.add_done_callback(partial(_cancel_too, loop, task))


def _tell(future: CallFuture[ResultT], task: asyncio.Task[ResultT]) -> None:
    if task.cancelled():
        future.cancel()
    error = None if task.cancelled() else task.exception()
    if not future.set_running_or_notify_cancel():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(task.result())


def _cancel_too(
    loop: asyncio.AbstractEventLoop, task: asyncio.Task[ResultT], future: concurrent.futures.Future[ResultT]
) -> None:
    if future.cancelled() and not loop.is_closed():
        loop.call_soon_threadsafe(task.cancel)


async def _awaited(function: Callable[[], Awaitable[ResultT]]) -> ResultT:
    return await function()


def _pass() -> None:
    """Do nothing: the lock is what is waited for."""


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415  # only who uses it pays for it
    except ImportError:
        return None
    return uvloop.new_event_loop
