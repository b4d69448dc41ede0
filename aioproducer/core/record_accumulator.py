"""Where records wait to be sent: an open batch a partition, and the queues of batches behind it.

The native `RecordAppender` writes records into open batches and asks here once a batch: for room, for a partition
of keyless records. The sender asks what is ready and drains it. A partition becomes ready at the moment one of
these happens, and is then offered to its leader's queue (`ready_nodes.py`):

    batch full · linger over · someone awaits · memory short · flush or close · backoff over · leader known again
    · the wire has room again

Source: RecordAccumulator in Apache Kafka, without its locks and its scans.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from aioproducer._native.append import RecordBatchBuilder
from aioproducer._native.delivery import BatchResult
from aioproducer.core.buffer_pool import SMALLEST_CHUNK
from aioproducer.core.delivery_deadlines import DeliveryDeadlines
from aioproducer.core.partitions_in_use import PartitionsInUse, queue_of
from aioproducer.core.producer_batch import ORDER_STEP, BatchState, ProducerBatch
from aioproducer.core.ready_nodes import ReadyNodes
from aioproducer.core.record_batch_header import HEADER_SIZE
from aioproducer.errors import InvalidPartitionError, Outcome, RecordTooLargeError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from aioproducer._native.append import PartitionSlot, TopicSlots
    from aioproducer._native.delivery import Delivery
    from aioproducer.core.buffer_pool import BufferPool
    from aioproducer.core.cluster import Cluster
    from aioproducer.core.flush_generations import FlushGenerations
    from aioproducer.core.partitions_in_use import RandomChoice
    from aioproducer.core.producer_identity import ProducerIdentity
    from aioproducer.core.partition_queue import PartitionQueue
    from aioproducer.core.timer_heap import TimerHeap
    from aioproducer.records import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class AccumulatorSettings:
    """The values of the configuration that batching depends on; times in seconds, sizes in bytes."""

    batch_size: int
    max_record_size: int
    max_record_option: str
    linger_s: float
    delivery_timeout_s: float
    max_in_flight: int
    max_request_size: int
    compression: int = 0
    is_adaptive: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the accumulator works with."""

    pool: BufferPool
    timers: TimerHeap
    generations: FlushGenerations
    producer_identity: ProducerIdentity
    random: RandomChoice
    clock: Callable[[], float]
    wake: Callable[[], None]
    loop: asyncio.AbstractEventLoop


class RecordAccumulator:
    """Open and queued batches of all partitions in use."""

    def __init__(self, settings: AccumulatorSettings, surroundings: Surroundings) -> None:
        """Start with no topic."""
        self._settings = settings
        self._pool = surroundings.pool
        self._timers = surroundings.timers
        self._generations = surroundings.generations
        self._clock = surroundings.clock
        self._wake = surroundings.wake
        self._loop = surroundings.loop
        self._open: dict[PartitionQueue, None] = {}
        self.deadlines = DeliveryDeadlines(surroundings.timers, settings.delivery_timeout_s)
        self._unsealed: list[ProducerBatch] = []
        self._batch_limits: dict[str, int] = {}
        self._records_closed = 0
        self.partitions = PartitionsInUse(
            surroundings.producer_identity,
            max_in_flight=settings.max_in_flight,
            random=surroundings.random,
            set_leader=self._set_leader,
            is_adaptive=settings.is_adaptive,
        )
        self.ready = ReadyNodes()
        self.memory_is_short = False
        self.batch_was_closed: Callable[[TopicPartition, int], None] = _nothing

    # Topics and leaders

    @property
    def topics(self) -> dict[str, TopicSlots]:
        """Those in use, by name; the appender looks them up here."""
        return self.partitions.topics

    def update_cluster(self, cluster: Cluster) -> list[str]:
        """Follow new metadata; returns the topics that became usable."""
        fresh = self.partitions.update(cluster)
        self._pool.set_nodes(self.partitions.leaders)
        return fresh

    def _set_leader(self, queue: PartitionQueue, leader_id: int | None) -> None:
        self.ready.withdraw(queue)
        queue.leader_id = leader_id
        queue.identity.doubt()
        for batch in queue.queued:
            batch.not_before = 0.0
        self.offer(queue)

    # What the appender asks

    def make_room(self, slot: PartitionSlot, size: int) -> bool:
        """Give the partition a builder with room for a record of at most `size` bytes; False: no memory now."""
        queue = queue_of(slot)
        if queue.open_batch is not None:
            if self._grow(queue, queue.open_batch, size):
                return True
            self._close_full(queue)
        return self._open_batch(queue, size)

    def batch_full(self, slot: PartitionSlot) -> None:
        """Queue the open batch: it takes no more."""
        self._close_full(queue_of(slot))

    def choose_partition(self, topic: TopicSlots, previous: int) -> int:  # noqa: ARG002  # adaptive, not rotating
        """Choose the next sticky partition of keyless records."""
        return self.partitions.choose(topic)

    def unknown_partition(self, topic: TopicSlots, partition: int) -> NoReturn:
        """Refuse a partition number that the topic does not have.

        Raises:
            InvalidPartitionError: always.
        """
        message = f"partition must be 0..{len(topic.slots) - 1} for topic {topic.topic!r}, got {partition}"
        raise InvalidPartitionError(message, topic=topic.topic, partition=partition, outcome=Outcome.NOT_WRITTEN)

    def too_large(self, topic: str, size: int) -> RecordTooLargeError:
        """The error of a record that no batch can hold."""
        limit = self._settings.max_record_size
        option = self._settings.max_record_option
        message = (
            f"the record for topic {topic!r} takes up to {size} bytes, more than the {limit} bytes that {option} "
            f"allows; raise {option}, or send less in one record"
        )
        return RecordTooLargeError(
            message, size_bytes=size, limit_bytes=limit, option=option, topic=topic, outcome=Outcome.NOT_WRITTEN
        )

    def adopt(self, delivery: Delivery, generation: int, called_at: float) -> None:
        """Let the batch that a waiting record has just joined answer for that record's flush and deadline.

        Args:
            delivery: of the record, in its batch.
            generation: of flushes, in which the record was accepted.
            called_at: monotonic seconds of its call.
        """
        assert delivery.home.topic_partition is not None
        queue = self.partitions.queue(delivery.home.topic_partition)
        batches = (queue.open_batch, *reversed(queue.queued))
        batch = next(batch for batch in batches if batch is not None and batch.result is delivery.home)
        batch.called_at = min(batch.called_at, called_at)
        if generation < batch.generation:
            self._generations.enter_again(generation)
            self._generations.leave(batch.generation)
            batch.generation = generation
        if batch is queue.open_batch and generation < self._generations.current:
            self._make_ready(queue, batch)

    # Opening and closing batches

    def _limit_of(self, queue: PartitionQueue) -> int:
        return self._batch_limits.get(queue.topic_partition.topic, self._settings.batch_size)

    def _grow(self, queue: PartitionQueue, batch: ProducerBatch, size: int) -> bool:
        builder = queue.slot.builder
        assert builder is not None
        needed = builder.size + size
        if needed > builder.limit or builder.limit > self._limit_of(queue):
            return False
        chunk = self._pool.try_lend(
            min(max(needed, 4 * builder.chunk.capacity), self._limit_of(queue)), queue.leader_id
        )
        if chunk is None:
            return False
        old = builder.chunk
        builder.move_to(chunk)
        batch.chunk = chunk
        self._pool.give_back(old)
        return True

    def _open_batch(self, queue: PartitionQueue, size: int) -> bool:
        limit = self._limit_of(queue)
        hint = min(queue.capacity_hint, limit) if self._pool.available_bytes > self._pool.total_bytes // 2 else 0
        chunk = self._pool.try_lend(max(size, hint, min(SMALLEST_CHUNK, limit)), queue.leader_id)
        if chunk is None:
            chunk = self._pool.try_lend(size, queue.leader_id)
        if chunk is None:
            return False
        now = self._clock()
        result = BatchResult(self._loop, queue.topic_partition)
        batch = ProducerBatch(queue, result, chunk, order=queue.next_order, called_at=now)
        queue.next_order += ORDER_STEP
        batch.generation = self._generations.enter()
        builder = RecordBatchBuilder(chunk, result, max(limit - HEADER_SIZE, 0))
        batch.write_with(builder)
        queue.open_batch, queue.slot.builder = batch, builder
        self._open[queue] = None
        result.on_wanted = self._wanted
        self._arm_timers(queue, batch)
        return True

    def _arm_timers(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        if self._settings.linger_s <= 0 or self.memory_is_short:
            self._make_ready(queue, batch)
        if not queue.linger_armed:
            queue.linger_armed = True
            self._timers.schedule(batch.called_at + self._settings.linger_s, partial(self._linger_over, queue))
        self.deadlines.watch(queue)

    def close_open(self, queue: PartitionQueue) -> None:
        """Take the open batch off the appender and queue it; nothing happens if there is none."""
        batch = queue.take_open()
        if batch is None:
            return
        self._note_closed(queue, batch)
        self.offer(queue)

    def _close_full(self, queue: PartitionQueue) -> None:
        batch = queue.open_batch
        self.close_open(queue)
        self.batch_was_closed(queue.topic_partition, batch.size if batch is not None else 0)

    def _note_closed(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        self._open.pop(queue, None)
        queue.capacity_hint = batch.chunk.capacity
        self._records_closed += batch.count

    @property
    def records(self) -> int:
        """Records that were ever appended."""
        builders = (queue.slot.builder for queue in self._open)
        return self._records_closed + sum(builder.count for builder in builders if builder is not None)

    def close_all_open(self) -> None:
        """Queue every open batch: a flush is running."""
        for queue in list(self._open):
            self.close_open(queue)

    def hurry(self) -> None:
        """Make every open batch ready: memory is short, and half-empty batches would wait out their linger."""
        for queue in self._open:
            if queue.open_batch is not None:
                self._make_ready(queue, queue.open_batch)

    # Becoming ready

    def offer(self, queue: PartitionQueue) -> None:
        """Offer a partition to its leader if it has something that may be sent."""
        if queue.first_sendable() is not None:
            self.ready.offer(queue)
            self._wake()

    def _make_ready(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        if not batch.is_ready:
            batch.is_ready = True
            self.offer(queue)

    def _wanted(self, result: BatchResult) -> None:
        assert result.topic_partition is not None
        queue = self.partitions.queue(result.topic_partition)
        if queue.open_batch is not None and queue.open_batch.result is result:
            self._make_ready(queue, queue.open_batch)

    def _linger_over(self, queue: PartitionQueue, now: float) -> None:
        """Runs when the open batch's linger may be over, and once more when it must close to keep its deadline tight."""
        queue.linger_armed = False
        batch = queue.open_batch
        if batch is None:
            return
        if now < batch.called_at + self._settings.linger_s:
            due = batch.called_at + self._settings.linger_s
        elif now < batch.called_at + self._settings.delivery_timeout_s / 10:
            self._make_ready(queue, batch)
            due = batch.called_at + self._settings.delivery_timeout_s / 10
        else:
            self.close_open(queue)
            return
        queue.linger_armed = True
        self._timers.schedule(due, partial(self._linger_over, queue))

    # Draining

    def drain(self, node_id: int, connection: int, now: float) -> list[ProducerBatch]:
        """Take the batches of one request to a node: at most one a partition, at least one if any may go.

        Args:
            node_id: the leader.
            connection: which of its connections, so that order across reconnects holds.
            now: monotonic seconds.
        """
        drained: list[ProducerBatch] = []
        size = 0
        again: list[PartitionQueue] = []
        for _ in range(self.ready.count(node_id)):
            queue = self.ready.take_first(node_id)
            batch = queue.next_to_send(connection, now) if queue is not None else None
            if queue is None or batch is None or not self._is_sealed(queue, batch):
                continue
            if drained and size + batch.wire_size > self._settings.max_request_size:
                self.ready.offer_first(queue)
                break
            queue.put_on_wire(batch, connection, now)
            drained.append(batch)
            size += batch.wire_size
            again.append(queue)
        for queue in again:
            if queue.first_sendable() is not None:
                self.ready.offer(queue)
        return drained

    def _is_sealed(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        if batch.state is BatchState.OPEN:
            queue.take_open()
            self._note_closed(queue, batch)
        if batch.is_sealed or not self._settings.compression:
            return True
        batch.move_to(BatchState.SEALING)
        self._unsealed.append(batch)
        return False

    def take_unsealed(self) -> list[ProducerBatch]:
        """Take the batches that wait to be compressed; `sealed` gives each back."""
        unsealed, self._unsealed = self._unsealed, []
        return unsealed

    def sealed(self, batch: ProducerBatch, data: bytes | None) -> None:
        """Go on with a batch that was compressed to `data`; None: it did not get smaller, send it as it is."""
        batch.is_sealed = True
        if batch.state is BatchState.DONE:
            self._pool.give_back(batch.chunk)
            return
        if data is not None:
            batch.replace_records(self._pool.replace(batch.chunk, data), len(data), self._settings.compression)
        batch.move_to(BatchState.QUEUED)
        self.offer(batch.queue)

    # Coming back

    def put_back(self, batch: ProducerBatch, *, not_before: float) -> None:
        """Queue a batch that was on the wire for another attempt, not earlier than `not_before`."""
        batch.not_before = not_before
        batch.queue.put_back(batch)
        self._timers.schedule(not_before, partial(self._backoff_over, batch.queue))
        self.deadlines.watch(batch.queue)

    def _backoff_over(self, queue: PartitionQueue, now: float) -> None:  # noqa: ARG002  # a timer's callback
        self.offer(queue)

    def lower_limit(self, topic: str, size: int) -> None:
        """Make later batches of a topic smaller: the broker refused one of `size` bytes."""
        limit = self._batch_limits.get(topic, self._settings.batch_size)
        self._batch_limits[topic] = max(min(limit, size // 2), SMALLEST_CHUNK // 2)

    # Ends

    def close_overdue(self, queue: PartitionQueue, now: float) -> None:
        """Close the open batch of a partition if its deadline has come."""
        if queue.open_batch is not None and self.deadlines.is_over(queue.open_batch, now):
            self.close_open(queue)

    def unfinished(self) -> list[ProducerBatch]:
        """Every batch that was accepted and has no end, after closing the open ones."""
        self.close_all_open()
        return [batch for queue in self.partitions.queues() for batch in (*queue.on_wire, *queue.queued)]

    def __repr__(self) -> str:
        """Show what is ready."""
        return f"<RecordAccumulator topics={len(self.topics)} open={len(self._open)} {self.ready!r}>"


def _nothing(_: TopicPartition, _size: int) -> None:
    """Stands for a listener that nobody has set."""
