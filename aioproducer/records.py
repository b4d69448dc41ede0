"""Public values: records, partitions, offsets and acknowledgements, and the checks of their fields.

All of them are plain, immutable and equal by content. `TopicPartition` and `RecordMetadata` have
aiokafka's fields in aiokafka's order, so they are equal, as tuples, to its own.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self, TypeAlias

from aioproducer._shown_values import shown
from aioproducer.errors import IllegalStateError

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
"""A record's headers: names may repeat, order is kept, `None` is a null value."""

MAX_TOPIC_LENGTH = 249  # Kafka names a directory after topic and partition
MAX_PARTITION = 2**31 - 1  # int32 on the wire
MAX_TIMESTAMP_MS = 2**63 - 1  # int64 on the wire
MAX_GENERATION = 2**31 - 1  # int32 on the wire
NO_GENERATION = -1
MAX_TEXT_BYTES = 32_767  # int16 on the wire

_LEGAL_TOPIC = re.compile(rf"[a-zA-Z0-9._-]{{1,{MAX_TOPIC_LENGTH}}}")
_ILLEGAL_CHARACTER = re.compile(r"[^a-zA-Z0-9._-]")
_PAIR = 2


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class RecordMetadata(NamedTuple):
    """The place of an acknowledged record."""

    topic: str

    partition: int

    topic_partition: TopicPartition
    """Topic and partition as one value, for use as a key."""

    offset: int
    """The record's offset in its partition; -1 with `acks=0`, which gets no response."""

    timestamp: int
    """Milliseconds since 1970: the record's own, or the broker's clock when `timestamp_type` is 1."""

    timestamp_type: int
    """0: CreateTime, set by the producer. 1: LogAppendTime, set by the broker."""

    log_start_offset: int
    """The oldest offset of the partition then; -1 if the broker did not give it."""

    def __repr__(self) -> str:
        shown_fields = (name for name in self._fields if name != "topic_partition")  # it repeats the first two
        return f"RecordMetadata({', '.join(f'{name}={getattr(self, name)!r}' for name in shown_fields)})"


class OffsetAndMetadata(NamedTuple):
    """A committed offset of a consumer group; equal, as a tuple, to aiokafka's."""

    offset: int
    """The next offset to read."""

    metadata: str = ""
    """A text of the caller's, stored with the offset."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """A member of a consumer group that commits offsets; brokers refuse one that has left the group (KIP-447).

    With only the group's id no member is refused: safe only if each partition certainly has at most one consumer, as
    with partitions assigned by hand.

    Raises:
        TypeError: a field of the wrong type.
        ValueError: an empty group id, or a field that a request has no room for.
    """

    group_id: str

    generation_id: int = -1
    """Generation of the assignment under which the records were read; -1 for a consumer that is not a member."""

    member_id: str = ""
    """Id that the group's coordinator gave the consumer; empty for one that is not a member."""

    group_instance_id: str | None = None
    """A static member's own name (KIP-345)."""

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            TypeError: a field of the wrong type.
            ValueError: an empty group id, or a field that is out of range or too long.
        """
        check_text("group_id", self.group_id)
        check_text("member_id", self.member_id)
        if self.group_instance_id is not None:
            check_text("group_instance_id", self.group_instance_id)
        if not isinstance(self.generation_id, int) or isinstance(self.generation_id, bool):
            raise TypeError(f"generation_id must be an int, not {_kind(self.generation_id)}")
        if not NO_GENERATION <= self.generation_id <= MAX_GENERATION:
            raise ValueError(
                f"generation_id must be between {NO_GENERATION} and {MAX_GENERATION}, not {shown(self.generation_id)}"
            )
        if not self.group_id:
            raise ValueError("group_id must not be empty: offsets are committed for a group")

    @classmethod
    def of(cls, consumer: object) -> Self:
        """Return the current group membership of an aiokafka consumer.

        Records belong to the generation in which they were read. So call this once per assignment, before reading:
        after reading, the consumer may be in a later generation, in which another member has the records' partition.

        Args:
            consumer: a started `AIOKafkaConsumer`. One with partitions assigned by hand is not a member: the result
                holds only the group's id.

        Raises:
            TypeError: another object.
            IllegalStateError: it has no group, is not started, or is between two generations.

        Source: KafkaConsumer.groupMetadata in Apache Kafka.
        """
        if not all(hasattr(consumer, name) for name in ("_group_id", "_coordinator", "_subscription")):
            raise TypeError(f"consumer must be an AIOKafkaConsumer, not {_kind(consumer)}")
        group_id, coordinator = _part(consumer, "_group_id"), _part(consumer, "_coordinator")
        if group_id is None:
            raise IllegalStateError("the consumer has no group_id: there is no group to commit offsets for")
        if coordinator is None:
            raise IllegalStateError("the consumer is not started: await consumer.start() first")
        subscription = _part(consumer, "_subscription")
        if not subscription.partitions_auto_assigned():
            return cls(group_id)
        if subscription.reassignment_in_progress or coordinator.generation < 0 or not coordinator.member_id:
            raise IllegalStateError(f"the consumer is joining group {group_id!r}: it is no member until it is assigned")
        instance_id = _part(consumer, "_group_instance_id")
        return cls(group_id, coordinator.generation, coordinator.member_id, instance_id)


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """One record as the caller gave it: key and value not yet serialized.

    Arguments are checked when the record is made, so the copy of an interceptor (`dataclasses.replace`) is as valid as
    the arguments of a call.

    Raises:
        TypeError: topic, partition, timestamp or headers of the wrong type.
        ValueError: topic, partition, timestamp or headers out of range.
    """

    topic: str

    value: object = None
    """Bytes, or an object for the value serializer; `None` is a tombstone."""

    key: object = None
    """Bytes, or an object for the key serializer; `None` lets the producer choose the partition."""

    partition: int | None = None
    """A fixed partition, or `None` to have one chosen."""

    timestamp: int | None = None
    """Milliseconds since 1970, or `None` for the time of the call."""

    headers: Headers = ()

    def __post_init__(self) -> None:
        """Check the fields."""
        check_topic_name(self.topic)
        check_partition(self.partition)
        check_timestamp(self.timestamp)
        if self.headers != ():
            object.__setattr__(self, "headers", normalize_headers(self.headers))

    def __repr__(self) -> str:
        """Show the record without its payload."""
        return (
            f"ProducerRecord(topic={self.topic!r}, partition={self.partition}, "
            f"key={_shape(self.key)}, value={_shape(self.value)}, timestamp={self.timestamp}, "
            f"headers={[name for name, _ in self.headers]})"
        )


_SET: Final = tuple(
    ProducerRecord.__dict__[name].__set__ for name in ("topic", "value", "key", "partition", "timestamp", "headers")
)


def with_headers(record: ProducerRecord, headers: Headers) -> ProducerRecord:
    """Return a copy with other headers, which are known to be valid: `dataclasses.replace` checks everything again."""
    copy = object.__new__(ProducerRecord)
    put_topic, put_value, put_key, put_partition, put_timestamp, put_headers = _SET
    put_topic(copy, record.topic)
    put_value(copy, record.value)
    put_key(copy, record.key)
    put_partition(copy, record.partition)
    put_timestamp(copy, record.timestamp)
    put_headers(copy, headers)
    return copy


class WatchedRecord(NamedTuple):
    """A record that an interceptor's `on_send` returns with a function for the outcome of this very record.

    So an interceptor that keeps something per record needs no other way to find it again.
    """

    record: ProducerRecord
    """The record to send."""

    on_end: Callable[[TopicPartition, RecordMetadata | None, Exception | None], object]
    """Called once, when the record is delivered or has failed: with its topic and partition (-1 if none was chosen),
    and with its metadata, or None and the error."""


def check_topic_name(topic: object) -> None:
    """Refuse a topic name that no broker accepts.

    Raises:
        TypeError: not a `str`.
        ValueError: empty, `.` or `..`, longer than 249, or with a character outside
            `[a-zA-Z0-9._-]`.

    Source: org.apache.kafka.common.internals.Topic.
    """
    if not isinstance(topic, str):
        raise TypeError(f"topic must be a str, not {_kind(topic)}")
    if _LEGAL_TOPIC.fullmatch(topic) and topic not in {".", ".."}:
        return
    raise ValueError(f"topic {topic[:MAX_TOPIC_LENGTH]!r} {_fault_of_topic(topic)}")


def check_partition(partition: object) -> None:
    """Refuse an invalid partition number; only metadata shows whether the partition exists.

    Raises:
        TypeError: neither `None` nor an `int`; a `bool` is not accepted.
        ValueError: negative, or above 2^31 - 1.
    """
    if partition is None:
        return
    if not isinstance(partition, int) or isinstance(partition, bool):
        raise TypeError(f"partition must be an int or None, not {_kind(partition)}")
    if not 0 <= partition <= MAX_PARTITION:
        raise ValueError(f"partition must be between 0 and {MAX_PARTITION}, not {shown(partition)}")


def check_timestamp(timestamp: object) -> None:
    """Refuse an invalid timestamp.

    Raises:
        TypeError: neither `None` nor an `int`; a `bool` is not accepted.
        ValueError: negative, or above 2^63 - 1.
    """
    if timestamp is None:
        return
    if not isinstance(timestamp, int) or isinstance(timestamp, bool):
        raise TypeError(
            f"timestamp must be an int, milliseconds since 1970, or None, not {_kind(timestamp)}; "
            "for a datetime: timestamp=int(when.timestamp() * 1000)"
        )
    if not 0 <= timestamp <= MAX_TIMESTAMP_MS:
        raise ValueError(f"timestamp must be between 0 and {MAX_TIMESTAMP_MS} ms, not {shown(timestamp)}")


def check_deadline(deadline: object, delivery_timeout_ms: int) -> None:
    """Refuse an invalid deadline of a record.

    Raises:
        TypeError: neither an `int` nor a `float`; a `bool` is not accepted.
        ValueError: not above 0, or later than `delivery_timeout_ms`.
    """
    if not isinstance(deadline, int | float) or isinstance(deadline, bool):
        raise TypeError(f"deadline must be a number of seconds or None, not {_kind(deadline)}")
    if not 0 < deadline <= delivery_timeout_ms / 1000:
        raise ValueError(
            f"deadline must be above 0 and at most {delivery_timeout_ms / 1000:g} s, which is "
            f"delivery_timeout_ms={delivery_timeout_ms}, not {shown(deadline)}"
        )


def check_text(name: str, text: object) -> None:
    """Refuse a text that does not fit into a request.

    Args:
        name: of the argument, for the message.
        text: the argument.

    Raises:
        TypeError: not a `str`.
        ValueError: longer than 32767 bytes, or with a lone surrogate, which UTF-8 has no bytes for.
    """
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a str, not {_kind(text)}")
    try:
        # Here and not when it is encoded: that happens on the producer's own task, which would die of it.
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} cannot be encoded as UTF-8: {error.reason}") from error
    if size > MAX_TEXT_BYTES:
        raise ValueError(f"{name} must be at most {MAX_TEXT_BYTES} bytes long, not {size}")


def check_payload(name: str, payload: object, owner: str = "Producer") -> None:
    """Refuse a key or value that is not bytes, for a producer without a serializer.

    Args:
        name: `key` or `value`, for the message.
        payload: `bytes`, `bytearray`, `memoryview` or `None` pass.
        owner: the class that takes serializers, for the message.

    Raises:
        TypeError: anything else; the message shows the call that works.
    """
    if payload is None or isinstance(payload, bytes | bytearray | memoryview):
        return
    if isinstance(payload, str):
        hint = f"{name}=text.encode(), or {owner}(..., {name}_serializer=StringSerializer())"
    else:
        hint = f"{owner}(..., {name}_serializer=JsonSerializer()), or a serializer of your own"
    raise TypeError(f"{name} must be bytes, bytearray, memoryview or None, not {_kind(payload)}; try {hint}")


def check_callback(callback: object) -> None:
    """Refuse an `on_delivery` that cannot be called.

    Raises:
        TypeError: neither `None` nor callable, or async.
    """
    if callback is None:
        return
    if not callable(callback):
        raise TypeError(f"on_delivery must be a function of (metadata, error) or None, not {_kind(callback)}")
    if inspect.iscoroutinefunction(callback):
        raise TypeError("on_delivery must not be async: it is not awaited")


def normalize_headers(headers: object) -> Headers:
    """Return headers as a tuple of (name, value) pairs, taking any iterable once.

    Args:
        headers: pairs of `str` and `bytes` (or `bytearray`, `memoryview`, `None`); `None` stands for no headers.

    Raises:
        TypeError: a mapping, a string, or a pair of other types; the message shows what works.
        ValueError: an item that is not a pair, or a name that UTF-8 cannot encode.
    """
    if headers is None:
        return ()
    if isinstance(headers, Mapping):
        raise TypeError("headers must be pairs, since names may repeat; for a dict: headers=[*d.items()]")
    if isinstance(headers, str | bytes | bytearray | memoryview) or not isinstance(headers, Iterable):
        raise TypeError(f"headers must be an iterable of (str, bytes) pairs, not {_kind(headers)}")
    return tuple(_normal_header(index, header) for index, header in enumerate(headers))


def _normal_header(index: int, header: object) -> tuple[str, bytes | None]:
    if not isinstance(header, tuple | list):
        raise TypeError(f"headers[{index}] must be a (str, bytes) pair, not {_kind(header)}")
    if len(header) != _PAIR:
        raise ValueError(f"headers[{index}] must be a (str, bytes) pair; it has {len(header)} items")
    name, value = header
    _check_header_name(index, name)
    return name, _header_value(name, value)


def _check_header_name(index: int, name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"the name of headers[{index}] must be a str, not {_kind(name)}")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the name of headers[{index}] cannot be encoded as UTF-8: {error.reason}") from error


def _header_value(name: str, value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    hint = f"; try headers=[({name!r}, text.encode())]" if isinstance(value, str) else ""
    raise TypeError(f"the value of header {name!r} must be bytes or None, not {_kind(value)}{hint}")


def _fault_of_topic(topic: str) -> str:
    if not topic:
        return "must not be empty"
    if topic in {".", ".."}:
        return "must not be '.' or '..'"
    illegal = _ILLEGAL_CHARACTER.search(topic)
    if illegal is not None:
        return f"has the character {illegal[0]!r}; a topic name is made of a-z A-Z 0-9 . _ -"
    return f"is {len(topic)} characters long; {MAX_TOPIC_LENGTH} are allowed"


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__


def _shape(payload: object) -> str:
    if isinstance(payload, bytes | bytearray | memoryview):
        return f"<{memoryview(payload).nbytes} bytes>"
    return "None" if payload is None else f"<{type(payload).__name__}>"


def _part(consumer: object, name: str) -> Any:  # type: ignore[explicit-any]  # of a library without types
    """Return a private attribute: aiokafka has no `group_metadata()`."""
    return getattr(consumer, name)
