"""Arguments of public methods: offsets and groups checked, and copies and deadlines for calls on another thread."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import ItemsView, Iterable, Mapping
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar, cast

from aioproducer._shown_values import shown
from aioproducer.errors import DeliveryTimeoutError, Outcome
from aioproducer.records import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    TopicPartition,
    check_deadline,
    check_partition,
    check_text,
    check_topic_name,
)

if TYPE_CHECKING:
    from aioproducer._native.append import Headers

OffsetArgument: TypeAlias = int | tuple[int, str]
"""The next offset to read, alone or with a text that the group's coordinator keeps."""


class OffsetsArgument(Protocol):
    """A mapping of (topic, partition) to the next offset to read; aiokafka's types are such tuples too."""

    def items(self) -> Iterable[tuple[tuple[str, int], OffsetArgument]]:
        """Its pairs."""


GroupArgument: TypeAlias = str | ConsumerGroupMetadata

_MAX_OFFSET: Final = 2**63 - 1  # int64 on the wire
_PAIR: Final = 2


def offsets_of(offsets: object) -> dict[TopicPartition, OffsetAndMetadata]:
    if not isinstance(offsets, Mapping):
        text = f"offsets must be a mapping of (topic, partition) to the next offset, not {type(offsets).__name__}"
        raise TypeError(text)
    return {_topic_partition("the keys of offsets", given): _offset(offset, given) for given, offset in offsets.items()}


def partitions_of_group(partitions: object) -> list[TopicPartition]:
    """Return the partitions whose offsets are asked for, each once."""
    if isinstance(partitions, str | bytes) or not isinstance(partitions, Iterable):
        raise TypeError(f"partitions must be an iterable of (topic, partition), not {type(partitions).__name__}")
    return list({_topic_partition("partitions", given): None for given in partitions})


def group_of(group: object) -> ConsumerGroupMetadata:
    if isinstance(group, str):
        group = ConsumerGroupMetadata(group)
    if not isinstance(group, ConsumerGroupMetadata):
        raise TypeError(f"group must be a group id or ConsumerGroupMetadata, not {type(group).__name__}")
    return group


def _topic_partition(what: str, given: object) -> TopicPartition:
    if not isinstance(given, tuple) or len(given) != _PAIR:
        raise TypeError(f"{what} must be (topic, partition), not {type(given).__name__}")
    topic, partition = given
    check_topic_name(topic)
    if partition is None:
        raise TypeError(f"{what} must be (topic, partition): the partition is None")
    check_partition(partition)
    return TopicPartition(topic, partition)


def _offset(given: object, topic_partition: object) -> OffsetAndMetadata:
    offset, metadata = given if isinstance(given, tuple) and len(given) == _PAIR else (given, "")
    if not isinstance(offset, int) or isinstance(offset, bool):
        raise TypeError(f"the offset of {topic_partition} must be an int, or (int, str), not {type(given).__name__}")
    if not 0 <= offset <= _MAX_OFFSET:
        raise ValueError(f"the offset of {topic_partition} must be between 0 and {_MAX_OFFSET}, not {shown(offset)}")
    check_text(f"the metadata of {topic_partition}", metadata)
    return OffsetAndMetadata(offset, metadata)


PayloadT = TypeVar("PayloadT")


def owned(payload: PayloadT) -> PayloadT:
    """Copy a `bytearray` or `memoryview`, keeping its type for the serializer; return other objects unchanged."""
    if isinstance(payload, bytearray):
        return cast("PayloadT", bytearray(payload))
    if isinstance(payload, memoryview):
        return cast("PayloadT", memoryview(bytes(payload)))
    return payload


def owned_headers(headers: Headers | None) -> Headers | None:
    """Copy the headers. Invalid ones are returned unchanged; `send` refuses them."""
    if not isinstance(headers, list | tuple | ItemsView):
        return headers
    return [_owned_pair(pair) for pair in headers]


def _owned_pair(pair: tuple[str, bytes | None]) -> tuple[str, bytes | None]:
    return cast("tuple[str, bytes | None]", tuple(map(owned, pair))) if isinstance(pair, tuple) else pair


def mark_as_coroutine_functions(*functions: object) -> None:
    """Mark functions that return an awaitable without `async def`, for frameworks that ask."""
    for function in functions:
        if hasattr(inspect, "markcoroutinefunction"):
            inspect.markcoroutinefunction(function)
        else:
            function.__dict__["_is_coroutine"] = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]  # noqa: SLF001


class CallDeadline(float):
    """Seconds as given, for the `deadline` of a send method, with the time at which they are over.

    The event loop comes to the record later; errors name the seconds that the user gave.
    """

    __slots__ = ("at",)

    at: float  # `time.monotonic`

    @classmethod
    def of(cls, seconds: float, delivery_timeout_ms: int) -> CallDeadline:
        """Let a deadline count from now; checks that it is a number of seconds up to `delivery_timeout_ms`."""
        check_deadline(seconds, delivery_timeout_ms)
        deadline = cls(seconds)
        deadline.at = time.monotonic() + seconds
        return deadline

    @property
    def left_s(self) -> float:
        return self.at - time.monotonic()

    def over(self) -> DeliveryTimeoutError:
        """Return the error of a record that the producer did not get in time."""
        text = (
            f"deadline={self:g} was over before the event loop came to the record: earlier records wait for "
            "their topic or for room, or the loop was busy"
        )
        return DeliveryTimeoutError(text, outcome=Outcome.NOT_WRITTEN)


def deadline_arguments(deadline: float | None) -> dict[str, float]:
    """Return a deadline as an argument of a send method that a subclass may have overridden without it."""
    return {} if deadline is None else {"deadline": deadline}


def from_call(seconds: float | None, delivery_timeout_ms: int) -> float | None:
    """Let a deadline count from now; an invalid one stays, and is refused when the record is sent."""
    if seconds is None:
        return None
    try:
        return CallDeadline.of(seconds, delivery_timeout_ms)
    except (TypeError, ValueError):
        return seconds
