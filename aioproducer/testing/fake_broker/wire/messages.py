"""All messages but Produce and the response of Fetch, over `kio`, whose classes are generated from Kafka's schemas.

`_newer_classes.py` has what kio does not have yet.

Kafka's generated code has one class per message that knows every version; kio has one per version. So requests are
converted to the newest class of their shape, and responses are written as trees of plain values with every version's
fields, from which each version takes its own.
"""

import dataclasses
import io
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import cache, lru_cache, partial
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias, cast, get_type_hints

from aioproducer.testing.fake_broker.version_profiles import PROFILES
from aioproducer.testing.fake_broker.wire.api_keys import ApiKey
from aioproducer.testing.fake_broker.wire.primitives import MalformedRequestError, Reader

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Tree: TypeAlias = Mapping[str, object]
"""A response by field name: numbers, strings, bytes, times in ms, error codes as numbers, trees, and lists of trees."""

_EARLIER_SHAPES: dict[ApiKey, tuple[int, ...]] = {
    ApiKey.METADATA: (10,),
    ApiKey.OFFSET_COMMIT: (9,),
    ApiKey.OFFSET_FETCH: (7, 9),
    ApiKey.FIND_COORDINATOR: (3,),
    ApiKey.LEAVE_GROUP: (2,),
    ApiKey.DELETE_TOPICS: (5,),
    ApiKey.ADD_PARTITIONS_TO_TXN: (3,),
    ApiKey.FETCH: (12,),
    ApiKey.TXN_OFFSET_COMMIT: (5,),
}
"""After these versions fields were renamed or moved, so one class cannot hold all versions."""

_VERSIONS = next(iter(PROFILES.values())).versions

_KEPT_BYTES = 512  # larger requests are decoded each time: they hardly come again, and would take memory
_USUAL = (
    ApiKey.API_VERSIONS,
    ApiKey.METADATA,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.FIND_COORDINATOR,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
)


def load_message_classes() -> None:
    """Import `kio` and the classes that most clients need first.

    That takes about half a second, during which a broker would not respond; so a cluster calls it before it listens.
    """
    for api in _USUAL:
        for kind in ("request", "response"):
            _schema(api, _VERSIONS[api][1], kind)


def decode_request(api: ApiKey, version: int, payload: memoryview) -> object:
    """Decode a request, as an instance of the newest class of its shape."""
    if len(payload) > _KEPT_BYTES:
        return _decoded(api, version, payload)
    return _decoded_once(api, version, bytes(payload))


@lru_cache(maxsize=1024)
def _decoded_once(api: ApiKey, version: int, payload: bytes) -> object:
    return _decoded(api, version, memoryview(payload))  # it cannot be changed, and clients ask the same again and again


def _decoded(api: ApiKey, version: int, payload: memoryview) -> object:
    schema = _schema(api, version, "request")
    schema.check_counts(payload)
    try:
        entity, _ = schema.read(payload.toreadonly(), 0)  # that of a large frame is writable
    except Exception as error:
        # kio raises what its native readers meet: over-reads, bad text, numbers out of range.
        raise MalformedRequestError(f"{api.name} v{version}: {error}") from error
    shape = next(last for last in (*_EARLIER_SHAPES.get(api, ()), _VERSIONS[api][1]) if version <= last)
    return entity if shape == version else _schema(api, shape, "request").lift(entity)


def encode_response(api: ApiKey, version: int, tree: Tree) -> bytes:
    """Encode a response, leaving out the fields this version does not have."""
    schema = _schema(api, version, "response")
    buffer = io.BytesIO()
    schema.write(buffer, schema.build(tree))
    return buffer.getvalue()


class _RawErrorCode:
    """An error code, also one that Kafka does not have; the writer only reads `value`."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value


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
"""Value of a field that is not given and has no default in the schema; 0 for all other types."""


class _Field:
    __slots__ = ("default", "is_list", "kafka_type", "name", "nested")

    def __init__(self, field: "dataclasses.Field[object]", hint: object) -> None:
        self.name = field.name
        self.kafka_type = str(field.metadata.get("kafka_type", ""))
        self.nested = next((_MessageSchema(found) for found in dataclasses_in(hint)), None)
        self.is_list = "tuple" in str(hint)
        self.default: object = field.default
        if field.default is dataclasses.MISSING:
            self.default = () if self.is_list else _EMPTY.get(self.kafka_type, 0)

    def value_in(self, tree: Tree) -> object:
        """Return the field's value in a response, as kio wants it."""
        given = tree.get(self.name, dataclasses.MISSING)
        if given is dataclasses.MISSING:
            return self.default
        if given is None:
            return None
        if self.is_list:
            return tuple(self._converted(item) for item in cast("Iterable[object]", given))
        return self._converted(given)

    def _converted(self, given: object) -> object:
        if self.nested is not None:
            return self.nested.build(cast("Tree", given))
        match self.kafka_type:
            case "error_code":
                return _RawErrorCode(cast("int", given))
            case "timedelta_i32" | "timedelta_i64":
                return timedelta(milliseconds=cast("int", given))
            case _:
                return given

    def value_of(self, entity: object) -> object:
        """Return the field's value in a message of another version."""
        given: object = getattr(entity, self.name, dataclasses.MISSING)
        if given is dataclasses.MISSING:
            return self.default
        if self.nested is None or given is None:
            return given
        if self.is_list:
            return tuple(self.nested.lift(item) for item in cast("Iterable[object]", given))
        return self.nested.lift(given)


class _MessageSchema:
    """One of kio's classes and its fields."""

    def __init__(self, message_class: "type[DataclassInstance]") -> None:
        self._class = cast("Callable[[], object]", message_class)
        hints = get_type_hints(message_class)
        self._fields = [_Field(field, hints[field.name]) for field in dataclasses.fields(message_class)]

    def build(self, tree: Tree) -> object:
        return self._class(**{field.name: field.value_in(tree) for field in self._fields})

    def lift(self, entity: object) -> object:
        """Convert a message of another version, keeping the fields that both have."""
        return self._class(**{field.name: field.value_of(entity) for field in self._fields})


class _TopLevelSchema(_MessageSchema):
    """A whole request or response, which can be read and written."""

    def __init__(self, message_class: "type[DataclassInstance]") -> None:
        super().__init__(message_class)
        self.check_counts = partial(check_counts, message_class)
        serial = import_module("kio.serial")
        self.read = cast("Callable[[memoryview, int], tuple[object, int]]", serial.entity_reader(message_class))
        self.write = cast("Callable[[io.BytesIO, object], None]", serial.entity_writer(message_class))


@cache
def _schema(api: ApiKey, version: int, kind: str) -> _TopLevelSchema:
    return _TopLevelSchema(message_class(api, version, kind))


def message_class(api: ApiKey, version: int, kind: str) -> "type[DataclassInstance]":
    """Return the class of a "request" or "response" in one version."""
    newer = import_module("aioproducer.testing.fake_broker.wire._newer_classes").CLASSES  # imports kio, hence here
    if (api, version, kind) in newer:
        return cast("type[DataclassInstance]", newer[api, version, kind])
    module = import_module(f"kio.schema.{api.schema_name}.v{version}.{kind}")
    name = "".join(part.capitalize() for part in api.schema_name.split("_")) + kind.capitalize()
    return cast("type[DataclassInstance]", getattr(module, name))


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
    """Refuse a message that claims more elements or bytes than it has, by a walk over it before kio decodes it.

    kio allocates as many elements as an array claims to have: five bytes from a confused client would abort the whole
    process, with all brokers in it ("memory allocation of 34359738352 bytes failed").
    """
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
