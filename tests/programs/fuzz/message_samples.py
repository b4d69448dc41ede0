"""Whole messages with something in every field, written by the encoder that is generated from Kafka's schemas."""

import dataclasses
import datetime as dt
import functools
import io
import typing
import uuid
from importlib import import_module

from tests.reference.record_batch import Batch, Record, encode_batch

ELEMENTS = 2  # of every array

BATCH = encode_batch(
    Batch(
        (Record(b"key", b"value", 1_700_000_000_000, (("name", b"x"), ("null", None))),) * 2,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
    )
)

ANY_TEXT = "text"

_VALUES: dict[str, object] = {
    "string": ANY_TEXT,
    "bytes": b"bytes",
    "records": BATCH,
    "bool": True,
    "timedelta_i32": dt.timedelta(milliseconds=5),
    "timedelta_i64": dt.timedelta(milliseconds=5),
    "datetime_i64": dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
    "uuid": uuid.UUID(int=7),
    "float64": 0.5,
}
"""Sample values by Kafka's name of the type; other numbers are 1."""


@functools.cache
def sample(message: str, version: int, kind: str) -> bytes:
    """A message in one version; `message` as kio spells it ("api_versions"), `kind` "request" or "response"."""
    name = "".join(part.capitalize() for part in message.split("_")) + kind.capitalize()
    message_class = getattr(import_module(f"kio.schema.{message}.v{version}.{kind}"), name)
    buffer = io.BytesIO()
    import_module("kio.serial").entity_writer(message_class)(buffer, _filled(message_class))
    return buffer.getvalue()


def _filled(message_class: type) -> object:
    hints = typing.get_type_hints(message_class)
    fields = dataclasses.fields(message_class)
    return message_class(**{field.name: _value(field, hints[field.name]) for field in fields})


def _value(field: "dataclasses.Field[object]", hint: object) -> object:
    one = _one(str(field.metadata.get("kafka_type", "")), hint)
    return (one,) * ELEMENTS if "tuple" in str(hint) else one


def _one(kafka_type: str, hint: object) -> object:
    nested = next(_dataclasses_in(hint), None)
    if nested is not None:
        return _filled(nested)
    if kafka_type == "error_code":
        return import_module("kio.schema.errors").ErrorCode(0)
    return _VALUES.get(kafka_type, 1)


def _dataclasses_in(hint: object) -> "typing.Iterator[type]":
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        yield hint
    for argument in getattr(hint, "__args__", ()):
        yield from _dataclasses_in(argument)
