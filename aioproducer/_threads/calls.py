"""Calls from other threads to an event loop's, their limits, and blocking work that a loop leaves to a thread.

A thread that waits for the loop's thread may hold a lock that it needs: of `logging`, or the user's own. So each wait
has a limit that does not depend on the loop. After it, the caller checks whether the loop still runs: if so, the loop
ends the call by its own limits; if not, the call fails.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import time
from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Concatenate, Final, NamedTuple, ParamSpec, TypeVar

from aioproducer._threads.real_threads import RealFuture, allocate_lock, start_thread, wait_for_lock
from aioproducer.errors import (
    DeliveryTimeoutError,
    IllegalStateError,
    MetadataTimeoutError,
    Outcome,
    ProducerClosedError,
    TransactionTimeoutError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

ResultT = TypeVar("ResultT")
AnswerT = TypeVar("AnswerT")
ErrorT = TypeVar("ErrorT", bound=Exception)
ArgumentsT = ParamSpec("ArgumentsT")

LONGEST_SLEEP_S: Final = 0.25
"""The longest sleep of a waiting thread. A signal that comes between the interpreter's check for signals and the system
call does not end the sleep, and Ctrl-C would have no effect until the wait ends."""

GRACE_S: Final = 1.0  # the time in which a loop must run a callback, or a call past its limit fails
ADVICE: Final = (
    "the event loop's thread does not answer: a callback, serializer or interceptor blocks it, or it waits for a lock "
    "that this thread holds"
)


class CallTimeout(NamedTuple):
    """The timeout of a call's wait for a loop that does not run."""

    seconds: float  # the call's documented timeout
    error: Callable[[str], Exception]  # makes the error from its message

    def exceeded(self) -> Exception:
        """Return the error of a call whose timeout has passed while the loop does not run."""
        return self.error(f"no result within {self.seconds:g} s, and {ADVICE}")


def metadata_timeout(seconds: float) -> CallTimeout:
    """Return the timeout of a call that waits for the cluster or a topic."""
    return CallTimeout(seconds, MetadataTimeoutError)


def delivery_timeout(seconds: float) -> CallTimeout:
    """Return the timeout of a call that waits for records."""
    return CallTimeout(seconds, partial(DeliveryTimeoutError, outcome=Outcome.UNKNOWN))


def transaction_timeout(seconds: float) -> CallTimeout:
    """Return the timeout of a call that waits for the transaction coordinator."""
    return CallTimeout(seconds, partial(TransactionTimeoutError, outcome=Outcome.UNKNOWN))


def _unlocked_if_cut_short(
    method: Callable[Concatenate[CallFuture[ResultT], ArgumentsT], AnswerT],
) -> Callable[Concatenate[CallFuture[ResultT], ArgumentsT], AnswerT]:
    """Wrap a method of the future: if Ctrl-C ends it within a `with`, it unlocks the future."""

    @wraps(method)
    def unlocked(future: CallFuture[ResultT], /, *args: ArgumentsT.args, **kwargs: ArgumentsT.kwargs) -> AnswerT:
        try:
            return method(future, *args, **kwargs)
        except BaseException:
            future.unlock()
            raise

    return unlocked


class CallFuture(RealFuture[ResultT]):
    """Result of a call on an event loop; Ctrl-C in a waiting thread never stops the loop.

    If such a thread left the future's lock locked, the loop's thread would wait for it forever to set the result. The
    timeout of the call is of waits without one.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, call_timeout: CallTimeout, *, is_loop_thread: Callable[[], bool]
    ) -> None:
        super().__init__()
        self._loop = loop
        self._call_timeout = call_timeout
        self._is_loop_thread = is_loop_thread

    def unlock(self) -> None:
        """Release the lock as often as this thread holds it."""
        with contextlib.suppress(RuntimeError):  # not held any more
            while True:
                self._condition.release()

    add_done_callback = _unlocked_if_cut_short(concurrent.futures.Future.add_done_callback)
    cancel = _unlocked_if_cut_short(concurrent.futures.Future.cancel)
    cancelled = _unlocked_if_cut_short(concurrent.futures.Future.cancelled)
    done = _unlocked_if_cut_short(concurrent.futures.Future.done)
    running = _unlocked_if_cut_short(concurrent.futures.Future.running)
    _wait_for_result = _unlocked_if_cut_short(concurrent.futures.Future.result)
    _wait_for_exception = _unlocked_if_cut_short(concurrent.futures.Future.exception)

    def result(self, timeout: float | None = None) -> ResultT:
        """Return the call's result, or raise its error.

        Args:
            timeout: seconds to wait; None waits until the call's own limits.

        Raises:
            TimeoutError: not done in time.
            CancelledError: it was cancelled, or the producer was closed.
            DeliveryTimeoutError: the call's limits have passed, and its event loop does not run.
            IllegalStateError: not done, on the event loop's own thread, where waiting would be a deadlock.
        """
        self.wait(timeout)
        return self._wait_for_result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the call's error, or None; arguments and errors as `result`."""
        self.wait(timeout)
        return self._wait_for_exception(0)

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the call is done; arguments as `result`.

        Raises:
            TimeoutError: not done in time.
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
        deadline = time.monotonic() + (self._call_timeout.seconds if timeout is None else timeout)
        while not wait_for_lock(gate, max(min(LONGEST_SLEEP_S, deadline - time.monotonic()), 0.0)):
            if time.monotonic() < deadline:
                continue
            if timeout is not None:
                raise TimeoutError
            if not loop_answers(self._loop) and not self.done():
                raise self._call_timeout.exceeded()
            deadline = time.monotonic() + GRACE_S  # the loop runs, and ends the call by its own limits


def loop_answers(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether a loop runs a callback within `GRACE_S`."""
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
    """Wait for a call on the loop; if the caller is interrupted, the call is cancelled.

    Raises:
        ProducerClosedError: the loop ended meanwhile.
    """
    try:
        return future.result()
    except concurrent.futures.CancelledError:
        raise ProducerClosedError("the producer was closed while this call waited") from None
    except BaseException:
        future.cancel()  # Ctrl-C, or the limit
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
        return  # its caller was interrupted meanwhile
    task = loop.create_task(_awaited(function))
    task.add_done_callback(partial(_pass_on_result, future))
    future.add_done_callback(partial(_cancel_too, loop, task))


def _pass_on_result(future: CallFuture[ResultT], task: asyncio.Task[ResultT]) -> None:
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


async def run_in_thread(work: Callable[[], ResultT], name: str) -> ResultT:
    """Return the result of `work`; if the caller is cancelled, the thread goes on and its result is dropped.

    Errors lose their frames: those may hold passwords and tokens, and error reports show local variables.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[ResultT] = loop.create_future()

    def run() -> None:
        settle: Callable[[], None]
        try:
            result = work()
        except Exception as error:  # noqa: BLE001  # raised by the future
            settle = partial(future.set_exception, without_frames(error))
        else:
            settle = partial(future.set_result, result)
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(_unless_done, future, settle)

    start_thread(run, name)
    return await future


def _unless_done(future: asyncio.Future[ResultT], settle: Callable[[], None]) -> None:
    if not future.done():
        settle()


def without_frames(error: ErrorT) -> ErrorT:
    """Return the error, without the frames of its tracebacks and of its causes'."""
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
    return error
