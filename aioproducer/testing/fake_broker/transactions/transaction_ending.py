"""What an EndTxn means, by the state of its transactional id: to end the transaction, or which error.

With version 1 a transaction that has ended so already is answered with success: nobody can tell a repeated request
from one that was never asked. With version 2 (KIP-890) every end takes the next epoch, so a repeated request has the
epoch before the present one, and an abort that nothing preceded is a transaction of its own, without partitions.

Source: TransactionCoordinator.endTransaction and endTransactionWithTV1 in Apache Kafka.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from aioproducer.testing.fake_broker.transactions.transaction_entry import (
    LAST_EPOCH,
    Claim,
    TransactionEntry,
    TransactionState,
)
from aioproducer.testing.fake_broker.wire import codes


class ErrorAction(NamedTuple):
    error: int = 0
    ends: bool = False
    """Whether to write markers; otherwise the error, 0 for what has ended already, is the answer."""


_END = ErrorAction(ends=True)
_DONE = ErrorAction()
_WRONG = ErrorAction(codes.INVALID_TXN_STATE)
_WAIT = ErrorAction(codes.CONCURRENT_TRANSACTIONS)

_EMPTY, _ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
_COMMITTED, _ABORTED = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT

_VERSION_1: Mapping[tuple[TransactionState, bool], ErrorAction] = MappingProxyType(
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

_VERSION_2: Mapping[tuple[TransactionState, bool, bool], ErrorAction] = MappingProxyType(
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


def verdict_v1(entry: TransactionEntry, claim: Claim, *, is_commit: bool, is_pending: bool) -> ErrorAction:
    """Return the meaning of an EndTxn before version 5; `is_pending`: an earlier change is not complete."""
    if entry.producer_id != claim.producer_id:
        return ErrorAction(codes.INVALID_PRODUCER_ID_MAPPING)
    if entry.epoch != claim.epoch:
        return ErrorAction(codes.PRODUCER_FENCED)
    return _WAIT if is_pending else _VERSION_1[entry.state, is_commit]


def verdict_v2(entry: TransactionEntry, claim: Claim, *, is_commit: bool, is_pending: bool) -> ErrorAction:
    """Return the meaning of an EndTxn of version 5; here `is_pending` is checked first."""
    if is_pending:
        return _WAIT
    is_before_change = entry.previous_producer_id == claim.producer_id
    is_after_overflow = is_before_change and claim.epoch == LAST_EPOCH - 1 and entry.epoch == 0
    if not is_after_overflow and entry.producer_id != claim.producer_id:
        return ErrorAction(codes.INVALID_PRODUCER_ID_MAPPING)
    may_be_repeated = entry.state not in {_EMPTY, _ONGOING}
    is_repeated = may_be_repeated and (is_after_overflow or entry.epoch == claim.epoch + 1)
    if not is_repeated and entry.epoch != claim.epoch:
        return ErrorAction(codes.PRODUCER_FENCED)
    return _VERSION_2[entry.state, is_commit, is_repeated]
