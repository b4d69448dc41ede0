"""The records that a `MockProducer` has accepted, and how they end.

Records that follow each other to one partition share a `Run`, so that accepting one costs no call in Python. A run ends
as a whole; to end its records one by one it is taken apart.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioproducer._native.delivery import BatchResult
from aioproducer._sender.produce_outcome import Complete
from aioproducer.errors import DeliveryTimeoutError, Outcome
from aioproducer.records import ProducerRecord
from aioproducer.testing.fake_broker.log.record_batch import batch_of, decode_records

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator, Mapping

    from aioproducer._accumulator.flush_generations import FlushGenerations
    from aioproducer._accumulator.partition import Partition, RecordDeadline
    from aioproducer._native.delivery import Delivery
    from aioproducer._sender.completion import Completion
    from aioproducer.errors import KafkaError
    from aioproducer.records import OffsetAndMetadata, TopicPartition

    Offsets = dict[str, dict[TopicPartition, OffsetAndMetadata]]


@dataclass(slots=True, eq=False)
class Run:
    """Records accepted one after another for one partition."""

    topic_partition: TopicPartition
    result: BatchResult
    generation: int
    called_at: float  # monotonic seconds
    given: ProducerRecord | None = None  # with the objects of its only record, if serializers made the bytes
    count: int = 0
    base_offset: int = 0
    batch: bytes = b""
    whole: Run | None = None  # the run that this one is a part of, from `first` on
    first: int = 0
    unsent: set[int] = field(default_factory=set)  # positions of records that ended before they were sent

    def records(self) -> Iterator[ProducerRecord]:
        """Yield what a consumer would get, or the objects that were serialized."""
        topic, partition = self.topic_partition
        for index, logged in enumerate(decode_records(self.batch)):
            if index in self.unsent:
                continue
            key, value = (logged.key, logged.value) if self.given is None else (self.given.key, self.given.value)
            yield ProducerRecord(topic, value, key, partition, logged.timestamp, logged.headers)


@dataclass(slots=True)
class History:
    """The accepted records, and those in the open transaction."""

    accepted: list[Run] = field(default_factory=list)
    uncommitted: list[Run] = field(default_factory=list)
    offsets: Offsets = field(default_factory=lambda: defaultdict(dict))
    uncommitted_offsets: Offsets = field(default_factory=lambda: defaultdict(dict))

    def add_offsets(self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Note offsets that become valid with the open transaction."""
        self.uncommitted_offsets[group_id].update(offsets)

    def end_transaction(self, *, is_commit: bool) -> None:
        """Keep or drop what the open transaction has."""
        if is_commit:
            self.accepted += self.uncommitted
            for group_id, offsets in self.uncommitted_offsets.items():
                self.offsets[group_id].update(offsets)
        self.uncommitted.clear()
        self.uncommitted_offsets.clear()

    def clear(self) -> None:
        """Forget everything."""
        for kept in (self.accepted, self.uncommitted, self.offsets, self.uncommitted_offsets):
            kept.clear()


@dataclass(slots=True, kw_only=True)
class SentRecords:
    """Takes records, and ends those that have not ended yet, in the order of their calls.

    Args:
        auto_complete: complete records in the next turn of the event loop.
    """

    auto_complete: bool
    given: ProducerRecord | None = None  # the record whose bytes are appended next
    total: int = 0  # records in runs that are closed
    history: History = field(default_factory=History)
    _pending: deque[Run] = field(default_factory=deque)
    _ends: dict[TopicPartition, int] = field(default_factory=dict)
    _open: tuple[Partition, Run] | None = None
    _is_due: bool = False
    _loop: asyncio.AbstractEventLoop = field(init=False)
    _generations: FlushGenerations = field(init=False)
    _completion: Completion = field(init=False)

    def use(self, loop: asyncio.AbstractEventLoop, generations: FlushGenerations) -> None:
        """Take the loop and the flushes of the producer that starts."""
        self._loop, self._generations = loop, generations

    def end_by(self, completion: Completion) -> None:
        """Take the part that ends deliveries."""
        self._completion = completion

    # Accepting

    def open(self, partition: Partition, run: Run, *, is_uncommitted: bool) -> None:
        """Take a run that records are written into from now on; the one before must be closed."""
        self._open = partition, run
        (self.history.uncommitted if is_uncommitted else self.history.accepted).append(run)
        self._pending.append(run)
        if self.auto_complete and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self.complete_all)

    def close_open(self) -> None:
        """Close the open run: later records begin another one."""
        if self._open is None:
            return
        (partition, run), self._open = self._open, None
        batch, partition.open_batch = partition.open_batch, None
        assert batch is not None
        run.count = batch.count
        run.base_offset = self._ends.get(run.topic_partition, 0)
        self._ends[run.topic_partition] = run.base_offset + run.count
        self.total += run.count
        run.batch = batch_of(
            batch.records(),
            count=run.count,
            base_timestamp=batch.base_timestamp,
            max_timestamp=batch.max_timestamp,
        )

    @property
    def accepted(self) -> int:
        """Number of all records."""
        partition = None if self._open is None else self._open[0]
        batch = None if partition is None else partition.open_batch
        return self.total + (0 if batch is None else batch.count)

    def take_over(self, result: BatchResult, generation: int) -> None:
        """Make the run of a record that has waited responsible for that record's flush."""
        run = next(run for run in reversed(self._pending) if run.result is result)
        if generation < run.generation:
            self._generations.enter_again(generation)
            self._generations.leave(run.generation)
            run.generation = generation

    # Ending

    @property
    def pending(self) -> int:
        """Number of records that have not ended."""
        self.close_open()
        return sum(run.count for run in self._pending)

    def take_next(self) -> Run | None:
        """Take the oldest record that has not ended."""
        self.close_open()
        if not self._pending:
            return None
        run = self._pending.popleft()
        if run.count > 1:
            self._pending.extendleft(reversed(self._in_parts(run)))
            run = self._pending.popleft()
        return run

    def _in_parts(self, run: Run) -> list[Run]:
        parts = [
            Run(
                run.topic_partition,
                BatchResult(self._loop, run.topic_partition),
                run.generation,
                run.called_at,
                count=1,
                base_offset=run.base_offset + index,
                whole=run,
                first=index,
            )
            for index in range(run.count)
        ]
        for _ in parts[1:]:
            self._generations.enter_again(run.generation)
        run.result.move([(index, part.result, 0) for index, part in enumerate(parts)])
        return parts

    def complete(self, run: Run) -> None:
        """Complete a run as a leader's acknowledgement does."""
        outcome = Complete(run.base_offset, log_start_offset=0)
        latency_s = self._loop.time() - run.called_at
        self._completion.complete_result(run.result, outcome, count=run.count, callers=run.count, latency_s=latency_s)
        self._generations.leave(run.generation)

    def fail(self, run: Run, error: KafkaError) -> None:
        """Fail a run."""
        topic, partition = run.topic_partition
        elapsed_s = self._loop.time() - run.called_at
        detailed = error.with_details(topic=topic, partition=partition, elapsed_s=elapsed_s)
        self._completion.counts.batch_records_failed += run.count
        self._completion.fail_result(run.result, detailed, count=run.count, generation=run.generation)
        self._generations.leave(run.generation)

    def complete_all(self) -> None:
        """Complete every record."""
        self._is_due = False
        self.close_open()
        while self._pending:
            self.complete(self._pending.popleft())

    def fail_all(self, error: KafkaError) -> None:
        """Fail every record, for the producer closes or fails, or a transaction is aborted."""
        self.close_open()
        unsent = error.with_details(outcome=error.outcome or Outcome.NOT_WRITTEN)
        while self._pending:
            self.fail(self._pending.popleft(), unsent)

    def purge(self, topic: str | None, error: KafkaError) -> int:
        """Fail the records of a topic, or of all, as not sent; return how many."""
        self.close_open()
        purged = [run for run in self._pending if topic in {None, run.topic_partition.topic}]
        self._pending = deque(run for run in self._pending if topic not in {None, run.topic_partition.topic})
        for run in purged:
            self._fail_unsent(run, error)
        return sum(run.count for run in purged)

    def set_deadline(self, delivery: Delivery, deadline: RecordDeadline) -> None:
        """End a record at its own deadline."""
        if not self.auto_complete:
            self._loop.call_at(deadline.at, self._expire, delivery, deadline)

    def _expire(self, delivery: Delivery, deadline: RecordDeadline) -> None:
        self.close_open()
        index = next((at for at, run in enumerate(self._pending) if run.result is delivery._batch_result), None)
        if index is None:  # it has ended
            return
        run = self._pending[index]
        del self._pending[index]
        if run.count > 1:
            position, parts = delivery._position, self._in_parts(run)
            run = parts.pop(position)
            for at, part in enumerate(parts, index):
                self._pending.insert(at, part)
        for later in self._pending:
            if later.topic_partition == run.topic_partition and later.base_offset > run.base_offset:
                later.base_offset -= 1
        text = f"not acknowledged within deadline={deadline.seconds:g}: the test has not ended the record before"
        self._fail_unsent(run, DeliveryTimeoutError(text, outcome=Outcome.NOT_WRITTEN))

    def _fail_unsent(self, run: Run, error: KafkaError) -> None:
        """Fail records that were never sent: they get no offsets, and are not in the history."""
        self._ends[run.topic_partition] -= run.count
        (run.whole or run).unsent.update(range(run.first, run.first + run.count))
        self.fail(run, error)

    def complete_soon(self) -> None:
        """Complete the records accepted before this call in the next turn of the loop, unless they fail in this one."""
        self.close_open()
        self._loop.call_soon(self._complete_before, self._generations.current)

    def _complete_before(self, generation: int) -> None:
        self.close_open()
        due = [run for run in self._pending if run.generation < generation]
        self._pending = deque(run for run in self._pending if run.generation >= generation)
        for run in due:
            self.complete(run)
