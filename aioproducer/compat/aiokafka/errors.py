"""Translation of errors to aiokafka's, so that `except aiokafka.errors.KafkaError` keeps working.

The error that this library would have raised is the `__cause__`; it tells what happened to the record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from aiokafka import errors as theirs

from aioproducer import errors as ours
from aioproducer._network.connection import UnansweredError
from aioproducer._protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from asyncio import Future
    from types import TracebackType

    from aioproducer.compat.aiokafka.client import UnderlyingProducer

FutureT = TypeVar("FutureT")

_CLASSES: Final[tuple[tuple[type[ours.KafkaError], type[Exception]], ...]] = (
    (ours.RecordTooLargeError, theirs.MessageSizeTooLargeError),
    (ours.ProducerClosedError, theirs.ProducerClosed),
    (ours.NoTransactionError, theirs.IllegalOperation),
    (ours.IllegalStateError, theirs.IllegalStateError),
    (ours.BufferFullError, theirs.KafkaTimeoutError),
    (ours.MetadataTimeoutError, theirs.UnknownTopicOrPartitionError),
    (ours.DeliveryTimeoutError, theirs.KafkaTimeoutError),
    (ours.TransactionTimeoutError, theirs.KafkaTimeoutError),
    (ours.ProtocolError, theirs.KafkaProtocolError),
    (UnansweredError, theirs.RequestTimedOutError),
    (ours.BrokerConnectionError, theirs.KafkaConnectionError),
    (ours.AuthenticationError, theirs.AuthenticationFailedError),
    (ours.UnsupportedVersionError, theirs.IncompatibleBrokerVersion),
    (ours.ProducerFencedError, theirs.ProducerFenced),
    (ours.InvalidPartitionError, AssertionError),
)
"""First match wins. aiokafka asserts that a partition exists."""


_FENCED_CODES: Final = frozenset((ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED))

_LAST_ERROR_COUNTS: Final = (ours.DeliveryTimeoutError, ours.TransactionAbortableError)
"""aiokafka raises the error of the last attempt, or what went wrong in a transaction."""


def as_aiokafka(error: ours.KafkaError) -> Exception:
    """Return what aiokafka would have raised, with our error as its cause; for a failed partitioner its own error."""
    if isinstance(error, ours.InvalidPartitionError) and isinstance(error.__cause__, Exception):
        return error.__cause__
    return _with_cause(_class_for(error), error)


def undelivered(error: ours.KafkaError, producer: UnderlyingProducer) -> Exception:
    """Return the error of a record's future, of the class that aiokafka has for the last attempt.

    aiokafka retries until a record has expired and then raises the error of the last attempt. A record that could not
    be sent, because its partition has no leader or the leader has no connection, gets the class of that error.

    Args:
        error: the delivery's, of this library.
        producer: knows the leaders and the connections.
    """
    last = error.last_broker_error
    if not isinstance(error, ours.DeliveryTimeoutError):
        return as_aiokafka(error)
    now = producer.reason_not_sent(error.topic, error.partition)
    if isinstance(now, ours.BrokerError | UnansweredError):
        return _with_cause(_class_for(now), error)
    if now is not None and str(now) != str(last):
        return _with_cause(theirs.NodeNotReadyError, error)
    if last is None and error.partition is not None:
        return _with_cause(theirs.RequestTimedOutError, error)  # no response yet to this request or an earlier one
    return as_aiokafka(error)


def set_error(future: Future[FutureT], error: BaseException) -> None:
    """Fail a future.

    Args:
        future: of a record or batch.
        error: aiokafka's. For a record that was aborted with its transaction, the end of the transaction raises, so
            asyncio need not warn of an exception that was never retrieved.
    """
    future.set_exception(error)
    if isinstance(error.__cause__, ours.TransactionAbortedError):
        future.exception()


def _with_cause(kind: type[Exception], error: ours.KafkaError) -> Exception:
    translated = kind(str(error))
    translated.__cause__ = error
    return translated


def _class_for(error: ours.KafkaError) -> type[Exception]:
    last = error.last_broker_error
    if isinstance(error, _LAST_ERROR_COUNTS) and last is not None:
        return _class_for(last)
    if isinstance(error, ours.BrokerError):
        is_fenced = error.code in _FENCED_CODES
        kind: type[Exception] = theirs.ProducerFenced if is_fenced else theirs.for_code(error.code)
        return kind
    found = next((other for kind, other in _CLASSES if isinstance(error, kind)), None)
    return theirs.KafkaError if found is None else found


class Translated:
    """Context manager that raises aiokafka's errors instead of this library's.

    Args:
        wrong_order: the class for a call that does not fit the state; None: aiokafka's `IllegalStateError`.
    """

    __slots__ = ("_wrong_order",)

    def __init__(self, *, wrong_order: type[Exception] | None = None) -> None:
        self._wrong_order = wrong_order

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Translate this library's errors; others pass."""
        if not isinstance(error, ours.KafkaError):
            return
        is_wrong_order = type(error) is ours.IllegalStateError and error.__cause__ is None  # else the producer failed
        if self._wrong_order is not None and is_wrong_order:
            other = _with_cause(self._wrong_order, error)
        else:
            other = as_aiokafka(error)
        raise other


TRANSLATED: Final = Translated()

IN_ORDER: Final = Translated(wrong_order=AssertionError)
"""For the methods that begin and end transactions: aiokafka asserts the order of their calls."""
