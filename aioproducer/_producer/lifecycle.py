"""Start and close of a producer.

A producer belongs to the event loop that starts it. A failed or cancelled start leaves nothing behind; a close can be
cancelled, joined and repeated; a producer that is dropped without a close warns; after a fork, every call in the child
raises.
"""

from __future__ import annotations

import asyncio
import os
import sys
import warnings
import weakref
from functools import partial
from random import Random
from typing import TYPE_CHECKING, ClassVar, Final, Self

from aioproducer._logs import event_log
from aioproducer._producer.names_elsewhere import explain_keyword
from aioproducer._producer.needed_modules import load_parts
from aioproducer._producer.process_end import (
    at_process_end,
    count_undelivered,
    in_words,
    note_undelivered,
    report_loss,
    watch_process,
)
from aioproducer._producer.producer_state import CLOSE_AFTER_ERROR_S, ProducerState, ProducerStateMachine, check_timeout
from aioproducer._producer.record_hooks import UsedSerializers
from aioproducer._producer.topic_options import OptionsByTopic
from aioproducer._producer.waiting_calls import unfinished_text
from aioproducer.config._process_ids import for_this_process
from aioproducer.errors import IllegalStateError, KafkaError, ProducerClosedError, UndeliveredError
from aioproducer.interceptors import InterceptorChain
from aioproducer.records import check_topic_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from aioproducer._logs import EventLog
    from aioproducer._producer.metrics_push import MetricsPush
    from aioproducer._producer.runtime import ProducerRuntime
    from aioproducer._producer.wiring import PartClasses
    from aioproducer.config import ProducerConfig

_ALIVE: Final[weakref.WeakSet[LifecycleMethods]] = weakref.WeakSet()


class LifecycleMethods:
    """Base class of `Producer`: start, flush and close; `made_at` is a file and line of the user's code."""

    _dropped_as: ClassVar = "producer"  # name in the warning about a producer that was dropped without a close

    def __init__(self, config: ProducerConfig, *, made_at: str) -> None:
        self._config = self._made_with = config
        self._topic_options = OptionsByTopic(config)
        self._serializers = UsedSerializers(config)
        self._lifecycle = ProducerStateMachine(config.name_client())
        self._running: ProducerRuntime | None = None
        self._starting: asyncio.Task[None] | None = None
        self._starters = 0
        self._is_handed_out = False  # some `start` has returned
        self._keeps_hooks = False  # a start that fails leaves interceptors and serializers open
        self._closing: asyncio.Task[UndeliveredError | None] | None = None
        self._is_close_reported = False
        self._random = Random()  # noqa: S311  # jitter and partition choice, not secrets
        self._wall_clock: Callable[[], int] | None = None
        self._log: EventLog | None = None
        self._made_at = made_at
        self._is_loss_reported = False  # or its owner reports it
        self._handed_over: dict[object, None] = {}  # calls of other threads that the loop has not begun
        load_parts(config)
        _ALIVE.add(self)

    def _use_sources(self, *, random: Random, wall_clock: Callable[[], int]) -> Self:
        """Replace the sources of randomness and of the time in ms; on a loop in virtual time, runs are repeatable."""
        self._random = random
        self._wall_clock = wall_clock
        return self

    def _use_log(self, log: EventLog) -> None:
        """Replace `event_log`, for a producer whose event loop's thread must not call `logging`."""
        self._log = log

    async def start(self, *, wait: bool = True) -> Self:
        """Connect; a second call does nothing.

        Args:
            wait: wait until a broker has answered, at most `max_block_ms`; False returns at once.

        Raises:
            MetadataTimeoutError: no broker answered; everything is cleaned up.
            ProducerClosedError: it was closed.
            CancelledError: the caller was cancelled; everything is cleaned up.
        """
        self._check_loop()
        self._lifecycle.check_may_start(is_closing=self._closing is not None)
        if self._starting is None:
            self._complete_ids()
            self._starting = asyncio.get_running_loop().create_task(
                self._start(wait=wait), name=f"aioproducer-start | {self._lifecycle.name}"
            )
        self._starters += 1
        try:
            await asyncio.shield(self._starting)
        except asyncio.CancelledError:
            if self._closing is not None and self._starting.cancelled():
                raise ProducerClosedError(f"producer {self._lifecycle.name!r} was closed while it started") from None
            if self._starters == 1 and not self._is_handed_out:  # else other callers use it
                await self._undo_start(self._starting)
            raise
        finally:
            self._starters -= 1
        self._is_handed_out = True
        return self

    def _complete_ids(self) -> None:
        """Complete the ids in the process that starts the producer, and not in one that makes it and forks."""
        self._config = for_this_process(self._made_with)
        self._lifecycle.name = self._config.client_id or self._lifecycle.name

    async def _start(self, *, wait: bool) -> None:
        watch_process()
        self._lifecycle.move_to(ProducerState.STARTING)
        log = event_log(self._lifecycle.name) if self._log is None else self._log
        for adjustment in self._config.adjustments:
            log.info("option_adjusted", option=adjustment.option, value=adjustment.value, reason=adjustment.reason)
        for note in self._config.notes:
            log.warning("option_not_used", note=note)
        if self._config.times_transactions_out_early:
            log.warning(
                "transaction_timeout_is_short",
                transaction_timeout_ms=self._config.transaction_timeout_ms,
                delivery_timeout_ms=self._config.delivery_timeout_ms,
                reason="brokers abort a transaction while its records may still be delivered",
            )
        from aioproducer._producer.producer_metrics import windows_of  # noqa: PLC0415  # by `load_parts` before
        from aioproducer._producer.runtime import ProducerRuntime  # noqa: PLC0415  # as above
        from aioproducer._producer.wiring import ProducerDependencies  # noqa: PLC0415  # as the runtime

        dependencies = ProducerDependencies(
            config=self._config,
            topic_options=self._topic_options,
            loop=asyncio.get_running_loop(),
            client_id=self._lifecycle.name,
            interceptors=InterceptorChain.of_producer(self._config.interceptors, log),
            random=self._random,
            wall_clock=self._wall_clock,
            log=log,
            classes=self._part_classes(),
        )
        running = ProducerRuntime(dependencies, self._lifecycle, self._serializers)
        running.windows = windows_of(running, self._config)
        if self._config.enable_metrics_push:
            running.metrics_push = self._metrics_push(running, log)
        running.keeps_hooks = self._keeps_hooks
        self._running = running
        try:
            await running.start(wait=wait)
        except BaseException:
            await self._close_once_more_if_cancelled(running, 0)
            raise
        running.keeps_hooks = False
        self._opened(running)

    def _part_classes(self) -> PartClasses:
        from aioproducer._producer.wiring import PartClasses  # noqa: PLC0415  # as the runtime

        return PartClasses()

    def _metrics_push(self, running: ProducerRuntime, log: EventLog) -> MetricsPush:
        from aioproducer._producer.metrics_push import MetricsPush  # noqa: PLC0415  # as above
        from aioproducer._producer.producer_metrics import read_metrics  # noqa: PLC0415  # only then

        labels = {"transactional_id": self._config.transactional_id, "client_rack": self._config.client_rack}
        return MetricsPush(
            running.client,
            running.metadata,
            partial(read_metrics, running),
            resource={name: value for name, value in labels.items() if value},
            clock=running.appender.wall_clock_ms,
            random=self._random,
            log=log,
        )

    def _opened(self, running: ProducerRuntime) -> None:
        """Take records from now on."""

    async def _abort_start(self) -> None:
        starting = self._starting
        if starting is not None and not starting.done():
            starting.cancel()
            await asyncio.wait([starting])

    async def _undo_start(self, starting: asyncio.Task[None]) -> None:
        """Close what a cancelled start has opened; the start may have finished in the turn of its cancellation."""
        if starting.done() and not starting.cancelled() and starting.exception() is None:
            await self.close(0)
        else:
            await self._abort_start()

    def _keep_hooks_open(self) -> None:
        """Leave interceptors and serializers open when the start fails: it will be tried again."""
        self._keeps_hooks = True

    async def _withdraw_start(self) -> None:
        """Close what a start has opened; `_forget_start` then makes another one possible."""
        await self._abort_start()
        if self._running is not None and self._lifecycle.state is not ProducerState.CLOSED:
            self._running.keeps_hooks = True
            await self._running.close(0)

    def _forget_start(self) -> object:
        """Be as before the start, and return its parts."""
        started = self._running, self._starting
        self._lifecycle = ProducerStateMachine(self._lifecycle.name)
        self._running = self._starting = self._closing = None
        self._starters = 0
        self._is_handed_out = self._is_close_reported = self._keeps_hooks = False
        return started

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # part of the promise
        """Wait until exactly the records accepted before this call have ended; their linger ends.

        Args:
            timeout: seconds; None waits as long as `delivery_timeout_ms` lets records live.

        Raises:
            UndeliveredError: records failed, and their failures were not seen by a caller or callback.
            TimeoutError: the time is over; the records are still being sent.
            TypeError, ValueError: an invalid timeout.
        """
        check_timeout(timeout)
        running = self._open_running()
        generation = running.close_generation()
        failed = running.completion.unseen.begin_flush(generation)
        began_at = running.loop.time()
        try:
            try:
                await running.flushed(generation, timeout)
            except TimeoutError:
                left = running.generations.unfinished
                if left:  # else the last one ended in the same turn of the event loop
                    why = running.explain().summary
                    text = f"flush: {unfinished_text(left)} not yet acknowledged after {timeout:g} s: {why}"
                    raise TimeoutError(text) from None
            error = await running.completion.take_error(failed)
        finally:
            running.completion.unseen.end_flush(failed)
            running.measures.flush_time.record(running.loop.time() - began_at)
        if error is not None:
            raise error

    def purge(self, topic: str | None = None) -> int:
        """Fail the records that were not sent yet with `PurgedError`, NOT_WRITTEN; `flush` and `close` raise it too.

        They are those in batches, those that wait for memory, metadata or a serializer, and those that a broker refused
        and that would be sent again. What is on its way, or may be written, goes on. An open transaction must then be
        aborted.

        Args:
            topic: only records for it.

        Returns:
            The number of records that have failed.

        Raises:
            TypeError, ValueError: an invalid topic name.
            IllegalStateError: not started, on another thread, in a forked child; but not while it closes.
        """
        if topic is not None:
            check_topic_name(topic)
        running, is_closing = self._running, self._lifecycle.state is ProducerState.CLOSING
        if running is None or not (is_closing and running.appender.own_loop.is_here()):
            running = self._open_running()
        return running.purge(topic)

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # part of the promise: the rest fails
        """Deliver accepted records, then close connections; a second call joins the first, and may shorten its time.

        Cancelling ends only the wait: closing continues, and may be awaited again.

        Args:
            timeout: seconds for deliveries, after which the remaining records fail; None is `close_timeout_ms`, 0 fails
                them at once.

        Raises:
            UndeliveredError: records failed, and their failures were not seen by a caller or callback.
            IllegalStateError: on another event loop, or in a forked child.
            TypeError, ValueError: an invalid timeout.
        """
        check_timeout(timeout)
        self._check_loop()
        if self._starting is None:
            self._lifecycle.close_unstarted()
            return
        timeout_s = self._config.close_timeout_ms / 1000 if timeout is None else timeout
        # Shutdown code may cancel every task of the loop, this one too: then begin again. Each step may run twice.
        if self._closing is None or self._closing.cancelled():
            self._closing = asyncio.get_running_loop().create_task(
                self._close(timeout_s), name=f"aioproducer-close | {self._lifecycle.name}"
            )
        elif self._running is not None:
            self._running.flushes.drain_within(timeout_s)
        was_closed = self._closing.done()
        undelivered = await asyncio.shield(self._closing)
        if undelivered is not None and not (was_closed and self._is_close_reported):
            self._is_close_reported = True
            raise undelivered.fresh()

    async def _close(self, timeout_s: float) -> UndeliveredError | None:
        """Close, once; every waiting `close`, or else the next one, raises the returned error."""
        if self._running is not None:
            self._running.keeps_hooks = False
        await self._abort_start()
        if self._running is None or self._lifecycle.state is ProducerState.CLOSED:
            self._lifecycle.close_unstarted()
            return None
        try:
            await self._close_once_more_if_cancelled(self._running, timeout_s)
        except UndeliveredError as undelivered:
            return undelivered
        return None

    @staticmethod
    async def _close_once_more_if_cancelled(running: ProducerRuntime, timeout_s: float) -> None:
        """Close, also if `asyncio.run` ends meanwhile and cancels every task: each step may run twice."""
        try:
            await running.close(timeout_s)
        except asyncio.CancelledError:
            await running.close(min(timeout_s, CLOSE_AFTER_ERROR_S))

    async def __aenter__(self) -> Self:
        """Start."""
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close. The body's own exception wins; records that were not delivered become its notes.

        If it is no `Exception`, such as CancelledError or KeyboardInterrupt, they are also reported on standard error.
        """
        if error is None:
            await self.close()
            return
        explain_keyword(error)
        try:
            await self.close(min(CLOSE_AFTER_ERROR_S, self._config.close_timeout_ms / 1000))
        except KafkaError as failed:
            note_undelivered(error, failed, partial(self._tell, was_closed=True))

    @property
    def config(self) -> ProducerConfig:
        """The configuration in effect."""
        return self._config

    def _mark_forked(self) -> None:
        """Refuse every call from now on: this process is a fork of the one that owns the connections.

        A producer that was not started owns none, and may be started in both processes.
        """
        if self._starting is None:
            self._random.seed()
            return
        self._lifecycle.is_forked = True
        self._handed_over.clear()  # the parent's own
        if self._running is not None:
            self._running.stop_taking()

    @property
    def _is_left_open(self) -> bool:
        is_closed = self._lifecycle.state is ProducerState.CLOSED
        return self._running is not None and not self._lifecycle.is_forked and not is_closed

    @property
    def _unraised(self) -> UndeliveredError | None:
        """The error of a close whose callers had given up, and that no later close has raised."""
        closing = self._closing
        if self._is_close_reported or closing is None or not closing.done() or closing.cancelled():
            return None
        return None if closing.exception() is not None else closing.result()

    def __del__(self) -> None:
        """Warn if it was not closed, or has failed to deliver with no caller to raise it to."""
        # At the end of the interpreter, the hook below has warned already, and other threads do not run.
        running = getattr(self, "_running", None)
        if running is None or self._is_loss_reported or sys.is_finalizing():
            return
        if not self._is_left_open:
            self._report_unraised()
            return
        self._report_loss("was dropped without close()")
        if not running.loop.is_closed():
            running.loop.call_soon_threadsafe(running.abandon)

    def _take_over_report(self) -> Callable[[], ProducerRuntime | None]:
        """Leave it to the caller to report lost records; returns a function that returns the runtime."""
        self._is_loss_reported = True
        return lambda: self._running

    def _report_unraised(self) -> None:
        undelivered = None if self._is_loss_reported else self._unraised
        if undelivered is not None:
            self._is_loss_reported = True
            self._tell(undelivered.count, f"was closed: {undelivered.exceptions[0]}", was_closed=True)

    def _report_loss(self, how: str) -> None:
        running = self._running
        if running is None or self._is_loss_reported or not (self._is_left_open or self._handed_over):
            return
        self._is_loss_reported = True
        if records := count_undelivered(running) + len(self._handed_over):
            self._tell(records, how, was_closed=False)
        text = f"{self._name_in_reports}, {how}: records that were not delivered yet are lost"
        warnings.warn(text, ResourceWarning, stacklevel=3, source=self)

    def _tell(self, records: int, how: str, *, was_closed: bool) -> None:
        text = f"{in_words(records)} not delivered: {self._name_in_reports}, {how}"
        log = event_log(self._lifecycle.name)
        report_loss(text, log, records=records, made_at=self._made_at, was_closed=was_closed)

    @property
    def _name_in_reports(self) -> str:
        return f"{self._dropped_as} {self._lifecycle.name!r}, made at {self._made_at}"

    def _check_loop(self) -> None:
        """Raise unless this is the producer's own event loop, whose tasks starting and closing wait for."""
        if self._lifecycle.is_forked:  # before `_running_loop`, since the child may have none
            self._lifecycle.refuse()
        loop, running = _running_loop(), self._running
        if running is None or running.loop is loop:
            return
        is_loop_closed = running.loop.is_closed()
        if is_loop_closed and self._lifecycle.state is ProducerState.CLOSED:
            return
        if not is_loop_closed:
            self._lifecycle.refuse_other_loop()
        running.client.abandon()
        self._is_loss_reported = True  # by this error
        self._lifecycle.refuse_late(in_words(count_undelivered(running)))

    def _open_running(self) -> ProducerRuntime:
        running = self._running
        if running is None:
            self._lifecycle.refuse()
        if running.is_shut or not running.appender.own_loop.is_here():
            self._lifecycle.refuse(running.appender.own_loop)
        return running


def _running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise IllegalStateError(
            "no asyncio event loop runs here: a Producer needs asyncio, and does not run on trio "
            '(anyio.run(..., backend="asyncio")); for code without an event loop there is BlockingProducer'
        ) from None


def caller() -> str:
    """Return file and line of the innermost caller outside this package."""
    frame = sys._getframe(1)  # noqa: SLF001  # the only way to say where a dropped producer was made
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("aioproducer."):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _after_fork() -> None:
    for producer in list(_ALIVE):
        producer._mark_forked()


@at_process_end
def _report_losses() -> None:
    for producer in list(_ALIVE):
        producer._report_unraised()  # noqa: SLF001  # of this module's class
        producer._report_loss("was not closed when the program ended")  # noqa: SLF001  # as above


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
