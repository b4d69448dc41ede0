"""Deadlines of batches, and of records that have one of their own.

Source: `delivery.timeout.ms` (KIP-91) in Apache Kafka, whose records end with their batches.
"""

from __future__ import annotations

from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Final

from aioproducer._accumulator.partition_queue import BatchState

if TYPE_CHECKING:
    from aioproducer._accumulator.partition_queue import PartitionQueue, ProducerBatch, RecordDeadline
    from aioproducer._native.delivery import Delivery
    from aioproducer._timing.timers import TimerHeap

GRAIN_S: Final = 0.01
"""Records' own deadlines are rounded up to it. Otherwise thousands of records with a deadline each would have their
batch rewritten once per record."""


class DeliveryDeadlines:
    """Deadlines in every state of a batch: one timer per partition, due no later than the earliest of them.

    When a timer fires and the batch it was set for is long done, the partition is looked at again for what is due next.
    """

    def __init__(self, timers: TimerHeap) -> None:
        self._timers = timers
        self.due: list[PartitionQueue] = []  # partitions whose timers have fired; taken by `take_due`

    def watch(self, batch: ProducerBatch) -> None:
        self._watch(batch.queue, self._due_at(batch))

    def limit(self, batch: ProducerBatch, delivery: Delivery, deadline: RecordDeadline) -> None:
        """End one record of a batch at a deadline of its own."""
        batch.limit(delivery, deadline._replace(at=ceil(deadline.at / GRAIN_S) * GRAIN_S))
        self.watch(batch)

    def watch_again(self, queue: PartitionQueue) -> None:
        """Set the next timer of a partition whose timer fired and whose overdue batches have ended."""
        due_at = min(map(self._due_at, queue.pending()), default=None)
        if due_at is not None:
            self._watch(queue, due_at)

    def take_due(self) -> list[PartitionQueue]:
        """Take the partitions whose timers fired; `watch_again` each when its overdue batches have ended."""
        due, self.due = self.due, []
        return due

    def is_over(self, batch: ProducerBatch, now: float) -> bool:
        return batch.called_at + batch.options.delivery_timeout_s <= now

    def overdue(self, queue: PartitionQueue, now: float) -> list[ProducerBatch]:
        """The batches of a partition whose callers must be told now; its open batch must be closed before."""
        return [batch for batch in queue.pending() if self.is_over(batch, now)]

    def with_due_records(self, queue: PartitionQueue, now: float) -> list[ProducerBatch]:
        """The other batches that have records whose own deadlines are over."""
        return [batch for batch in queue.pending() if batch.first_deadline <= now and not is_being_read(batch)]

    def _due_at(self, batch: ProducerBatch) -> float:
        due_at = batch.called_at + batch.options.delivery_timeout_s
        return due_at if is_being_read(batch) else min(due_at, batch.first_deadline)

    def _watch(self, queue: PartitionQueue, when: float) -> None:
        if queue.expiry_timer is not None:
            if queue.expiry_timer.when <= when:
                return
            queue.expiry_timer.cancel()
        queue.expiry_timer = self._timers.schedule(when, partial(self._fall_due, queue))

    def _fall_due(self, queue: PartitionQueue, now: float) -> None:  # noqa: ARG002  # a timer's callback
        queue.expiry_timer = None
        self.due.append(queue)


def is_being_read(batch: ProducerBatch) -> bool:
    """Whether a thread may be compressing the batch: its records end right afterwards."""
    return batch.state is BatchState.SEALING
