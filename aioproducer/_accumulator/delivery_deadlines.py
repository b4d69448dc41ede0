"""When batches and records must have ended, and which partitions have some that are overdue."""

from __future__ import annotations

from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Final

from aioproducer._accumulator.partition import BatchState

if TYPE_CHECKING:
    from aioproducer._accumulator.partition import Batch, Partition, RecordDeadline
    from aioproducer._native.delivery import Delivery
    from aioproducer._timing.timers import TimerHeap

GRAIN_S: Final = 0.01
"""Records' own deadlines are rounded up to it. Otherwise thousands of records with a deadline each would have their
batch rewritten once per record."""


class DeliveryDeadlines:
    """Deadlines of batches in every state, and of records: one timer per partition, due no later than the earliest.

    When a timer fires and the batch it was set for is long done, the partition is looked at again for what is due next.

    Source: `delivery.timeout.ms` (KIP-91) in Apache Kafka, whose records end with their batches.
    """

    def __init__(self, timers: TimerHeap) -> None:
        self._timers = timers
        self.due: list[Partition] = []  # partitions whose timers have fired; taken by `take_due`

    def watch(self, batch: Batch) -> None:
        timer, due_at = batch.partition.expiry_timer, self._due_at(batch)
        if timer is None or timer.when > due_at:  # else an earlier batch is due first
            self._set_timer(batch.partition, due_at)

    def set_deadline(self, batch: Batch, delivery: Delivery, deadline: RecordDeadline) -> None:
        """End one record of a batch at a deadline of its own."""
        batch.set_deadline(delivery, deadline._replace(at=ceil(deadline.at / GRAIN_S) * GRAIN_S))
        self.watch(batch)

    def watch_again(self, partition: Partition) -> None:
        """Set the next timer of a partition whose timer fired and whose overdue batches have ended."""
        due_at = min(map(self._due_at, partition.pending()), default=None)
        if due_at is not None:
            self._set_timer(partition, due_at)

    def take_due(self, at_most: int) -> list[Partition]:
        """Take partitions whose timers fired; `watch_again` each when its overdue batches have ended."""
        due, self.due = self.due[:at_most], self.due[at_most:]
        return due

    def is_over(self, batch: Batch, now: float) -> bool:
        return batch.called_at + batch.options.delivery_timeout_s <= now

    def overdue(self, partition: Partition, now: float) -> list[Batch]:
        """The batches of a partition whose callers must be told now; its open batch must be closed before."""
        return [batch for batch in partition.pending() if self.is_over(batch, now)]

    def with_due_records(self, partition: Partition, now: float) -> list[Batch]:
        """The other batches that have records whose own deadlines are over."""
        return [batch for batch in partition.pending() if batch.first_deadline <= now and not is_being_read(batch)]

    def _due_at(self, batch: Batch) -> float:
        due_at = batch.called_at + batch.options.delivery_timeout_s
        return batch.first_deadline if batch.first_deadline < due_at and not is_being_read(batch) else due_at

    def _set_timer(self, partition: Partition, when: float) -> None:
        if partition.expiry_timer is not None:
            partition.expiry_timer.cancel()
        partition.expiry_timer = self._timers.schedule(when, partial(self._fall_due, partition))

    def _fall_due(self, partition: Partition, now: float) -> None:  # noqa: ARG002  # a timer's callback
        partition.expiry_timer = None
        self.due.append(partition)


def is_being_read(batch: Batch) -> bool:
    """Whether a thread may be compressing the batch: its records end right afterwards."""
    return batch.state is BatchState.SEALING
