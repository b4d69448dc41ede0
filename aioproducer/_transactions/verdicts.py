"""Meaning of an error code in the response to a transaction's request: one row per request and code.

`verdict_on` says what a code means by itself, `consequence_of` what follows for the transaction and its producer. A
code without a row is retried if `_protocol/error_codes.py` calls it retriable; otherwise it ends the transaction or,
where no transaction could be aborted, the producer. Only NONE counts as success, except for DescribeTransactions.

Source: the TxnRequestHandlers of TransactionManager in Apache Kafka; KIP-360, KIP-588, KIP-890, KIP-1050.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum, IntEnum, auto
from typing import TYPE_CHECKING, Final

from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.messages import INIT_PRODUCER_ID
from aioproducer._protocol.offset_messages import TXN_OFFSET_COMMIT
from aioproducer._protocol.transaction_admin_messages import (
    ABORTED,
    DESCRIBE_TRANSACTIONS,
    ONGOING,
    TransactionDescription,
)
from aioproducer._protocol.transaction_messages import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    CoordinatorType,
    TransactionIdentity,
)
from aioproducer._transactions.errors import FENCED_CODES, FORGOTTEN_CODES
from aioproducer._transactions.states import TransactionState

if TYPE_CHECKING:
    from aioproducer._transactions.open_transaction import OpenTransaction
    from aioproducer._transactions.requests import TransactionRequest


class ErrorAction(IntEnum):
    """Reaction to a code; of several codes in a response the highest counts."""

    DONE = 0
    RETRY_SOON = 1
    """The broker is busy for a moment: it writes the markers of the last transaction."""
    RETRY = 2
    REFIND = 3
    """Find the coordinator again, then retry."""
    ABORTABLE = 4
    """The transaction must be aborted."""
    RENEW = 5
    """The coordinator has another epoch: InitProducerId decides whether this producer may continue."""
    FATAL = 6


_E = ErrorCode

_ANY_COORDINATOR: Final[Mapping[ErrorCode, ErrorAction]] = {
    _E.NONE: ErrorAction.DONE,
    _E.COORDINATOR_NOT_AVAILABLE: ErrorAction.REFIND,
    _E.NOT_COORDINATOR: ErrorAction.REFIND,
    _E.COORDINATOR_LOAD_IN_PROGRESS: ErrorAction.RETRY,
    _E.CONCURRENT_TRANSACTIONS: ErrorAction.RETRY_SOON,
    _E.UNKNOWN_SERVER_ERROR: ErrorAction.RETRY,
    _E.UNSUPPORTED_VERSION: ErrorAction.RETRY,
    _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ErrorAction.FATAL,
    _E.CLUSTER_AUTHORIZATION_FAILED: ErrorAction.FATAL,
    # An id that has expired: InitProducerId would give any producer a new identity, also a fenced one (KAFKA-18019).
    _E.TRANSACTIONAL_ID_NOT_FOUND: ErrorAction.FATAL,
    _E.INVALID_PRODUCER_ID_MAPPING: ErrorAction.FATAL,
    _E.UNKNOWN_PRODUCER_ID: ErrorAction.FATAL,
    _E.PRODUCER_FENCED: ErrorAction.FATAL,
}

_IN_TRANSACTION: Final[Mapping[ErrorCode, ErrorAction]] = {
    **_ANY_COORDINATOR,
    _E.INVALID_PRODUCER_EPOCH: ErrorAction.RENEW,
    _E.GROUP_AUTHORIZATION_FAILED: ErrorAction.ABORTABLE,
    _E.TOPIC_AUTHORIZATION_FAILED: ErrorAction.ABORTABLE,
    _E.INVALID_TXN_STATE: ErrorAction.ABORTABLE,
    _E.TRANSACTION_ABORTABLE: ErrorAction.ABORTABLE,
    _E.OPERATION_NOT_ATTEMPTED: ErrorAction.ABORTABLE,
}

_ADDING: Final[Mapping[ErrorCode, ErrorAction]] = {**_IN_TRANSACTION, _E.INVALID_TXN_STATE: ErrorAction.FATAL}
"""An abort repairs INVALID_TXN_STATE only if EndTxn was refused with it."""

_ROWS: Final[Mapping[int, Mapping[ErrorCode, ErrorAction]]] = {
    FIND_COORDINATOR.key: {
        **_ANY_COORDINATOR,
        _E.COORDINATOR_NOT_AVAILABLE: ErrorAction.RETRY,
        _E.NOT_COORDINATOR: ErrorAction.RETRY,
        _E.GROUP_AUTHORIZATION_FAILED: ErrorAction.ABORTABLE,
        _E.INVALID_GROUP_ID: ErrorAction.ABORTABLE,
        _E.TRANSACTION_ABORTABLE: ErrorAction.ABORTABLE,
    },
    INIT_PRODUCER_ID.key: {
        **_ANY_COORDINATOR,
        _E.INVALID_PRODUCER_EPOCH: ErrorAction.FATAL,
        _E.INVALID_TRANSACTION_TIMEOUT: ErrorAction.FATAL,
        _E.TRANSACTION_ABORTABLE: ErrorAction.RETRY,
    },
    DESCRIBE_TRANSACTIONS.key: {
        **_ANY_COORDINATOR,
        _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ErrorAction.DONE,  # the next request is refused for it, if it matters
    },
    ADD_PARTITIONS_TO_TXN.key: _ADDING,
    ADD_OFFSETS_TO_TXN.key: _ADDING,
    TXN_OFFSET_COMMIT.key: {
        **_ADDING,
        _E.REQUEST_TIMED_OUT: ErrorAction.REFIND,
        _E.ILLEGAL_GENERATION: ErrorAction.ABORTABLE,
        _E.UNKNOWN_MEMBER_ID: ErrorAction.ABORTABLE,
        _E.FENCED_INSTANCE_ID: ErrorAction.ABORTABLE,
        _E.STALE_MEMBER_EPOCH: ErrorAction.ABORTABLE,
        _E.REBALANCE_IN_PROGRESS: ErrorAction.ABORTABLE,
        _E.INVALID_COMMIT_OFFSET_SIZE: ErrorAction.ABORTABLE,
        _E.OFFSET_METADATA_TOO_LARGE: ErrorAction.ABORTABLE,
        _E.INVALID_GROUP_ID: ErrorAction.ABORTABLE,
    },
    END_TXN.key: _IN_TRANSACTION,
}

_ENDS_WITH_THE_TRANSACTION: Final = frozenset(
    (ADD_PARTITIONS_TO_TXN.key, ADD_OFFSETS_TO_TXN.key, TXN_OFFSET_COMMIT.key)
)


def verdict_on(api_key: int, code: int) -> ErrorAction:
    """Return the action for a code in the response to a request.

    Args:
        api_key: of the request.
        code: any number from the wire.
    """
    row = ErrorCode.of(code)
    if row is not None and row in _ROWS[api_key]:
        return _ROWS[api_key][row]
    if row is not None and row.retriable:
        return ErrorAction.RETRY
    return ErrorAction.ABORTABLE if api_key in _ENDS_WITH_THE_TRANSACTION else ErrorAction.FATAL


def has_successor(description: TransactionDescription | None, *, own: TransactionIdentity | None) -> bool:
    """Whether another producer has an open transaction, which InitProducerId would abort before it is refused.

    Args:
        description: of the transactional id, or the refusal of one; None if the coordinator cannot give it.
        own: identity of this producer's open transaction; None if it has none.
    """
    if description is None or description.state != ONGOING:
        return False
    return own is None or _claimant(description) != (own.producer_id, own.producer_epoch)


def has_timed_out(description: TransactionDescription | None, identity: TransactionIdentity) -> bool:
    """Whether the coordinator itself has raised the epoch of a commit that it refuses.

    Kafka after 4.4 refuses a commit that way if its V2 transaction timed out (KAFKA-20785): the coordinator took the
    next epoch to abort it, and a successor would have taken one more.

    Args:
        description: as in `has_successor`.
        identity: of the commit.
    """
    if description is None or description.state != ABORTED:
        return False
    return _claimant(description) == (identity.producer_id, identity.producer_epoch + 1)


def _claimant(description: TransactionDescription) -> tuple[int, int]:
    return description.producer_id, description.producer_epoch


def worst_of(api_key: int, codes: Collection[int]) -> tuple[ErrorAction, int]:
    """Return the action of the worst code in a response, and that code.

    Args:
        api_key: of the request.
        codes: one per partition, or a single one. OPERATION_NOT_ATTEMPTED means that another code is the reason.
    """
    if not any(codes):
        return ErrorAction.DONE, 0
    # Alone it would end the transaction; beside a retriable code it must not.
    reasons = [code for code in codes if code not in {_E.NONE, _E.OPERATION_NOT_ATTEMPTED}]
    code = max(reasons or codes, key=lambda code: verdict_on(api_key, code))
    return verdict_on(api_key, code), code


_ADDS: Final = frozenset((ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN))
_LACKS_A_RIGHT: Final = frozenset((ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED))
_TAKING: Final = frozenset((TransactionState.IN_TRANSACTION, TransactionState.COMMITTING, TransactionState.PREPARING))


class TransactionEffect(Enum):
    """Effect of a refusal on the transaction."""

    GO_ON = auto()
    """None: EndTxn was for a transaction that a late copy had begun, and InitProducerId decides."""
    LOOK = auto()
    """Describe the transaction: another producer has the identity, or the coordinator has aborted it itself."""
    RENEW = auto()
    """The transaction must be aborted; InitProducerId decides whether this producer may continue."""
    ABORT = auto()
    FAIL = auto()
    """The producer has failed."""


def consequence_of(
    request: TransactionRequest,
    verdict: ErrorAction,
    code: int,
    *,
    state: TransactionState,
    transaction: OpenTransaction,
    is_v2: bool,
) -> TransactionEffect:
    """Return the effect of a refusal on the transaction and its producer.

    Args:
        request: the refused request.
        verdict: of its response; not one of the actions that retry.
        code: the worst code of the response.
        state: of the producer.
        transaction: the open one.
        is_v2: of the transaction.
    """
    is_end, is_abort = request.api is END_TXN, state is TransactionState.ABORTING
    if is_end and state is TransactionState.INITIALIZING and code not in FORGOTTEN_CODES:
        return TransactionEffect.GO_ON
    if is_end and is_v2 and code in FENCED_CODES:
        if not is_abort:
            return TransactionEffect.LOOK
        # A coordinator that is shutting down may take the abort for a copy of the last EndTxn, and compare epochs so.
        if not (transaction.is_commit_sent or transaction.is_outdated):
            return TransactionEffect.RENEW
    elif verdict is ErrorAction.RENEW and not transaction.commits_in_doubt:  # else a new identity hides the outcome
        return TransactionEffect.RENEW
    is_about_id = request.api is FIND_COORDINATOR and request.coordinator.kind is CoordinatorType.TRANSACTION
    is_abortable = (
        verdict is ErrorAction.ABORTABLE
        and not (is_end and transaction.is_broken_promise(code, is_v2=is_v2, is_abort=is_abort))
        and not (is_about_id and (state not in _TAKING or transaction.commits_in_doubt))  # no abort now
    )
    return TransactionEffect.ABORT if is_abortable else TransactionEffect.FAIL


def is_refused_unseen(request: TransactionRequest, code: int) -> bool:
    """Whether a request was refused for a missing permission before it changed the coordinator's state.

    Either all partitions are added or none. Offsets are different: those of other topics may have been committed.

    Args:
        request: the refused request.
        code: the worst code of the response.
    """
    return request.api in _ADDS and code in _LACKS_A_RIGHT
