"""Batches of one partition, in order, and the choice of the next one to send.

    queued ──► on_wire        `queued` is sorted by the batches' order numbers; the open batch comes after all of them.

A batch that failed returns to its place by that number, so retries never reorder. Only `next_to_send` decides which
batch may go:

* the first, when its backoff is over and the partition's window has room: one on the wire until the connection has
  acknowledged one under the current identity, `max.in.flight` after that, always one without idempotence and while
  parts of a split batch exist;
* none to a new connection while a batch is on the wire on an old one;
* while the partition changes its epoch, only ambiguous batches, under their old identity, in order.

Source: the deque of RecordAccumulator's TopicInfo, and TransactionManager's in-flight batches, in Apache Kafka.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING

from aioproducer._accumulator.producer_batch import BatchState, ProducerBatch

if TYPE_CHECKING:
    from aioproducer._accumulator.producer_identity import PartitionIdentity
    from aioproducer._native.append import OpenPartition
    from aioproducer._timing.timers import Timer
    from aioproducer.records import TopicPartition

_by_order = attrgetter("order")


class PartitionQueue:  # noqa: PLR0904  # the whole state of a partition
    """Open batch, queued batches and batches on the wire of one partition."""

    __slots__ = (
        "expiry_timer",
        "identity",
        "is_offered",
        "last_size",
        "leader_id",
        "max_in_flight",
        "next_order",
        "on_wire",
        "open_batch",
        "open_timer",
        "parts",
        "queued",
        "slot",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, identity: PartitionIdentity, *, max_in_flight: int) -> None:
        """Start empty and without a leader.

        Args:
            topic_partition: its name.
            identity: its epoch and next sequence.
            max_in_flight: batches that may be on the wire; 1 without idempotence, else at most 5.
        """
        self.topic_partition = topic_partition
        self.identity = identity
        self.max_in_flight = max_in_flight
        self.leader_id: int | None = None
        self.slot: OpenPartition
        self.open_batch: ProducerBatch | None = None
        self.queued: deque[ProducerBatch] = deque()
        self.on_wire: list[ProducerBatch] = []
        self.parts = 0  # unfinished parts of split batches that keep their sequences
        self.next_order = 0
        self.is_offered = False
        self.open_timer: Timer | None = None
        self.expiry_timer: Timer | None = None
        self.last_size = 0

    # Choosing

    def next_to_send(self, connection: int, now: float) -> ProducerBatch | None:
        """Return the batch to send now on `connection`; None if it waits: the partition is offered again then."""
        batch = self.first_sendable()
        if batch is None or batch.not_before > now:
            return None
        if self.on_wire and (
            len(self.on_wire) >= self._window(connection, now) or self.on_wire[-1].connection != connection
        ):
            return None
        return batch

    def first_sendable(self) -> ProducerBatch | None:
        """Return the next batch in order, whether or not the wire has room for it."""
        if self.identity.is_changing:
            stamped = next((batch for batch in self.queued if batch.is_stamped), None)
            return stamped if stamped is not None and stamped.state is BatchState.QUEUED else None
        if self.queued:
            head = self.queued[0]
            is_possible = head.state is BatchState.QUEUED and (head.is_stamped or self.identity.can_stamp)
            return head if is_possible else None
        if self.open_batch is not None and self.open_batch.is_ready and self.identity.can_stamp:
            return self.open_batch
        return None

    def _window(self, connection: int, now: float) -> int:
        if self.parts or not self.identity.is_confirmed(connection, now):
            return 1
        return self.max_in_flight

    # Moving batches

    def take_open(self) -> ProducerBatch | None:
        """Close the open batch and queue it; None if there is none."""
        batch, self.open_batch = self.open_batch, None
        if batch is None:
            return None
        self.slot.builder = None
        batch.close()
        self.queued.append(batch)
        return batch

    def put_on_wire(self, batch: ProducerBatch, connection: int) -> None:
        """Move a queued batch to the wire, giving it a sequence if it has none."""
        if self.queued[0] is batch:
            self.queued.popleft()
        else:
            self.queued.remove(batch)
        if not batch.is_stamped:
            batch.identity = self.identity.stamp(batch.count)
        batch.move_to(BatchState.ON_WIRE)
        batch.attempts += 1
        batch.connection = connection
        self.on_wire.append(batch)

    def take_from_wire(self, batch: ProducerBatch) -> None:
        self.on_wire.remove(batch)

    def put_back(self, batch: ProducerBatch) -> None:
        batch.move_to(BatchState.QUEUED)
        self.insert(batch)

    def insert(self, batch: ProducerBatch) -> None:
        """Insert a queued batch by its order number."""
        if not self.queued or batch.order < self.queued[0].order:
            self.queued.appendleft(batch)
        else:
            insort(self.queued, batch, key=_by_order)

    def remove(self, batch: ProducerBatch) -> None:
        self.queued.remove(batch)

    # Order and identity

    def is_first_unresolved(self, batch: ProducerBatch) -> bool:
        """Whether every earlier batch with a sequence has ended."""
        earlier = (other for other in (*self.on_wire, *self.queued) if other.order < batch.order)
        return not any(other.is_unresolved or other.is_stamped for other in earlier)

    def restamp_if_resolved(self) -> list[ProducerBatch]:
        """Take the new epoch if the partition is changing it and no batch is unresolved.

        Returns:
            Batches that must fail, because a later one was acknowledged.
        """
        if not self.identity.may_change:
            return []
        for batch in self.queued:
            if batch.is_stamped and not batch.maybe_written:
                batch.unstamp()
        if self.on_wire or any(batch.is_unresolved for batch in self.queued):
            return []
        overtaken = [batch for batch in self.queued if batch.order < self.identity.last_acked_order]
        for batch in overtaken:
            self.queued.remove(batch)
        self.identity.finish_change()
        return overtaken

    def oldest(self) -> ProducerBatch | None:
        """Return the batch with the earliest deadline, among those that callers still wait for."""
        candidates = [batch for batch in (*self.on_wire, *self.queued) if not batch.is_abandoned]
        candidates += [self.open_batch] if self.open_batch is not None else []
        return min(candidates, key=lambda batch: batch.called_at, default=None)

    @property
    def is_stalled(self) -> bool:
        """Whether its first batch has failed an attempt and has not ended."""
        # Such a partition gets nothing from its node's reserve: one partition refused for a minute would take it all.
        if self.on_wire:
            return self.on_wire[0].attempts > 1
        return bool(self.queued) and self.queued[0].attempts > 0

    @property
    def is_moving(self) -> bool:
        """Whether it has closed batches, none of them stalled: they will soon give memory back."""
        return bool(self.on_wire or self.queued) and not self.is_stalled and self.leader_id is not None

    @property
    def is_empty(self) -> bool:
        return self.open_batch is None and not self.queued and not self.on_wire

    @property
    def backlog(self) -> int:
        """Number of closed batches, which the adaptive choice of a partition compares."""
        return len(self.queued) + len(self.on_wire)

    def __repr__(self) -> str:
        return (
            f"<PartitionQueue {self.topic_partition.topic}-{self.topic_partition.partition} leader={self.leader_id} "
            f"queued={len(self.queued)} on_wire={len(self.on_wire)} open={self.open_batch is not None}>"
        )
