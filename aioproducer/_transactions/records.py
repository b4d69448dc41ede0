"""The records of a transaction, as whoever begins and ends it sees them: taken, waited for, or given up.

Between transactions a transactional producer takes no record. The native append asks one flag, as always, so this
costs a record nothing.

Sends a large transaction while a loop of `enqueue` is still writing it, although its batches are not full.

The end of a transaction waits for all of its records. With large batches most of them may be written before one is
full, and before the event loop has had a turn; then the brokers do nothing while the caller works, and the caller
waits while they do. So in a transaction, when the open batches are large enough to be worth a request, the loop gets a
turn now and then, and they go as they are as soon as nothing is on its way.

The first request is worth it most: with it (V2), or just before it (V1), the partitions are added to the transaction.
Brokers on the same machine need the processor before it comes: they may still write the markers of the last
transaction, and if these are late, the leader holds the first Produce back for 20 ms (`_transactions/begin_delays.py`).
A loop that never sleeps can keep the processor from them for some milliseconds, so it is offered to them, once.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioproducer._accumulator.open_batches import OpenBatches
    from aioproducer._accumulator.partition_queue import PartitionQueue
    from aioproducer._accumulator.record_accumulator import RecordAccumulator
    from aioproducer._accumulator.wait_queues import WaitQueues
    from aioproducer._native.append import RecordAppender
    from aioproducer._sender.completion import Completion
    from aioproducer._sender.flush import FlushWaiters
    from aioproducer._sender.settlement import Settlement
    from aioproducer.errors import KafkaError


class TransactionRecords:
    """Opens and closes the way in, and knows when all is out.

    Args:
        appender: takes records while a transaction is open.
        lines: hold records that wait.
        accumulator: holds batches.
        settlement: ends batches.
        completion: tells of those that fail.
        flushes: wait for all of them.
    """

    def __init__(
        self,
        *,
        appender: RecordAppender,
        lines: WaitQueues,
        accumulator: RecordAccumulator,
        completion: Completion,
        settlement: Settlement,
        flushes: FlushWaiters,
    ) -> None:
        self._appender = appender
        self._lines = lines
        self._accumulator = accumulator
        self._settlement = settlement
        self._flushes = flushes
        self._completion = completion
        self._taken_before = 0  # by transactions that are over

    def open(self, is_idle: Callable[[], bool]) -> None:
        """Take records; they may go early while `is_idle` says that no request is on its way."""
        self._appender.closed = False
        open_batches = self._accumulator.open_batches
        self._taken_before = open_batches.records
        if open_batches.lingers:  # else they go at every turn of the loop anyway
            EagerSend(self._appender, open_batches, is_idle)

    @property
    def taken(self) -> int:
        """How many records the transaction has that is open, or was last."""
        return self._accumulator.open_batches.records - self._taken_before + self._lines.records

    def close(self) -> int:
        """Take no more; returns the flush generation of what was taken."""
        self._appender.closed = True
        generation = self._flushes.generations.close()
        self._accumulator.open_batches.close_all()
        return generation

    def is_flushed(self, generation: int) -> bool:
        """Whether all that was taken has ended."""
        return self._flushes.generations.is_finished(generation)

    def when_flushed(self, generation: int) -> asyncio.Future[None]:
        """Return a future that is done once it has."""
        return self._flushes.when_finished(generation)

    def give_up(self, error: KafkaError) -> None:
        """Fail all that has no end yet; what is on the wire stays the wire's until its answer or its loss."""
        self._lines.fail_all(error)
        self._settlement.fail_everything(error, asyncio.get_running_loop().time())

    def forget_failures(self) -> None:
        """Let no later flush or close raise what commit and abort have dealt with."""
        unseen = self._completion.unseen
        if not unseen.keeps_any:
            return
        failed = unseen.begin_flush(self._flushes.generations.current)
        failed.take_error()
        unseen.end_flush(failed)

    def is_off_the_wire(self) -> bool:
        """Whether every attempt was answered, or its connection closed."""
        return not self._accumulator.partitions.is_any_on_wire()

    def offer(self, queues: Iterable[PartitionQueue]) -> None:
        """Let partitions be sent to that could not before."""
        for queue in queues:
            self._accumulator.offer(queue)


PART_OF_BATCH: Final = 4
"""Open batches are worth a request when they hold `batch_size` / `PART_OF_BATCH` on average, and `LEAST_BYTES`."""

LEAST_BYTES: Final = 16_384
"""Kafka's own `batch.size`."""


class EagerSend:
    """Of one transaction.

    Args:
        appender: writes its records.
        open_batches: where to.
        is_idle: whether no request is on its way.
    """

    def __init__(self, appender: RecordAppender, open_batches: OpenBatches, is_idle: Callable[[], bool]) -> None:
        self._appender = appender
        self._open_batches = open_batches
        self._is_idle = is_idle
        self._step = max(appender.batch_size // PART_OF_BATCH, LEAST_BYTES)
        self._written = 0  # what the open batches have at most
        self._has_begun = False
        appender.call_after(self._step, self._step_written)

    def _step_written(self) -> None:
        self._appender.call_after(self._step, self._step_written)
        self._written += self._step
        if self._is_worth_a_request():
            self._appender.pause_wanted = True  # to see answers, and to send
            if self._is_idle():
                self._go()

    def _is_worth_a_request(self) -> bool:
        enough = self._step * self._open_batches.count
        if self._written < enough:
            return False
        self._written = self._open_batches.size  # some of it may have gone in full batches
        return self._written >= enough > 0

    def _go(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            _offer_processor()
        self._written = 0
        self._open_batches.hurry()

    def __repr__(self) -> str:
        """Show what was written."""
        return f"<EarlyRequests written={self._written} has_begun={self._has_begun}>"


def _offer_processor() -> None:
    if sys.platform != "win32":
        with suppress(OSError):  # a sandbox may forbid it
            os.sched_yield()
