"""`delivery.timeout.ms`, in every state of a batch: one timer a partition, due no later than its oldest batch.

A batch ends with its oldest record. When a timer fires and the batch it was set for is long done, the partition is
looked at again for the one that is the oldest then.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioproducer._accumulator.partition_queue import PartitionQueue, ProducerBatch
    from aioproducer._timing.timers import TimerHeap


class DeliveryDeadlines:
    """Tells which partitions to look at.

    Args:
        timers: fire.
        timeout_s: `delivery.timeout.ms` in seconds.
    """

    def __init__(self, timers: TimerHeap, timeout_s: float) -> None:
        self._timers = timers
        self._timeout_s = timeout_s
        self.due: list[PartitionQueue] = []
        """Partitions whose timers have fired; taken by `take_due`."""

    def watch(self, batch: ProducerBatch) -> None:
        """Look at a partition when this batch of it reaches its deadline, or before."""
        queue, when = batch.queue, batch.called_at + self._timeout_s
        if queue.expiry_timer is not None:
            if queue.expiry_timer.when <= when:
                return
            queue.expiry_timer.cancel()
        queue.expiry_timer = self._timers.schedule(when, partial(self._fall_due, queue))

    def watch_again(self, queue: PartitionQueue) -> None:
        """Set the next timer of a partition whose timer fired and whose overdue batches have ended."""
        oldest = queue.oldest()
        if oldest is not None:
            self.watch(oldest)

    def take_due(self) -> list[PartitionQueue]:
        """Take the partitions whose timers fired; `watch_again` each when its overdue batches have ended."""
        due, self.due = self.due, []
        return due

    def is_over(self, batch: ProducerBatch, now: float) -> bool:
        """Whether the deadline of a batch has come."""
        return batch.called_at + self._timeout_s <= now

    def overdue(self, queue: PartitionQueue, now: float) -> list[ProducerBatch]:
        """The batches of a partition whose callers must be told now; its open batch must be closed before."""
        batches = (*queue.on_wire, *queue.queued)
        return [batch for batch in batches if not batch.is_abandoned and self.is_over(batch, now)]

    def _fall_due(self, queue: PartitionQueue, now: float) -> None:  # noqa: ARG002  # a timer's callback
        queue.expiry_timer = None
        self.due.append(queue)
