"""Our errors as aiokafka's: whoever catches `aiokafka.errors.KafkaError` goes on catching it.

The error that this library would have raised is the `__cause__`: it says what became of the record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokafka import errors as theirs

from aioproducer import errors as ours

if TYPE_CHECKING:
    from types import TracebackType

_CLASSES: Final[tuple[tuple[type[ours.KafkaError], type[Exception]], ...]] = (
    (ours.RecordTooLargeError, theirs.MessageSizeTooLargeError),
    (ours.ProducerClosedError, theirs.ProducerClosed),
    (ours.IllegalStateError, theirs.IllegalStateError),
    (ours.BufferFullError, theirs.KafkaTimeoutError),
    (ours.MetadataTimeoutError, theirs.UnknownTopicOrPartitionError),
    (ours.DeliveryTimeoutError, theirs.KafkaTimeoutError),
    (ours.ProtocolError, theirs.KafkaProtocolError),
    (ours.BrokerConnectionError, theirs.KafkaConnectionError),
    (ours.AuthenticationError, theirs.AuthenticationFailedError),
    (ours.UnsupportedVersionError, theirs.IncompatibleBrokerVersion),
    (ours.ProducerFencedError, theirs.ProducerFenced),
    (ours.InvalidPartitionError, AssertionError),
)
"""First match wins. aiokafka asserts that a partition exists."""


def as_aiokafka(error: ours.KafkaError) -> Exception:
    """Return what aiokafka would have raised, with our error as its cause; of a failed partitioner its own error."""
    if isinstance(error, ours.InvalidPartitionError) and isinstance(error.__cause__, Exception):
        return error.__cause__
    translated = _class_for(error)(str(error))
    translated.__cause__ = error
    return translated


def _class_for(error: ours.KafkaError) -> type[Exception]:
    last = error.last_broker_error
    if isinstance(error, ours.DeliveryTimeoutError) and last is not None:  # aiokafka tells what the last attempt met
        return _class_for(last)
    if isinstance(error, ours.BrokerError):
        kind: type[Exception] = theirs.for_code(error.code)
        return kind
    found = next((other for kind, other in _CLASSES if isinstance(error, kind)), None)
    return theirs.KafkaError if found is None else found


class Translated:
    """Around a call of ours: raises aiokafka's errors in the place of ours."""

    __slots__ = ()

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Translate; everything that is not ours passes."""
        if isinstance(error, ours.KafkaError):
            other = as_aiokafka(error)
            raise other


TRANSLATED: Final = Translated()
