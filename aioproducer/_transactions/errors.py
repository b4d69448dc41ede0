"""Errors of transactions; each says what its reader can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer._protocol.error_codes import ErrorCode
from aioproducer.errors import BrokerError, KafkaError, Outcome, ProducerFencedError, TransactionAbortableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioproducer._transactions.requests import TransactionRequest, TransactionResponse
    from aioproducer.records import TopicPartition

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


def answered_error(
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
