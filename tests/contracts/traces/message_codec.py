"""Kafka's messages as trees of plain values, strictly: a byte too many or too few is an error.

The layout comes from kio's classes, the values do not: error codes and times stay numbers, so that every answer can
be read and compared, also one whose values kio would not take.
"""

import dataclasses
import struct
import typing
import uuid
from collections.abc import Mapping
from functools import cache
from typing import TypeAlias

from aioproducer.testing.fake_broker.wire.api_keys import ApiKey
from aioproducer.testing.fake_broker.wire.primitives import Reader, Writer
from tests.testing.kio_classes import schema

Tree: TypeAlias = dict[str, object]  # a message by field name: numbers, strings, bytes, uuids, trees, and lists of them

NUMBERS = {
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "uint16": struct.Struct(">H"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "bool": struct.Struct(">?"),
    "error_code": struct.Struct(">h"),
    "timedelta_i32": struct.Struct(">i"),
    "timedelta_i64": struct.Struct(">q"),
    "datetime_i64": struct.Struct(">q"),
    "float64": struct.Struct(">d"),
}
ZERO_ID = uuid.UUID(int=0)


class _Field(typing.NamedTuple):
    name: str
    kafka_type: str
    nested: "_Layout | None"
    is_list: bool
    tag: int | None
    unsaid: object


class _Layout:
    """The fields of one structure, in order; those with a tag come last."""

    def __init__(self, message_class: type) -> None:
        hints = typing.get_type_hints(message_class)
        self.fields = [_field(field, hints[field.name]) for field in dataclasses.fields(message_class)]
        self.plain = [field for field in self.fields if field.tag is None]
        self.tagged = {field.tag: field for field in self.fields if field.tag is not None}

    def read(self, reader: Reader) -> Tree:
        """Read one structure; a tagged field that is not there is not in the tree either."""
        tree: Tree = {field.name: _read_value(reader, field) for field in self.plain}
        for _ in range(reader.uvarint() if reader.flexible else 0):
            tag, size = reader.uvarint(), reader.uvarint()
            content = Reader(memoryview(reader.fixed(size)), flexible=True)
            field = self.tagged.get(tag)
            tree[field.name if field else f"tag {tag}"] = _read_value(content, field) if field else content.fixed(size)
        return tree

    def write(self, writer: Writer, tree: Mapping[str, object]) -> None:
        """Write one structure; what the tree does not say is the schema's default, or nothing."""
        for field in self.plain:
            _write_value(writer, field, tree.get(field.name, field.unsaid))
        writer.tagged_fields()


def encode_message(api: ApiKey, version: int, tree: Mapping[str, object]) -> bytes:
    writer = Writer(flexible=api.is_flexible(version))
    _layout(api, version, "request").write(writer, tree)
    return b"".join(writer.finish())


def decode_answer(api: ApiKey, version: int, body: bytes) -> Tree:
    """Read the body of an answer."""
    reader = Reader(memoryview(body), flexible=api.is_flexible(version))
    tree = _layout(api, version, "response").read(reader)
    if reader.position != len(body):
        raise ValueError(f"{len(body) - reader.position} bytes after the end of {api.name} v{version}")
    return tree


@cache
def _layout(api: ApiKey, version: int, kind: str) -> _Layout:
    return _Layout(schema(api, version, kind))


def _field(field: "dataclasses.Field[object]", hint: object) -> _Field:
    nested = next((found for found in _within(hint) if dataclasses.is_dataclass(found)), None)
    kafka_type = str(field.metadata.get("kafka_type", ""))
    is_list = "tuple" in str(hint)
    unsaid: object = [] if is_list else {"string": "", "bytes": b"", "records": b"", "uuid": ZERO_ID}.get(kafka_type, 0)
    if isinstance(field.default, int | str | bytes) or field.default is None:
        unsaid = field.default
    if kafka_type == "uuid":
        unsaid = ZERO_ID
    layout = _Layout(nested) if isinstance(nested, type) else None
    return _Field(field.name, kafka_type, layout, is_list, field.metadata.get("tag"), unsaid)


def _within(hint: object) -> "list[object]":
    return [hint, *(found for argument in getattr(hint, "__args__", ()) for found in _within(argument))]


def _read_value(reader: Reader, field: _Field) -> object:
    if not field.is_list:
        return _read_one(reader, field)
    count = reader.count()
    return None if count < 0 else [_read_one(reader, field) for _ in range(count)]


def _read_one(reader: Reader, field: _Field) -> object:
    if field.nested is not None:
        return field.nested.read(reader)
    match field.kafka_type:
        case "string":
            return reader.string()
        case "bytes" | "records":
            view = reader.bytes_view()
            return None if view is None else bytes(view)
        case "uuid":
            return uuid.UUID(bytes=reader.fixed(16))
        case kafka_type:
            layout = NUMBERS[kafka_type]
            return layout.unpack(reader.fixed(layout.size))[0]


def _write_value(writer: Writer, field: _Field, value: object) -> None:
    if not field.is_list:
        _write_one(writer, field, value)
        return
    items = typing.cast("list[object] | None", value)
    writer.count(-1 if items is None else len(items))
    for item in items or ():
        _write_one(writer, field, item)


def _write_one(writer: Writer, field: _Field, value: object) -> None:
    if field.nested is not None:
        field.nested.write(writer, typing.cast("Tree", value))
        return
    match field.kafka_type:
        case "string":
            writer.string(typing.cast("str | None", value))
        case "bytes" | "records":
            data = typing.cast("bytes | None", value)
            writer.count(-1 if data is None else len(data))
            writer.fixed(data or b"")
        case "uuid":
            writer.fixed((typing.cast("uuid.UUID | None", value) or ZERO_ID).bytes)
        case kafka_type:
            writer.pack(NUMBERS[kafka_type], typing.cast("int", value))
