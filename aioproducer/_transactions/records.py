"""The records of the open transaction: accepted, waited for, or failed.

Between transactions a transactional producer accepts no record. The native append checks the same flag in every
producer, so this costs a record nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioproducer._accumulator.partition_queue import PartitionQueue
    from aioproducer._accumulator.record_accumulator import RecordAccumulator
    from aioproducer._accumulator.wait_queues import WaitQueues
    from aioproducer._native.append import RecordAppender
    from aioproducer._sender.completion import Completion
    from aioproducer._sender.flush import FlushWaiters
    from aioproducer._sender.settlement import Settlement
    from aioproducer.errors import KafkaError


class TransactionRecords:
    """Accepts records while a transaction is open, and waits for their ends.

    Args:
        appender: accepts records while it is open.
        lines: records that wait.
        accumulator: has the batches.
        settlement: ends batches.
        completion: reports failed batches.
        flushes: wait for all records.
    """

    def __init__(
        self,
        *,
        appender: RecordAppender,
        wait_queues: WaitQueues,
        accumulator: RecordAccumulator,
        completion: Completion,
        settlement: Settlement,
        flushes: FlushWaiters,
    ) -> None:
        self._appender = appender
        self._wait_queues = wait_queues
        self._accumulator = accumulator
        self._settlement = settlement
        self._flushes = flushes
        self._completion = completion
        self._taken_before = 0  # by transactions that are over

    def open(self) -> None:
        self._appender.closed = False
        self._taken_before = self._accumulator.open_batches.records

    @property
    def taken(self) -> int:
        """Number of records of the open transaction, or else of the last."""
        return self._accumulator.open_batches.records - self._taken_before + self._wait_queues.records

    def close(self) -> int:
        """Accept no more records; return the flush generation of those accepted."""
        self._appender.closed = True
        generation = self._flushes.generations.close()
        self._accumulator.open_batches.close_all()
        return generation

    def is_flushed(self, generation: int) -> bool:
        """Whether all accepted records have ended."""
        return self._flushes.generations.is_finished(generation)

    def when_flushed(self, generation: int) -> asyncio.Future[None]:
        """Return a future of the end of all accepted records."""
        return self._flushes.when_finished(generation)

    def give_up(self, error: KafkaError) -> None:
        """Fail all records without an end; batches on the wire stay there until they are answered or lost."""
        self._wait_queues.fail_all(error)
        self._settlement.fail_everything(error, asyncio.get_running_loop().time())

    def forget_failures(self) -> None:
        """Drop failures that commit and abort have reported, so that no later flush or close raises them."""
        unseen = self._completion.unseen
        if not unseen.keeps_any:
            return
        failed = unseen.begin_flush(self._flushes.generations.current)
        failed.take_error()
        unseen.end_flush(failed)

    def is_off_the_wire(self) -> bool:
        """Whether no batch is on the wire."""
        return not self._accumulator.partitions.is_any_on_wire()

    def offer(self, queues: Iterable[PartitionQueue]) -> None:
        """Offer partitions that may now be sent to."""
        for queue in queues:
            self._accumulator.offer(queue)
