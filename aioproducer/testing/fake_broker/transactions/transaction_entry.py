"""What a transaction coordinator keeps of one transactional id.

    Empty --add--> Ongoing --end--> PrepareCommit | PrepareAbort --markers written--> CompleteCommit | CompleteAbort
                      ^                                                                     |
                      +---------------------------------- add ------------------------------+

Source: TransactionMetadata and TransactionState in Apache Kafka.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from aioproducer.records import TopicPartition
from aioproducer.testing.fake_broker.schedule import Appointment

NO_EPOCH = -1
NO_PRODUCER_ID = -1
LAST_EPOCH = 2**15 - 1


class TransactionState(StrEnum):
    """The state of a transactional id, by Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"

    @property
    def is_completing(self) -> bool:
        return self in {TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT}


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    epoch: int


class Claim(NamedTuple):
    """The identity that a producer claims in a request."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(slots=True, kw_only=True)
class TransactionEntry:
    transactional_id: str
    producer_id: int
    timeout_s: float
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    """What the producer had before the last bump that it asked for; a repeated request is known by it."""

    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """What it gets when the transaction that ends now is complete, since its epochs are used up."""

    state: TransactionState = TransactionState.EMPTY
    partitions: dict[TopicPartition, None] = field(default_factory=dict)
    """Those of the present transaction, in the order in which they were added."""

    started_at: float | None = None
    """When the present or last transaction began, in seconds of the driver's clock."""

    used_at: float = 0.0
    """When the entry was last changed, in seconds of the driver's clock; it expires a while after that."""

    is_version_2: bool = False
    """Whether the present or last transaction was ended by a client of transactions version 2 (KIP-890)."""

    stuck_since: int | None = None
    """The coordinator epoch in which a change could not be written down, so that nothing else is done any more."""

    timer: Appointment | None = None

    @property
    def identity(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.epoch)

    @property
    def is_exhausted(self) -> bool:
        """Whether no epoch is left."""
        return self.epoch >= LAST_EPOCH - 1

    def bump(self, last_epoch: int) -> None:
        self.last_epoch = last_epoch
        self.epoch += 1

    def change_producer_id(self, producer_id: int, *, last_epoch: int) -> None:
        """Begin again at epoch 0 of another producer id."""
        self.previous_producer_id = self.producer_id
        self.producer_id = producer_id
        self.last_epoch = last_epoch
        self.epoch = 0
