"""The transaction coordinator: transactional ids, their producers, and the transactions they have open.

`coordinators` decides which broker serves it; the state is one for the whole cluster. Requests come from
`apis/transactions`, and from the leaders of partitions, which verify Produce requests here.

If `transaction.version` is 0, a request of version 2 cannot be logged: it gets 35 UNSUPPORTED_VERSION, and later
requests for its transactional id get 51 until another coordinator takes over. Kafka 4.3 does the same.

Source: TransactionCoordinator in Apache Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from aioproducer.testing.fake_broker.log.producer_state import LAST_EPOCH, NO_EPOCH, NO_PRODUCER_ID, ProducerIdAndEpoch
from aioproducer.testing.fake_broker.wire import codes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from aioproducer.records import TopicPartition
    from aioproducer.testing.fake_broker.coordinators import ProducerIds
    from aioproducer.testing.fake_broker.schedule import Appointment, Schedule
    from aioproducer.testing.fake_broker.settings import ClusterSettings


class Granted(NamedTuple):
    """An error, or the identity granted to a producer."""

    error: int
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


class TransactionCoordinator:
    """All transactional ids; `write_markers(entry, done, now)` writes the markers of one, then calls `done(now)`."""

    def __init__(
        self,
        producer_ids: ProducerIds,
        schedule: Schedule,
        *,
        write_markers: Callable[[TransactionEntry, Callable[[float], None], float], None],
        is_version_2: Callable[[], bool],
        coordinator_epoch: Callable[[str, float], int],
        settings: ClusterSettings,
    ) -> None:
        self._producer_ids = producer_ids
        self._schedule = schedule
        self._write_markers = write_markers
        self._is_version_2 = is_version_2
        self._coordinator_epoch = coordinator_epoch
        self._expiration_s = settings.transactional_id_expiration_s
        self._coordinates_as_4_0 = settings.profile.coordinates_as_4_0
        self._none_expires_before = 0.0
        self._entries: dict[str, TransactionEntry] = {}

    def entries(self) -> Iterable[TransactionEntry]:
        return self._entries.values()

    def entry(self, transactional_id: str) -> TransactionEntry | None:
        return self._entries.get(transactional_id)

    # Expiry

    def forget_expired(self, now: float) -> None:
        """Remove the transactional ids not used for `transactional_id_expiration_s`, except those in a transaction.

        Source: TransactionStateManager.removeExpiredTransactionalIds in Apache Kafka.
        """
        if now < self._none_expires_before:
            return
        for entry in [*self._entries.values()]:
            if now - entry.used_at >= self._expiration_s:
                self.expire(entry.transactional_id, now)
        oldest = min((entry.used_at for entry in self._entries.values()), default=now)
        self._none_expires_before = max(oldest + self._expiration_s, now)

    def expire(self, transactional_id: str, now: float) -> bool:
        """Remove a transactional id as if it had expired; False if it does not exist, or a transaction is open."""
        entry = self._entries.get(transactional_id)
        if entry is None or entry.state is TransactionState.ONGOING or self._is_pending(entry, now):
            return False
        del self._entries[transactional_id]
        return True

    # Producers

    def init_producer_id(
        self, transactional_id: str, timeout_s: float, expected: ProducerIdAndEpoch | None, *, now: float
    ) -> Granted:
        """Give a producer, `expected` or new (KIP-360), its id and epoch; the former owner of the id is fenced."""
        entry = self._entries.get(transactional_id) or self._new(transactional_id, timeout_s, now)
        if entry is None:
            return Granted(codes.COORDINATOR_LOAD_IN_PROGRESS)
        error = self._init_error(entry, expected, now) or self._renew(entry, expected, now)
        if error:
            return Granted(error)
        entry.state = TransactionState.EMPTY
        entry.started_at = None if self._coordinates_as_4_0 else entry.started_at
        entry.timeout_s = timeout_s
        entry.used_at = now
        return Granted(0, *entry.identity)

    def _init_error(self, entry: TransactionEntry, expected: ProducerIdAndEpoch | None, now: float) -> int:
        """Return the error of an InitProducerId; an open transaction is aborted."""
        if self._is_pending(entry, now):
            return codes.CONCURRENT_TRANSACTIONS
        if expected is not None and not _may_be(entry, expected):
            return codes.PRODUCER_FENCED
        if entry.state is TransactionState.ONGOING:
            self._abort_and_fence(entry, now)
            return codes.CONCURRENT_TRANSACTIONS
        return 0

    def _new(self, transactional_id: str, timeout_s: float, now: float) -> TransactionEntry | None:
        producer_id = self._producer_ids.take(now)
        if producer_id is None:
            return None
        entry = TransactionEntry(
            transactional_id=transactional_id, producer_id=producer_id, timeout_s=timeout_s, used_at=now
        )
        self._entries[transactional_id] = entry
        return entry

    def _renew(self, entry: TransactionEntry, expected: ProducerIdAndEpoch | None, now: float) -> int:
        """Give an id without an open transaction its next epoch or producer id; returns the error."""
        if entry.is_exhausted and (expected is None or expected.epoch == entry.epoch):
            producer_id = self._producer_ids.take(now)
            if producer_id is None:
                return codes.COORDINATOR_LOAD_IN_PROGRESS
            entry.change_producer_id(producer_id, last_epoch=entry.epoch if expected else NO_EPOCH)
        elif expected is None:
            entry.bump(NO_EPOCH)
        elif entry.epoch in {NO_EPOCH, expected.epoch}:
            entry.bump(entry.epoch)
        elif expected.epoch != entry.last_epoch:
            return codes.PRODUCER_FENCED
        return 0

    # Transactions

    def _error_of(self, claim: Claim) -> int:
        """Return the error unless the claim is that of the current producer."""
        entry = self._entries.get(claim.transactional_id)
        if entry is None or entry.producer_id != claim.producer_id:
            return codes.INVALID_PRODUCER_ID_MAPPING
        return 0 if entry.epoch == claim.epoch else codes.PRODUCER_FENCED

    def refusal_to_add(self, claim: Claim, now: float) -> int:
        error, entry = self._error_of(claim), self._entries.get(claim.transactional_id)
        if entry is not None and self._is_pending(entry, now) and (self._coordinates_as_4_0 or not error):
            return codes.CONCURRENT_TRANSACTIONS
        return error

    def add_partitions(
        self, claim: Claim, partitions: Collection[TopicPartition], *, now: float, is_version_2: bool = False
    ) -> int:
        """Add partitions to a transaction, which begins with the first; returns the error."""
        error = self.refusal_to_add(claim, now)
        if error:
            return error
        entry = self._entries[claim.transactional_id]
        if entry.state is TransactionState.ONGOING and entry.partitions.keys() >= set(partitions):
            return 0
        if is_version_2 and not self._is_version_2():
            return self._get_stuck(entry, now)
        if entry.state is not TransactionState.ONGOING:
            self._begin(entry, now)
        entry.partitions.update(dict.fromkeys(partitions))
        entry.used_at = now
        return 0

    def verify_partition(self, claim: Claim, partition: TopicPartition) -> int:
        """Return the error unless the partition was added before."""
        error = self._error_of(claim)
        if not error and self._entries[claim.transactional_id].state.is_completing:
            return codes.CONCURRENT_TRANSACTIONS
        if error:
            return error
        return 0 if partition in self._entries[claim.transactional_id].partitions else codes.TRANSACTION_ABORTABLE

    def end(self, claim: Claim, *, is_commit: bool, is_version_2: bool, now: float) -> Granted:
        """Commit or abort; returns the identity of the next transaction."""
        entry = self._entries.get(claim.transactional_id)
        if entry is None:
            return Granted(codes.INVALID_PRODUCER_ID_MAPPING)
        verdict = self._verdict(entry, claim, is_commit=is_commit, is_version_2=is_version_2, now=now)
        if not verdict.ends:
            return Granted(verdict.error, *(entry.identity if verdict.error == 0 else ()))
        if is_version_2 and not self._is_version_2():
            return Granted(self._get_stuck(entry, now))
        if is_version_2 and entry.is_exhausted:
            producer_id = self._producer_ids.take(now)
            if producer_id is None:
                return Granted(codes.COORDINATOR_LOAD_IN_PROGRESS)
            entry.next_producer_id = producer_id
        if entry.state is not TransactionState.ONGOING:
            entry.started_at = now
        entry.is_version_2 = is_version_2
        if is_version_2:
            entry.bump(entry.epoch)
        following = ProducerIdAndEpoch(entry.next_producer_id, 0) if entry.next_producer_id >= 0 else entry.identity
        self._complete(entry, is_commit=is_commit, now=now)
        return Granted(0, *following)

    def _verdict(
        self, entry: TransactionEntry, claim: Claim, *, is_commit: bool, is_version_2: bool, now: float
    ) -> EndAction:
        judge = verdict_v2 if is_version_2 else verdict_v1
        return judge(entry, claim, is_commit=is_commit, is_pending=self._is_pending(entry, now))

    def _is_pending(self, entry: TransactionEntry, now: float) -> bool:
        """Whether a change is in progress, so that no other can begin."""
        return entry.state.is_completing or entry.stuck_since == self._coordinator_epoch(entry.transactional_id, now)

    def _get_stuck(self, entry: TransactionEntry, now: float) -> int:
        entry.stuck_since = self._coordinator_epoch(entry.transactional_id, now)
        return codes.UNSUPPORTED_VERSION

    def _begin(self, entry: TransactionEntry, now: float) -> None:
        entry.state = TransactionState.ONGOING
        entry.started_at = now
        entry.timer = self._schedule.at(now + entry.timeout_s, partial(self._time_out, entry))

    def _time_out(self, entry: TransactionEntry, now: float) -> None:
        if entry.state is TransactionState.ONGOING and not self._is_pending(entry, now):
            self._abort_and_fence(entry, now)

    def _abort_and_fence(self, entry: TransactionEntry, now: float) -> None:
        """Abort a transaction that its producer does not end, and fence that producer."""
        entry.is_version_2 = self._is_version_2()
        if entry.epoch < LAST_EPOCH:
            entry.bump(entry.epoch if entry.is_version_2 else NO_EPOCH)
        self._complete(entry, is_commit=False, now=now)

    def _complete(self, entry: TransactionEntry, *, is_commit: bool, now: float) -> None:
        if entry.timer is not None:
            entry.timer.cancel()
        entry.state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
        self._write_markers(entry, partial(self._completed, entry), now)

    def _completed(self, entry: TransactionEntry, now: float) -> None:
        entry.used_at = now
        is_commit = entry.state is TransactionState.PREPARE_COMMIT
        entry.state = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
        entry.partitions = {}
        if entry.next_producer_id != NO_PRODUCER_ID:
            entry.change_producer_id(entry.next_producer_id, last_epoch=entry.last_epoch)
            entry.next_producer_id = NO_PRODUCER_ID


def _may_be(entry: TransactionEntry, expected: ProducerIdAndEpoch) -> bool:
    """Whether this identity can own the transactional id; the epoch is checked later."""
    is_before_change = expected.producer_id == entry.previous_producer_id and expected.epoch >= LAST_EPOCH - 1
    return entry.epoch == NO_EPOCH or expected.producer_id == entry.producer_id or is_before_change


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


class Claim(NamedTuple):
    """The identity that a producer claims in a request."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(slots=True, kw_only=True)
class TransactionEntry:
    """The coordinator's state of one transactional id.

        Empty --add--> Ongoing --end--> PrepareCommit | PrepareAbort --markers written--> CompleteCommit | CompleteAbort
                          ^                                                                     |
                          +---------------------------------- add ------------------------------+

    Source: TransactionMetadata and TransactionState in Apache Kafka.
    """

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
    ends: bool = False  # whether to write markers; otherwise the error, 0 for what has ended already, is the response


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
