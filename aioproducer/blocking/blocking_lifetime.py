"""Start and end of a `BlockingProducer`: what it is apart from its verbs."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import sys
import warnings
import weakref
from functools import partial
from typing import TYPE_CHECKING, Final, Self, TypeVar

from aioproducer.blocking.background_loop import BackgroundLoop
from aioproducer.blocking.handover import Handover, Mark
from aioproducer.blocking.log_thread import LogThread
from aioproducer.errors import (
    DeliveryTimeoutError,
    KafkaError,
    NoTransactionError,
    Outcome,
    ProducerClosedError,
    UndeliveredError,
)
from aioproducer.lifecycle import check_timeout
from aioproducer.lifetime import CLOSE_AFTER_ERROR_S
from aioproducer.thread_calls import Limit, delivery_limit, metadata_limit

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from aioproducer.config import ProducerConfig
    from aioproducer.producer import Producer

ResultT = TypeVar("ResultT")

SHORTEST_TURN_S: Final = 0.05
"""How long a call may wait for its turn although it was given less: with nothing before it, it still has to come from
its thread to the loop's."""

_ALIVE: Final[weakref.WeakSet[BlockingLifetime]] = weakref.WeakSet()


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
        self._background = BackgroundLoop(self._log.call, last=partial(producer.close, 0))
        self._made_at = made_at
        self._is_closed = False
        self._undelivered: UndeliveredError | None = None
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
        mark = Mark()
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

    async def _close(self, mark: Mark, timeout_s: float) -> None:
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
        """Warn unless it was closed, and let everything go at once: nobody will ever close it."""
        if not self._background.is_running or self._background.is_current_thread:
            return
        warnings.warn(
            f"BlockingProducer made at {self._made_at} was dropped without close(): records that were not delivered "
            "yet are lost",
            ResourceWarning,
            stacklevel=2,
            source=self,
        )
        with contextlib.suppress(KafkaError):
            self.close(0)

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
    ) -> concurrent.futures.Future[ResultT]:
        """Call a coroutine function when all that was queued before was given to the producer.

        Args:
            function: is called on the loop, in the caller's context.
            timeout_s: how long it may wait for that.
            limit: of the caller's wait, if the loop does not run; None is that of a record.

        Raises:
            ProducerClosedError: closing or closed.
        """
        mark = Mark()

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
    async def _wait_for_turn(mark: Mark, timeout_s: float | None) -> None:
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


@atexit.register
def _abandon_all() -> None:
    """Warn, and close the connections, while the threads still run."""
    for producer in list(_ALIVE):
        producer.abandon()


def _after_fork() -> None:
    for producer in list(_ALIVE):
        producer.mark_forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
