"""Who sends, under a transactional id: the coordinator's (producer id, epoch), the same for all partitions.

Nothing is decided locally here. The epoch is the coordinator's: one of our own would be above it, and the markers
that end the transaction would be refused by the partition, so that it hung for ever. A batch that fails makes a
*gap*: its partition gives no further sequence until the coordinator has given another epoch, after which every
partition begins at sequence 0 again.

A partition takes the identity when it joins a transaction. Nothing is gone through when the identity changes, so ten
thousand partitions in use cost a transaction of one record nothing.

Source: TransactionManager in Apache Kafka (KIP-98, KIP-360, KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer._accumulator.producer_identity import PartitionIdentity, ProducerIdentity
from aioproducer._accumulator.record_batch_header import BatchIdentity, sequence_after

if TYPE_CHECKING:
    from aioproducer._accumulator.record_batch_header import StampedBatch


def identity_of(transactional_id: str | None, *, is_idempotent: bool) -> ProducerIdentity:
    """Return who sends: with a transactional id the coordinator decides it."""
    return TransactionalIdentity() if transactional_id is not None else ProducerIdentity(is_enabled=is_idempotent)


NOWHERE: Final = (-1, -1)
"""Order number and offset of a batch that there is not."""


class TransactionalIdentity(ProducerIdentity):
    """The producer's identity, and which transaction is open under it."""

    __slots__ = ("first_answer_s", "has_stamped", "needs_epoch", "number", "pipelines_at_once", "transaction")

    def __init__(self) -> None:
        """Start without an identity."""
        super().__init__(is_enabled=True)
        self.number = 0
        """How many identities there were; partitions that took another one begin anew."""
        self.transaction = 0
        """Number of the transaction that is open, or was last."""
        self.needs_epoch = False
        """The coordinator must give another one before the next transaction: a batch that has a sequence ended
        unacknowledged, or brokers do not know the identity."""
        self.has_stamped = False
        """A batch of the open transaction was given a sequence: it is on its way, or was."""
        self.pipelines_at_once = False
        """Brokers refuse a first sequence other than 0 (transactions V2): a successor cannot overtake."""
        self.first_answer_s: float | None = None
        """How long the first batch of the transaction took to be acknowledged, if it was at its first attempt."""

    def begin_transaction(self, *, pipelines_at_once: bool) -> None:
        """Begin the next one; nothing of it is on its way."""
        self.transaction += 1
        self.pipelines_at_once = pipelines_at_once
        self.has_stamped = False
        self.first_answer_s = None

    def assign(self, producer_id: int, epoch: int) -> None:
        """Take what InitProducerId, or EndTxn, answered: all sequences begin at 0."""
        super().assign(producer_id, epoch)
        self.number += 1
        self.needs_epoch = False

    def discard(self, producer_id: int) -> None:
        """Have the coordinator give another epoch before the next transaction; the id is its own to change."""
        self.needs_epoch = self.needs_epoch or producer_id == self.producer_id

    def of_partition(self) -> TransactionalPartitionIdentity:
        """Return the identity of a partition that came into use."""
        return TransactionalPartitionIdentity(self)


class TransactionalPartitionIdentity(PartitionIdentity):
    """One partition's next sequence, and whether it belongs to the open transaction."""

    __slots__ = ("_has_lost_log", "_is_fresh", "_number", "_reached", "_shared", "_transaction")

    def __init__(self, shared: TransactionalIdentity) -> None:
        """Start outside of any transaction."""
        super().__init__(shared)
        self._shared = shared
        self._number = 0
        self._transaction = 0
        self._is_fresh = False
        self._reached = NOWHERE
        self._has_lost_log = False

    @property
    def is_send_allowed(self) -> bool:
        """Whether it was added to the open transaction."""
        return self._transaction == self._shared.transaction

    @property
    def can_stamp(self) -> bool:
        """Whether a batch can be given a sequence now: the coordinator must know of the partition before."""
        return self.is_send_allowed and not self.is_changing

    @property
    def is_bound_to_log(self) -> bool:
        """Whether a new log cannot take its place: not while the open transaction has nothing in it."""
        return not self.is_send_allowed or self._reached != NOWHERE

    @property
    def has_lost_log(self) -> bool:
        """Whether the log gave a record of the open transaction an offset that an earlier one has, which is gone."""
        return self._has_lost_log

    def join_transaction(self) -> None:
        """Belong to the open transaction, with sequences from 0 if the identity is another one than before."""
        self._transaction = self._shared.transaction
        self._reached = NOWHERE
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
        """Return the identity of the next batch of `count` records, and move on."""
        assert self.producer_id is not None, "stamped outside of a transaction"
        identity = BatchIdentity(self.producer_id, self.epoch, self.next_sequence, is_transactional=True)
        self.next_sequence = sequence_after(self.next_sequence, count)
        self._shared.has_stamped = True
        return identity

    def acknowledge(self, batch: StampedBatch, base_offset: int, now: float, *, log_append_time: int = -1) -> None:
        """Note that a batch is in the log."""
        super().acknowledge(batch, base_offset, now, log_append_time=log_append_time)
        if not self.is_send_allowed or not self._is_of_this(batch):
            return  # an abort does not wait: it is of a transaction before
        self._reach(batch, base_offset)
        if self._shared.first_answer_s is None and batch.attempts == 1:
            self._shared.first_answer_s = now - batch.sent_at

    def _is_of_this(self, batch: StampedBatch) -> bool:
        return (batch.identity.producer_id, batch.identity.epoch) == (self.producer_id, self.epoch)

    def _reach(self, batch: StampedBatch, base_offset: int) -> None:
        order, offset = self._reached
        if base_offset >= 0 and batch.order > order:
            self._has_lost_log = self._has_lost_log or base_offset <= offset
            self._reached = batch.order, base_offset

    def is_confirmed(self, connection: int, now: float) -> bool:
        """Whether several batches may be on the wire on this connection."""
        return self._is_fresh or super().is_confirmed(connection, now)

    def require_confirmation(self) -> None:
        """One batch at a time again."""
        self._is_fresh = False
        super().require_confirmation()

    def abandon(self, batch: StampedBatch) -> None:
        """Give no more sequences: it is not known yet whether this leaves a gap, the wire still holds the batch."""
        if self._is_of_this(batch):
            self.is_changing = True
            self.require_confirmation()

    def leave_gap(self, batch: StampedBatch) -> None:
        """Give no more sequences under the identity of a batch that ended unacknowledged."""
        # A batch of an aborted V2 transaction may end in the next one: its gap is in its own identity, not in the
        # partition's.
        if self._is_of_this(batch):
            self.begin_change()

    def begin_change(self) -> None:
        """Give no more sequences until the coordinator has given another epoch."""
        self.is_changing = True
        if self._number == self._shared.number:
            self._shared.needs_epoch = True
        self.require_confirmation()

    @property
    def may_change(self) -> bool:
        """Never: the epoch is the coordinator's."""
        return False
