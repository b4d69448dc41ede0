"""A running producer between its start and its close: starts, closes and fails the parts, and follows the cluster.

`wiring.py` makes the parts. The runtime holds no reference to the `Producer`, so that one dropped unclosed is noticed.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, NoReturn

from aioproducer._accumulator.buffer_pool import SMALLEST_CHUNK
from aioproducer._native.delivery import BatchResult
from aioproducer._network.requests import PendingCalls
from aioproducer._producer.producer_state import ProducerState, ProducerStateMachine
from aioproducer._producer.waiting_calls import WaitingCalls
from aioproducer._producer.wiring import ProducerDependencies, ProducerParts
from aioproducer._sender.why_waiting import WaitReasons
from aioproducer._transactions.verdicts import fatal_error
from aioproducer._transactions.waiting import TransactionCounts
from aioproducer.errors import BackgroundTaskDiedError, KafkaError, Outcome, ProducerClosedError, PurgedError
from aioproducer.explanation import Explanation
from aioproducer.metrics import ProducerStatistics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping

    from aioproducer._producer.metric_windows import MetricWindows
    from aioproducer._producer.metrics_push import MetricsPush
    from aioproducer._producer.record_hooks import UsedSerializers
    from aioproducer._producer.waiting_calls import OpenCall
    from aioproducer.cluster import Cluster
    from aioproducer.records import TopicPartition

PAUSE_AFTER_BYTES: Final = 64 * 1024
"""After full batches of this many bytes a loop of `enqueue` lets the event loop run once, so that they are sent."""

_NO_TRANSACTIONS: Final = TransactionCounts()


class ProducerRuntime(ProducerParts):  # noqa: PLR0904  # all that a producer does while it runs
    """A running producer."""

    def __init__(
        self, dependencies: ProducerDependencies, lifecycle: ProducerStateMachine, serializers: UsedSerializers
    ) -> None:
        self.lifecycle = lifecycle
        self.serializers = serializers
        self._config = dependencies.config
        self._log = dependencies.log
        serializers.log_to(self._log)
        self.max_block_s = self._config.max_block_ms / 1000
        self.topic_options = dependencies.topic_options
        self.is_shut = True  # calls are refused: not started yet, closing, closed, failed, or in a forked child
        self.keeps_hooks = False  # a close leaves interceptors and serializers open, for another start
        self._closing: asyncio.Future[None] | None = None  # done when the close under way has ended
        self._closed_bytes = 0
        self._why_late = ""  # what a close that timed out had waited for
        self.started_at_ms = 0  # wall clock
        super().__init__(dependencies, refuse=self.raise_not_accepting, on_fatal=self.failed_for_good)
        self.events.batch_filled = self._batch_filled
        self.events.many_batches_opened = self._want_pause
        self.calls = PendingCalls(self.raise_not_accepting)
        self.waiting_calls = WaitingCalls(
            self.loop,
            client=self.client,
            metadata=self.metadata,
            flushes=self.flushes,
            transactions=self.transactions,
        )
        self.metrics_push: MetricsPush | None = None  # given before the start, if wanted
        self.windows: MetricWindows  # given before the start
        # A transaction needs requests whose fate a cancelled task does not know: its producer ends with the loop.
        before_death = self._outlive_loop if self.transactions is None else None
        self._supervisor = Supervisor(lifecycle.name, self.fail, before_death=before_death)
        self.metadata.on_update(self._cluster_changed)
        self.metadata.on_refusal(self._client_refused)

    # Start and end

    async def start(self, *, wait: bool) -> None:
        """Start the tasks; with `wait`, wait at most `max_block_ms` until a broker has answered.

        Raises:
            MetadataTimeoutError: no broker answered.
            ConfigurationError: a certificate, key or password cannot be used.
            KafkaError: a broker's response ends the producer.
        """
        self.client.start(self.loop)
        self.started_at_ms = self.appender.wall_clock_ms()
        calls = self.waiting_calls
        with calls.waiting("start", calls.parts("certificates and keys are loaded")) as call:
            await self.client.prepare()
            self._read_totals(self.loop.time())
            self._start_tasks()
            if wait:
                call.deadline = self.loop.time() + self.max_block_s
                await self._first_responses(call, call.deadline)
        if self.lifecycle.state is ProducerState.FAILED:
            raise self.lifecycle.failure()
        self.is_shut = False
        if self.transactions is None:  # else the beginning of a transaction opens it
            self.appender.open()
        self.lifecycle.move_to(ProducerState.RUNNING)
        self.record_hooks.started(self.lifecycle.name)
        self._log.info("producer_started", bootstrap_servers=list(self._config.bootstrap_servers))

    def _read_totals(self, now: float) -> None:
        """Read the totals for the window of the metrics, now and again."""
        self.timers.schedule(self.windows.mark(now), self._read_totals)

    async def _first_responses(self, call: OpenCall, deadline: float) -> None:
        call.why = self.waiting_calls.metadata
        await self.metadata.first_response(self.max_block_s)
        if self.transactions is not None:
            began_at = self.loop.time()
            call.why = self.waiting_calls.transaction
            await self.transactions.initialized(deadline=deadline)
            self.transactions.completer.counts.init_time.record(self.loop.time() - began_at)

    def _start_tasks(self) -> None:
        jobs = {"sender": self.sender.run, "metadata": self.metadata.run}
        if self.transactions is not None:
            jobs["transactions"] = self.transactions.run
        elif self.identity.is_enabled:
            jobs["producer-id"] = self.producer_ids.run
            self.producer_ids.ask()
        if self.metrics_push is not None:
            jobs["metrics-push"] = self.metrics_push.run
        self._supervisor.start(jobs)

    async def _outlive_loop(self) -> None:
        """Take and deliver records for `exit_flush_timeout_ms`: the event loop ends, and has cancelled every task.

        Tasks of the application may still send, and close the producer: a close has a time of its own.
        """
        timeout_s = self._config.exit_flush_timeout_ms / 1000
        deadline = self.loop.time() + timeout_s
        others = [task for task in asyncio.all_tasks() if not task.get_name().startswith("aioproducer-")]
        if others:
            await asyncio.wait(others, timeout=timeout_s)
        if self._closing is None:
            with contextlib.suppress(TimeoutError):
                await self.flushed(self.close_generation(), max(deadline - self.loop.time(), 0))
        while self._closing is not None:  # it stops the tasks, this one too
            await asyncio.wait([self._closing])

    def stop_taking(self) -> None:
        # Two flags: between transactions no record is taken (`closed`), but `flush` still works (`is_shut`).
        self.is_shut = self.appender.closed = True

    async def close(self, timeout_s: float) -> None:
        """Deliver the accepted records for at most `timeout_s` seconds, fail the rest, and stop all parts."""
        closing = self._closing = self.loop.create_future()
        try:
            await self._close(timeout_s)
        finally:
            closing.set_result(None)
            if self._closing is closing:
                self._closing = None

    async def _close(self, timeout_s: float) -> None:
        if self.lifecycle.state in {ProducerState.STARTING, ProducerState.RUNNING}:
            self.lifecycle.move_to(ProducerState.CLOSING)
        self.stop_taking()
        self.calls.end()
        failed = self.completion.unseen.begin_flush(self.close_generation())
        self.flushes.drain_within(timeout_s)
        try:
            if timeout_s > 0 and self.lifecycle.state is ProducerState.CLOSING:
                await self._drain()
            self._fail_rest()
            self.metadata_waits.wake_all()
            await self._end_parts()
            # Last: a close that is cancelled before this must leave the failures to the next close.
            error = await self.completion.take_error(failed)
            self.lifecycle.move_to(ProducerState.CLOSED)
        finally:
            self.completion.unseen.end_flush(failed)
        self._log.info("producer_closed", records_undelivered=error.count if error is not None else 0)
        if error is not None:
            raise error

    async def _drain(self) -> None:
        finish = self.transactions.completer.finish if self.transactions is not None else None
        with self.waiting_calls.waiting("close", self.waiting_calls.close):
            is_drained = await self.flushes.drain(finish)
        if not is_drained:
            timeout_s = self.flushes.drain_timeout_s
            self._why_late = self.explain().summary
            self._log.warning(
                "close_timed_out", timeout_s=timeout_s, unfinished=self.generations.unfinished, why=self._why_late
            )
        elif self.metrics_push is not None:
            await self.metrics_push.finish(within_s=self.flushes.drain_by - self.loop.time())

    async def _end_parts(self) -> None:
        with self.waiting_calls.waiting("close", self.waiting_calls.parts("connections and tasks end")) as call:
            await self.client.close()
            await self._supervisor.stop()
            self.windows.end(self.loop.time())
            if self.keeps_hooks:
                return
            self.record_hooks.close()
            call.why = self.waiting_calls.parts("serializers are closed")
            await self.serializers.close(self.max_block_s)

    def _fail_rest(self) -> None:
        if self.generations.unfinished:
            timeout_s = self.flushes.drain_timeout_s
            why = f": {self._why_late}" if self._why_late else ""
            text = f"the producer was closed before the record was delivered (timeout {timeout_s:g} s){why}"
            self._fail_everything(ProducerClosedError(text))
        closed = ProducerClosedError(f"producer {self.lifecycle.name!r} was closed")
        self.record_hooks.fail_unfinished(closed)
        if self.transactions is not None:
            self.transactions.fail(closed)

    def abandon(self) -> None:
        """Stop without waiting: the `Producer` was dropped unclosed."""
        self.fail(ProducerClosedError(f"producer {self.lifecycle.name!r} was dropped without close()"))
        self._supervisor.abandon()
        self.client.abandon()

    def fail(self, cause: BaseException) -> None:
        """Fail all records and calls, now and later, with `cause`: a background task has died."""
        self.lifecycle.fail(cause)
        self.stop_taking()
        if self.lifecycle.state is ProducerState.FAILED:
            if self.lifecycle.cause is cause:  # else it has failed before, and this follows from that
                self._log.error("producer_failed", error=f"{type(cause).__name__}: {cause}")
            self._fail_everything(self.lifecycle.failure())
            self.metadata.fail_waiting(self.lifecycle.failure())
            self.metadata_waits.wake_all()
            self.calls.end()
            if isinstance(cause, BackgroundTaskDiedError):
                self.client.abandon()  # `asyncio.run` ends the loop: nothing could close them later
            if self.transactions is not None:
                self.transactions.fail(self.lifecycle.failure())

    def _fail_everything(self, error: KafkaError) -> None:
        self.record_hooks.fail_unfinished(error)
        self.wait_queues.fail_all(error)
        self.settlement.fail_everything(error, self.loop.time())

    def purge(self, topic: str | None) -> int:
        """Fail the records that were not sent, of a topic or of all; return how many."""
        error = PurgedError("purge() was called before the record was sent", outcome=Outcome.NOT_WRITTEN)
        purged = self.record_hooks.fail_unfinished(error, topic) + self.wait_queues.fail_all(error, topic)
        purged += self.settlement.purge(topic, error)
        if purged:
            self.events.records_failed(error)
        return purged

    def statistics(self) -> ProducerStatistics:
        """Return the current counters and gauges; reads each open batch."""
        counts, network, ended = self.completion.counts, self.client.counters, self.transaction_counts
        accepted = self.open_batches.records
        in_flight = self.client.requests_in_flight()
        updated_at = self.metadata.cluster.updated_at
        return ProducerStatistics(
            client_id=self.lifecycle.name,
            records_sent=accepted,
            records_acknowledged=counts.records_acknowledged,
            records_failed=counts.records_failed,
            records_retried=self.settlement.counts.records_retried,
            records_filtered=counts.records_filtered,
            records_pending=max(accepted - counts.records_acknowledged - counts.batch_records_failed, 0),
            records_waiting=self.wait_queues.records + len(self.record_hooks.unfinished_records),
            waiting_bytes=self.wait_queues.bytes,
            batches_sent=counts.batches,
            batches_split=self.settlement.counts.batches_split,
            batch_bytes=counts.batch_bytes,
            buffer_total_bytes=self.pool.total_bytes,
            buffer_available_bytes=self.pool.available_bytes,
            buffer_free_bytes=self.pool.free_bytes,
            buffer_unallocated_bytes=self.pool.unallocated_bytes,
            buffer_exhausted=self.wait_queues.exhausted,
            requests_sent=network.requests,
            responses_received=network.responses,
            request_latency_total_s=network.request_latency_s,
            requests_in_flight=sum(in_flight.values()),
            requests_in_flight_by_node=in_flight,
            bytes_sent=network.bytes_out,
            bytes_received=network.bytes_in,
            connections=network.connections_created - network.connections_closed,
            connections_created=network.connections_created,
            connections_closed=network.connections_closed,
            connection_failures=network.connection_failures,
            authentications=network.authentications,
            authentication_failures=network.authentication_failures,
            reauthentications=network.reauthentications,
            reauthentication_failures=network.reauthentication_failures,
            reauthentication_latency_total_s=network.reauthentication_latency_s,
            metadata_age_s=self.loop.time() - updated_at if updated_at else None,
            metadata_error=str(error) if (error := self.metadata.last_error) is not None else None,
            interceptor_failures=self.record_hooks.interceptor_failures,
            delivery_latency_p50_s=self.latency.quantile_s(0.5),
            delivery_latency_p99_s=self.latency.quantile_s(0.99),
            transactions_committed=ended.commit_time.count,
            transactions_aborted=ended.abort_time.count,
            commit_total_s=ended.commit_time.total,
            abort_total_s=ended.abort_time.total,
        )

    def silence(self) -> str:
        """Return why no broker answers; an empty text if one has answered last, or none is asked."""
        silence = self.client.silence
        if silence.is_out_of_reach:
            return f"no broker can be reached: {self.metadata.last_error}"
        silent_s, longest_s = silence.for_s(self.loop.time()), self._config.request_timeout_ms / 1000
        # A little less, since the question may have been asked a little after the last response.
        is_over = silent_s >= longest_s - min(longest_s / 10, 0.5)
        return f"no broker has answered for {silent_s:.1f} s" if is_over else ""

    @property
    def transaction_counts(self) -> TransactionCounts:
        return _NO_TRANSACTIONS if self.transactions is None else self.transactions.completer.counts

    def explain(self, topic: str | None = None) -> Explanation:
        """Return what waits, for a topic or for all, in any state."""
        lifecycle = self.lifecycle
        state, note = lifecycle.state_and_note(is_started=True)
        if lifecycle.is_forked or lifecycle.state is ProducerState.CLOSED:
            return Explanation(lifecycle.name, state, note, ())
        if not note and self.transactions is not None:
            note = self.transactions.state_checks.refusal
        now = self.loop.time()
        reasons = WaitReasons(self.accumulator, self.identity, self.metadata, now)
        waiting = [*reasons.batches(topic), *reasons.records(self.wait_queues, topic)]
        waiting += [
            record.explained(now) for record in self.record_hooks.unfinished_records if topic in {None, record.topic}
        ]
        return Explanation(lifecycle.name, state, note, tuple(waiting), self.waiting_calls.explained(now, topic))

    def close_generation(self) -> int:
        """Close the open batches; returns the flush generation that covers everything accepted until now."""
        generation = self.generations.close()
        self.open_batches.close_soon()
        return generation

    async def flushed(self, generation: int, timeout_s: float | None) -> None:
        """Wait until everything accepted up to a generation has ended; raises TimeoutError."""
        calls, deadline = self.waiting_calls, None if timeout_s is None else self.loop.time() + timeout_s
        with calls.waiting("flush", calls.records, deadline=deadline):
            async with asyncio.timeout_at(deadline):
                await self.flushes.wait_for(generation)

    # Events

    def raise_not_accepting(self) -> NoReturn:
        """Raise the error of a call that cannot be served now."""
        if self.transactions is not None and not self.is_shut and self.appender.own_loop.is_here():
            self.transactions.state_checks.refuse()
        self.lifecycle.refuse(self.appender.own_loop)

    def failed_for_good(self, error: KafkaError) -> None:
        """End the tasks as well: nothing can be sent any more."""
        self.fail(fatal_error(error, self._config.transactional_id))
        self._supervisor.abandon()  # `fail` does not end the tasks: it also runs when one of them has died

    def _want_pause(self) -> None:
        self.appender.pause_wanted = True

    def _batch_filled(self, topic_partition: TopicPartition, size: int) -> None:
        self._closed_bytes += max(size, SMALLEST_CHUNK)
        if self._closed_bytes >= PAUSE_AFTER_BYTES:
            self._closed_bytes = 0
            self._want_pause()
        self.record_hooks.batch_closed(topic_partition)

    def _cluster_changed(self, cluster: Cluster, changed: Collection[str]) -> None:
        usable = self.accumulator.update_cluster(cluster, changed, self.client.nodes)
        for topic in usable:
            self.wait_queues.topic_known(topic)
        self.wait_queues.leaders_changed()
        for topic in self.wait_queues.unknown_topics:
            if (error := self.metadata_waits.topic_refusal(topic)) is not None:
                self.wait_queues.topic_failed(topic, error)
        self.metadata_waits.wake_all()
        self.serializers.on_cluster(cluster.cluster_id)
        self.wakeup.set()

    def _client_refused(self, error: KafkaError) -> None:
        """Fail what waits for metadata, as Kafka does; records in batches wait until their deadline."""
        for topic in list(self.wait_queues.unknown_topics):
            self.wait_queues.topic_failed(topic, error.with_details(topic=topic, outcome=Outcome.NOT_WRITTEN))
        self.metadata_waits.fail_all(error)

    def new_result(self) -> BatchResult:
        return BatchResult(self.loop, None)


class Supervisor:
    """Runs coroutines that must not end; `on_death` is called once, with the cause, when one does before `stop`.

    One task holds an `asyncio.TaskGroup` with them. It is not entered in `__aenter__`: a coroutine that dies would then
    cancel the body of the user's own `async with`.

    `asyncio.run` cancels all tasks of the loop at its end, in one step. What others do then may still need these: each
    coroutine is started again, and runs while `before_death` is awaited.

    Args:
        before_death: awaited when all were cancelled from outside; None ends them at once.
    """

    def __init__(
        self,
        name: str,
        on_death: Callable[[BaseException], None],
        *,
        before_death: Callable[[], Coroutine[object, object, None]] | None,
    ) -> None:
        self._name = name
        self._on_death = on_death
        self._before_death = before_death
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False  # nothing is told of their ends
        self._may_restart = before_death is not None

    def start(self, jobs: Mapping[str, Callable[[], Coroutine[object, object, None]]]) -> None:
        """Start the tasks; the keys become parts of their names."""
        self._task = asyncio.get_running_loop().create_task(
            self._run(jobs), name=f"aioproducer-supervisor | {self._name}"
        )

    async def stop(self) -> None:
        self.abandon()
        if self._task is not None:
            await asyncio.wait([self._task])

    def abandon(self) -> None:
        """End all tasks without waiting: the producer was dropped unclosed."""
        self._is_stopping, self._may_restart = True, False
        if self._task is not None:
            self._task.cancel()

    async def _run(self, jobs: Mapping[str, Callable[[], Coroutine[object, object, None]]]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for name, job in jobs.items():
                    group.create_task(self._guard(name, job), name=f"aioproducer-{name} | {self._name}")
                await self._until_cancelled()
        except BaseExceptionGroup as deaths:
            self._on_death(_first(deaths))
        except asyncio.CancelledError as cancelled:
            if not self._is_stopping:
                self._on_death(_died("supervisor", cancelled))
            raise

    async def _until_cancelled(self) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            try:
                if self._may_restart and self._before_death is not None:
                    await self._before_death()
            finally:
                self._may_restart = False

    async def _guard(self, name: str, job: Callable[[], Coroutine[object, object, None]]) -> NoReturn:
        cause: BaseException | None = None
        try:
            await self._with_restarts(job)
        except asyncio.CancelledError as cancelled:
            if self._is_stopping or self._are_all_cancelled:
                raise
            cause = cancelled  # a TaskGroup ignores a child that was cancelled from outside
        except BaseException:
            self._may_restart = False
            raise
        self._may_restart = False
        raise _died(name, cause) from cause

    async def _with_restarts(self, job: Callable[[], Coroutine[object, object, None]]) -> None:
        """Run a coroutine, and again after it was cancelled with all others."""
        task = asyncio.current_task()
        while True:
            try:
                await job()
            except asyncio.CancelledError:
                if task is None or not (self._may_restart and self._are_all_cancelled):
                    raise
                task.uncancel()
                await asyncio.sleep(0)  # one that ends at once again must not hold the event loop up
            else:
                return

    @property
    def _are_all_cancelled(self) -> bool:
        return self._task is not None and bool(self._task.cancelling())


def _died(name: str, cause: BaseException | None) -> BackgroundTaskDiedError:
    how = "ended"
    if isinstance(cause, asyncio.CancelledError):
        how = "was cancelled from outside, as asyncio.run does at its end with what was not closed"
    return BackgroundTaskDiedError(f"the producer's {name} task {how}; the producer cannot continue: make a new one")


def _first(deaths: BaseExceptionGroup[BaseException]) -> BaseException:
    first = deaths.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
