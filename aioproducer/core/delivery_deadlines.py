"""`delivery.timeout.ms`, in every state of a batch: one timer a partition, for its oldest batch.

A batch ends with its oldest record. When a timer fires and that batch is long done, the partition is looked at
again for the one that is the oldest then.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioproducer.core.partition_queue import PartitionQueue
    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.core.timer_heap import TimerHeap


class DeliveryDeadlines:
    """Tells which partitions to look at.

    Args:
        timers: fire.
        timeout_s: `delivery.timeout.ms` in seconds.
    """

    def __init__(self, timers: TimerHeap, timeout_s: float) -> None:
        self._timers = timers
        self._timeout_s = timeout_s
        self._due: list[PartitionQueue] = []

    def watch(self, queue: PartitionQueue) -> None:
        """Look at a partition when its oldest batch reaches its deadline; does nothing if that is arranged."""
        oldest = None if queue.expiry_armed else queue.oldest()
        if oldest is not None:
            queue.expiry_armed = True
            self._timers.schedule(oldest.called_at + self._timeout_s, partial(self._fall_due, queue))

    def take_due(self) -> list[PartitionQueue]:
        """Take the partitions whose timers fired; `watch` each again when its overdue batches have ended."""
        due, self._due = self._due, []
        return due

    def is_over(self, batch: ProducerBatch, now: float) -> bool:
        """Whether the deadline of a batch has come."""
        return batch.called_at + self._timeout_s <= now

    def overdue(self, queue: PartitionQueue, now: float) -> list[ProducerBatch]:
        """The batches of a partition whose callers must be told now; its open batch must be closed before."""
        batches = (*queue.on_wire, *queue.queued)
        return [batch for batch in batches if not batch.is_abandoned and self.is_over(batch, now)]

    def _fall_due(self, queue: PartitionQueue, now: float) -> None:  # noqa: ARG002  # a timer's callback
        queue.expiry_armed = False
        self._due.append(queue)
