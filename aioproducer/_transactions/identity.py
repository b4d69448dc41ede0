"""The producer's identity under a transactional id: the coordinator's (producer id, epoch), shared by all partitions.

The producer never chooses an epoch itself. It would be above the coordinator's, so the partition would refuse the
markers that end the transaction, and the transaction would hang. A batch that fails makes a *gap*: its partition
gives no further sequence until the coordinator has given another epoch, after which every partition begins at
sequence 0 again.

A partition takes the identity when it joins a transaction. No code iterates over the partitions when the identity
changes, so ten thousand partitions in use cost a transaction of one record nothing.

Source: TransactionManager in Apache Kafka (KIP-98, KIP-360, KIP-890).
"""

from __future__ import annotations

from typing import Final

from aioproducer._accumulator.producer_identity import (
    BatchIdentity,
    PartitionIdentity,
    ProducerIdentity,
    StampedBatch,
    sequence_after,
)


def identity_of(transactional_id: str | None, *, is_idempotent: bool) -> ProducerIdentity:
    return TransactionalIdentity() if transactional_id is not None else ProducerIdentity(is_enabled=is_idempotent)


NOTHING_WRITTEN: Final = (-1, -1)


class TransactionalIdentity(ProducerIdentity):
    """The producer's identity, and the number of the transaction that is open under it."""

    __slots__ = ("first_response_s", "has_stamped", "needs_epoch", "number", "pipelines_at_once", "transaction")

    def __init__(self) -> None:
        super().__init__(is_enabled=True)
        self.number = 0  # count of identities so far; a partition with an older number starts over
        self.transaction = 0  # number of the open transaction, or else of the last
        self.needs_epoch = False
        """The coordinator must give another epoch before the next transaction: a batch that has a sequence ended
        unacknowledged, or brokers do not know the identity."""
        self.has_stamped = False  # a batch of the open transaction has a sequence, so it may have been sent
        self.pipelines_at_once = False
        """Brokers refuse a first sequence other than 0 (transactions V2), so a successor cannot overtake."""
        self.first_response_s: float | None = None
        """Time until the first batch of the transaction was acknowledged, if that was its first attempt."""

    def begin_transaction(self, *, pipelines_at_once: bool) -> None:
        self.transaction += 1
        self.pipelines_at_once = pipelines_at_once
        self.has_stamped = False
        self.first_response_s = None

    def assign(self, producer_id: int, epoch: int) -> None:
        """Take the identity of an InitProducerId or EndTxn response: all sequences begin at 0."""
        super().assign(producer_id, epoch)
        self.number += 1
        self.needs_epoch = False

    def discard(self, producer_id: int) -> None:
        """Require another epoch before the next transaction; only the coordinator changes the id."""
        self.needs_epoch = self.needs_epoch or producer_id == self.producer_id

    def of_partition(self) -> TransactionalPartitionIdentity:
        return TransactionalPartitionIdentity(self)


class TransactionalPartitionIdentity(PartitionIdentity):
    """Identity of a partition under a transactional id; it is in the open transaction or not."""

    __slots__ = ("_has_lost_log", "_is_fresh", "_number", "_reached", "_shared", "_transaction")

    def __init__(self, shared: TransactionalIdentity) -> None:
        """Start outside of any transaction."""
        super().__init__()
        self._shared = shared
        self._number = 0
        self._transaction = 0
        self._is_fresh = False
        self._reached = NOTHING_WRITTEN
        self._has_lost_log = False

    @property
    def is_send_allowed(self) -> bool:
        return self._transaction == self._shared.transaction

    @property
    def can_stamp(self) -> bool:
        """Whether a batch can be given a sequence now: the coordinator must first know of the partition."""
        return self.is_send_allowed and not self.is_changing

    @property
    def is_bound_to_log(self) -> bool:
        return not self.is_send_allowed or self._reached != NOTHING_WRITTEN

    @property
    def has_lost_log(self) -> bool:
        """Whether the log gave a record of the open transaction an offset that an earlier record had."""
        return self._has_lost_log

    def join_transaction(self) -> None:
        """Join the open transaction, with sequences from 0 if the identity has changed since the last."""
        self._transaction = self._shared.transaction
        self._reached = NOTHING_WRITTEN
        self._has_lost_log = False
        self.is_changing = False  # no transaction begins while there is a gap
        if self._number == self._shared.number:
            return
        self._number = self._shared.number
        self.producer_id = self._shared.producer_id
        self.epoch = self._shared.first_epoch
        self.next_sequence = 0
        self.require_confirmation()
        self._is_fresh = self._shared.pipelines_at_once

    def stamp(self, count: int) -> BatchIdentity:
        assert self.producer_id is not None, "stamped outside of a transaction"
        identity = BatchIdentity(self.producer_id, self.epoch, self.next_sequence, is_transactional=True)
        self.next_sequence = sequence_after(self.next_sequence, count)
        self._shared.has_stamped = True
        return identity

    def acknowledge(self, batch: StampedBatch, base_offset: int, now: float, *, log_append_time: int = -1) -> None:
        super().acknowledge(batch, base_offset, now, log_append_time=log_append_time)
        if not self.is_send_allowed or not self._has_stamped(batch):
            return  # the batch is of an earlier transaction, whose abort did not wait for it
        self._reach(batch, base_offset)
        if self._shared.first_response_s is None and batch.attempts == 1:
            self._shared.first_response_s = now - batch.sent_at

    def _reach(self, batch: StampedBatch, base_offset: int) -> None:
        order, offset = self._reached
        if base_offset >= 0 and batch.order > order:
            self._has_lost_log = self._has_lost_log or base_offset <= offset
            self._reached = batch.order, base_offset

    def is_confirmed(self, connection_number: int, now: float) -> bool:
        return self._is_fresh or super().is_confirmed(connection_number, now)

    def require_confirmation(self) -> None:
        self._is_fresh = False
        super().require_confirmation()

    def abandon(self, batch: StampedBatch) -> None:
        """Give no more sequences; the batch is still on the wire, so it is not yet known whether it leaves a gap."""
        if self._has_stamped(batch):
            self.is_changing = True
            self.require_confirmation()

    def begin_change(self) -> None:
        """Give no more sequences until the coordinator has given another epoch."""
        self.is_changing = True
        if self._number == self._shared.number:
            self._shared.needs_epoch = True
        self.require_confirmation()

    @property
    def may_change(self) -> bool:
        """Always false: `join_transaction` takes the coordinator's next epoch."""
        return False

    def finish_change(self) -> None:
        raise AssertionError("a partition cannot choose an epoch under a transactional id")
