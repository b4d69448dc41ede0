"""The identity by which brokers deduplicate: the producer's id, and each partition's epoch and next sequence.

Brokers keep their state per (producer id, partition), so an error in one partition is repaired in that partition
alone: it takes a new epoch, and the others neither stop nor change. The rules, each tried on real brokers
(docs/explanation/ordering_and_idempotence.md):

* A batch gets its sequence when it is drained, once, and is resent under it byte for byte.
* A partition sends one batch at a time until its current leader's connection has acknowledged one under its
  current identity, and again after any error: a broker without state accepts any sequence, so a rejected first
  batch could be overtaken by its accepted successor.
* When a batch that had a sequence ends unacknowledged, the partition gives no new sequences until none of its
  batches is unresolved, then takes a new epoch and starts at sequence 0.

Source: TransactionManager and TxnPartitionEntry in Apache Kafka (KIP-98, KIP-360, KIP-679), with the epoch bumped
per partition instead of for the whole producer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from aioproducer.errors import KafkaError

MAX_SEQUENCE: Final = 2**31 - 1
NO_PRODUCER_ID: Final = -1
LAST_EPOCH: Final = 32_767
QUIET_TOO_LONG_S: Final = 3600.0
"""After this long without an acknowledgement a broker may have expired its state: `producer.id.expiration.ms`."""
REMEMBERED: Final = 5
"""Number of batches whose sequence a broker keeps: it answers a copy of one with the offset and time of the first."""


class BatchIdentity(NamedTuple):
    """Identity under which brokers deduplicate a batch."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False


NO_IDENTITY: Final = BatchIdentity()

_new = tuple.__new__  # a named tuple's own is Python code


class StampedBatch(Protocol):
    """The parts of a batch that its partition's identity looks at."""

    order: int
    identity: BatchIdentity
    max_timestamp: int
    connection_number: int
    attempts: int
    sent_at: float


def sequence_after(sequence: int, count: int) -> int:
    """Return the sequence number `count` records later; wraps from 2**31 - 1 to 0, as DefaultRecordBatch does."""
    return (sequence + count) % (MAX_SEQUENCE + 1)


class ProducerIdentity:
    """The producer's id, and the source of epochs."""

    __slots__ = ("_last_epoch", "first_epoch", "is_enabled", "is_missing", "last_error", "producer_id")

    def __init__(self, *, is_enabled: bool) -> None:
        """Start without an id; `is_enabled` is `enable.idempotence`."""
        self.is_enabled = is_enabled
        self.is_missing = is_enabled
        """Whether a broker must assign an id before anything can be sent."""
        self.producer_id: int | None = None
        self.last_error: KafkaError | None = None  # of the last attempt to get an id
        self.first_epoch = 0
        self._last_epoch = 0

    def assign(self, producer_id: int, epoch: int) -> None:
        self.last_error = None
        self.producer_id = producer_id
        self.is_missing = False
        self.first_epoch = epoch
        self._last_epoch = epoch

    def discard(self, producer_id: int) -> None:
        """Give up an id without unused epochs, or one that brokers forgot; each partition changes over on its own."""
        if self.producer_id == producer_id:
            self.producer_id = None
            self.is_missing = self.is_enabled

    def next_epoch(self, epoch: int) -> int | None:
        """Return an epoch above `epoch` that no partition has used, or None when there is none left."""
        self._last_epoch = max(self._last_epoch, epoch) + 1
        return self._last_epoch if self._last_epoch <= LAST_EPOCH else None

    def of_partition(self) -> PartitionIdentity:
        return OwnPartitionIdentity(self)

    def __repr__(self) -> str:
        return f"<ProducerIdentity producer_id={self.producer_id} last_epoch={self._last_epoch}>"


class PartitionIdentity(ABC):  # noqa: PLR0904  # the only place that is asked about a partition's identity
    """One partition's producer id, epoch and next sequence."""

    __slots__ = (
        "_confirmed_at",
        "_confirmed_on",
        "_recent",
        "epoch",
        "is_changing",
        "last_acked_order",
        "next_sequence",
        "producer_id",
    )

    def __init__(self) -> None:
        self.producer_id: int | None = None
        self.epoch = -1
        self.next_sequence = 0
        self.is_changing = False  # no batch gets a sequence until there is another epoch
        self.last_acked_order = -1
        self._confirmed_on = 0
        self._confirmed_at = 0.0
        self._recent: tuple[tuple[int, int], ...] = ()  # base offset and time, as a broker answers a copy

    @property
    @abstractmethod
    def can_stamp(self) -> bool:
        """Whether a batch can be given an identity now."""

    @property
    @abstractmethod
    def is_send_allowed(self) -> bool:
        """Whether the partition may be sent to, as TransactionManager.isSendToPartitionAllowed in Apache Kafka."""

    @property
    @abstractmethod
    def is_bound_to_log(self) -> bool:
        """Whether a new log cannot replace the current one, because its sequences continue what is in the log."""

    @property
    @abstractmethod
    def has_lost_log(self) -> bool:
        """Whether records that the open transaction wrote are gone."""

    @property
    @abstractmethod
    def may_change(self) -> bool:
        """Whether to call `finish_change` as soon as no batch of the partition is unresolved."""

    @abstractmethod
    def stamp(self, count: int) -> BatchIdentity:
        """Return the identity of the next batch of `count` records, and advance the sequence."""

    @abstractmethod
    def begin_change(self) -> None:
        """Give no more sequences until there is another epoch."""

    @abstractmethod
    def finish_change(self) -> None:
        """Take another epoch."""

    @abstractmethod
    def abandon(self, batch: StampedBatch) -> None:
        """Note that the callers of a batch on the wire have been given its error."""

    def leave_gap(self, batch: StampedBatch) -> None:
        """Note that a batch that had a sequence ended unacknowledged."""
        # A batch of an aborted V2 transaction may end in the next one: its gap is in its own identity, not in the
        # partition's.
        if self._has_stamped(batch):
            self.begin_change()

    def _has_stamped(self, batch: StampedBatch) -> bool:
        return (batch.identity.producer_id, batch.identity.epoch) == (self.producer_id, self.epoch)

    # What the current leader has confirmed

    def acknowledge(self, batch: StampedBatch, base_offset: int, now: float, *, log_append_time: int = -1) -> None:
        """Note that a batch is in the log: the next ones on its connection may be pipelined.

        Args:
            base_offset: offset of its first record; -1 if the broker did not say.
            log_append_time: time that the log gave it, in ms; -1 if the log keeps the records' own times.
        """
        self.last_acked_order = max(self.last_acked_order, batch.order)
        producer_id = NO_PRODUCER_ID if self.producer_id is None else self.producer_id
        if batch.identity.producer_id == producer_id and batch.identity.epoch == self.epoch:
            self._confirmed_on = batch.connection_number
            self._confirmed_at = now
        if base_offset >= 0:
            time = batch.max_timestamp if log_append_time < 0 else log_append_time
            self._recent = (*self._recent[1 - REMEMBERED :], (base_offset, time))

    def has_seen(self, base_offset: int, batch: StampedBatch, *, log_append_time: int) -> bool:
        """Whether the response to `batch` is the one to a copy of an earlier batch on the same connection.

        The offset alone does not tell: a topic that was deleted and made again begins at 0 once more. Brokers answer
        a copy with the time of the batch that they have; a batch that they append with -1, or, where the log keeps
        its own times, with the current time.
        """
        if batch.identity is NO_IDENTITY or self._confirmed_on != batch.connection_number:
            return False
        return (base_offset, log_append_time) in self._recent

    def require_confirmation(self) -> None:
        """Send one batch at a time again, after an error response, a lost connection or a change of leader.

        The log of another leader may end earlier, and then the same offsets are given again.
        """
        self._confirmed_on = 0
        self._recent = ()

    def is_confirmed(self, connection_number: int, now: float) -> bool:
        """Whether several batches may be on the wire on this connection."""
        return self._confirmed_on == connection_number != 0 and now - self._confirmed_at < QUIET_TOO_LONG_S

    def forget_log(self) -> None:
        """Note that the partition's log is a new one: its topic was deleted and made again."""
        self._recent = ()
        if self.producer_id is not None:
            self.begin_change()

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} producer_id={self.producer_id} epoch={self.epoch} "
            f"next_sequence={self.next_sequence} is_changing={self.is_changing}>"
        )


class OwnPartitionIdentity(PartitionIdentity):
    """Identity of a partition of a producer without a transactional id, which takes each next epoch itself.

    Without idempotence its batches carry no identity.
    """

    __slots__ = ("_producer",)

    is_send_allowed = True
    is_bound_to_log = True
    has_lost_log = False

    def __init__(self, producer: ProducerIdentity) -> None:
        """Start without an identity; the first `stamp` takes one."""
        super().__init__()
        self._producer = producer

    @property
    def can_stamp(self) -> bool:
        if not self._producer.is_enabled:
            return True
        return not self.is_changing and (self.producer_id is not None or not self._producer.is_missing)

    @property
    def may_change(self) -> bool:
        return self.is_changing

    def stamp(self, count: int) -> BatchIdentity:
        if not self._producer.is_enabled:
            return NO_IDENTITY
        if self.producer_id is None:
            self.producer_id = self._producer.producer_id
            self.epoch = self._producer.first_epoch
            self.next_sequence = 0
        assert self.producer_id is not None, "stamped before a producer id was known"
        # Never given to other records, even after a refusal: a late copy of the request would make the broker
        # acknowledge them with the old offset and drop them, without an error.
        identity = _new(BatchIdentity, (self.producer_id, self.epoch, self.next_sequence, False))
        self.next_sequence = sequence_after(self.next_sequence, count)
        return identity

    def abandon(self, batch: StampedBatch) -> None:
        self.leave_gap(batch)

    def begin_change(self) -> None:
        if self._producer.is_enabled:
            self.is_changing = True
            self.require_confirmation()

    def finish_change(self) -> None:
        """Take a new epoch, or have the producer ask for a new id when its epochs are used up."""
        assert self.producer_id is not None
        epoch = self._producer.next_epoch(self.epoch) if self.producer_id == self._producer.producer_id else None
        if epoch is None:
            self._producer.discard(self.producer_id)
            self.producer_id = None
        else:
            self.epoch = epoch
        self.next_sequence = 0
        self.is_changing = False
        # acknowledgements since `begin_change` were under the old identity, perhaps by another log
        self.require_confirmation()
