"""Start and end of a `BlockingProducer`: what it is apart from its verbs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import warnings
import weakref
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final, Self, TypeVar

from aioproducer._logs import event_log
from aioproducer._producer.process_end import at_process_end, count_undelivered, in_words, tell_not_closed
from aioproducer._producer.producer_state import CLOSE_AFTER_ERROR_S, check_timeout
from aioproducer._threads.calls import GRACE_S, CallFuture, Limit, delivery_limit, metadata_limit
from aioproducer._threads.real_threads import allocate_lock, start_thread, wait_for_lock
from aioproducer.blocking.background_loop import BackgroundLoop
from aioproducer.blocking.handoff_queue import Barrier, Handover
from aioproducer.blocking.log_thread import LogThread
from aioproducer.errors import (
    DeliveryTimeoutError,
    KafkaError,
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
    from aioproducer._producer.producer import Producer
    from aioproducer.config import ProducerConfig

ResultT = TypeVar("ResultT")

SHORTEST_TURN_S: Final = 0.05
"""How long a call may wait for its turn although it was given less: with nothing before it, it still has to come from
its thread to the loop's."""

_ALIVE: Final[weakref.WeakSet[BlockingLifetime]] = weakref.WeakSet()

_CLOSING: Final[dict[_thread.LockType, float]] = {}
"""Locks, held while a producer that was dropped unclosed is being closed, and for how many seconds it delivers."""


class BlockingLifetime:
    """What starts, runs in the background and closes; `BlockingProducer` adds what it does meanwhile.

    Args:
        producer: of the background loop; not started.
        made_at: where in the user's code it was made.
    """

    def __init__(self, producer: Producer, *, made_at: str) -> None:
        self._producer = producer
        self._config = producer.config
        self._log = LogThread(lambda: producer.statistics().client_id)
        producer.use_log(self._log)
        self._max_block_s = self._config.max_block_ms / 1000
        self._delivery_limit = delivery_limit(self._max_block_s + self._config.delivery_timeout_ms / 1000)
        self._handover = Handover(
            self._max_block_s,
            reject=partial(_reject_commit, producer),
            log=self._log,
        )
        self._running = producer._take_over_report()  # noqa: SLF001  # of this package
        self._background = BackgroundLoop(self._log.call, last=partial(producer.close, 0))
        self._made_at = made_at
        self._is_closed = False
        self._undelivered: UndeliveredError | None = None
        self._last_flush: CallFuture[None] | None = None
        self._is_loss_told = False
        _ALIVE.add(self)

    def start(self, *, wait: bool = True) -> Self:
        """Start the background loop and connect; a second call does nothing.

        Args:
            wait: until a broker has answered, at most `max_block_ms`.

        Raises:
            MetadataTimeoutError: no broker answered; everything is cleaned up.
            OSError, RuntimeError: no more open files or threads are allowed; everything is cleaned up.
            ProducerClosedError: it was closed.
        """
        if self._is_closed:
            raise ProducerClosedError("the producer was closed; make a new one")
        try:
            self._log.start()
            self._background.start(self._handover.run)
            self._background.call(partial(self._producer.start, wait=wait), metadata_limit(self._max_block_s))
        except BaseException:
            with contextlib.suppress(KafkaError):
                self.close(0)
            raise
        return self

    def close(self, timeout: float | None = None) -> None:
        """Deliver what was accepted, then let everything go, the thread too.

        A call while another thread's runs joins it, and may shorten its time; a later one does nothing. Ctrl-C lets
        everything go at once.

        Args:
            timeout: seconds for delivering, then what is left fails; None is `close_timeout_ms`, 0 fails it at once.

        Raises:
            UndeliveredError: records failed, and nobody had been told.
            DeliveryTimeoutError: the background thread is blocked, by a callback for example; it is left behind. As
                the cause of an UndeliveredError where records may be lost.
            IllegalStateError: on the background thread.
        """
        check_timeout(timeout)
        is_running = self._background.is_running
        if is_running:
            self._background.check_caller()  # who may not close leaves it open
        self._is_closed = True
        if is_running:
            self._close_running(self._config.close_timeout_ms / 1000 if timeout is None else timeout)
        else:
            self._stop()

    def _stop(self) -> None:
        self._background.stop()
        self._log.stop()

    def _close_running(self, timeout_s: float) -> None:
        mark = Barrier()
        try:
            self._handover.put_last(mark, ProducerClosedError("the producer is closed: it takes no more records"))
            self._background.call(partial(self._close, mark, timeout_s), Limit(timeout_s, self._not_closed))
        except ProducerClosedError:  # by another thread's call, as this one was about to return
            if self._undelivered is not None:
                raise self._undelivered.fresh() from None
        except (UndeliveredError, DeliveryTimeoutError):
            raise
        except BaseException:  # Ctrl-C: connections are closed even so
            with contextlib.suppress(KafkaError):
                self._background.call(partial(self._producer.close, 0), delivery_limit(0))
            raise
        finally:
            self._stop()

    def _not_closed(self, text: str) -> KafkaError:
        """Return the error of a close that the event loop's thread does not run."""
        error = DeliveryTimeoutError(f"close: {text}", outcome=Outcome.UNKNOWN)
        statistics = self._producer.statistics()
        unfinished = statistics.records_pending + statistics.records_waiting + self._handover.records
        return UndeliveredError.of([error], count=unfinished) if unfinished else error

    async def _close(self, mark: Barrier, timeout_s: float) -> None:
        deadline = asyncio.get_running_loop().time() + timeout_s
        undelivered: UndeliveredError | None = None
        with contextlib.suppress(TimeoutError):  # stuck behind a full buffer: closing fails what is left
            async with asyncio.timeout_at(deadline):
                await mark.turn.wait()
        try:
            await self._producer.close(max(deadline - asyncio.get_running_loop().time(), 0.0))
        except UndeliveredError as error:
            undelivered = error
        await mark.turn.wait()
        failed = self._handover.take_errors(undelivered, outside_too=True)
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
        try:
            self.close(min(CLOSE_AFTER_ERROR_S, self._config.close_timeout_ms / 1000))
        except KafkaError as failed:
            error.add_note(f"aioproducer: {failed}")

    @property
    def config(self) -> ProducerConfig:
        """The configuration in effect."""
        return self._config

    def __del__(self) -> None:
        """Warn when it was dropped without being closed."""
        if getattr(self, "_background", None) is not None and not sys.is_finalizing():
            self.abandon()

    def abandon(self) -> None:
        """Warn unless it was closed, and close it on a thread of its own: a garbage collection must not wait."""
        if not self._background.is_running:
            return
        self._is_loss_told = True  # by that thread
        closing = allocate_lock()
        closing.acquire()
        _CLOSING[closing] = self._exit_flush_s
        try:
            start_thread(partial(self._close_dropped, closing), "aioproducer-abandon")
        except RuntimeError:  # the interpreter exits, or the system has no more threads
            self._close_dropped(closing)
        self._warn("was dropped without close()")

    def _close_dropped(self, closing: _thread.LockType) -> None:
        try:
            self.close(self._exit_flush_s)
        except UndeliveredError as error:
            log = event_log(self._producer.statistics().client_id)  # the producer's own has ended
            self._tell_loss(error.count, "", "was dropped without close()", log=log)
        except KafkaError:
            pass  # the loop's thread is blocked; or this is that thread, and no other could be started
        finally:
            _CLOSING.pop(closing, None)
            closing.release()

    def _tell_loss(self, records: int, since: str, how: str, *, log: EventLog) -> None:
        in_time = f"within {self._exit_flush_s:g} s{since}"
        text = f"{in_words(records)} not delivered {in_time}: the BlockingProducer made at {self._made_at} {how}"
        tell_not_closed(text, log, records=records, made_at=self._made_at)

    def _warn(self, how: str) -> None:
        text = f"BlockingProducer made at {self._made_at} {how}: records that were not delivered yet may be lost"
        warnings.warn(text, ResourceWarning, stacklevel=3, source=self)

    @property
    def _exit_flush_s(self) -> float:
        return self._config.exit_flush_timeout_ms / 1000

    def begin_exit(self) -> None:
        """Begin to deliver what was accepted; it can still be closed, by exit hooks that run later."""
        if self._background.is_running and not self._is_closed and self._exit_flush_s:
            with contextlib.suppress(Exception):  # the producer has failed: what is left is counted
                self._last_flush = self._in_turn(self._until_ended)

    async def _until_ended(self) -> None:
        """Wait until all records have ended, and leave their failures to `close`. Without a commit none counts."""
        running = self._running()
        if running is not None and not running.is_shut and running.transactions is None:
            await running.flushes.wait_for(running.close_generation())

    def end_exit(self, began_at: float) -> None:
        """Wait for the rest of the time that began at `began_at`, and report what was not delivered."""
        if not self._background.is_running or self._is_loss_told:
            return
        # Deliver, but do not close: a hook of the application that runs later may call `close(timeout)` and needs its
        # errors.
        if self._last_flush is not None:
            with contextlib.suppress(TimeoutError, KeyboardInterrupt):
                self._last_flush.wait(max(began_at + self._exit_flush_s - monotonic(), 0.0))
        running = self._running()
        lost = self._handover.untold + (0 if running is None else count_undelivered(running))
        if lost:
            self._is_loss_told = True
            how = "was not closed, which an exit hook that runs later may still do"
            self._tell_loss(lost, " of the end of the process", how, log=self._log)
        self._log.drain()
        self._warn("was not closed when the program ended")

    def mark_forked(self) -> None:
        """Hold no lock that another thread of the parent held when this process was made from it."""
        self._background.mark_forked()
        self._log.mark_forked()

    def _in_turn(
        self,
        function: Callable[[], Awaitable[ResultT]],
        *,
        timeout_s: float | None = None,
        limit: Limit | None = None,
    ) -> CallFuture[ResultT]:
        """Call a coroutine function when all that was queued before was given to the producer.

        Args:
            function: is called on the loop, in the caller's context.
            timeout_s: how long it may wait for that.
            limit: of the caller's wait, if the loop does not run; None is that of a record.

        Raises:
            ProducerClosedError: closing or closed.
        """
        mark = Barrier()

        async def in_turn() -> ResultT:
            await self._wait_for_turn(mark, timeout_s)
            return await function()

        self._check_open()
        future = self._background.submit(in_turn, self._delivery_limit if limit is None else limit)
        try:
            self._handover.put_mark(mark)
        except BaseException:
            future.cancel()  # Ctrl-C: its turn may never come
            raise
        return future

    @staticmethod
    async def _wait_for_turn(mark: Barrier, timeout_s: float | None) -> None:
        try:
            async with asyncio.timeout(None if timeout_s is None else max(timeout_s, SHORTEST_TURN_S)):
                await mark.turn.wait()
        except TimeoutError:
            text = f"flush: records that were accepted before it still wait for their turn after {timeout_s} s"
            raise TimeoutError(text) from None

    def _check_open(self) -> None:
        """Refuse what comes too late.

        Raises:
            ProducerClosedError: closing or closed.
        """
        if self._is_closed:
            raise ProducerClosedError("the producer is closed: it takes no more records")


def _reject_commit(producer: Producer, error: KafkaError) -> bool:
    """Let the open transaction be one that must be aborted; False: none takes records."""
    if producer.config.transactional_id is None:
        return False
    try:
        producer.reject_commit(error)
    except NoTransactionError:
        return False
    except KafkaError:
        pass  # it must be already, or the producer is closed or has failed
    return True


@at_process_end
def _flush_all() -> None:
    """Deliver what is left, while the threads still run, for a bounded time."""
    began_at = monotonic()
    left_open = list(_ALIVE)
    for producer in left_open:
        producer.begin_exit()
    for producer in left_open:
        producer.end_exit(began_at)
    for closing, timeout_s in list(_CLOSING.items()):
        wait_for_lock(closing, timeout_s + GRACE_S)


def _after_fork() -> None:
    _CLOSING.clear()
    for producer in list(_ALIVE):
        producer.mark_forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
