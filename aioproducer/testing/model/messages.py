"""All messages but Produce and Fetch, over `kio`, whose classes are generated from Kafka's own schemas.

Kafka's generated code has one class a message that knows every version; kio has one a version. So requests are
lifted here to the newest class of their shape, and answers are written as trees of plain values with every version's
fields in them, of which the version at hand takes its own. `kio` is imported at the first message.
"""

import dataclasses
import io
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import cache
from importlib import import_module
from typing import TypeAlias, cast

from aioproducer.testing.model.api_keys import ApiKey
from aioproducer.testing.model.wire import MalformedRequestError

Tree: TypeAlias = Mapping[str, object]
"""An answer by field name: numbers, strings, bytes, times in ms, error codes as numbers, trees, and lists of trees."""

_SHAPES: dict[ApiKey, tuple[int, ...]] = {
    ApiKey.LIST_OFFSETS: (11,),
    ApiKey.METADATA: (13,),
    ApiKey.OFFSET_COMMIT: (9, 10),
    ApiKey.OFFSET_FETCH: (7, 9, 10),
    ApiKey.FIND_COORDINATOR: (3, 6),
    ApiKey.JOIN_GROUP: (9,),
    ApiKey.HEARTBEAT: (4,),
    ApiKey.LEAVE_GROUP: (2, 5),
    ApiKey.SYNC_GROUP: (5,),
    ApiKey.API_VERSIONS: (4,),
    ApiKey.CREATE_TOPICS: (7,),
    ApiKey.DELETE_TOPICS: (5, 6),
    ApiKey.INIT_PRODUCER_ID: (6,),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (4,),
    ApiKey.DESCRIBE_CONFIGS: (4,),
    ApiKey.CREATE_PARTITIONS: (3,),
    ApiKey.FETCH: (12, 18),
}
"""The last version of each shape: at these versions fields were renamed or moved, so one class cannot hold all."""


class _RawErrorCode:
    """Stands for any error code, also one that Kafka does not have; the writer only asks for `value`."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value


def decode_request(api: ApiKey, version: int, payload: memoryview) -> object:
    """Decode a request, as an instance of the newest class of its shape.

    Raises:
        MalformedRequestError: the bytes are not that request.
    """
    own = _message_class(api, version, "request")
    try:
        entity, _ = _reader(own)(payload, 0)
    except Exception as error:
        # kio raises what its native readers meet: over-reads, bad text, numbers out of range.
        raise MalformedRequestError(f"{api.name} v{version}: {error}") from error
    shape = next(last for last in _SHAPES[api] if version <= last)
    return entity if shape == version else _lift(entity, _message_class(api, shape, "request"))


def encode_response(api: ApiKey, version: int, tree: Tree) -> bytes:
    """Encode an answer, leaving out what this version does not have."""
    own = _message_class(api, version, "response")
    buffer = io.BytesIO()
    _writer(own)(buffer, _build(own, tree))
    return buffer.getvalue()


@cache
def _message_class(api: ApiKey, version: int, kind: str) -> type[object]:
    module = import_module(f"kio.schema.{api.schema_name}.v{version}.{kind}")
    name = "".join(part.capitalize() for part in api.schema_name.split("_")) + kind.capitalize()
    return cast("type[object]", getattr(module, name))


@cache
def _reader(entity: type[object]) -> Callable[[memoryview, int], tuple[object, int]]:
    serial = import_module("kio.serial")
    return cast("Callable[[memoryview, int], tuple[object, int]]", serial.entity_reader(entity))


@cache
def _writer(entity: type[object]) -> Callable[[io.BytesIO, object], None]:
    serial = import_module("kio.serial")
    return cast("Callable[[io.BytesIO, object], None]", serial.entity_writer(entity))


class _Field:
    """One field of a message class: what it holds and what it is when nobody says."""

    __slots__ = ("default", "is_list", "kafka_type", "name", "nested", "required")

    def __init__(self, field: "dataclasses.Field[object]", hint: object) -> None:
        self.name = field.name
        self.kafka_type = str(field.metadata.get("kafka_type", ""))
        classes = list(_dataclasses_in(hint))
        self.nested: type[object] | None = classes[0] if classes else None
        self.is_list = "tuple" in str(hint)
        self.required = field.default is dataclasses.MISSING
        self.default: object = None if self.required else field.default


def _dataclasses_in(hint: object) -> Iterable[type[object]]:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        yield hint
    for argument in getattr(hint, "__args__", ()):
        yield from _dataclasses_in(argument)


@cache
def _fields(entity: type[object]) -> tuple[_Field, ...]:
    hints = import_module("typing").get_type_hints(entity)
    return tuple(_Field(field, hints[field.name]) for field in dataclasses.fields(cast("type", entity)))


_EMPTY: dict[str, object] = {
    "string": "",
    "bytes": b"",
    "records": b"",
    "bool": False,
    "timedelta_i32": timedelta(),
    "timedelta_i64": timedelta(),
    "error_code": _RawErrorCode(0),
    "uuid": None,
}


def _build(entity: type[object], tree: Tree) -> object:
    values = {field.name: _value(field, tree) for field in _fields(entity)}
    return entity(**values)


def _value(field: _Field, tree: Tree) -> object:
    if field.name not in tree:
        return _absent(field) if field.required else field.default
    given = tree[field.name]
    if given is None:
        return None
    if field.nested is not None:
        if field.is_list:
            return tuple(_build(field.nested, item) for item in cast("Iterable[Tree]", given))
        return _build(field.nested, cast("Tree", given))
    if field.is_list:
        return tuple(cast("Iterable[object]", given))
    return _converted(field.kafka_type, given)


def _absent(field: _Field) -> object:
    return () if field.is_list else _EMPTY.get(field.kafka_type, 0)


def _converted(kafka_type: str, given: object) -> object:
    match kafka_type:
        case "error_code":
            return _RawErrorCode(cast("int", given))
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=cast("int", given))
        case _:
            return given


def _lift(entity: object, target: type[object]) -> object:
    """Make an instance of another version's class with the fields that both have."""
    values = {field.name: _lifted_value(field, entity) for field in _fields(target)}
    return target(**values)


def _lifted_value(field: _Field, entity: object) -> object:
    if not hasattr(entity, field.name):
        return _absent(field) if field.required else field.default
    given: object = getattr(entity, field.name)
    if field.nested is None or given is None:
        return given
    if field.is_list:
        return tuple(_lift(item, field.nested) for item in cast("Iterable[object]", given))
    return _lift(given, field.nested)
