"""`delivery.timeout.ms`, in every state of a batch: one timer per partition, due no later than its oldest batch.

A batch ends with its oldest record. If the batch of a timer ended long ago, the timer is set again for the batch that
is then the oldest.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioproducer._accumulator.partition_queue import PartitionQueue
    from aioproducer._accumulator.producer_batch import ProducerBatch
    from aioproducer._timing.timers import TimerHeap


class DeliveryDeadlines:
    """Collects partitions with overdue batches.

    Args:
        timers: one per partition.
        timeout_s: `delivery.timeout.ms` in seconds.
    """

    def __init__(self, timers: TimerHeap, timeout_s: float) -> None:
        self._timers = timers
        self._timeout_s = timeout_s
        self.due: list[PartitionQueue] = []

    def watch(self, batch: ProducerBatch) -> None:
        """Check the partition no later than at the deadline of this batch."""
        queue, when = batch.queue, batch.called_at + self._timeout_s
        if queue.expiry_timer is not None:
            if queue.expiry_timer.when <= when:
                return
            queue.expiry_timer.cancel()
        queue.expiry_timer = self._timers.schedule(when, partial(self._fall_due, queue))

    def watch_again(self, queue: PartitionQueue) -> None:
        """Set the next timer of a partition after its overdue batches have ended."""
        oldest = queue.oldest()
        if oldest is not None:
            self.watch(oldest)

    def take_due(self) -> list[PartitionQueue]:
        """Take the partitions whose timers fired; call `watch_again` for each when its overdue batches have ended."""
        due, self.due = self.due, []
        return due

    def is_over(self, batch: ProducerBatch, now: float) -> bool:
        return batch.called_at + self._timeout_s <= now

    def overdue(self, queue: PartitionQueue, now: float) -> list[ProducerBatch]:
        """Return the overdue batches of a partition; its open batch must be closed before."""
        batches = (*queue.on_wire, *queue.queued)
        return [batch for batch in batches if not batch.is_abandoned and self.is_over(batch, now)]

    def _fall_due(self, queue: PartitionQueue, now: float) -> None:  # noqa: ARG002  # a timer's callback
        queue.expiry_timer = None
        self.due.append(queue)
