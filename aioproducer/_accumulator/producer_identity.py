"""Who sends, as brokers deduplicate it: the producer's id, and each partition's own epoch and next sequence.

Brokers keep their state per (producer id, partition), so one partition's trouble is repaired for that partition
alone: it takes a new epoch, the others neither stop nor change. The rules, each tried on real brokers
(docs/explanation/ordering_and_idempotence.md):

* A batch gets its sequence when it is drained, once, and is resent under it byte for byte.
* A partition sends one batch at a time until its present leader's connection has acknowledged one under its
  present identity, and again after any trouble: a broker without state accepts any sequence, so a rejected first
  batch could be overtaken by its accepted successor.
* When a batch that had a sequence ends unacknowledged, the partition gives no new sequences until none of its
  batches is unresolved, then takes a new epoch and starts at sequence 0.

Source: TransactionManager and TxnPartitionEntry in Apache Kafka (KIP-98, KIP-360, KIP-679), with the epoch bumped
per partition instead of for the whole producer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer._accumulator.record_batch_header import NO_IDENTITY, NO_PRODUCER_ID, BatchIdentity, sequence_after

if TYPE_CHECKING:
    from aioproducer._accumulator.record_batch_header import StampedBatch
    from aioproducer.errors import KafkaError

LAST_EPOCH: Final = 32_767
QUIET_TOO_LONG_S: Final = 3600.0
"""After this long without an acknowledgement a broker may have expired its state: `producer.id.expiration.ms`."""
REMEMBERED: Final = 5
"""Batches of which a broker keeps the sequence: to a copy of one of them it answers that one's offset and time."""


class ProducerIdentity:
    """The producer's id, and the source of epochs."""

    __slots__ = ("_first_epoch", "_last_epoch", "is_enabled", "last_error", "producer_id")

    def __init__(self, *, is_enabled: bool) -> None:
        """Start without an id; `is_enabled` is `enable.idempotence`."""
        self.is_enabled = is_enabled
        self.producer_id: int | None = None
        self.last_error: KafkaError | None = None  # why there is no id yet, since it was asked for
        self._first_epoch = 0
        self._last_epoch = 0

    @property
    def is_missing(self) -> bool:
        """Whether an id must be asked of a broker before anything can be sent."""
        return self.is_enabled and self.producer_id is None

    def assign(self, producer_id: int, epoch: int) -> None:
        """Take what InitProducerId answered."""
        self.last_error = None
        self.producer_id = producer_id
        self._first_epoch = epoch
        self._last_epoch = epoch

    def discard(self, producer_id: int) -> None:
        """Give up an id whose epochs are used up or that brokers forgot; each partition moves over on its own."""
        if self.producer_id == producer_id:
            self.producer_id = None

    def next_epoch(self, epoch: int) -> int | None:
        """Return an epoch above `epoch` that no partition has used, or None when there is none left."""
        self._last_epoch = max(self._last_epoch, epoch) + 1
        return self._last_epoch if self._last_epoch <= LAST_EPOCH else None

    def of_partition(self) -> PartitionIdentity:
        """Return the identity of a partition that came into use."""
        return PartitionIdentity(self)

    @property
    def first_epoch(self) -> int:
        """The epoch with which a partition begins under the present id."""
        return self._first_epoch

    def __repr__(self) -> str:
        """Show the id and the highest epoch."""
        return f"<ProducerIdentity producer_id={self.producer_id} last_epoch={self._last_epoch}>"


class PartitionIdentity:  # noqa: PLR0904  # what is asked of a partition's identity is asked here
    """One partition's producer id, epoch and next sequence."""

    __slots__ = (
        "_confirmed_at",
        "_confirmed_on",
        "_producer",
        "_recent",
        "epoch",
        "is_changing",
        "last_acked_order",
        "next_sequence",
        "producer_id",
    )

    def __init__(self, producer: ProducerIdentity) -> None:
        """Start without an identity; the first `stamp` takes one."""
        self._producer = producer
        self.producer_id: int | None = None
        self.epoch = -1
        self.next_sequence = 0
        self.is_changing = False
        self.last_acked_order = -1
        self._confirmed_on = 0
        self._confirmed_at = 0.0
        self._recent: tuple[tuple[int, int], ...] = ()  # base offset and time, as a copy would be answered

    @property
    def can_stamp(self) -> bool:
        """Whether a batch can be given an identity now."""
        if not self._producer.is_enabled:
            return True
        return not self.is_changing and (self.producer_id is not None or not self._producer.is_missing)

    @property
    def is_send_allowed(self) -> bool:
        """Whether batches may go: with a transactional id, whether it was added to the open transaction.

        Source: TransactionManager.isSendToPartitionAllowed.
        """
        return True

    @property
    def is_bound_to_log(self) -> bool:
        """Whether a new log cannot take the place of the present one: its sequences go on from what is there."""
        return True

    @property
    def has_lost_log(self) -> bool:
        """Whether what the open transaction wrote is gone; without a transactional id nothing hangs together."""
        return False

    def join_transaction(self) -> None:
        """Belong to the transaction that is open."""

    def stamp(self, count: int) -> BatchIdentity:
        """Return the identity of the next batch of `count` records, and move on."""
        if not self._producer.is_enabled:
            return NO_IDENTITY
        if self.producer_id is None:
            self._join()
        assert self.producer_id is not None, "stamped before a producer id was known"
        # Never given to other records, even after a refusal: a late copy of the request would make the broker
        # acknowledge them with the old offset and drop them, without an error.
        identity = BatchIdentity(self.producer_id, self.epoch, self.next_sequence)
        self.next_sequence = sequence_after(self.next_sequence, count)
        return identity

    # What the present leader has confirmed

    def acknowledge(self, batch: StampedBatch, base_offset: int, now: float, *, log_append_time: int = -1) -> None:
        """Note that a batch is in the log: what follows on its connection may be pipelined.

        Args:
            batch: which.
            base_offset: where; -1 if the broker did not say.
            now: monotonic seconds.
            log_append_time: of the log, in ms; -1 if it keeps the records' own times.
        """
        self.last_acked_order = max(self.last_acked_order, batch.order)
        producer_id = NO_PRODUCER_ID if self.producer_id is None else self.producer_id
        if batch.identity.producer_id == producer_id and batch.identity.epoch == self.epoch:
            self._confirmed_on = batch.connection
            self._confirmed_at = now
        if base_offset >= 0:
            time = batch.times.max_timestamp if log_append_time < 0 else log_append_time
            self._recent = (*self._recent[1 - REMEMBERED :], (base_offset, time))

    def has_seen(self, base_offset: int, batch: StampedBatch, *, log_append_time: int) -> bool:
        """Whether an answer to `batch` is that to a copy of an earlier one on the same connection.

        The offset alone does not tell: a topic that was deleted and made again begins at 0 once more. To a copy brokers
        answer the time of the batch that they have; to a batch that they take -1, or, where the log keeps its own
        times, the present one.
        """
        return self._confirmed_on == batch.connection and (base_offset, log_append_time) in self._recent

    def require_confirmation(self) -> None:
        """One batch at a time again: an error answer, a lost connection, another leader.

        Another leader's log may end before this one's, and then it gives offsets again that this one gave.
        """
        self._confirmed_on = 0
        self._recent = ()

    def is_confirmed(self, connection: int, now: float) -> bool:
        """Whether several batches may be on the wire on this connection."""
        return self._confirmed_on == connection != 0 and now - self._confirmed_at < QUIET_TOO_LONG_S

    def forget_log(self) -> None:
        """Note that the partition's log is another one: its topic was deleted and made again."""
        self._recent = ()
        if self.producer_id is not None:
            self.begin_change()

    # Changing it

    @property
    def may_change(self) -> bool:
        """Whether another epoch is to be taken as soon as nothing of the partition is unresolved."""
        return self.is_changing

    def abandon(self, batch: StampedBatch) -> None:  # noqa: ARG002  # which one matters under a transactional id
        """Note that nobody waits any more for a batch that is on the wire."""
        self.begin_change()

    def leave_gap(self, batch: StampedBatch) -> None:  # noqa: ARG002  # as `abandon`
        """Note that a batch that had a sequence ended unacknowledged."""
        self.begin_change()

    def begin_change(self) -> None:
        """Give no more sequences; `finish_change` follows once nothing of the partition is unresolved."""
        if self._producer.is_enabled:
            self.is_changing = True
            self.require_confirmation()

    def finish_change(self) -> None:
        """Take a new epoch, or leave for the producer's next id when epochs are used up."""
        assert self.producer_id is not None
        epoch = self._producer.next_epoch(self.epoch) if self.producer_id == self._producer.producer_id else None
        if epoch is None:
            self._producer.discard(self.producer_id)
            self.producer_id = None
        else:
            self.epoch = epoch
        self.next_sequence = 0
        self.is_changing = False
        # what was acknowledged meanwhile was so under the old identity, perhaps by another log
        self.require_confirmation()

    def _join(self) -> None:
        self.producer_id = self._producer.producer_id
        self.epoch = self._producer.first_epoch
        self.next_sequence = 0

    def __repr__(self) -> str:
        """Show the identity."""
        return (
            f"<PartitionIdentity producer_id={self.producer_id} epoch={self.epoch} "
            f"next_sequence={self.next_sequence} is_changing={self.is_changing}>"
        )
