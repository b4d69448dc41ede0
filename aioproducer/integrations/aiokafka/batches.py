"""The consumer's half: batches of records of one assignment, read from the offsets that the group has committed.

After a rebalance aiokafka's consumer continues from the committed offsets that its version of OffsetFetch can see. That
is not enough: the partition's last owner may have an open transaction whose offsets count as soon as it commits. So
each assignment begins with an OffsetFetch of our own that waits for that transaction to end (KIP-447), and records read
from other positions are dropped.

No record is lost between reading and processing. The intake's own task holds a batch until it is returned, so a
cancelled caller only stops waiting, and the next call waits for the same task. After any other end of that task the
consumer is rewound.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from aioproducer.errors import KafkaError
from aioproducer.integrations.aiokafka.consumer import Membership, check_at_work, membership_of
from aioproducer.records import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from aiokafka import AIOKafkaConsumer, ConsumerRecord

    from aioproducer._producer.producer import Producer
    from aioproducer._producer.transaction import Transaction


ResultT = TypeVar("ResultT")

POLL_S: Final = 0.5
"""How long one question to the consumer waits for records."""


class Intake:
    """Reads batches.

    Args:
        consumer: checked.
        producer: fetches stable offsets.
        max_seconds: from a batch's first record until the batch is returned.
        stopped: done when no further batch is wanted.
    """

    def __init__(
        self, consumer: AIOKafkaConsumer, producer: Producer, *, max_seconds: float, stopped: asyncio.Future[None]
    ) -> None:
        self._consumer = consumer
        self._producer = producer
        self._max_seconds = max_seconds
        self._stopped = stopped
        self._membership: Membership | None = None
        """The last one whose committed offsets the consumer was moved to."""
        self._is_placed = False
        """Whether all records before the consumer's positions are processed, returned, or held by `_reading`."""
        self._reading: asyncio.Task[RecordBatch | None] | None = None
        self._void: asyncio.Task[RecordBatch | None] | None = None
        """A cancelled `_reading`; it ends before anything else is read."""
        self._next: dict[TopicPartition, int] = {}
        """The next offset to process: the committed one or, without one, the first that was read."""

    async def next_batch(self, limit: int) -> RecordBatch | None:
        """Wait for up to `limit` records of one assignment. Returns None once stopped.

        Cancelled, it leaves what was read to the next call.

        Raises:
            KafkaError: committed offsets cannot be had, or the consumer has given up by itself.
            aiokafka.errors.KafkaError: the consumer cannot go on.
        """
        await self._end_void()
        reading = self._reading = self._reading or self._begin_reading(limit)
        await asyncio.wait((reading,))
        self._reading = None  # from here to the caller nothing is awaited: the batch is given out
        if reading.cancelled():  # by the consumer: this call was not cancelled
            self.rewind()
            raise KafkaError("the consumer has cancelled its own reading, as it may where a connection is lost")
        if reading.exception() is not None:
            self.rewind()
        return reading.result()

    def read_ahead(self, limit: int) -> None:
        """Start reading the next batch while the current one is being committed."""
        if not self._stopped.done():
            self._reading = self._begin_reading(limit)

    def _begin_reading(self, limit: int) -> asyncio.Task[RecordBatch | None]:
        return asyncio.create_task(self._next_batch(limit), name="aioproducer-reading")

    async def _next_batch(self, limit: int) -> RecordBatch | None:
        while not self._stopped.done():
            membership = await self._placed_membership()
            if membership is None:
                continue
            records = await self._read(membership, limit)
            if records:
                return RecordBatch(records, membership)
            self._is_placed = False  # the records read so far are dropped
        return None

    def committed(self, batch: RecordBatch) -> None:
        """Note that a batch is committed."""
        self._next.update({partition: offset.offset for partition, offset in batch.next_offsets().items()})

    def rewind(self) -> None:
        """Read again from the committed offsets."""
        self._is_placed = False
        if self._reading is not None:
            self._void, self._reading = self._reading, None
            self._void.cancel()

    async def close(self) -> None:
        """Seek the consumer back before every record that was read and not committed, for its next reader."""
        self.rewind()
        try:
            await self._end_void()
        finally:
            self._seek_back()

    async def _end_void(self) -> None:
        if self._void is not None:
            await asyncio.gather(self._void, return_exceptions=True)
            self._void = None

    def _seek_back(self) -> None:
        if self._membership is not None and self._membership.is_current:
            for partition in self._membership.partitions:
                if partition in self._next:
                    self._consumer.seek(partition, self._next[partition])

    async def _placed_membership(self) -> Membership | None:
        """Return the assignment, with the consumer at its committed offsets; None: try again."""
        if self._is_placed and self._membership is not None and self._membership.is_current:
            return self._membership
        membership = await self._unless_stopped(membership_of(self._consumer))
        if membership is None:
            return None
        committed = await self._unless_stopped(
            self._producer.committed_offsets(membership.group, membership.partitions)
        )
        if committed is None or not membership.is_current:
            return None
        self._next.update({partition: offset.offset for partition, offset in committed.items() if offset is not None})
        self._membership, self._is_placed = membership, True
        self._seek_back()
        return membership

    async def _read(self, membership: Membership, limit: int) -> list[ConsumerRecord]:
        """Return records of this assignment; none if it ended or the loop was stopped."""
        clock = asyncio.get_running_loop().time
        records: list[ConsumerRecord] = []
        until = math.inf
        while len(records) < limit and clock() < until:
            timeout_ms = max(1, int(min(until - clock(), POLL_S) * 1000))
            fetched = await self._unless_stopped(self._fetch(membership, timeout_ms, limit - len(records)))
            if fetched is None or not membership.is_current:
                return []
            records += fetched
            if records and until == math.inf:
                until = clock() + self._max_seconds
        return records

    async def _fetch(self, membership: Membership, timeout_ms: int, limit: int) -> list[ConsumerRecord]:
        """Return what the consumer has; if no one wants it any more, nothing, and the consumer is moved back."""
        check_at_work(self._consumer)
        fetched = await self._consumer.getmany(timeout_ms=timeout_ms, max_records=limit)
        if not (self._is_placed and membership is self._membership and membership.is_current):
            for partition, records in fetched.items():
                self._consumer.seek(partition, records[0].offset)
            return []
        for partition, records in fetched.items():  # noted here: the waiting caller may be cancelled now
            self._next.setdefault(TopicPartition(*partition), records[0].offset)
        return [record for records in fetched.values() for record in records]

    async def _unless_stopped(self, waiting: Coroutine[object, object, ResultT]) -> ResultT | None:
        task = asyncio.ensure_future(waiting)
        try:
            await asyncio.wait((task, self._stopped), return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """The records of one transaction, of one assignment; never empty."""

    records: Sequence[ConsumerRecord]
    """In the order of each partition."""

    membership: Membership
    """Under which all of them were read."""

    def next_offsets(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit with the transaction: in each partition the next one to read."""
        last = {(record.topic, record.partition): record.offset for record in self.records}
        return {TopicPartition(*place): OffsetAndMetadata(offset + 1) for place, offset in last.items()}


class OpenBatch(NamedTuple):
    """A batch that is being processed, and its transaction."""

    batch: RecordBatch
    transaction: AbstractAsyncContextManager[Transaction]
    txn: Transaction
    began_at: float
    """Monotonic seconds."""


SHARE: Final = 0.5
"""Share of a transaction's time-out that the code of a batch should take; the rest is for the commit."""
GROWTH: Final = 2
"""Largest growth from one batch to the next."""


class BatchSize:
    """The number of records per transaction, from how fast the caller's code processed the last ones.

    A coordinator aborts a transaction that is open for too long. The same records take as long the next time, so a
    batch too large for the code would be tried forever, and never committed. If a single record is slow, those before
    it are fast: so the size grows step by step, and has shrunk to one when that record comes next.

    Args:
        max_records: upper limit.
        transaction_timeout_s: of the producer.
    """

    __slots__ = ("_max_records", "_timeout_s", "limit")

    def __init__(self, max_records: int, transaction_timeout_s: float) -> None:
        self._max_records = max_records
        self._timeout_s = transaction_timeout_s
        self.limit: int = max_records
        """Records of the next batch."""

    def worked(self, count: int, took_s: float, *, is_whole: bool) -> bool:
        """Note how long the code took; returns whether that was longer than a transaction may stay open.

        Args:
            count: records of the batch.
            took_s: since its transaction began.
            is_whole: the code finished. A failure in the middle says nothing about its speed, unless it was late.
        """
        is_late = took_s >= self._timeout_s
        if is_whole or is_late:
            most = min(self._max_records, GROWTH * self.limit)
            in_time = count * self._timeout_s * SHARE  # times 1 / took_s
            self.limit = max(1, int(in_time / took_s)) if in_time < most * took_s else most
        return is_late
