"""Records that cannot be appended yet: a queue for each unknown topic, and those for memory (`memory_wait_queues.py`).

Each partition is first come, first served. A keyless record waits in its topic's queue, and chooses its partition when
it is granted memory.

Records that no caller awaits are bounded in number and bytes; awaited records do not count. Each queue has one timer,
for its first record: `max.block.ms` is the same for all records of a topic, so no later one is due earlier.

Source: the `waiters` of BufferPool and `waitOnMetadata` of KafkaProducer in Apache Kafka.
"""

from __future__ import annotations

from functools import partial
from itertools import chain, count
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from aioproducer._accumulator.memory_wait_queues import BufferWaiters
from aioproducer._accumulator.wait_queue import WaitingRecord, WaitQueue
from aioproducer._native.append import RecordAppender
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._shown_values import how_to_create
from aioproducer.errors import (
    BrokerError,
    BufferFullError,
    BufferTimeoutError,
    KafkaError,
    MetadataTimeoutError,
    Outcome,
)
from aioproducer.explanation import WaitReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioproducer._accumulator.flush_generations import FlushGenerations
    from aioproducer._accumulator.open_batches import OpenBatches
    from aioproducer._native.delivery import BatchResult, Delivery
    from aioproducer._timing.timers import TimerHeap


class WaitingLimits(NamedTuple):
    """Bounds of the queues."""

    max_records: int  # waiting records that no caller awaits
    max_bytes: int
    max_block_s: float  # seconds that a record waits for metadata and memory together


class WaitQueues:
    """All wait queues of a producer.

    Args:
        generations: each waiting record is a unit of work of the flush that covers it.
        on_failed: called with a record that leaves its queue without a batch, and the error.
        trouble: returns the last error of a topic that is still unknown.
    """

    def __init__(  # noqa: PLR0913, PLR0917  # all parts that a waiting record concerns
        self,
        appender: RecordAppender,
        open_batches: OpenBatches,
        generations: FlushGenerations,
        timers: TimerHeap,
        *,
        limits: WaitingLimits,
        on_failed: Callable[[WaitingRecord, KafkaError], None],
        trouble: Callable[[str], KafkaError | None],
    ) -> None:
        self._appender = appender
        self._open_batches = open_batches
        self._generations = generations
        self._timers = timers
        self._limits = limits
        self._on_failed = on_failed
        self._trouble = trouble
        self._topics: dict[str, WaitQueue] = {}
        self._memory = BufferWaiters(appender, open_batches, on_appended=self._appended, on_refused=self._fail)
        self._order = count()
        self._by_result: dict[BatchResult, WaitingRecord] = {}
        self.records = 0
        self.bytes = 0
        self.exhausted = 0  # records refused or failed for lack of memory
        self._counted_records = 0
        self._counted_bytes = 0

    # Joining

    def has_room(self, size: int) -> bool:
        """Whether a record of `size` bytes that no caller would await may join a queue."""
        is_short = self._counted_records < self._limits.max_records
        return is_short and self._counted_bytes + size <= self._limits.max_bytes

    def check_room(self, record: WaitingRecord) -> None:
        """Raise if a record that no caller would await has no room in the queues."""
        if self.has_room(record.size):
            return
        if self._is_for_memory(record):
            # Counted only if memory is what the record lacks: users have alarms on this figure.
            self.exhausted += 1
        message = (
            f"{self._counted_records} records ({self._counted_bytes} bytes) wait for metadata or memory and no "
            f"caller awaits them; the bounds are max_waiting_records={self._limits.max_records} and "
            f"max_waiting_bytes={self._limits.max_bytes}: use `await producer.enqueue(...)`, which waits for room"
        )
        raise BufferFullError(message, outcome=Outcome.NOT_WRITTEN)

    def join(self, record: WaitingRecord, *, is_counted: bool) -> None:
        """Put a record in the queue of its topic or partition.

        Args:
            is_counted: no caller awaits it, so it counts towards the bounds until one does.
        """
        record.call_order = next(self._order)
        record.generation = self._generations.enter()
        if not self.records:
            self._open_batches.note_waiting(any_waits=True)
        self.records += 1
        self.bytes += record.size
        if is_counted:
            self._count(record)
        if record.deadline is not None:
            record.deadline_timer = self._timers.schedule(record.deadline.at, partial(self._past_deadline, record))
        if self._is_for_memory(record):
            self._join_memory(record)
            if record.is_waiting:
                self._memory.note_shortage()
        else:
            queue = self._topics.setdefault(record.topic, WaitQueue())
            queue.join(record)
            record.block(self._appender.topics.get(record.topic))
            self._watch(queue, partial(self._topic_too_late, record.topic, queue))

    def _is_for_memory(self, record: WaitingRecord) -> bool:
        """Whether the record lacks only memory, not metadata."""
        topic = self._appender.topics.get(record.topic)
        # A topic not used for long still has partitions here, but the user's partitioner must see current ones.
        return topic is not None and record.choose_partition is None and not topic.blocked_count

    def waiting(self) -> Iterator[tuple[WaitingRecord, WaitReason, str]]:
        """Yield each record with what it waits for, and what is known of that."""
        for topic, queue in list(self._topics.items()):
            trouble = str(self._trouble(topic) or "no broker has named them")
            yield from ((record, WaitReason.METADATA, trouble) for record in queue)
        room = self._open_batches.room
        yield from ((record, WaitReason.MEMORY, room) for record in self._memory)

    def limit_of(self, record: WaitingRecord) -> tuple[float, str]:
        """Return the seconds that a record waits at most, and the option that says so; its own deadline apart."""
        delivery_timeout_s = self._open_batches.options_of(record.topic).delivery_timeout_s
        limits = (self._limits.max_block_s, "max_block_ms"), (delivery_timeout_s, "delivery_timeout_ms")
        return min(limits, key=itemgetter(0))

    def withdraw(self, record: WaitingRecord) -> bool:
        """Remove a record whose caller gave up; return False if it has left its queue already."""
        if not record.is_waiting:
            return False
        self._leave(record)
        self._generations.leave(record.generation)
        return True

    # Topics

    @property
    def unknown_topics(self) -> list[str]:
        return [topic for topic, queue in self._topics.items() if len(queue)]

    @property
    def leaderless_topics(self) -> set[str]:
        return self._memory.leaderless_topics if self.records else set()

    def topic_known(self, topic: str) -> None:
        """Append the records that waited for a topic, in order; those without memory continue to wait."""
        if topic not in self._topics:
            return
        now, wait = self._open_batches.clock(), self._open_batches.measures.metadata_wait
        while (queue := self._topics.pop(topic, None)) is not None:  # a partitioner may send a record, which waits here
            queue.stop_watching()
            for record in queue:
                record.queue = None
                record.block(None)
                wait.record(now - record.since)
                record.since = now
                self._join_memory(record)
        self._memory.serve()

    def topic_failed(self, topic: str, error: KafkaError) -> None:
        for record in self._topics.get(topic, ()):
            self._fail(record, error)

    # Memory

    def serve(self) -> None:
        """Append as many records as memory allows; call it when memory was given back, or a record left a queue."""
        if len(self._memory):
            self._memory.serve()

    def leaders_changed(self) -> None:
        if len(self._memory):
            self._memory.leaders_changed()
            self._memory.serve()

    def _join_memory(self, record: WaitingRecord) -> None:
        try:
            owner = self._memory.owner_of(record)
        except Exception as error:  # noqa: BLE001  # of the user's own partitioner
            self._fail(record, _as_kafka_error(error))
            return
        queue = self._memory.join(record, owner)
        self._watch(queue, partial(self._memory_too_late, queue))

    def _appended(self, record: WaitingRecord, delivery: Delivery) -> None:
        self._note_memory_wait(record)
        self._leave(record)
        self._open_batches.take_over_waiting_record(delivery, record.generation, record.called_at)
        if record.deadline is not None:
            self._open_batches.set_deadline(delivery, record.deadline)
        record.result.move([(0, delivery._batch_result, delivery._position)])
        self._generations.leave(record.generation)

    def _note_memory_wait(self, record: WaitingRecord) -> None:
        self._open_batches.measures.memory_wait.record(self._open_batches.clock() - record.since)

    # Leaving

    def fail_all(self, error: KafkaError, topic: str | None = None) -> int:
        """Fail every waiting record, or every one for a topic; return how many."""
        waiting = chain(*self._topics.values(), self._memory)
        records = [record for record in waiting if topic in {None, record.topic}]
        for record in records:
            self._fail(record, error)
        return len(records)

    def _fail(self, record: WaitingRecord, error: KafkaError) -> None:
        topic, partition = record.topic, record.partition
        failed = error.with_details(topic=topic, partition=partition, outcome=Outcome.NOT_WRITTEN, attempts=0)
        self._leave(record)
        self._on_failed(record, failed)
        self._generations.leave(record.generation)

    def _leave(self, record: WaitingRecord) -> None:
        self.records -= 1
        self.bytes -= record.size
        self._uncount(record)
        if record.queue is not None:
            record.queue.leave(record)
        record.block(None)
        if record.queue_owner is not None:
            record.queue_owner.waiting_count -= 1
        record.forget_content()
        if not self.records:
            self._open_batches.note_waiting(any_waits=False)
            self._memory.none_waits()  # now, since the sender does not serve empty queues, and may sleep for long
        if record.on_left is not None:
            on_left, record.on_left = record.on_left, None
            on_left()

    # Bounds

    def _count(self, record: WaitingRecord) -> None:
        record.is_counted = True
        self._counted_records += 1
        self._counted_bytes += record.size
        self._by_result[record.result] = record
        record.result.on_wanted = self._awaited

    def _uncount(self, record: WaitingRecord) -> None:
        if record.is_counted:
            record.is_counted = False
            self._counted_records -= 1
            self._counted_bytes -= record.size
            del self._by_result[record.result]

    def _awaited(self, result: BatchResult) -> None:
        record = self._by_result.get(result)
        if record is not None:
            self._uncount(record)

    # Time

    def _watch(self, queue: WaitQueue, too_late: Callable[[float], None]) -> None:
        record = queue.first()
        if queue.timer is None and record is not None:
            queue.timer = self._timers.schedule(record.called_at + self.limit_of(record)[0], too_late)

    def _late(self, queue: WaitQueue, now: float) -> Iterator[WaitingRecord]:
        queue.timer = None
        while (record := queue.first()) is not None and record.called_at + self.limit_of(record)[0] <= now:
            yield record

    def _topic_too_late(self, topic: str, queue: WaitQueue, now: float) -> None:
        for record in self._late(queue, now):
            self._fail_without_topic(record, self._bound(record), now)
        if len(queue):
            self._watch(queue, partial(self._topic_too_late, topic, queue))
        else:
            del self._topics[topic]

    def _memory_too_late(self, queue: WaitQueue, now: float) -> None:
        for record in self._late(queue, now):
            self._fail_without_memory(record, self._bound(record), now)
        self._watch(queue, partial(self._memory_too_late, queue))

    def _past_deadline(self, record: WaitingRecord, now: float) -> None:
        """Fail a record at a deadline of its own."""
        assert record.deadline is not None
        bound = f"deadline={record.deadline.seconds:g}"
        if record.queue_owner is None:
            self._fail_without_topic(record, bound, now)
        else:
            self._fail_without_memory(record, bound, now)

    def _fail_without_topic(self, record: WaitingRecord, bound: str, now: float) -> None:
        error = still_unknown(record.topic, bound, self._trouble(record.topic))
        self._open_batches.measures.metadata_wait.record(now - record.since)
        self._fail(record, error.with_details(elapsed_s=now - record.called_at))

    def _fail_without_memory(self, record: WaitingRecord, bound: str, now: float) -> None:
        self.exhausted += 1
        self._note_memory_wait(record)
        message = (
            f"no room for a record of {record.size} bytes within {bound}: the buffer holds records that the "
            f"brokers have not answered; raise buffer_memory or {bound.partition('=')[0]}, or send less"
        )
        self._fail(record, BufferTimeoutError(message, elapsed_s=now - record.called_at))

    def _bound(self, record: WaitingRecord) -> str:
        seconds, option = self.limit_of(record)
        return f"{option}={round(seconds * 1000)}"

    def __repr__(self) -> str:
        return (
            f"<WaitQueues records={self.records} bytes={self.bytes} unknown_topics={len(self.unknown_topics)} "
            f"partitions={len(self._memory)}>"
        )


def still_unknown(topic: str, bound: str, trouble: KafkaError | None) -> MetadataTimeoutError:
    """Return the error of a wait for a topic; `bound` is the option that ended the wait, with its value."""
    why = "no broker has named its partitions yet" if trouble is None else str(trouble)
    if isinstance(trouble, BrokerError) and trouble.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        off = "Automatic creation (auto.create.topics.enable) seems to be off"
        why = f"{why}; does the topic exist? {off}; {how_to_create(topic)}"
    message = f"topic {topic!r} is still unknown after {bound}: {why}"
    return MetadataTimeoutError(message, topic=topic, last_broker_error=trouble)


def _as_kafka_error(error: Exception) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    wrapped = KafkaError(f"the partitioner failed: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
