"""What the failure of a batch means for the loop: read the same again, find the record at fault, or end.

Pure; `aiokafka.py` acts on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final

from aioproducer.errors import (
    AuthorizationError,
    BrokerError,
    IllegalStateError,
    InvalidPartitionError,
    InvalidRecordError,
    KafkaError,
    RecordTooLargeError,
    SerializationError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionError,
    TransactionTimeoutError,
    UndeliveredError,
    UnsupportedVersionError,
)
from aioproducer.protocol.error_codes import ErrorCode

RECORD_ERRORS: Final = (RecordTooLargeError, InvalidRecordError, SerializationError, InvalidPartitionError)
"""The same record will fail the same way, however often it is tried."""

FATAL_ERRORS: Final = (AuthorizationError, IllegalStateError, UnsupportedVersionError)
"""Trying again helps nobody before somebody has changed something."""

ABORTABLE: Final = (TransactionAbortableError, TransactionAbortedError, TransactionTimeoutError)
"""Another transaction can succeed, also where the cause looks like being fenced: it may have been the time-out of this
one alone (transactions V2). Who is fenced learns it when the next one begins."""


class RebalancedError(KafkaError):
    """Tells a transaction why it is aborted."""


class _LeftInTheMiddleError(KafkaError):
    """Tells a transaction why it is aborted."""


def left_in_the_middle() -> KafkaError:
    """Why a batch is aborted whose code did not come to its end."""
    return _LeftInTheMiddleError("the loop was left in the middle of the batch")


class Meaning(Enum):
    """What a failure says about the next attempt."""

    PASSING = "passing"
    """The cluster is in trouble, or the group is rebalancing: the same batch again, after a pause."""

    RECORD = "record"
    """One of the records is at fault, and will be again."""

    FATAL = "fatal"
    """This producer, or this user, will never commit."""


def meaning_of(error: BaseException) -> Meaning:
    """Tell what a failure of a batch means.

    Args:
        error: of the commit, or raised by the user's own code.
    """
    if not isinstance(error, KafkaError):
        return Meaning.RECORD  # the user's own code
    causes = list(_causes(error))
    if any(isinstance(cause, FATAL_ERRORS) or _is_of_forgotten_id(cause) for cause in causes):
        return Meaning.FATAL
    if isinstance(error, TransactionError) and not isinstance(error, ABORTABLE):
        return Meaning.FATAL
    if any(isinstance(cause, RECORD_ERRORS) for cause in causes):
        return Meaning.RECORD
    return Meaning.PASSING


def _is_of_forgotten_id(cause: BaseException) -> bool:
    """Tell whether the brokers do not know the producer any more, which ends it."""
    return isinstance(cause, BrokerError) and cause.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, what it was raised from, and what it is a group of."""
    while error is not None:
        yield error
        if isinstance(error, UndeliveredError):
            for part in error.exceptions:
                yield from _causes(part)
        if isinstance(error, KafkaError) and error.last_broker_error is not None:
            yield error.last_broker_error
        error = error.__cause__
