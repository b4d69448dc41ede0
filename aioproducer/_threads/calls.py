"""Calls from other threads to an event loop's, and their limits.

A thread that waits for a loop's may hold what the loop's thread needs: a lock of `logging`, or the user's own. So each
wait has a limit that does not depend on the loop: past it the caller asks whether the loop still runs. One that does
ends its calls by its own limits; for one that does not the call fails.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import time
from functools import partial, wraps
from typing import TYPE_CHECKING, Concatenate, Final, NamedTuple, ParamSpec, TypeVar

from aioproducer._threads.real_threads import RealFuture, allocate_lock, wait_for_lock
from aioproducer.errors import (
    DeliveryTimeoutError,
    IllegalStateError,
    MetadataTimeoutError,
    Outcome,
    ProducerClosedError,
    TransactionTimeoutError,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

ResultT = TypeVar("ResultT")
AnswerT = TypeVar("AnswerT")
ArgumentsT = ParamSpec("ArgumentsT")

LONGEST_SLEEP_S: Final = 0.25
"""How long a thread that waits sleeps at a time. A signal that comes between the interpreter's look for signals and
the system call does not end the sleep, and Ctrl-C would be heard only when what is waited for comes."""

GRACE_S: Final = 1.0
"""How long a loop may take to run a callback, before a call that is past its limit fails."""

ADVICE: Final = (
    "the event loop's thread does not answer: a callback, serializer or interceptor blocks it, or it waits for a lock "
    "that this thread holds"
)


class Limit(NamedTuple):
    """How long a call waits for a loop that does not run.

    Args:
        seconds: the call's documented limit.
        error: makes the error from its message.
    """

    seconds: float
    error: Callable[[str], Exception]

    def exceeded(self) -> Exception:
        """Return the error of a call whose limit has passed while the loop does not run."""
        return self.error(f"no result within {self.seconds:g} s, and {ADVICE}")


def metadata_limit(seconds: float) -> Limit:
    """Return the limit of a call that waits for the cluster or a topic."""
    return Limit(seconds, MetadataTimeoutError)


def delivery_limit(seconds: float) -> Limit:
    """Return the limit of a call that waits for records."""
    return Limit(seconds, partial(DeliveryTimeoutError, outcome=Outcome.UNKNOWN))


def transaction_limit(seconds: float) -> Limit:
    """Return the limit of a call that waits for the transaction coordinator."""
    return Limit(seconds, partial(TransactionTimeoutError, outcome=Outcome.UNKNOWN))


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


class CallFuture(RealFuture[ResultT]):
    """Result of a call on an event loop; Ctrl-C in a thread that waits for it never stops the loop.

    The loop's thread has a result to set, and would wait for ever for a lock that such a thread has left locked.

    Args:
        loop: runs the call.
        limit: of waits without a timeout.
        is_loop_thread: whether the current thread is the loop's.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: Limit, *, is_loop_thread: Callable[[], bool]) -> None:
        super().__init__()
        self._loop = loop
        self._limit = limit
        self._is_loop_thread = is_loop_thread

    def unlock(self) -> None:
        """Give back what this thread still holds of the lock, when none of its calls is inside it any more."""
        with contextlib.suppress(RuntimeError):  # it holds nothing
            while True:
                self._condition.release()

    add_done_callback = _unlocked_if_cut_short(concurrent.futures.Future.add_done_callback)
    cancel = _unlocked_if_cut_short(concurrent.futures.Future.cancel)
    cancelled = _unlocked_if_cut_short(concurrent.futures.Future.cancelled)
    done = _unlocked_if_cut_short(concurrent.futures.Future.done)
    running = _unlocked_if_cut_short(concurrent.futures.Future.running)
    _take_result = _unlocked_if_cut_short(concurrent.futures.Future.result)
    _take_exception = _unlocked_if_cut_short(concurrent.futures.Future.exception)

    def result(self, timeout: float | None = None) -> ResultT:
        """Return what the call returns, or raise what it raises.

        Args:
            timeout: seconds to wait; None waits as long as the call's own limits last.

        Raises:
            TimeoutError: not done in time.
            CancelledError: it was cancelled, or the producer was closed.
            DeliveryTimeoutError: the call's limits have passed, and its event loop does not run.
            IllegalStateError: not done, on the event loop's own thread, where waiting would be a deadlock.
        """
        self.wait(timeout)
        return self._take_result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what the call raises, or None; arguments and errors as `result`."""
        self.wait(timeout)
        return self._take_exception(0)

    def wait(self, timeout: float | None = None) -> None:
        """Return once it is done; arguments as `result`.

        Raises:
            TimeoutError: as `result`, and so with the rest.
            IllegalStateError: on the event loop's own thread.
            KafkaError: the call's limits have passed, and its event loop does not run.
        """
        if self.done():
            return
        if self._is_loop_thread():
            text = "this is the event loop's own thread, where waiting would be a deadlock: await, or use on_delivery"
            raise IllegalStateError(text)
        gate = allocate_lock()
        gate.acquire()
        self.add_done_callback(lambda _: gate.release())
        deadline = time.monotonic() + (self._limit.seconds if timeout is None else timeout)
        while not wait_for_lock(gate, max(min(LONGEST_SLEEP_S, deadline - time.monotonic()), 0.0)):
            if time.monotonic() < deadline:
                continue
            if timeout is not None:
                raise TimeoutError
            if not loop_answers(self._loop) and not self.done():
                raise self._limit.exceeded()
            deadline = time.monotonic() + GRACE_S  # it runs: the call's own limits end it


def loop_answers(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether a loop runs a callback within `GRACE_S`."""
    gate = allocate_lock()
    gate.acquire()
    with contextlib.suppress(RuntimeError):  # closed: its calls have ended
        loop.call_soon_threadsafe(gate.release)
        deadline = time.monotonic() + GRACE_S
        while (left_s := deadline - time.monotonic()) > 0:
            if wait_for_lock(gate, min(left_s, LONGEST_SLEEP_S)):
                return True
    return False


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
        future.cancel()  # Ctrl-C, or the limit: nobody waits any more
        raise


def call_on_loop(
    loop: asyncio.AbstractEventLoop, function: Callable[[], Awaitable[ResultT]], future: CallFuture[ResultT]
) -> None:
    """Call a coroutine function on a loop, in the caller's context.

    Raises:
        RuntimeError: the loop is closed.
    """
    loop.call_soon_threadsafe(_begin, loop, function, future)


def _begin(
    loop: asyncio.AbstractEventLoop, function: Callable[[], Awaitable[ResultT]], future: CallFuture[ResultT]
) -> None:
    if future.cancelled():
        return  # its caller has given up meanwhile
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
