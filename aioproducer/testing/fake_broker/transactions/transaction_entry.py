"""A transaction coordinator's state of one transactional id, and what an EndTxn means in it.

    Empty --add--> Ongoing --end--> PrepareCommit | PrepareAbort --markers written--> CompleteCommit | CompleteAbort
                      ^                                                                     |
                      +---------------------------------- add ------------------------------+

Source: TransactionMetadata and TransactionState in Apache Kafka.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from aioproducer.records import TopicPartition
from aioproducer.testing.fake_broker.schedule import Appointment
from aioproducer.testing.fake_broker.wire import codes

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
    """The epoch that the producer had before the last bump that it asked for; a repeated request is known by it."""

    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """The id that it gets when the transaction that ends now is complete, since its epochs are used up."""

    state: TransactionState = TransactionState.EMPTY
    partitions: dict[TopicPartition, None] = field(default_factory=dict)
    """Those of the present transaction, in the order in which they were added."""

    started_at: float | None = None  # when the present or last transaction began, in seconds of the driver's clock

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
        return self.epoch >= LAST_EPOCH - 1

    def bump(self, last_epoch: int) -> None:
        self.last_epoch = last_epoch
        self.epoch += 1

    def change_producer_id(self, producer_id: int, *, last_epoch: int) -> None:
        self.previous_producer_id = self.producer_id
        self.producer_id = producer_id
        self.last_epoch = last_epoch
        self.epoch = 0


class EndAction(NamedTuple):
    error: int = 0
    ends: bool = False  # whether to write markers; otherwise the error, 0 for what has ended already, is the answer


# With version 1 a transaction that has already ended that way is a success: a repeated request looks the same as one
# that was never sent. With version 2 (KIP-890) every end takes the next epoch, so a repeated request has the epoch
# before the current one, and an abort without a transaction is a transaction of its own, without partitions.
# Source: TransactionCoordinator.endTransaction and endTransactionWithTV1 in Apache Kafka.
_END = EndAction(ends=True)
_DONE = EndAction()
_WRONG = EndAction(codes.INVALID_TXN_STATE)
_WAIT = EndAction(codes.CONCURRENT_TRANSACTIONS)

_EMPTY, _ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
_COMMITTED, _ABORTED = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT

_VERSION_1: Mapping[tuple[TransactionState, bool], EndAction] = MappingProxyType(
    {
        (_EMPTY, True): _WRONG,
        (_EMPTY, False): _WRONG,
        (_ONGOING, True): _END,
        (_ONGOING, False): _END,
        (_COMMITTED, True): _DONE,
        (_COMMITTED, False): _WRONG,
        (_ABORTED, True): _WRONG,
        (_ABORTED, False): _DONE,
    }
)
"""By state, and whether it is a commit."""

_VERSION_2: Mapping[tuple[TransactionState, bool, bool], EndAction] = MappingProxyType(
    {
        **{(*key, False): verdict for key, verdict in _VERSION_1.items()},
        **{(*key, True): verdict for key, verdict in _VERSION_1.items()},
        (_EMPTY, False, False): _END,
        (_COMMITTED, True, False): _WRONG,
        (_COMMITTED, False, False): _END,
        (_ABORTED, False, False): _END,
    }
)
"""By state, whether it is a commit, and whether it is a repeated request."""


def verdict_v1(entry: TransactionEntry, claim: Claim, *, is_commit: bool, is_pending: bool) -> EndAction:
    """Return the meaning of an EndTxn before version 5; `is_pending`: an earlier change is not complete."""
    if entry.producer_id != claim.producer_id:
        return EndAction(codes.INVALID_PRODUCER_ID_MAPPING)
    if entry.epoch != claim.epoch:
        return EndAction(codes.PRODUCER_FENCED)
    return _WAIT if is_pending else _VERSION_1[entry.state, is_commit]


def verdict_v2(entry: TransactionEntry, claim: Claim, *, is_commit: bool, is_pending: bool) -> EndAction:
    """Return the meaning of an EndTxn of version 5; here `is_pending` is checked first."""
    if is_pending:
        return _WAIT
    is_before_change = entry.previous_producer_id == claim.producer_id
    is_after_overflow = is_before_change and claim.epoch == LAST_EPOCH - 1 and entry.epoch == 0
    if not is_after_overflow and entry.producer_id != claim.producer_id:
        return EndAction(codes.INVALID_PRODUCER_ID_MAPPING)
    may_be_repeated = entry.state not in {_EMPTY, _ONGOING}
    is_repeated = may_be_repeated and (is_after_overflow or entry.epoch == claim.epoch + 1)
    if not is_repeated and entry.epoch != claim.epoch:
        return EndAction(codes.PRODUCER_FENCED)
    return _VERSION_2[entry.state, is_commit, is_repeated]
