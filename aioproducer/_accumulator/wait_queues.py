"""Records that cannot be appended yet: a queue for each unknown topic, and for memory one for each partition.

Each partition is first come, first served. Keyless records of a known topic have a queue of the topic, and choose their
partitions when they are granted memory. `buffer_pool.py` lends and takes back; the sender calls `serve` after memory
was returned.

Records that no caller awaits are bounded in number and bytes; awaited records do not count. Each queue has one timer,
for its first record: `max.block.ms` is the same for all records of a topic, so no later one is due earlier.

Source: in Apache Kafka, the `waiters` of BufferPool, one queue for all partitions; `waitOnMetadata` of KafkaProducer.
"""

from __future__ import annotations

from functools import partial
from heapq import heapify, heappop, heappush
from itertools import chain, count
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from aioproducer._accumulator.partition import Node, Partition, Topic
from aioproducer._accumulator.waiting_record import WaitingRecord, WaitQueue
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
    from aioproducer._accumulator.waiting_record import MemoryKey, QueueKey
    from aioproducer._native.delivery import BatchResult, Delivery
    from aioproducer._timing.timers import TimerHeap


STALLED: Final = (
    "stalled"  # one competitor for all stalled partitions: none is lent a reserve, so one attempt is enough
)

Competitor = Node | Topic | Literal["stalled"] | None
"""Whom memory is lent to: a leader (None for partitions without one), or a topic whose records may go anywhere."""

PARTITIONS_TRIED: Final = 16  # partitions tried for a record that may go anywhere, each time memory was given back


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
        self._for_topics: dict[str, WaitQueue[str]] = {}
        self._for_memory: dict[MemoryKey, WaitQueue[MemoryKey]] = {}
        self._fronts = Fronts(self._drop)
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

    def join(self, record: WaitingRecord, *, is_counted: bool, generation: int | None = None) -> None:
        """Put a record in the queue of its topic or partition.

        Args:
            is_counted: no caller awaits it, so it counts towards the bounds until one does.
            generation: of the flush that covers it; None: the current one.
        """
        record.call_order = next(self._order)
        if generation is None:
            record.generation = self._generations.enter()
        else:
            self._generations.enter_again(generation)
            record.generation = generation
        if not self.records:
            self._open_batches.note_waiting(any_waits=True)
        self.records += 1
        self.bytes += record.size
        if is_counted:
            self._count(record)
        if record.deadline is not None:
            record.deadline_timer = self._timers.schedule(record.deadline.at, partial(self._past_deadline, record))
        if self._is_for_memory(record):
            self._wait_for_memory(record)
            if record.is_waiting:
                self._note_shortage()
        else:
            queue = self._for_topics.setdefault(record.topic, WaitQueue(record.topic))
            queue.join(record)
            record.block(self._appender.topics.get(record.topic))
            self._watch(queue)

    def _is_for_memory(self, record: WaitingRecord) -> bool:
        """Whether the record lacks only memory, not metadata."""
        topic = self._appender.topics.get(record.topic)
        # A topic not used for long still has partitions here, but the user's partitioner must see current ones.
        return topic is not None and record.choose_partition is None and not topic.blocked_count

    def waiting(self) -> Iterator[tuple[WaitingRecord, WaitReason, str]]:
        """Yield each record with what it waits for, and what is known of that."""
        for topic, queue in list(self._for_topics.items()):
            trouble = str(self._trouble(topic) or "no broker has named them")
            yield from ((record, WaitReason.METADATA, trouble) for record in queue)
        room = self._open_batches.room
        yield from ((record, WaitReason.MEMORY, room) for record in self._memory_records())

    def _memory_records(self) -> Iterator[WaitingRecord]:
        """Yield the records that wait for memory."""
        return (record for queue in list(self._for_memory.values()) for record in queue)

    def timeout_of(self, record: WaitingRecord) -> tuple[float, str]:
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
        return [topic for topic, queue in self._for_topics.items() if len(queue)]

    def topic_known(self, topic: str) -> None:
        """Append the records that waited for a topic, in order; those without memory continue to wait."""
        if topic not in self._for_topics:
            return
        now, wait = self._open_batches.clock(), self._open_batches.measures.metadata_wait
        while (queue := self._for_topics.pop(topic, None)) is not None:  # a partitioner may send, and so wait here
            queue.stop_watching()
            for record in queue:
                record.queue = None
                record.block(None)
                wait.record(now - record.since)
                record.since = now
                self._wait_for_memory(record)
        self._serve()

    def topic_failed(self, topic: str, error: KafkaError) -> None:
        for record in self._for_topics.get(topic, ()):
            self._fail(record, error)

    # Memory

    @property
    def leaderless_topics(self) -> set[str]:
        return self._fronts.leaderless_topics if self.records else set()

    def serve(self) -> None:
        """Append as many records as memory allows; call it when memory was given back, or a record left a queue."""
        if self._for_memory:
            self._serve()

    def leaders_changed(self) -> None:
        """Compete for the new leaders' memory."""
        if self._for_memory:
            self._fronts.clear()
            for queue in list(self._for_memory.values()):
                self._fronts.show(queue)
            self._serve()

    def _wait_for_memory(self, record: WaitingRecord) -> None:
        try:
            key = self._memory_key_of(record)
        except Exception as error:  # noqa: BLE001  # of the user's own partitioner
            self._fail(record, _as_kafka_error(error))
            return
        queue = self._for_memory.get(key)
        if queue is None:
            queue = self._for_memory[key] = WaitQueue(key)
            queue.join(record)
            self._fronts.show(queue)
        else:
            queue.join(record)
        self._watch(queue)

    def _memory_key_of(self, record: WaitingRecord) -> MemoryKey:
        """Return where a record of a known topic waits for memory, choosing its partition if necessary."""
        if record.choose_partition is not None:
            record.partition = record.choose_partition()
            record.choose_partition = None
        topic = self._appender.topics[record.topic]
        partition = self._appender.partition_of(record.topic, record.key, record.partition)
        if partition is None:
            return topic
        if partition >= len(topic.partitions):
            self._open_batches.unknown_partition(topic, partition)
        return self._open_batches.partitions.use(topic, partition)

    def _serve(self) -> None:
        self._open_batches.may_use_common = True
        self._fronts.serve(self._try_first)
        self._note_shortage()

    def _try_first(self, queue: WaitQueue[MemoryKey], call_order: int) -> bool:
        """Append the first record of a queue, if it is that of the call; return False if there is no memory for it."""
        record = queue.first()
        if record is None or record.call_order != call_order or self._append(record, queue.key):
            return True
        self._open_batches.may_use_common = False  # it is kept for the first record that got none
        return False

    def _note_shortage(self) -> None:
        """Report whether records wait: while they do, no batch waits for its linger."""
        self._open_batches.note_shortage(is_short=bool(self._for_memory))
        self._open_batches.close_aged()

    def _drop(self, queue: WaitQueue[MemoryKey]) -> None:
        del self._for_memory[queue.key]
        queue.stop_watching()

    def _append(self, record: WaitingRecord, key: MemoryKey) -> bool:
        partitions = (
            [key]
            if isinstance(key, Partition)
            else self._open_batches.partitions.candidates(key, PARTITIONS_TRIED, partial(self._is_free, record))
        )
        for partition in partitions:
            self._open_batches.close_if_apart(partition, record.called_at)
            try:
                delivery = self._appender.append_waiting(
                    record.topic, record.value, record.key, partition.number, record.timestamp, record.headers
                )
            except KafkaError as error:  # the topic was made again with fewer partitions
                self._fail(record, error)
                return True
            if delivery is None:
                continue
            if isinstance(key, Topic):
                key.follow_to(partition)
            self._appended(record, delivery)
            return True
        return False

    def _is_free(self, record: WaitingRecord, partition: Partition) -> bool:
        """Whether no earlier record waits for a partition.

        The queue need not be empty, or a record that may go anywhere would wait while every partition has a queue. It
        would keep the first claim on the common memory, for which those queues wait: a deadlock.
        """
        queue = self._for_memory.get(partition)
        first = None if queue is None else queue.first()
        return first is None or record.call_order < first.call_order

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
        waiting = chain(*self._for_topics.values(), self._memory_records())
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
        record.forget_content()
        if not self.records:
            # Now, since the sender does not serve empty queues, and may sleep for long.
            self._open_batches.note_waiting(any_waits=False)
            self._open_batches.note_shortage(is_short=False)
            self._open_batches.may_use_common = True
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

    def _watch(self, queue: WaitQueue[QueueKey]) -> None:
        record = queue.first()
        if queue.timer is None and record is not None:
            at = record.called_at + self.timeout_of(record)[0]
            queue.timer = self._timers.schedule(at, partial(self._fail_late, queue))

    def _fail_late(self, queue: WaitQueue[QueueKey], now: float) -> None:
        """Fail the records of a queue that have waited for as long as they may."""
        queue.timer = None
        while (record := queue.first()) is not None and record.called_at + self.timeout_of(record)[0] <= now:
            self._fail_unserved(record, self._bound(record), now)
        if len(queue):
            self._watch(queue)
        elif isinstance(queue.key, str):
            del self._for_topics[queue.key]

    def _past_deadline(self, record: WaitingRecord, now: float) -> None:
        """Fail a record at a deadline of its own."""
        assert record.deadline is not None
        self._fail_unserved(record, f"deadline={record.deadline.seconds:g}", now)

    def _fail_unserved(self, record: WaitingRecord, bound: str, now: float) -> None:
        """Fail a record that got no metadata, or no memory, in time; `bound` is the option that says so."""
        assert record.queue is not None
        elapsed_s = now - record.called_at
        if isinstance(record.queue.key, str):
            error = still_unknown(record.topic, bound, self._trouble(record.topic))
            self._open_batches.measures.metadata_wait.record(now - record.since)
            self._fail(record, error.with_details(elapsed_s=elapsed_s))
            return
        self.exhausted += 1
        self._note_memory_wait(record)
        message = (
            f"no room for a record of {record.size} bytes within {bound}: the buffer holds records that the "
            f"brokers have not answered; raise buffer_memory or {bound.partition('=')[0]}, or send less"
        )
        self._fail(record, BufferTimeoutError(message, elapsed_s=elapsed_s))

    def _bound(self, record: WaitingRecord) -> str:
        seconds, option = self.timeout_of(record)
        return f"{option}={round(seconds * 1000)}"

    def __repr__(self) -> str:
        return (
            f"<WaitQueues records={self.records} bytes={self.bytes} unknown_topics={len(self.unknown_topics)} "
            f"partitions={len(self._for_memory)}>"
        )


class Fronts:
    """The first record of each queue for memory, by competitor: who is tried next.

    Among the queues the earliest call is tried first. While it gets no memory, it has the first claim on the memory
    that all nodes share, and the others get memory from their own nodes' reserves (`buffer_pool.py`). So neither a
    large record nor one of a slow node is overtaken forever, and a node that does not respond holds back no other.

    Args:
        on_empty: called with a queue that has no more records.
    """

    def __init__(self, on_empty: Callable[[WaitQueue[MemoryKey]], None]) -> None:
        self._on_empty = on_empty
        self._fronts: dict[Competitor, list[tuple[int, int, WaitQueue[MemoryKey]]]] = {}
        self._number = count()

    def clear(self) -> None:
        self._fronts.clear()

    def show(self, queue: WaitQueue[MemoryKey]) -> bool:
        """Let the first record of a queue compete; the queue is not among the fronts. Returns whether there is one."""
        record = queue.first()
        if record is None:
            self._on_empty(queue)
            return False
        heappush(self._fronts.setdefault(_competitor_of(queue), []), (record.call_order, id(queue), queue))
        return True

    @property
    def leaderless_topics(self) -> set[str]:
        # These records are not ready, so the sender would not ask for their leaders. Without a leader a partition has
        # no reserve, so they might fail on a healthy cluster until metadata expires.
        keys = [queue.key for _, _, queue in self._fronts.get(None, ())]
        return {key.topic_partition.topic for key in keys if isinstance(key, Partition)}

    def serve(self, try_first: Callable[[WaitQueue[MemoryKey], int], bool]) -> None:
        """Try the first records of queues, earliest call first, and go on with each queue that was served.

        This runs in every turn while records wait, so it makes one failed attempt per competitor, not one per queue.

        Args:
            try_first: called with a queue and the call of its first record, returns False if there is no memory for it.
        """
        self._release_recovered()
        firsts = [(fronts[0][0], next(self._number), competitor) for competitor, fronts in self._fronts.items()]
        heapify(firsts)
        while firsts:
            call_order, _, competitor = heappop(firsts)
            if competitor not in self._fronts or self._fronts[competitor][0][0] != call_order:
                continue  # its first record has changed, and competes already
            queue, is_shown = self._fronts[competitor][0][2], True
            if (name := _competitor_of(queue)) != competitor:
                self._rename_front(competitor, name)
            elif try_first(queue, call_order):
                self._take_front(competitor)
                is_shown = self.show(queue)
            else:
                continue
            self._let_compete(competitor, firsts)
            if is_shown and (name := _competitor_of(queue)) != competitor:
                self._let_compete(name, firsts)

    def _release_recovered(self) -> None:
        """Let partitions that are no longer stalled compete under their leaders again, which have reserves.

        No event reports a recovery, so this checks each time.
        """
        fronts = self._fronts.get(STALLED, ())
        recovered = [front for front in fronts if _competitor_of(front[2]) != STALLED]
        if not recovered:
            return
        self._fronts[STALLED] = [front for front in fronts if _competitor_of(front[2]) == STALLED]
        heapify(self._fronts[STALLED])
        self._drop_if_empty(STALLED)
        for front in recovered:
            heappush(self._fronts.setdefault(_competitor_of(front[2]), []), front)

    def _rename_front(self, competitor: Competitor, name: Competitor) -> None:
        """Move the first queue to another competitor: its partition has stalled, and must not stop its node."""
        heappush(self._fronts.setdefault(name, []), self._take_front(competitor))

    def _take_front(self, competitor: Competitor) -> tuple[int, int, WaitQueue[MemoryKey]]:
        front = heappop(self._fronts[competitor])
        self._drop_if_empty(competitor)
        return front

    def _drop_if_empty(self, competitor: Competitor) -> None:
        if not self._fronts[competitor]:
            del self._fronts[competitor]

    def _let_compete(self, competitor: Competitor, firsts: list[tuple[int, int, Competitor]]) -> None:
        if competitor in self._fronts:
            heappush(firsts, (self._fronts[competitor][0][0], next(self._number), competitor))


def _competitor_of(queue: WaitQueue[MemoryKey]) -> Competitor:
    key = queue.key
    if isinstance(key, Topic):
        return key
    return STALLED if key.is_stalled and key.leader is not None else key.leader


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
