"""Walks over a request by its schema before `kio` decodes it, and refuses counts larger than the bytes that follow.

kio allocates as many elements as an array claims to have: five bytes from a confused client would abort the whole
process, with all brokers in it ("memory allocation of 34359738352 bytes failed").
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias, get_type_hints

from aioproducer.testing.fake_broker.wire.primitives import Reader

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Walk: TypeAlias = Callable[[Reader], object]

_SIZES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "bool": 1,
        "int8": 1,
        "uint8": 1,
        "int16": 2,
        "uint16": 2,
        "error_code": 2,
        "int32": 4,
        "uint32": 4,
        "timedelta_i32": 4,
        "int64": 8,
        "uint64": 8,
        "float64": 8,
        "timedelta_i64": 8,
        "datetime_i64": 8,
        "uuid": 16,
    }
)
"""Bytes of the types whose size does not vary."""


def check_counts(message_class: "type[DataclassInstance]", payload: memoryview) -> None:
    """Walk over a whole message of one of kio's classes."""
    is_flexible = bool(getattr(message_class, "__flexible__", False))
    _shape(message_class)(Reader(payload, flexible=is_flexible))


def dataclasses_in(hint: object) -> "Iterable[type[DataclassInstance]]":
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        yield hint
    for argument in getattr(hint, "__args__", ()):
        yield from dataclasses_in(argument)


@cache
def _shape(message_class: "type[DataclassInstance]") -> Walk:
    hints = get_type_hints(message_class)
    plain: list[Walk] = []
    tagged: dict[int, Walk] = {}
    for field in dataclasses.fields(message_class):
        walk = _walk_of(field, hints[field.name])
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = walk
        else:
            plain.append(walk)
    return partial(_walk_structure, plain=plain, tagged=tagged)


def _walk_of(field: "dataclasses.Field[object]", hint: object) -> Walk:
    nested = next(iter(dataclasses_in(hint)), None)
    kafka_type = str(field.metadata.get("kafka_type", ""))
    walk = _shape(nested) if nested is not None else partial(_walk_value, kafka_type=kafka_type)
    return partial(_walk_array, element=walk) if "tuple" in str(hint) else walk


def _walk_structure(reader: Reader, *, plain: Iterable[Walk], tagged: Mapping[int, Walk]) -> None:
    for walk in plain:
        walk(reader)
    if not reader.flexible:
        return
    for _ in range(reader.uvarint()):
        tag, size = reader.uvarint(), reader.uvarint()
        start = reader.position
        reader.skip(size)
        if tag in tagged:
            tagged[tag](Reader(reader.data[start : start + size], flexible=True))


def _walk_array(reader: Reader, *, element: Walk) -> None:
    for _ in range(reader.count()):
        element(reader)


def _walk_value(reader: Reader, *, kafka_type: str) -> None:
    match kafka_type:
        case "string":
            reader.string()
        case "bytes" | "records":
            reader.bytes_view()
        case _:
            reader.skip(_SIZES[kafka_type])
