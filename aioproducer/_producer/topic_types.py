"""Serializers derived from types, for `producer.topic("orders", key=str, value=Order)`.

    bytes, bytearray, memoryview      unchanged; each of them takes the others too, but not for a type checker
    str, uuid.UUID                    UTF-8 text
    dict, list, TypedDict             JSON
    dataclass                         JSON, an object of its fields
    pydantic model, msgspec Struct    JSON, as the library writes it

None of these libraries is imported here: a program with such a class has imported it. Numbers are refused: Java's
serializers write them as 4 or 8 bytes, most others as text, and only the consumer would notice a wrong guess.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Awaitable, Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Final,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    get_origin,
    is_typeddict,
)
from uuid import UUID

from aioproducer.serializers import (
    AsyncSerializer,
    JsonSerializer,
    PendingAwaitable,
    Serializer,
    SerializerArgument,
    SerializerWithHeaders,
    StringSerializer,
    bind_serializer,
)

if TYPE_CHECKING:
    from aioproducer._native.bound_serializer import BoundSerializer

PartT = TypeVar("PartT")

TypeOrSerializer: TypeAlias = (
    type[PartT]
    | Serializer[PartT]
    | AsyncSerializer[PartT]
    | SerializerWithHeaders[PartT]
    | Callable[[PartT], bytes | Awaitable[bytes | None] | None]
)
"""Arguments `key=` and `value=` of a topic."""

_ALLOWED: Final = (
    "bytes, str, UUID, dict, list, a TypedDict, a dataclass, a pydantic model or a msgspec Struct, "
    "an object with serialize(topic, value), or a function of the value that returns bytes"
)

_TEXT: Final = "lambda number: str(number).encode()"
_NUMBERS: Final[Mapping[type, str]] = {
    int: f"LongSerializer() or IntegerSerializer(), as Java's, or {_TEXT}",
    float: f"DoubleSerializer() or FloatSerializer(), as Java's, or {_TEXT}",
    bool: f"BooleanSerializer(), as Java's, or {_TEXT}",
    Decimal: _TEXT,
}
"""Type of number -> serializers to use instead."""


class PartType(NamedTuple):
    """The type of a topic's keys or values, and their serializer."""

    types: tuple[type[object], ...] | None  # the allowed types; None if the serializer decides
    name: str  # name of the type, for messages
    serialize: BoundSerializer | None  # None for bytes
    given: object = None  # the user's serializer; None if the type has one

    def check(self, argument: str, part: object, topic: str) -> None:
        """Raise a `TypeError` for another type; None always passes."""
        if part is None or self.types is None or isinstance(part, self.types):
            return
        raise TypeError(f"{argument} for topic {topic!r} must be {self.name} or None, not {type(part).__name__}")

    def bytes_of(self, part: object, topic: str, headers: list[tuple[str, bytes | None]]) -> object:
        """Serialize a part that was checked; None stays None. The serializer may add to the record's headers."""
        if part is None or self.serialize is None:
            return part
        result = self.serialize(topic, part, headers)
        if isinstance(result, PendingAwaitable):
            result.close()
            raise result.refusal()
        return result


def part_type(argument: str, given: object) -> PartType:
    """Return the type and serializer of a topic's keys or values.

    Keys get sorted JSON, so that equal dicts are equal bytes. A type without a single encoding is a `TypeError`.
    """
    while hasattr(given, "__supertype__"):  # a NewType: at run time its values are of the type below
        given = given.__supertype__
    origin = get_origin(given)
    if origin is UnionType or not isinstance(origin, type | None):  # Union, Literal: could be called, but make nothing
        raise _refusal(argument, given)
    plain = origin or given
    if not isinstance(plain, type) or hasattr(plain, "serialize"):
        if not callable(plain) and not hasattr(plain, "serialize"):
            raise _refusal(argument, given)
        return PartType(None, "", bind_serializer(f"{argument} serializer", cast("SerializerArgument", given)), given)
    if issubclass(plain, bytes | bytearray | memoryview):
        return PartType((bytes, bytearray, memoryview), "bytes", None)
    name = plain.__qualname__.rpartition("<locals>.")[2]
    checked = (dict,) if is_typeddict(plain) else (plain,)
    return PartType(checked, name, bind_serializer(f"{argument} serializer", _serializer_of(argument, plain)))


def _serializer_of(argument: str, kind: type) -> SerializerArgument:
    if issubclass(kind, str):
        return StringSerializer()
    if issubclass(kind, UUID):
        return _uuid_text
    if issubclass(kind, dict | list) or dataclasses.is_dataclass(kind):
        return JsonSerializer(default=_for_json, sort_keys=argument == "key")
    if hasattr(kind, "model_dump_json"):
        return _pydantic_json
    if hasattr(kind, "__struct_fields__"):
        return cast("_MsgspecJson", sys.modules["msgspec"].json).encode
    raise _refusal(argument, kind)


def _refusal(argument: str, given: object) -> TypeError:
    shown = given.__qualname__ if isinstance(given, type) else f"an object of type {type(given).__name__}"
    hint = ""
    if get_args(given):
        shown = str(given)
        hint = "; give the type alone, None is allowed with every type" if NoneType in get_args(given) else ""
    elif isinstance(given, type) and given in _NUMBERS:
        hint = f"; for a number say which bytes are meant: {argument}={_NUMBERS[given]}"
    return TypeError(f"{argument} must be one of {_ALLOWED}; not {shown}{hint}")


class _PydanticModel(Protocol):
    def model_dump_json(self) -> str: ...

    def model_dump(self, *, mode: str) -> object: ...


class _MsgspecBuiltins(Protocol):
    def to_builtins(self, obj: object, /, *, str_keys: bool) -> object: ...


class _MsgspecJson(Protocol):
    def encode(self, obj: object, /) -> bytes: ...


def _pydantic_json(model: _PydanticModel) -> bytes:
    return model.model_dump_json().encode()


def _uuid_text(uuid: UUID) -> bytes:
    return str(uuid).encode()


def _for_json(part: object) -> object:
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        return {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    if isinstance(part, datetime | date | time):
        return part.isoformat()
    if isinstance(part, UUID | Decimal):
        return str(part)
    if isinstance(part, Enum):
        return part.value
    return _for_json_by_its_library(part)


def _for_json_by_its_library(part: object) -> object:
    if hasattr(part, "model_dump"):
        return cast("_PydanticModel", part).model_dump(mode="json")
    if hasattr(part, "__struct_fields__"):
        return cast("_MsgspecBuiltins", sys.modules["msgspec"]).to_builtins(part, str_keys=True)
    raise TypeError(f"{type(part).__name__} has no JSON; give the topic a serializer")
