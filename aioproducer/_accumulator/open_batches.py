"""Open batches, which records are being written into: one per partition, opened on demand, grown, and closed.

The native `RecordAppender` calls this once per batch: for room for a record, or a partition for keyless ones. A batch
begins with a small chunk and grows by factors of four up to its limit; each chunk is lent before it is used. If there
is no memory to grow, the next record waits if batches of its partition will soon give some back, because a small batch
costs as much work as a large one; otherwise the batch is closed, not failed.

A batch becomes ready when its linger is over, or that of another one for its node that lingers as long, when a caller
awaits one of its records, or at once while memory is short. It is closed when it is full, when it is drained, by a
flush, and when its oldest record is a tenth of `delivery.timeout.ms` old, so that no record's deadline is far from its
batch's.

Source: the append side of RecordAccumulator in Apache Kafka, without its locks.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from aioproducer._accumulator.buffer_pool import SMALLEST_CHUNK, BufferPool
from aioproducer._accumulator.partition import ORDER_STEP, Batch
from aioproducer._native.append import HEADER_SIZE
from aioproducer._native.delivery import BatchResult
from aioproducer.errors import InvalidPartitionError, Outcome, RecordTooLargeError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection, Mapping

    from aioproducer._accumulator.delivery_deadlines import DeliveryDeadlines
    from aioproducer._accumulator.events import ProducerEvents
    from aioproducer._accumulator.flush_generations import FlushGenerations
    from aioproducer._accumulator.partition import BatchOptions, Node, Partition, RecordDeadline, Topic
    from aioproducer._accumulator.producer_identity import ProducerIdentity
    from aioproducer._accumulator.topic_partitions import TopicPartitions
    from aioproducer._native.delivery import Delivery
    from aioproducer._native.measures import Measures
    from aioproducer._native.memory import Chunk
    from aioproducer._timing.retry_backoff import RandomSource
    from aioproducer._timing.timers import TimerHeap
    from aioproducer._timing.wakeup import Wakeup

SMALLEST_LIMIT: Final = SMALLEST_CHUNK // 2
BATCHES_BEFORE_GROWTH: Final = 1000
GROWTH: Final = 1.05

MOST_PER_STEP: Final = 128
"""Partitions that are opened, made ready, drained or ended in one step of the event loop. Ten thousand that become
ready at once would hold the loop up for a tenth of a second or more."""


class AccumulatorSettings(NamedTuple):
    """Configuration of batching; sizes in bytes."""

    batch_size: int
    max_record_size: int
    max_record_option: str
    max_in_flight: int
    max_request_size: int
    is_adaptive: bool = True
    availability_timeout_s: float = 0.0
    rack: str | None = None  # of the client, if keyless records go to leaders in it
    is_transactional: bool = False


class AccumulatorDependencies(NamedTuple):
    """The parts and settings that the accumulator works with."""

    pool: BufferPool
    timers: TimerHeap
    generations: FlushGenerations
    producer_identity: ProducerIdentity
    random: RandomSource
    clock: Callable[[], float]
    wakeup: Wakeup
    events: ProducerEvents
    options: BatchOptions  # of topics that are not in the next
    topic_options: Mapping[str, BatchOptions]  # grows; no function, to save a call per batch
    loop: asyncio.AbstractEventLoop
    measures: Measures


class OpenBatches:  # noqa: PLR0904  # all calls concern one dictionary
    """Open batches of all partitions in use; `offer` is called with one that may have something to send now."""

    def __init__(  # one line per fact
        self,
        settings: AccumulatorSettings,
        dependencies: AccumulatorDependencies,
        *,
        partitions: TopicPartitions,
        deadlines: DeliveryDeadlines,
        offer: Callable[[Partition], None],
    ) -> None:
        self._settings = settings
        self._pool = dependencies.pool
        self._timers = dependencies.timers
        self._generations = dependencies.generations
        self.clock = dependencies.clock
        self._options = dependencies.options
        self._topic_options = dependencies.topic_options
        self._loop = dependencies.loop
        self.measures = dependencies.measures
        self.partitions = partitions
        self._deadlines = deadlines
        self._events = dependencies.events
        self._offer = offer
        # Batches that are not ready, by leader and linger: a topic with a longer linger of its own keeps it.
        self._lingering: defaultdict[tuple[Node | None, float], dict[Partition, None]] = defaultdict(dict)
        self._open: dict[Partition, dict[Partition, None]] = {}  # each with the group it lingers with
        self.limits = BatchSizeLimits(settings.batch_size)
        self._records_closed = 0
        self._opened = 0  # batches
        self.memory_is_short = False  # records wait for memory, so new batches are ready at once
        self.may_use_common = True
        """Whether batches may use the common memory, which may be kept for a waiting record; reserves stay usable."""
        self._aged: list[Partition] = []
        self._wakeup = dependencies.wakeup
        # Batches that wait for a later step, in order: each once, though flushes and shortages may come in every turn.
        self._to_close: dict[Batch, None] = {}
        self._to_make_ready: dict[Batch, None] = {}

    @property
    def topics(self) -> dict[str, Topic]:
        """Topics in use, by name; the appender looks them up here."""
        return self.partitions.topics

    # Calls of the appender

    def make_room(self, partition: Partition, size: int) -> bool:
        """Give the partition an open batch with room for up to `size` bytes; False if there is no memory."""
        # Waiting for a large batch makes batches three times as large while the buffer is full. A partition that gives
        # no memory back must not wait, nor one in a buffer of few batches: it would take what the others need.
        is_patient = self._pool.is_roomy and partition.is_moving  # computed before this closes a batch
        while (batch := partition.open_batch) is not None:  # a partitioner may send here when it learns of a full batch
            if self._may_grow(partition, batch, size):
                if self._grow(partition, batch, size):
                    return True
                if is_patient:
                    self._make_ready(partition, batch)  # no linger while a record waits
                    return False
            self.batch_full(partition)
        return self._open_batch(partition, size, is_patient=is_patient)

    def choose_partition(self, topic: Topic) -> int:
        return self.partitions.choose(topic, self.clock())

    def unknown_partition(self, topic: Topic, partition: int) -> NoReturn:
        # The partition may just have been added. Refused at once all the same: Kafka's client waits `max.block.ms`,
        # which makes every wrong partition number cost a minute.
        self._events.unknown_partition(topic.topic)
        message = (
            f"partition must be 0..{len(topic.partitions) - 1} for topic {topic.topic!r}, got {partition}; brokers are "
            "asked again, so if it was added just now, a later call finds it"
        )
        raise InvalidPartitionError(message, topic=topic.topic, partition=partition, outcome=Outcome.NOT_WRITTEN)

    def too_large(self, topic: str, size: int) -> RecordTooLargeError:
        limit = self._settings.max_record_size
        option = self._settings.max_record_option
        message = (
            f"the record for topic {topic!r} takes up to {size} bytes, more than the {limit} bytes that {option} "
            f"allows; raise {option}, or send less in one record"
        )
        return RecordTooLargeError(
            message, size_bytes=size, limit_bytes=limit, option=option, topic=topic, outcome=Outcome.NOT_WRITTEN
        )

    def take_over_waiting_record(self, delivery: Delivery, generation: int, called_at: float) -> None:
        """Make the batch that a waiting record has just joined responsible for that record's flush and deadline."""
        batch = self._batch_of(delivery)
        partition = batch.partition
        batch.called_at = min(batch.called_at, called_at)
        self._deadlines.watch(batch)
        if batch is partition.open_batch:
            self._watch(partition, batch)
            self._aged.append(partition)
        if generation < batch.generation:
            self._generations.enter_again(generation)
            self._generations.leave(batch.generation)
            batch.generation = generation
        if batch is partition.open_batch and generation < self._generations.current:
            self._make_ready(partition, batch)

    def set_deadline(self, delivery: Delivery, deadline: RecordDeadline) -> None:
        """Let a record that was just appended end at a deadline of its own."""
        self._deadlines.set_deadline(self._batch_of(delivery), delivery, deadline)

    def _batch_of(self, delivery: Delivery) -> Batch:
        """Return the batch of a record that was just appended."""
        result = delivery._batch_result
        assert result.topic_partition is not None
        partition = self.partitions.find(result.topic_partition)
        batches = chain((partition.open_batch,), reversed(partition.queued))  # nearly always the first or the second
        return next(batch for batch in batches if batch is not None and batch.result is result)

    def close_if_apart(self, partition: Partition, called_at: float) -> None:
        """Close the open batch of a partition if a record called at that time must not share its deadline."""
        batch = partition.open_batch
        if batch is not None and abs(batch.called_at - called_at) > batch.options.closing_age_s:
            self.close(partition)

    def close_aged(self) -> None:
        """Close batches that waiting records have made too old for new records."""
        aged, self._aged = self._aged, []
        if aged:
            now = self.clock()
            for partition in aged:
                batch = partition.open_batch
                if batch is not None and batch.called_at <= now - batch.options.closing_age_s:
                    self.close(partition)

    # Opening and closing batches

    def options_of(self, topic: str) -> BatchOptions:
        return self._topic_options.get(topic, self._options)

    def _limit_of(self, partition: Partition) -> int:
        return self.limits.of(partition.topic_partition.topic)

    def _may_grow(self, partition: Partition, batch: Batch, size: int) -> bool:
        return batch.size + size <= batch.limit <= self._limit_of(partition)

    def _grow(self, partition: Partition, batch: Batch, size: int) -> bool:
        needed = batch.size + size
        chunk = self._lend(min(max(needed, 4 * batch.chunk.capacity), self._limit_of(partition)), partition)
        if chunk is None:
            chunk = self._lend(needed, partition)
        if chunk is None:
            return False
        old = batch.chunk
        batch.continue_in(chunk)
        self._pool.give_back(old)
        return True

    def _open_batch(self, partition: Partition, size: int, *, is_patient: bool) -> bool:
        limit = self._limit_of(partition) if self.limits.by_topic else self._settings.batch_size
        has_plenty = self._pool.lent_bytes < self._pool.total_bytes // 2
        hint = min(partition.last_size, limit) if is_patient or has_plenty else 0
        chunk = self._lend(max(size, hint, min(SMALLEST_CHUNK, limit)), partition)
        if chunk is None and not is_patient:
            chunk = self._lend(size, partition)
        if chunk is None:
            return False
        try:
            # Anything here may fail for lack of memory; the chunk must not stay lent.
            batch = self._begin(partition, chunk, limit)
        except MemoryError:
            self._open.pop(partition, {}).pop(partition, None)
            self._pool.give_back(chunk)
            raise
        if batch.options.ready_age_s <= 0 or self.memory_is_short:
            self._make_ready(partition, batch)
        self._watch(partition, batch)
        expiry_timer = partition.expiry_timer  # an earlier one stays; asked here to spare nearly every batch two calls
        if expiry_timer is None or expiry_timer.when > batch.called_at + batch.options.delivery_timeout_s:
            self._deadlines.watch(batch)
        return True

    def _begin(self, partition: Partition, chunk: Chunk, limit: int) -> Batch:
        result = BatchResult(self._loop, partition.topic_partition)
        result.on_wanted = partial(self._events.batch_wanted, partition)
        options = self._topic_options.get(partition.topic_partition.topic, self._options)
        batch = Batch(
            partition,
            result,
            chunk,
            options,
            partition.next_order,
            self.clock(),
            max(limit - HEADER_SIZE, 0),
            self.measures.record_size,
        )
        partition.next_order += ORDER_STEP
        self._open[partition] = lingering = self._lingering[partition.leader, options.ready_age_s]
        lingering[partition] = None
        batch.generation = self._generations.enter()
        self._opened += 1
        if self._opened % MOST_PER_STEP == 0:
            self._events.many_batches_opened()
        partition.open_batch = batch
        if self._settings.is_transactional:
            self._events.batch_opened(partition)
        return batch

    def _lend(self, size: int, partition: Partition) -> Chunk | None:
        """Borrow for a partition; a stalled one leaves its node's reserve to the node's other partitions."""
        chunk = self._pool.try_lend(size, None, may_use_common=self.may_use_common)
        if chunk is not None or partition.leader is None or partition.is_stalled:
            return chunk
        return self._pool.try_lend(size, partition.leader.reserve, may_use_common=False)

    def close(self, partition: Partition) -> None:
        batch = partition.take_open()
        if batch is None:
            return
        self.note_closed(partition, batch)
        self._offer(partition)

    def batch_full(self, partition: Partition) -> None:
        """Close a batch without room for the next record."""
        batch = partition.open_batch
        self.close(partition)
        self._events.batch_filled(partition.topic_partition, batch.size if batch is not None else 0)

    def note_closed(self, partition: Partition, batch: Batch) -> None:
        """Forget an open batch that was closed; the next of its partition begins with the same size."""
        self._open.pop(partition, {}).pop(partition, None)
        partition.last_size = batch.size
        self._records_closed += batch.count
        if not self._settings.is_transactional:  # a transaction would pay for each partition more
            partition.topic.note_batch(partition, self.clock())

    @property
    def records(self) -> int:
        """Number of all records ever appended."""
        batches = [partition.open_batch for partition in list(self._open)]  # a copy: other threads may read it
        return self._records_closed + sum(batch.count for batch in batches if batch is not None)

    @property
    def room(self) -> str:
        pool = self._pool
        return f"{pool.available_bytes:,} of buffer_memory={pool.total_bytes:,} bytes are free"

    def close_all(self) -> None:
        for partition in list(self._open):
            self.close(partition)

    def close_soon(self) -> None:
        """Close the batches that are open now: many of them in later turns of the sender."""
        self._begin_work(self._to_close, self._open)

    def _begin_work(self, work: dict[Batch, None], partitions: Collection[Partition]) -> None:
        """Do a first part of what is to be done with the open batches of partitions."""
        has_begun = self.has_more
        batches = {batch: None for partition in partitions if (batch := partition.open_batch) is not None}
        assert len(batches) == len(partitions), "closed without a note of it"
        work.update(batches)
        if not has_begun:  # else each of many timers that fire together would do a part
            self.go_on()

    def go_on(self) -> None:
        """Close batches and make batches ready, as many as one step may, and wake the sender if there are more."""
        for batch in _first_of(self._to_close):
            if batch.partition.open_batch is batch:
                self.close(batch.partition)
        for batch in _first_of(self._to_make_ready):
            if batch.partition.open_batch is batch:
                self._make_ready(batch.partition, batch)
        if self.has_more:
            self._wakeup.set()

    @property
    def has_more(self) -> bool:
        """Whether batches are still to be closed or made ready."""
        return bool(self._to_close or self._to_make_ready)

    def note_shortage(self, *, is_short: bool) -> None:
        was_short, self.memory_is_short = self.memory_is_short, is_short
        if is_short and not was_short:
            self.make_all_ready()

    def note_waiting(self, *, any_waits: bool) -> None:
        """Be told whether records wait: then the sender is woken when memory comes back."""
        self._pool.is_awaited = any_waits

    def make_all_ready(self) -> None:
        self._begin_work(self._to_make_ready, self._open)

    # Becoming ready

    def _make_ready(self, partition: Partition, batch: Batch) -> None:
        if self.end_linger(partition, batch.result) is not None:
            self._offer(partition)

    def end_linger(self, partition: Partition, result: BatchResult) -> Batch | None:
        """Mark the open batch with this result as ready and return it; None if it was ready already, or is closed.

        The caller must offer the partition, or send the batch.
        """
        batch = partition.open_batch
        if batch is None or batch.result is not result or batch.is_ready:
            return None
        batch.is_ready = True
        self._open[partition].pop(partition, None)
        return batch

    def is_only(self, partition: Partition) -> bool:
        """Whether no other partition has an open batch."""
        return len(self._open) == 1 and partition in self._open

    def take_lone(self, batch: Batch, connection_number: int, now: float) -> None:
        """Close an open batch and put it on the wire: all that there is to send, and not to be compressed."""
        assert not batch.options.codec, "a batch that is to be compressed waits for a turn"
        partition = batch.partition
        partition.take_open()
        self.note_closed(partition, batch)
        partition.put_on_wire(batch, connection_number, now)

    def _watch(self, partition: Partition, batch: Batch) -> None:
        """Check the open batch when its linger is over, then when its records are too far apart to accept more.

        There is one timer per partition: an earlier one stays, and checks the batch that is open then.
        """
        options = batch.options
        when = batch.called_at + (options.closing_age_s if batch.is_ready else options.ready_age_s)
        if partition.open_timer is not None:
            # A timer that fires too late is no help: without this check a record once waited 12 s instead of 5 ms.
            if partition.open_timer.when <= when:
                return
            partition.open_timer.cancel()
        partition.open_timer = self._timers.schedule(when, partial(self._look, partition))

    def _look(self, partition: Partition, now: float) -> None:
        # The batch for which the timer was set may have left long ago: look at the one that is open now.
        partition.open_timer, batch = None, partition.open_batch
        if batch is None:
            return
        if not batch.is_ready and now >= batch.called_at + batch.options.ready_age_s:
            self._make_ready_with_others(partition)
            self._make_ready(partition, batch)  # it may wait for a later step
        if now >= batch.called_at + batch.options.closing_age_s:
            self.close(partition)
        else:
            self._watch(partition, batch)

    def _make_ready_with_others(self, partition: Partition) -> None:
        """Make all batches ready that linger as long for the same node, so that they share a request."""
        # All of them, not only those past half of their linger: a busy partition beside idle ones would be sent half
        # full.
        group = self._open[partition]
        self._begin_work(self._to_make_ready, group)
        group.clear()  # or the timer of each would begin again with all the others

    def __repr__(self) -> str:
        return f"<OpenBatches open={len(self._open)} memory_is_short={self.memory_is_short}>"


def _first_of(work: dict[Batch, None]) -> list[Batch]:
    """Take as many batches as one step may work on."""
    first = list(islice(work, MOST_PER_STEP))
    for batch in first:
        del work[batch]
    return first


@dataclass(slots=True)
class _Limit:
    size: int
    acknowledged: int = 0  # batches since the size has changed


class BatchSizeLimits:
    """Smaller batches for topics whose batches the broker refused as too large (MESSAGE_TOO_LARGE).

    A refusal halves the limit of a topic, and 1,000 acknowledged batches raise it by 5 %. A topic never refused has no
    limit of its own here, and costs nothing.

    Limits are uncompressed bytes, because batches are filled uncompressed, although the broker limits compressed ones.
    Apache Kafka estimates the compression ratio instead (CompressionRatioEstimator, KIP-126), and splits every batch of
    a topic whose `max.message.bytes` is below `batch.size`.
    """

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self.by_topic: dict[str, _Limit] = {}

    def of(self, topic: str) -> int:
        limit = self.by_topic.get(topic)
        return self._batch_size if limit is None else limit.size

    def refused(self, topic: str, uncompressed: int) -> None:
        # half of what was refused, not of the limit: several batches of one size may be refused at once
        self.by_topic[topic] = _Limit(max(min(uncompressed // 2, self.of(topic)), SMALLEST_LIMIT))

    def acknowledged(self, topic: str) -> None:
        limit = self.by_topic.get(topic)
        if limit is None:
            return
        limit.acknowledged += 1
        if limit.acknowledged == BATCHES_BEFORE_GROWTH:
            limit.size, limit.acknowledged = int(limit.size * GROWTH), 0
            if limit.size >= self._batch_size:
                del self.by_topic[topic]
