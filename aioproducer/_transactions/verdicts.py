"""Meaning of an error code in the response to a transaction's request, and the errors that say what to do.

`verdict_on` says what a code means by itself, one row per request and code, `consequence_of` what follows for the
transaction and its producer. A code without a row is retried if `_protocol/error_codes.py` calls it retriable;
otherwise it ends the transaction or, where no transaction could be aborted, the producer. Only NONE counts as success,
except for DescribeTransactions.

Source: the TxnRequestHandlers of TransactionManager in Apache Kafka; KIP-360, KIP-588, KIP-890, KIP-1050.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum, IntEnum, auto
from typing import TYPE_CHECKING, Final

from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.messages import INIT_PRODUCER_ID
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
    TXN_OFFSET_COMMIT,
    CoordinatorType,
    TransactionIdentity,
)
from aioproducer._transactions.states import MAY_STILL_COMMIT, TransactionState
from aioproducer.errors import BrokerError, KafkaError, Outcome, ProducerFencedError, TransactionAbortableError

if TYPE_CHECKING:
    from aioproducer._transactions.open_transaction import OpenTransaction
    from aioproducer._transactions.requests import TransactionRequest, TransactionResponse
    from aioproducer.records import TopicPartition


class ErrorAction(IntEnum):
    """Reaction to a code; of several codes in a response the highest counts."""

    DONE = 0
    RETRY_SOON = 1  # the broker is busy for a moment: it writes the markers of the last transaction
    RETRY = 2
    REFIND = 3  # find the coordinator again, then retry
    ABORTABLE = 4  # the transaction must be aborted
    RENEW = 5  # the coordinator has another epoch: InitProducerId decides whether this producer may continue
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
    """
    if description is None or description.state != ONGOING:
        return False
    return own is None or _claimant(description) != (own.producer_id, own.producer_epoch)


def has_timed_out(description: TransactionDescription | None, identity: TransactionIdentity) -> bool:
    """Whether the coordinator itself has raised the epoch of a commit that it refuses.

    Kafka after 4.4 refuses a commit that way if its V2 transaction timed out (KAFKA-20785): the coordinator took the
    next epoch to abort it, and a successor would have taken one more.
    """
    if description is None or description.state != ABORTED:
        return False
    return _claimant(description) == (identity.producer_id, identity.producer_epoch + 1)


def _claimant(description: TransactionDescription) -> tuple[int, int]:
    return description.producer_id, description.producer_epoch


def worst_of(api_key: int, codes: Collection[int]) -> tuple[ErrorAction, int]:
    """Return the action of the worst code in a response, and that code.

    Args:
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


class TransactionEffect(Enum):
    """Effect of a refusal on the transaction."""

    GO_ON = auto()  # no effect: EndTxn was for a transaction that a late copy had begun, and InitProducerId decides
    LOOK = auto()
    """Describe the transaction: another producer has the identity, or the coordinator has aborted it itself."""
    RENEW = auto()  # the transaction must be aborted; InitProducerId decides whether this producer may continue
    ABORT = auto()
    FAIL = auto()  # the producer has failed


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
        verdict: of its response; not one of the actions that retry.
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
        and not (is_about_id and (state not in MAY_STILL_COMMIT or transaction.commits_in_doubt))  # no abort now
    )
    return TransactionEffect.ABORT if is_abortable else TransactionEffect.FAIL


def is_refused_unseen(request: TransactionRequest, code: int) -> bool:
    """Whether a request was refused for a missing permission before it changed the coordinator's state.

    Either all partitions are added or none. Offsets are different: those of other topics may have been committed.
    """
    return request.api in _ADDS and code in _LACKS_A_RIGHT


FENCED_CODES: Final = frozenset((ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH))
"""Codes of a producer that has lost its identity, unless the transaction can still be aborted."""

FORGOTTEN_CODES: Final = frozenset(
    (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
)
"""Codes of a coordinator that does not know the identity, so cannot tell whether the producer was fenced."""

NAMED: Final = 5  # partitions that an error names at most
_HINTS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "grant Write and Describe on the transactional id",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "grant IdempotentWrite on the cluster",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "grant Read on the group",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "grant Write on the topics that are written to, Read on those of offsets",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "lower transaction_timeout_ms, or raise the broker's "
    "transaction.max.timeout.ms",
    ErrorCode.ILLEGAL_GENERATION: "the group has rebalanced: abort, and read on from the committed offsets",
    ErrorCode.UNKNOWN_MEMBER_ID: "the consumer has left the group: abort, and read on from the committed offsets",
    ErrorCode.FENCED_INSTANCE_ID: "another consumer has taken the group instance id",
}

_OTHER_EPOCH: Final = (
    "INVALID_PRODUCER_EPOCH: the transaction timed out (transaction_timeout_ms) and the coordinator has aborted it, or "
    "a newer producer has taken the transactional id over: aborting it tells whether this producer can go on"
)


def fenced_error(transactional_id: str) -> ProducerFencedError:
    text = (
        f"transactional_id {transactional_id!r}: a newer producer has taken it over, or the transaction timed out "
        "(transaction_timeout_ms) and the coordinator has taken the identity back, or a copy of InitProducerId came "
        "late; this producer cannot go on: close it, and make a new one only if no other should run"
    )
    return ProducerFencedError(text)


def forgotten_error(transactional_id: str) -> BrokerError:
    """Return the error of a producer whose identity the coordinator has no record of.

    Fatal since KAFKA-18019: a successor may have had the transactional id before it expired, and committed.
    """
    text = (
        f"transactional_id {transactional_id!r}: INVALID_PRODUCER_ID_MAPPING: the brokers do not know this producer's "
        "identity any more (idle for longer than transactional.id.expiration.ms, or it is another cluster) and cannot "
        "tell whether a newer producer has used the transactional id since; this producer cannot go on: close it, and "
        "create a new one, which continues from what is committed"
    )
    return BrokerError.of(ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)


def end_unknown_error(error: KafkaError) -> KafkaError:
    """Return the error of a commit that may have been done; `error` is what ended the producer."""
    text = "an answer to the commit is missing: whether the transaction is committed is not known"
    unknown = error.with_details(outcome=Outcome.UNKNOWN)
    unknown.add_note(f"aioproducer: {text}")
    return unknown


def late_error(transactional_id: str) -> KafkaError:
    """Error for a commit refused because the transaction timed out.

    `fatal_error` turns it into ProducerFencedError if the producer cannot continue.
    """
    text = (
        f"EndTxn of {transactional_id!r}: the transaction timed out (transaction_timeout_ms) and the coordinator has "
        "aborted it: abort it here, too, and go on"
    )
    return BrokerError.of(ErrorCode.PRODUCER_FENCED, text)


def fatal_error(error: KafkaError, transactional_id: str | None) -> KafkaError:
    """Return the error that every call raises after the producer has failed with `error`.

    Args:
        transactional_id: if given, a lost identity gets the same error whichever request met it.
    """
    if transactional_id is None or not isinstance(error, BrokerError):
        return error
    if error.code in FENCED_CODES:
        return fenced_error(transactional_id)
    return forgotten_error(transactional_id) if error.code in FORGOTTEN_CODES else error


def error_in_response(
    request: TransactionRequest, response: TransactionResponse, *, code: int, transactional_id: str
) -> KafkaError:
    """Return the error for a code in a response; it names the partitions that had this code."""
    row = ErrorCode.of(code)
    if row is ErrorCode.PRODUCER_FENCED:
        return fenced_error(transactional_id)
    if row in FORGOTTEN_CODES:
        return forgotten_error(transactional_id)
    if row is ErrorCode.INVALID_PRODUCER_EPOCH:
        return BrokerError.of(code, f"{request.api.name} of {request.coordinator.key!r}: {_OTHER_EPOCH}")
    partitions = request.partitions_with(code, response)
    where = f" for {_listed(partitions)}" if partitions else ""
    topic, partition = partitions[0] if len(partitions) == 1 else (None, None)
    hint = f"; {_HINTS[row]}" if row is not None and row in _HINTS else ""
    text = f"{request.api.name} of {request.coordinator.key!r}{where}: {ErrorCode.in_words(code)}{hint}"
    is_retriable = row is not None and row.retriable
    return BrokerError.of(code, text, retriable=is_retriable, topic=topic, partition=partition)


def _listed(partitions: Sequence[TopicPartition]) -> str:
    named = ", ".join(f"{topic_partition.topic}-{topic_partition.partition}" for topic_partition in partitions[:NAMED])
    return named if len(partitions) <= NAMED else f"{named} and {len(partitions) - NAMED} more"


def abortable_error(cause: KafkaError) -> TransactionAbortableError:
    if isinstance(cause, TransactionAbortableError):
        return cause
    error = TransactionAbortableError(f"the transaction must be aborted: {cause}", last_broker_error=cause)
    error.__cause__ = cause
    return error
