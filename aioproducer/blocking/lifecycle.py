"""Start and end of a `BlockingProducer`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
import warnings
import weakref
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final, NoReturn, Self, TypeVar

from aioproducer._logs import event_log
from aioproducer._native.locked import locked
from aioproducer._producer.names_elsewhere import explain_keyword
from aioproducer._producer.process_end import (
    at_process_end,
    count_undelivered,
    end_began_at,
    in_words,
    note_undelivered,
    refuse_at_the_end,
    report_loss,
)
from aioproducer._producer.producer_state import CLOSE_AFTER_ERROR_S, check_timeout
from aioproducer._threads.calls import ADVICE, GRACE_S, CallFuture, CallTimeout, delivery_timeout, metadata_timeout
from aioproducer._threads.installed_uvloop import load_uvloop
from aioproducer._threads.real_threads import RealRLock, allocate_lock, are_patched, start_thread, wait_for_lock
from aioproducer.blocking._background_threads import BackgroundLoop, LogThread
from aioproducer.blocking._handoff_queue import Barrier, HandoffQueue
from aioproducer.errors import (
    DeliveryTimeoutError,
    KafkaError,
    MetadataTimeoutError,
    NoTransactionError,
    Outcome,
    ProducerClosedError,
    UndeliveredError,
)

if TYPE_CHECKING:
    import _thread
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from aioproducer._logs import EventLog
    from aioproducer._producer.arguments import CallDeadline
    from aioproducer._producer.producer import Producer
    from aioproducer.config import ProducerConfig

ResultT = TypeVar("ResultT")

SHORTEST_TURN_S: Final = 0.05
"""The shortest wait of a `flush` for the records queued before it: the call takes time to reach the loop's thread, even
if the queue is empty."""

GREENLET_POLL_S: Final = 0.005  # between two looks of a greenlet that waits for another one's start

_ALIVE: Final[weakref.WeakSet[BlockingLifecycle]] = weakref.WeakSet()

_OF_PARENTS: Final[list[object]] = []
"""Parts of a start that a thread of the parent process has begun; kept, since their sockets are the parent's."""

_CLOSING: Final[dict[_thread.LockType, BlockingLifecycle]] = {}
"""Dropped producers that are being closed, each with a lock that is held until then."""


class FirstUse:
    """A first call that starts the producer; while `is_pending` it must be undone before the next one.

    The loop's thread holds it instead of the `BlockingProducer`, which could not be dropped otherwise.
    """

    __slots__ = ("is_pending",)

    def __init__(self) -> None:
        self.is_pending: bool = False


async def _close_on_loop(producer: Producer, first_use: FirstUse) -> None:
    if first_use.is_pending:
        await producer._withdraw_start()  # noqa: SLF001  # of this package
    else:
        await producer.close(0)


class BlockingLifecycle:
    """Base class of `BlockingProducer`: start, close, and calls on the background loop.

    Args:
        producer: the one that is to run on the background loop.
        made_at: file and line of the user's code that made it.
    """

    def __init__(self, producer: Producer, *, made_at: str) -> None:
        self._producer = producer
        self._config = producer.config
        self._max_block_s = self._config.max_block_ms / 1000
        self._topic_options = producer._topic_options  # noqa: SLF001  # of this package
        self._running = producer._take_over_report()  # noqa: SLF001  # of this package
        self._first_use = FirstUse()
        self._make_parts()
        load_uvloop()  # before a fork, in which another thread might be in the middle of its import
        self._made_at = made_at
        self._start_lock = RealRLock()  # reentrant, as that of the background loop
        self._start_gate = allocate_lock()  # instead of it, among greenlets of one thread
        self._is_started = False
        self._is_closed = False
        self._undelivered: UndeliveredError | None = None
        self._is_loss_reported = False  # or another thread reports it
        self._records_reported = 0
        _ALIVE.add(self)

    def _make_parts(self) -> None:
        """Make what one start uses up."""
        producer = self._producer
        self._log = LogThread(lambda: producer.statistics().client_id)
        producer._use_log(self._log)
        self._queue = HandoffQueue(
            self._max_block_s, abort_transaction=partial(_reject_commit, producer), log=self._log
        )
        self._background = BackgroundLoop(self._log.call, last=partial(_close_on_loop, producer, self._first_use))

    @property
    def _longest_delivery_s(self) -> float:
        return self._topic_options.longest_delivery_timeout_ms / 1000

    def start(self, *, wait: bool = True) -> Self:
        """Start the background loop and connect; a second call does nothing.

        Without it, the first call that needs the loop does as `start(wait=False)`, in the process of that call: a
        producer that was made before a fork, and not used yet, may be used on both sides. If that fails, or is
        interrupted, the producer is not started, and the next call tries again.

        Args:
            wait: until a broker has answered, at most `max_block_ms`.

        Raises:
            MetadataTimeoutError: no broker answered; everything is cleaned up.
            OSError, RuntimeError: no more open files or threads are allowed; everything is cleaned up.
            ProducerClosedError: it was closed.
        """
        if self._first_use.is_pending:  # it has failed, or goes on
            self._one_at_a_time(self._undo_first_use)
        try:
            self._start(wait=wait)
        except BaseException:
            with contextlib.suppress(KafkaError):
                self.close(0)
            raise
        return self

    def _start(self, *, wait: bool) -> None:
        if self._is_closed:
            raise ProducerClosedError("the producer was closed; make a new one")
        self._producer._complete_ids()  # noqa: SLF001  # of this package; the log has the client id
        self._log.start()
        self._background.start(self._queue.run)
        self._background.call(partial(self._producer.start, wait=wait), metadata_timeout(self._max_block_s))
        self._is_started = True
        self._first_use.is_pending = False
        if end_began_at() is not None:
            self._background.rest()

    def _ensure_started(self) -> None:
        if not self._is_started:
            self._one_at_a_time(self._start_at_first_use)

    def _one_at_a_time(self, step: Callable[[], None]) -> None:
        if not are_patched():
            locked(self._start_lock, step)
            return
        deadline = monotonic() + self._max_block_s
        while not self._start_gate.acquire(blocking=False):
            if monotonic() > deadline:
                raise MetadataTimeoutError("another greenlet has not started the producer within max_block_ms")
            time.sleep(GREENLET_POLL_S)  # the patched one: it lets the other greenlet go on
        try:
            step()
        finally:
            self._start_gate.release()

    def _start_at_first_use(self) -> None:
        if self._is_started:  # by another thread meanwhile
            return
        self._undo_first_use()
        if not self._is_closed:
            self._first_use.is_pending = True
            self._producer._keep_hooks_open()  # noqa: SLF001  # of this package
        try:
            self._start(wait=False)
        except BaseException:
            with contextlib.suppress(KafkaError):
                self._undo_first_use()
            raise

    def _undo_first_use(self) -> None:
        """Be as before a first use that has failed, or was interrupted: nothing was accepted yet.

        Ctrl-C may interrupt this, too: the next call continues it.

        Raises:
            MetadataTimeoutError: its thread has not ended.
        """
        if not self._first_use.is_pending or self._is_started or self._is_closed:
            return
        self._stop()
        if not self._background.has_ended:
            raise MetadataTimeoutError(f"the thread of a first use that failed has not ended yet; {ADVICE}")
        self._begin_again()

    def _begin_again(self) -> None:
        self._producer._forget_start()  # noqa: SLF001  # of this package
        self._first_use = FirstUse()
        self._make_parts()

    def close(self, timeout: float | None = None) -> None:
        """Deliver accepted records, then close the connections and end the thread.

        A call during another thread's call joins it, and may shorten its time; a later one does nothing. Ctrl-C closes
        at once.

        Args:
            timeout: seconds for deliveries, after which the remaining records fail; None is `close_timeout_ms`, 0 fails
                them at once.

        Raises:
            UndeliveredError: records failed, and their failures were not reported yet.
            DeliveryTimeoutError: a callback, for example, blocks the background thread, which is left behind. It is the
                cause of an UndeliveredError if records may be lost.
            IllegalStateError: on the background thread.
        """
        check_timeout(timeout)
        is_running = self._background.is_running
        if is_running:
            self._background.check_caller()  # raises before anything is closed
        self._is_closed = True
        self._first_use.is_pending = False
        if is_running:
            self._close_running(self._config.close_timeout_ms / 1000 if timeout is None else timeout)
        else:
            self._stop()

    def _stop(self) -> None:
        self._background.stop()
        self._log.stop()

    def _close_running(self, timeout_s: float) -> None:
        barrier = Barrier()
        try:
            self._queue.put_last(barrier, ProducerClosedError("the producer is closed: it takes no more records"))
            self._background.call(partial(self._close, barrier, timeout_s), CallTimeout(timeout_s, self._not_closed))
        except ProducerClosedError:  # by another thread's call, as this one was about to return
            if self._undelivered is not None:
                raise self._undelivered.fresh() from None
        except (UndeliveredError, DeliveryTimeoutError):
            raise
        except BaseException:  # Ctrl-C: connections are closed all the same
            with contextlib.suppress(KafkaError):
                self._background.call(partial(self._producer.close, 0), delivery_timeout(0))
            raise
        finally:
            self._stop()

    def _not_closed(self, text: str) -> KafkaError:
        """Return the error of a close that the event loop's thread does not run."""
        error = DeliveryTimeoutError(f"close: {text}", outcome=Outcome.UNKNOWN)
        statistics = self._producer.statistics()
        unfinished = statistics.records_pending + statistics.records_waiting + self._queue.records
        return UndeliveredError.of([error], count=unfinished) if unfinished else error

    async def _close(self, barrier: Barrier, timeout_s: float) -> None:
        deadline = asyncio.get_running_loop().time() + timeout_s
        undelivered: UndeliveredError | None = None
        with contextlib.suppress(TimeoutError):  # records wait for a full buffer: the close fails them
            async with asyncio.timeout_at(deadline):
                await barrier.reached.wait()
        try:
            await self._producer.close(max(deadline - asyncio.get_running_loop().time(), 0.0))
        except UndeliveredError as error:
            undelivered = error
        await barrier.reached.wait()
        failed = self._queue.take_errors(undelivered, outside_too=True)
        self._undelivered = self._undelivered or failed
        if self._undelivered is not None:
            raise self._undelivered.fresh()

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close. The body's own exception wins; records that were not delivered become its notes."""
        if error is None:
            self.close()
            return
        explain_keyword(error)
        try:
            self.close(min(CLOSE_AFTER_ERROR_S, self._config.close_timeout_ms / 1000))
        except KafkaError as failed:
            note_undelivered(error, failed, self._tell_undelivered)

    @property
    def config(self) -> ProducerConfig:
        """The configuration in effect."""
        return self._producer.config  # with ids that are complete once it has started

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied or pickled.

        Raises:
            TypeError: always: a copy would have the same thread, and end it.
        """
        raise TypeError(
            f"a {type(self).__name__} cannot be copied or pickled: make it in the process that uses it, for example at "
            "the top of a module"
        )

    def __del__(self) -> None:
        """Warn if it was not closed."""
        if getattr(self, "_background", None) is not None and not sys.is_finalizing():
            self._abandon()

    def _abandon(self) -> None:
        """Warn unless it was closed, and close it on another thread: a garbage collection must not wait."""
        if not self._background.is_running:
            return
        self._is_loss_reported = True  # by the thread started here
        closing = allocate_lock()
        closing.acquire()
        _CLOSING[closing] = self
        try:
            start_thread(partial(self._close_dropped, closing), "aioproducer-abandon")
        except RuntimeError:  # the interpreter exits, or the system has no more threads
            self._close_dropped(closing)
        self._warn("was dropped without close()")

    def _close_dropped(self, closing: _thread.LockType) -> None:
        try:
            self.close(self._exit_flush_s)
        except UndeliveredError as error:
            self._report_dropped(error.count)
        except KafkaError:
            pass  # the loop's thread is blocked, or runs this because no other thread could be started
        finally:
            _CLOSING.pop(closing, None)
            closing.release()

    def _report_dropped(self, records: int) -> None:
        if records > self._records_reported:
            self._records_reported = records
            self._report_loss(records, "", "was dropped without close()", log=self._log_of_end())

    def _end_dropped(self, closing: _thread.LockType) -> None:
        """Wait until a dropped producer is closed; if that takes too long, report what is lost with the process."""
        if not wait_for_lock(closing, self._exit_flush_s + GRACE_S):
            self._report_dropped(self._lost())

    def _report_loss(self, records: int, since: str, how: str, *, log: EventLog) -> None:
        in_time = f"within {self._exit_flush_s:g} s{since}"
        text = f"{in_words(records)} not delivered {in_time}: the BlockingProducer made at {self._made_at} {how}"
        report_loss(text, log, records=records, made_at=self._made_at, was_closed=False)

    def _tell_undelivered(self, records: int, how: str) -> None:
        text = f"{in_words(records)} not delivered: the BlockingProducer made at {self._made_at} {how}"
        report_loss(text, self._log_of_end(), records=records, made_at=self._made_at, was_closed=True)

    def _log_of_end(self) -> EventLog:
        return event_log(self._producer.statistics().client_id)  # the producer's own log has ended

    def _warn(self, how: str) -> None:
        text = f"BlockingProducer made at {self._made_at} {how}: records that were not delivered yet may be lost"
        warnings.warn(text, ResourceWarning, stacklevel=3, source=self)

    @property
    def _exit_flush_s(self) -> float:
        return self._config.exit_flush_timeout_ms / 1000

    def _begin_exit(self) -> CallFuture[None] | None:
        """Begin to deliver accepted records; exit hooks that run later may still close the producer."""
        if self._background.is_running and not self._is_closed and self._exit_flush_s:
            with contextlib.suppress(Exception):  # the producer has failed: `_end_exit` counts its records
                return self._in_turn(self._until_ended)
        return None

    async def _until_ended(self) -> None:
        """Wait until all records have ended; `close` raises their failures. Records of a transaction need a commit."""
        running = self._running()
        if running is not None and not running.is_shut and running.transactions is None:
            await running.flushes.wait_for(running.close_generation())

    def _end_exit(self, flush: CallFuture[None] | None, began_at: float) -> None:
        """Wait for deliveries for the rest of the time that began at `began_at`, and report lost records.

        The thread of the loop then works during calls only.
        """
        if not self._background.is_running:
            return
        if not self._is_loss_reported:
            self._deliver_or_report(flush, began_at)
        self._background.rest()

    def _deliver_or_report(self, flush: CallFuture[None] | None, began_at: float) -> None:
        # Deliver, but do not close: a hook of the application that runs later may call `close(timeout)` and needs its
        # errors.
        if flush is not None:
            with contextlib.suppress(TimeoutError, KeyboardInterrupt):
                flush.wait(max(began_at + self._exit_flush_s - monotonic(), 0.0))
            flush.cancel()  # or the thread would not rest
        if (lost := self._lost()) > self._records_reported:
            self._records_reported = lost
            how = "was not closed, which an exit hook that runs later may still do"
            self._report_loss(lost, " of the end of the process", how, log=self._log)
            self._log.drain()

    def _lost(self) -> int:
        """Return how many records are lost if the process ends now."""
        running = self._running()
        return self._queue.unreported + (0 if running is None else count_undelivered(running))

    def _check_time_left(self) -> None:
        """Refuse a record once the time for deliveries at the end of the process is over."""
        began_at = end_began_at()
        if began_at is not None and monotonic() >= began_at + self._exit_flush_s:
            refuse_at_the_end()

    def _deliver_at_the_end(self) -> None:
        """Deliver or report what was accepted after the exit hook has looked: nothing looks at it later."""
        began_at = end_began_at()
        if began_at is not None:
            self._end_exit(self._begin_exit(), began_at)

    def _warn_at_exit(self) -> None:
        if self._background.is_running and not self._is_loss_reported:
            self._log.drain()
            self._warn("was not closed when the program ended")

    def _mark_forked(self) -> None:
        """Replace locks that a thread of the parent may have held at the fork."""
        self._start_lock, self._start_gate = RealRLock(), allocate_lock()
        if self._first_use.is_pending and not self._is_started:  # by a thread of the parent, which goes on there
            _OF_PARENTS.append((self._background, self._queue, self._producer._forget_start()))  # noqa: SLF001  # as above
            self._begin_again()
            return
        self._background.mark_forked()
        self._log.mark_forked()

    def _in_turn(
        self,
        function: Callable[[], Awaitable[ResultT]],
        *,
        timeout_s: float | None = None,
        deadline: CallDeadline | None = None,
        call_timeout: CallTimeout | None = None,
    ) -> CallFuture[ResultT]:
        """Call a coroutine function once the producer has all records queued before.

        Args:
            function: called on the loop, in the caller's context.
            timeout_s: how long a flush waits for those records.
            deadline: of the record that waits for those records.
            call_timeout: of the caller's wait while the loop does not run; None is that of a record.

        Raises:
            ProducerClosedError: closing or closed.
        """
        barrier = Barrier()

        async def in_turn() -> ResultT:
            await _wait_for(barrier, timeout_s, deadline)
            return await function()

        self._check_open()
        self._ensure_started()
        future = self._background.submit(
            in_turn,
            delivery_timeout(self._max_block_s + self._longest_delivery_s) if call_timeout is None else call_timeout,
        )
        try:
            self._queue.put_barrier(barrier)
        except BaseException:
            future.cancel()  # Ctrl-C: the barrier may not be in the queue
            raise
        return future

    def _check_open(self) -> None:
        if self._is_closed:
            raise ProducerClosedError("the producer is closed: it takes no more records")


async def _wait_for(barrier: Barrier, flush_timeout_s: float | None, deadline: CallDeadline | None) -> None:
    timeout_s = None if flush_timeout_s is None else max(flush_timeout_s, SHORTEST_TURN_S)
    try:
        async with asyncio.timeout(timeout_s if deadline is None else max(deadline.left_s, 0.0)):
            await barrier.reached.wait()
    except TimeoutError:
        if deadline is not None:
            raise deadline.over() from None
        text = f"flush: records that were accepted before it still wait for their turn after {flush_timeout_s} s"
        raise TimeoutError(text) from None


def _reject_commit(producer: Producer, error: KafkaError) -> bool:
    """Make the open transaction abort; returns False if no transaction takes records."""
    if producer.config.transactional_id is None:
        return False
    try:
        producer._reject_commit(error)
    except NoTransactionError:
        return False
    except KafkaError:
        pass  # it must abort already, or the producer is closed or has failed
    return True


@at_process_end
def _flush_all() -> None:
    """Deliver remaining records, while the threads still run, for a limited time."""
    began_at = monotonic()
    flushes = [(producer, producer._begin_exit()) for producer in list(_ALIVE)]
    for producer, flush in flushes:
        producer._end_exit(flush, began_at)
        producer._warn_at_exit()  # noqa: SLF001  # of this module
    for closing, dropped in list(_CLOSING.items()):
        dropped._end_dropped(closing)  # noqa: SLF001  # of this module


def _after_fork() -> None:
    _CLOSING.clear()
    for producer in list(_ALIVE):
        producer._mark_forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
