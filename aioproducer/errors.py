"""Every error this library raises on purpose.

Kafka's names with Python's suffix. A matching built-in error of Python's is a second parent, so that callers need not
import ours to catch it::

    KafkaError                                       the parent of all
    ├── ConfigurationError        (ValueError)       an option is wrong; raised before any I/O
    │   └── ConfigurationTypeError (TypeError)       an option of the wrong type, or one that does not exist
    ├── IllegalStateError         (RuntimeError)     the producer's state does not allow the call
    │   ├── ProducerClosedError
    │   └── NoTransactionError                       no transaction is open for it
    ├── BackgroundTaskDiedError                      a task of the producer was ended from outside: it cannot continue
    ├── SerializationError        (ValueError)       a serializer failed or returned no bytes
    ├── RecordTooLargeError       (ValueError)       larger than a limit can ever allow
    ├── InvalidPartitionError     (ValueError)       the topic has no such partition
    ├── BufferFullError                              no room now, and the call does not wait
    │   └── BufferTimeoutError    (TimeoutError)     max_block_ms passed without room
    ├── MetadataNotReadyError                        topic not known yet, and the call does not wait
    ├── MetadataTimeoutError      (TimeoutError)     max_block_ms passed and the topic is still unknown
    ├── RecordFilteredError                          an interceptor dropped the record
    ├── PurgedError                                  purge() ended the record before it was sent
    ├── DeliveryTimeoutError      (TimeoutError)     delivery_timeout_ms passed
    ├── UndeliveredError          (ExceptionGroup)   flush, close: failures not seen before
    ├── BrokerConnectionError     (ConnectionError)
    │   ├── TlsError
    │   │   ├── TlsVerificationError                 we do not accept the broker's certificate
    │   │   ├── TlsRefusedError                      the broker does not accept our certificate, version or cipher
    │   │   └── TlsClosedError                       closed in the handshake without a word
    │   └── ProtocolError                            bytes that cannot be read
    ├── AuthenticationError
    │   ├── CredentialsError                         user, password or delegation token
    │   ├── TokenError                               a token of OAUTHBEARER
    │   ├── TicketError                              Kerberos
    │   ├── UnsupportedMechanismError                the listener does not offer sasl_mechanism
    │   ├── WrongListenerError                       SASL to a listener without it, or none to one with it
    │   └── PrincipalChangedError                    the credentials are now those of another user
    ├── UnsupportedVersionError
    ├── BrokerError                                  the broker answered with an error code
    │   ├── AuthorizationError
    │   │   ├── TopicAuthorizationError              29
    │   │   ├── GroupAuthorizationError              30
    │   │   ├── ClusterAuthorizationError            31
    │   │   └── TransactionalIdAuthorizationError    53
    │   ├── InvalidTopicError     (ValueError)       17
    │   ├── MessageTooLargeError  (RecordTooLargeError)  10, 18
    │   ├── InvalidRecordError    (ValueError)       32, 87
    │   └── NotEnoughReplicasError                   19, 20
    └── TransactionError
        ├── TransactionAbortableError                abort, then continue
        ├── TransactionAbortedError                  of a record: its transaction was aborted before it was sent
        ├── TransactionTimeoutError (TimeoutError)   max_block_ms passed; another call joins the running one
        └── ProducerFencedError                      close; nothing else helps

Codes without a class of their own are plain `BrokerError`s that carry the code.

The error of a record has attributes for its outcome, its topic and partition, the number and duration of the attempts,
and the last error of the broker.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Self, TypedDict, TypeVar, Unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ErrorT = TypeVar("ErrorT", bound="KafkaError")

MAX_SUB_ERRORS = 100  # of one UndeliveredError, whose `count` is not limited


class Outcome(enum.Enum):
    """Whether a record that was not acknowledged may have been written."""

    NOT_WRITTEN = "not_written"
    """The record is certainly not in the log: sending it again makes no duplicate."""

    UNKNOWN = "unknown"
    """The record may be in the log: an attempt got no response, or one that leaves it open."""


class ErrorDetails(TypedDict, total=False):
    """The keyword arguments every `KafkaError` takes; each becomes an attribute."""

    topic: str | None
    partition: int | None
    outcome: Outcome | None
    attempts: int | None
    elapsed_s: float | None
    last_broker_error: KafkaError | None


class MessageTooLargeDetails(ErrorDetails, total=False):
    """The keyword arguments of `MessageTooLargeError`: those of its two parents."""

    code: int
    retriable: bool
    size_bytes: int | None
    limit_bytes: int | None
    option: str | None


class KafkaError(Exception):
    """Base class of all errors that this library raises on purpose.

    Args:
        message: what happened, to what, the numbers, and a hint.
        **details: attributes of the same names; `None` where they do not apply.
    """

    topic: str | None = None
    """The record's topic."""

    partition: int | None = None
    """The record's partition, `None` while none was chosen."""

    outcome: Outcome | None = None
    """Whether the record may have been written, or the commit done; `None` if the error concerns neither."""

    attempts: int | None = None
    """Number of times that the record's batch was handed to a connection."""

    elapsed_s: float | None = None
    """Seconds from the call that accepted the record to its failure."""

    last_broker_error: KafkaError | None = None
    """The last error of the broker or its connection, if this error is a time-out."""

    def __init__(self, message: str = "", **details: Unpack[ErrorDetails]) -> None:
        """Keep the message and the details."""
        super().__init__(message)
        _set_details(self, details)

    def fresh(self) -> Self:
        """Return an equal instance with the same cause and no traceback.

        One failed batch fails many deliveries. Each gets an instance of its own: a raised exception collects traceback
        frames, and a shared one would keep those of all callers alive.
        """
        twin = _rebuild(type(self), self.args, _state_of(self))
        twin.__cause__ = self.__cause__
        twin.__suppress_context__ = self.__suppress_context__
        return twin

    def with_details(self, **details: Unpack[ErrorDetails]) -> Self:
        """Return a fresh instance with some details replaced.

        Raises:
            TypeError: a detail that does not exist.
        """
        twin = self.fresh()
        _set_details(twin, details)
        return twin

    def __reduce__(
        self,
    ) -> tuple[
        Callable[[type[Self], tuple[object, ...], dict[str, object]], Self],
        tuple[type[Self], tuple[object, ...], dict[str, object]],
    ]:
        """Pickle without calling `__init__`, whose signature differs from class to class."""
        return _rebuild, (type(self), self.args, _state_of(self))


def _rebuild(kind: type[ErrorT], args: tuple[object, ...], state: dict[str, object]) -> ErrorT:
    error = kind.__new__(kind, *args)
    error.args = args  # OSError.__new__ leaves this to an __init__ that is not called here
    error.__dict__.update(state)
    return error


def _state_of(error: KafkaError) -> dict[str, object]:
    state = dict(error.__dict__)
    notes = state.get("__notes__")
    if isinstance(notes, list):
        state["__notes__"] = list(notes)
    return state


def _set_details(error: KafkaError, details: ErrorDetails) -> None:
    unknown = details.keys() - ErrorDetails.__annotations__.keys()
    if unknown:
        raise TypeError(f"{type(error).__name__} has no detail {min(unknown)!r}")
    error.__dict__.update(details)


# What the caller did


class ConfigurationError(KafkaError, ValueError):
    """An option has an invalid value; raised before any I/O.

    Args:
        message: names the option, the value and the allowed range.
        option: the option's name in Python spelling, `linger_ms`; `None` when several disagree.
        retriable: whether the same attempt may succeed later.
    """

    option: str | None = None
    retriable: bool = False
    """Whether a value could not be had now, and may be had later: a function of a password raised, for example."""

    problems: tuple[ConfigurationError, ...] = ()
    """The errors of the single options, where several are refused at once; the message has all of them."""

    def __init__(
        self,
        message: str = "",
        *,
        option: str | None = None,
        retriable: bool = False,
        **details: Unpack[ErrorDetails],
    ) -> None:
        """Keep the option's name and the trait beside the message."""
        super().__init__(message, **details)
        self.option = option
        self.retriable = retriable


class ConfigurationTypeError(ConfigurationError, TypeError):
    """An option has the wrong type, or there is no such option."""


class IllegalStateError(KafkaError, RuntimeError):
    """The producer's state does not allow the call: before `start`, from another thread, ..."""


class ProducerClosedError(IllegalStateError):
    """The producer is closed or closing."""


class NoTransactionError(IllegalStateError):
    """No transaction is open for the record or the offsets, or it belongs to another caller."""


class BackgroundTaskDiedError(KafkaError):
    """A background task ended before the producer was closed: cancelled from outside, or by a defect."""


class SerializationError(KafkaError, ValueError):
    """A serializer failed, or returned something that is neither bytes nor `None`."""


class RecordTooLargeError(KafkaError, ValueError):
    """The record is larger than a limit can ever allow.

    Args:
        message: both sizes, and the option to raise.
        size_bytes: the record's size as it would be sent.
        limit_bytes: what is allowed.
        option: the option that sets the limit, ours or the broker's.
    """

    size_bytes: int | None = None
    limit_bytes: int | None = None
    option: str | None = None

    def __init__(
        self,
        message: str = "",
        *,
        size_bytes: int | None = None,
        limit_bytes: int | None = None,
        option: str | None = None,
        **details: Unpack[ErrorDetails],
    ) -> None:
        """Keep the sizes and the option beside the message."""
        super().__init__(message, **details)
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes
        self.option = option


class InvalidPartitionError(KafkaError, ValueError):
    """The topic has no partition of that number."""


class PurgedError(KafkaError):
    """`purge` ended the record before it was sent."""


class BufferFullError(KafkaError):
    """There is no room in the buffer now, and the call does not wait for it."""


class BufferTimeoutError(BufferFullError, TimeoutError):
    """`max_block_ms` passed, and there was no room in the buffer."""


class MetadataNotReadyError(KafkaError):
    """The topic's partitions are not known yet, and the call does not wait for them."""


class MetadataTimeoutError(KafkaError, TimeoutError):
    """`max_block_ms` passed, and the cluster or the topic's partitions are still unknown."""


class RecordFilteredError(KafkaError):
    """An interceptor's `on_send` dropped the record: it was not sent, on purpose."""


class DeliveryTimeoutError(KafkaError, TimeoutError):
    """`delivery_timeout_ms` passed; `outcome` says whether the record may have been written."""


class UndeliveredError(KafkaError, ExceptionGroup[KafkaError]):
    """Records were not delivered, and no caller or callback has seen their failures.

    Raised by `flush` and `close`. One sub-error per batch, at most 100.

    Args:
        message: what happened; `str()` adds the number of sub-errors.
        errors: at least one.
        count: number of undelivered records, including those without a sub-error.
    """

    count: int = 0

    if TYPE_CHECKING:  # it is flat; typeshed has errors or groups of them

        @property
        def exceptions(self) -> tuple[KafkaError, ...]:
            """The sub-errors."""

    def __new__(cls, message: str, errors: Sequence[KafkaError], **_: object) -> Self:
        """Build the group of at most `MAX_SUB_ERRORS` errors."""
        return super().__new__(cls, message, list(errors[:MAX_SUB_ERRORS]))

    def __init__(
        self, message: str, errors: Sequence[KafkaError], *, count: int | None = None, **details: Unpack[ErrorDetails]
    ) -> None:
        """Keep the count; None is the number of errors."""
        super().__init__(message, **details)
        ExceptionGroup.__init__(self, message, list(errors[:MAX_SUB_ERRORS]))  # for `args`
        self.count = len(errors) if count is None else count

    @classmethod
    def of(cls, errors: Sequence[KafkaError], *, count: int) -> Self:
        """Return the error for `count` undelivered records, with a message that says so."""
        noun = "record was" if count == 1 else "records were"
        return cls(f"{count} {noun} not delivered: {errors[0]}", errors, count=count)

    def derive(self, excs: Sequence[KafkaError], /) -> UndeliveredError:  # type: ignore[override]
        """Return the part that `except*` or `split` selects; the count stays the whole's."""
        return UndeliveredError(self.message, excs, count=self.count)


# What the network and the broker did


class BrokerConnectionError(KafkaError, ConnectionError):
    """A connection could not be made, or was lost."""


class TlsError(BrokerConnectionError):
    """TLS failed, or the other end speaks TLS and we do not."""


class TlsVerificationError(TlsError):
    """The broker's certificate is not accepted: not trusted, expired, for another name, ..."""


class TlsRefusedError(TlsError):
    """The other end does not accept our certificate, versions or ciphers, or speaks no TLS."""


class TlsClosedError(TlsError):
    """The other end closed the connection in the TLS handshake without saying why."""


class ProtocolError(BrokerConnectionError):
    """The other end sent bytes that are not a response to the request."""


class AuthenticationError(KafkaError):
    """The broker does not accept the credentials, or they cannot be had. The subclasses say what to look at.

    Args:
        message: what is refused or missing, and what to do.
        retriable: whether the same attempt may succeed later; not given, it is as its place says: what a token provider
            or a function of a password raises may pass, and what a broker refuses does not.
    """

    retriable: bool = False
    """Whether a token, password or ticket could not be fetched now, and may be later; `start` then goes on until
    `max_block_ms`. False: the other side has refused it."""

    def __init__(self, message: str = "", *, retriable: bool | None = None, **details: Unpack[ErrorDetails]) -> None:
        """Keep the trait beside the message."""
        super().__init__(message, **details)
        if retriable is not None:
            self.retriable = retriable


class CredentialsError(AuthenticationError):
    """The broker refuses user and password or the delegation token, or the password cannot be read."""


class TokenError(AuthenticationError):
    """The broker refuses the token of OAUTHBEARER, or none could be fetched."""


class TicketError(AuthenticationError):
    """Kerberos gives no ticket for the broker, or the broker refuses it."""


class UnsupportedMechanismError(AuthenticationError):
    """The broker's listener does not offer `sasl_mechanism`; the message lists those that it offers."""


class WrongListenerError(AuthenticationError):
    """The broker's listener wants no SASL, or wants SASL and none is configured."""


class PrincipalChangedError(AuthenticationError):
    """The credentials are now those of another user, which an open connection cannot take."""


class UnsupportedVersionError(KafkaError):
    """The broker is too old, or too new, for a request that is needed."""


class BrokerError(KafkaError):
    """The broker answered with an error code.

    Args:
        message: the code's name, what it means here, what to do.
        code: Kafka's number; see `aioproducer._protocol.error_codes`.
        retriable: whether the same request may succeed later.
    """

    code: int
    retriable: bool

    def __init__(
        self, message: str = "", *, code: int = -1, retriable: bool = False, **details: Unpack[ErrorDetails]
    ) -> None:
        """Keep the code and its trait beside the message."""
        super().__init__(message, **details)
        self.code = code
        self.retriable = retriable

    @property
    def topic_partition(self) -> tuple[str, int] | None:
        """Topic and partition, equal to a `TopicPartition`; `None` unless both are known."""
        if self.topic is None or self.partition is None:
            return None
        return self.topic, self.partition

    @staticmethod
    def of(code: int, message: str, *, retriable: bool = False, **details: Unpack[ErrorDetails]) -> BrokerError:
        """Return the error for a code, of the code's own class if it has one."""
        kind = _CLASS_OF_CODE.get(code, BrokerError)
        return kind(message, code=code, retriable=retriable, **details)


class AuthorizationError(BrokerError):
    """The user of this connection may not do that."""


class TopicAuthorizationError(AuthorizationError):
    """The user may not write to the topic (29)."""


class GroupAuthorizationError(AuthorizationError):
    """The user may not read with the consumer group, and so not commit its offsets (30)."""


class ClusterAuthorizationError(AuthorizationError):
    """The user may not do that on the cluster (31); old brokers: no idempotent writes."""


class TransactionalIdAuthorizationError(AuthorizationError):
    """The user may not use the transactional id (53)."""


class InvalidTopicError(BrokerError, ValueError):
    """The broker does not accept the topic's name, or the topic is internal (17)."""


class MessageTooLargeError(BrokerError, RecordTooLargeError):
    """The record alone is larger than the broker or the topic accepts (10, 18)."""

    def __init__(self, message: str = "", **details: Unpack[MessageTooLargeDetails]) -> None:
        """Keep the arguments of both parents."""
        super().__init__(message, **details)  # type: ignore[misc]  # BrokerError passes the sizes on


class InvalidRecordError(BrokerError, ValueError):
    """The broker refuses this record, or in a transaction its batch: for a timestamp (32), or for its content (87)."""

    record_index: int | None = None
    """Position in its batch of the first record that the broker named; `None` if it named none."""


class NotEnoughReplicasError(BrokerError):
    """Fewer replicas are in sync than `min.insync.replicas` (19; 20: after the append)."""


class TransactionError(KafkaError):
    """A transaction cannot continue."""


class TransactionAbortableError(TransactionError):
    """This transaction must be aborted; the next one can succeed. What went wrong first is its `__cause__`."""


class TransactionAbortedError(TransactionError):
    """The record's transaction was aborted, or had failed, before the record was sent or answered."""


class TransactionTimeoutError(TransactionError, TimeoutError):
    """`max_block_ms` passed; the operation continues, and another call joins it."""


class ProducerFencedError(TransactionError):
    """A newer producer has the transactional id, or the transaction timed out: close."""


_CLASS_OF_CODE: dict[int, type[BrokerError]] = {
    10: MessageTooLargeError,
    17: InvalidTopicError,
    18: MessageTooLargeError,
    19: NotEnoughReplicasError,
    20: NotEnoughReplicasError,
    29: TopicAuthorizationError,
    30: GroupAuthorizationError,
    31: ClusterAuthorizationError,
    32: InvalidRecordError,
    53: TransactionalIdAuthorizationError,
    87: InvalidRecordError,
}
