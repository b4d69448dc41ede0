"""Everything that exists between the start and the close of a producer: the parts of the send path, wired together.

`Producer` is the face; this knows which part is told of what. It holds no reference to the face, so that a
producer that was dropped unclosed can be noticed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from aioproducer._accumulator.batch_splitter import BatchSplitter
from aioproducer._accumulator.buffer_pool import SMALLEST_CHUNK, BufferPool
from aioproducer._accumulator.open_batches import AccumulatorDependencies, AccumulatorSettings
from aioproducer._accumulator.record_accumulator import RecordAccumulator
from aioproducer._accumulator.wait_queue import WaitingRecord
from aioproducer._accumulator.wait_queues import WaitQueues
from aioproducer._native.append import RecordAppender
from aioproducer._native.delivery import BatchResult
from aioproducer._network.metadata_refresher import MetadataRefresher
from aioproducer._network.network_client import NetworkClient
from aioproducer._network.requests import PendingCalls
from aioproducer._producer.component_settings import (
    accumulator_settings,
    codec,
    compression_level,
    metadata_settings,
    network_settings,
    produce_policy,
    retry_backoff,
    waiting_limits,
)
from aioproducer._producer.metadata_waits import MetadataWaits
from aioproducer._producer.producer_state import ProducerState, ProducerStateMachine
from aioproducer._producer.record_hooks import RecordHooks
from aioproducer._producer.supervisor import Supervisor
from aioproducer._sender.completion import Completion
from aioproducer._sender.compressor import BatchCompressor
from aioproducer._sender.flush import FlushWaiters
from aioproducer._sender.producer_id import ProducerIdFetcher
from aioproducer._sender.sender import Sender, SendPath
from aioproducer._sender.settlement import Settlement
from aioproducer._timing.timers import TimerHeap
from aioproducer._transactions.errors import fatal_error
from aioproducer._transactions.identity import identity_of
from aioproducer.errors import BackgroundTaskDiedError, KafkaError, ProducerClosedError
from aioproducer.metrics import LatencyHistogram

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from aioproducer._logs import EventLog
    from aioproducer._timing.retry_backoff import ExponentialBackoff
    from aioproducer._transactions.runner import TransactionRunner
    from aioproducer.cluster import Cluster
    from aioproducer.config import ProducerConfig
    from aioproducer.interceptors import InterceptorChain
    from aioproducer.records import TopicPartition


PAUSE_AFTER_BYTES: Final = 64 * 1024
"""After full batches of this many bytes a loop of `enqueue` lets the event loop run once, so that they are sent."""


class ProducerRuntime:
    """The parts of one producer.

    Args:
        config: checked.
        lifecycle: shared with the face.
        interceptors: the user's.
        random: of all jitter and choices.
        wall_clock: milliseconds since the epoch; None reads the system's clock natively.
        log: bound to the client id.
    """

    def __init__(  # noqa: PLR0915  # the one place that wires the parts
        self,
        config: ProducerConfig,
        lifecycle: ProducerStateMachine,
        *,
        interceptors: InterceptorChain,
        random: random.Random,
        wall_clock: Callable[[], int] | None,
        log: EventLog,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.lifecycle = lifecycle
        self._config = config
        self._log = log
        self.is_shut = True
        """Calls are refused: not started yet, closing, closed, failed, or in a forked child."""
        self._closed_bytes = 0
        self.timers = TimerHeap()
        self.flushes = FlushWaiters(self.loop)
        self.generations = self.flushes.generations
        self.identity = identity_of(config.transactional_id, is_idempotent=config.enable_idempotence)
        self.latency = LatencyHistogram()
        batching = accumulator_settings(config)
        self.pool = BufferPool(config.buffer_memory, batching.batch_size, on_return=self._memory_returned)
        self.accumulator = self._make_accumulator(batching, random)
        self.open_batches = self.accumulator.open_batches
        self.open_batches.on_full = self._batch_closed
        self.appender = RecordAppender(
            self.open_batches,
            refuse=self.refuse,
            batch_size=batching.batch_size,
            max_record_size=batching.max_record_size,
            wall_clock=wall_clock,
            ignore_keys=config.partitioner_ignore_keys,
        )
        self.completion = Completion(self.loop, self.pool, self.generations, latency=self.latency, log=log)
        self.client = self._make_client(random)
        self.metadata = MetadataRefresher(self.client, metadata_settings(config), random=random, log=log)
        self.metadata.on_update(self._cluster_changed)
        self.metadata_waits = MetadataWaits(self.metadata, self.open_batches, self.loop)
        self.calls = PendingCalls(self.refuse)
        self.lines = self._make_lines()
        backoff = retry_backoff(config, random)
        self.settlement = self._make_settlement(backoff)
        self.producer_ids = self._make_producer_ids(backoff)
        self.transactions = self._make_transactions(backoff)
        self.sender = self._make_sender()
        self.preparation = self._make_preparation(interceptors)
        self._supervisor = Supervisor(lifecycle.name, self.fail)

    def _make_accumulator(self, batching: AccumulatorSettings, random: random.Random) -> RecordAccumulator:
        surroundings = AccumulatorDependencies(
            pool=self.pool,
            timers=self.timers,
            generations=self.generations,
            producer_identity=self.identity,
            random=random,
            clock=self.loop.time,
            wake=self.wake,
            loop=self.loop,
        )
        return RecordAccumulator(batching, surroundings)

    def _make_client(self, random: random.Random) -> NetworkClient:
        return NetworkClient(
            bootstrap=self._config.bootstrap,
            settings=network_settings(self._config),
            timers=self.timers,
            random=random,
            wake=self.wake,
            log=self._log,
            client_id=self.lifecycle.name,
        )

    def _make_lines(self) -> WaitQueues:
        return WaitQueues(
            self.appender,
            self.open_batches,
            self.generations,
            self.timers,
            limits=waiting_limits(self._config),
            on_failed=self.completion.fail_waiting,
            trouble=self.metadata_waits.topic_trouble,
        )

    def _make_preparation(self, interceptors: InterceptorChain) -> RecordHooks:
        return RecordHooks(
            self._config,
            interceptors,
            appender=self.appender,
            metadata=self.metadata,
            completion=self.completion,
            log=self._log,
        )

    def _make_settlement(self, backoff: ExponentialBackoff) -> Settlement:
        return Settlement(
            accumulator=self.accumulator,
            splitter=BatchSplitter(self.pool, self.generations),
            identity=self.identity,
            backoff=backoff,
            completion=self.completion,
            clock=self.loop.time,
            delivery_timeout_s=self._config.delivery_timeout_ms / 1000,
            refresh_metadata=lambda topic: self.metadata.request_update("produce_refused", topic=topic),
            explain=lambda batch: self.sender.explain(batch),  # noqa: PLW0108  # made later
            on_fatal=self._fail_for_good,
        )

    def _make_producer_ids(self, backoff: ExponentialBackoff) -> ProducerIdFetcher:
        return ProducerIdFetcher(
            self.client,
            self.identity,
            backoff,
            on_assigned=self.accumulator.offer_all,
            on_refused=self.settlement.fail_unstamped,
            log=self._log,
        )

    def _make_transactions(self, backoff: ExponentialBackoff) -> TransactionRunner | None:
        if self._config.transactional_id is None:
            return None
        from aioproducer._transactions.runner import TransactionParts, TransactionRecords  # noqa: PLC0415  # only then

        parts = TransactionParts(
            self._config, backoff=backoff, client=self.client, metadata=self.metadata, loop=self.loop, log=self._log
        )
        records = TransactionRecords(
            appender=self.appender,
            lines=self.lines,
            accumulator=self.accumulator,
            completion=self.completion,
            settlement=self.settlement,
            flushes=self.flushes,
        )
        return parts.runner(self.identity, records, on_fatal=self._fail_for_good)

    def _make_sender(self) -> Sender:
        config = self._config
        sealing = BatchCompressor(
            self.loop,
            self.accumulator,
            codec=codec(config),
            level=compression_level(config),
            wake=self.wake,
            log=self._log,
        )
        path = SendPath(
            accumulator=self.accumulator,
            lines=self.lines,
            sealing=sealing,
            settlement=self.settlement,
            identity=self.identity,
            timers=self.timers,
            client=self.client,
            metadata=self.metadata,
        )
        return Sender(
            produce_policy(config),
            path,
            self.loop,
            request_timeout_ms=config.request_timeout_ms,
            ask_producer_id=self.producer_ids.ask if self.transactions is None else self.transactions.wake,
            transaction=None if self.transactions is None else self.transactions.of_request,
        )

    # Start and end

    async def start(self, *, wait: bool) -> None:
        """Begin to work; with `wait`, until a broker has answered or `max_block_ms` are over.

        Raises:
            MetadataTimeoutError: no broker answered.
            KafkaError: what a broker said that ends it all.
        """
        self.client.start(self.loop)
        jobs = {"sender": self.sender.run, "metadata": self.metadata.run}
        if self.transactions is not None:
            jobs["transactions"] = self.transactions.run
        elif self.identity.is_enabled:
            jobs["producer-id"] = self.producer_ids.run
            self.producer_ids.ask()
        self._supervisor.start(jobs)
        if wait:
            deadline = self.loop.time() + self._config.max_block_ms / 1000
            await self.metadata.first_answer(self._config.max_block_ms / 1000)
            if self.transactions is not None:
                await self.transactions.initialized(deadline=deadline)
        if self.lifecycle.state is ProducerState.FAILED:
            raise self.lifecycle.failure()
        self.appender.open()
        self.is_shut = False
        self.appender.closed = self.transactions is not None  # until a transaction begins
        self.lifecycle.move_to(ProducerState.RUNNING)
        self._log.info("producer_started", bootstrap_servers=list(self._config.bootstrap_servers))

    def stop_taking(self) -> None:
        """Take no record any more."""
        # Two flags: between transactions no record is taken (`closed`), but `flush` still works (`is_shut`).
        self.is_shut = self.appender.closed = True

    async def close(self, timeout_s: float) -> None:
        """Deliver what was accepted, for at most `timeout_s` seconds; fail the rest; let everything go.

        Raises:
            UndeliveredError: records failed and nobody looked.
        """
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
            if self.transactions is not None:
                self.transactions.fail(ProducerClosedError(f"producer {self.lifecycle.name!r} was closed"))
            self.metadata_waits.end()
            await self.client.close()
            await self._supervisor.stop()
            self.preparation.close()
            # Last: a close that is cancelled before this must leave the failures to the next close.
            error = await self.completion.take_error(failed)
            self.lifecycle.move_to(ProducerState.CLOSED)
        finally:
            self.completion.unseen.end_flush(failed)
        self._log.info("producer_closed", records_undelivered=error.count if error is not None else 0)
        if error is not None:
            raise error

    async def _drain(self) -> None:
        if not await self.flushes.drain(self.transactions.endings.finish if self.transactions is not None else None):
            timeout_s = self.flushes.drain_timeout_s
            self._log.warning("close_timed_out", timeout_s=timeout_s, unfinished=self.generations.unfinished)

    def _fail_rest(self) -> None:
        if self.generations.unfinished:
            timeout_s = self.flushes.drain_timeout_s
            text = f"the producer was closed before the record was delivered (timeout {timeout_s:g} s)"
            self._fail_everything(ProducerClosedError(text))

    def abandon(self) -> None:
        """Stop without waiting: the face was dropped unclosed, and nobody else ends what is pending."""
        self.fail(ProducerClosedError(f"producer {self.lifecycle.name!r} was dropped without close()"))
        self._supervisor.abandon()
        self.client.abandon()

    def fail(self, cause: BaseException) -> None:
        """Fail everything, now and later, with `cause`: a background task has died."""
        self.lifecycle.fail(cause)
        self.stop_taking()
        if self.lifecycle.state is ProducerState.FAILED:
            if self.lifecycle.cause is cause:  # else it has failed before, and this follows from that
                self._log.error("producer_failed", error=f"{type(cause).__name__}: {cause}")
            self._fail_everything(self.lifecycle.failure())
            self.metadata.fail_waiting(self.lifecycle.failure())
            self.metadata_waits.end()
            self.calls.end()
            if isinstance(cause, BackgroundTaskDiedError):
                self.client.abandon()  # `asyncio.run` ends the loop: nothing could close them later
            if self.transactions is not None:
                self.transactions.fail(self.lifecycle.failure())

    def _fail_everything(self, error: KafkaError) -> None:
        self.lines.fail_all(error)
        self.settlement.fail_everything(error, self.loop.time())

    def _fail_for_good(self, error: KafkaError) -> None:
        self.fail(fatal_error(error, self._config.transactional_id))
        self._supervisor.abandon()

    # What parts tell each other

    def close_generation(self) -> int:
        """Close the open batches; what was accepted until now is unfinished up to the returned generation."""
        generation = self.generations.close()
        self.open_batches.close_all()
        return generation

    def wake(self) -> None:
        """Tell the sender that something may have become possible."""
        self.sender.wake()

    def _memory_returned(self) -> None:
        if self.lines.records:
            self.wake()

    def refuse(self) -> None:
        """Raise what a call gets that cannot be served now."""
        if self.transactions is not None and not self.is_shut and self.appender.own_loop.is_here():
            self.transactions.refusals.refuse()
        self.lifecycle.refuse(self.appender.own_loop)

    def _batch_closed(self, topic_partition: TopicPartition, size: int) -> None:
        self._closed_bytes += max(size, SMALLEST_CHUNK)
        if self._closed_bytes >= PAUSE_AFTER_BYTES:
            self._closed_bytes = 0
            self.appender.pause_wanted = True
        self.preparation.batch_closed(topic_partition)

    def _cluster_changed(self, cluster: Cluster) -> None:
        usable = self.accumulator.update_cluster(cluster)
        for topic in usable:
            self.lines.topic_known(topic)
        self.lines.leaders_changed()
        for topic in self.lines.unknown_topics:
            if (error := self.metadata_waits.topic_refusal(topic)) is not None:
                self.lines.topic_failed(topic, error)
        self.metadata_waits.end()
        self.wake()

    # Records that wait

    def stand_in_line(self, record: WaitingRecord, *, is_counted: bool) -> None:
        """Let a record wait for its topic or for memory."""
        if record.topic not in self.appender.topics:
            self.metadata.add_topic(record.topic, record.called_at)
        self.lines.join(record, is_counted=is_counted)
        self.wake()

    def new_result(self) -> BatchResult:
        """The result of a record that is in no batch yet."""
        return BatchResult(self.loop, None)
