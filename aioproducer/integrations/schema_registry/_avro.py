"""Avro, encoded by fastavro.

Source: io.confluent.kafka.serializers.KafkaAvroSerializer.
"""

from __future__ import annotations

import json
from io import BytesIO
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, Unpack, cast, overload

from aioproducer._shown_values import first_places, shortened, shown
from aioproducer.integrations._extras import check_installed
from aioproducer.integrations.schema_registry._avro_fit import check_of
from aioproducer.integrations.schema_registry._registry import Schema, SchemaOptions
from aioproducer.integrations.schema_registry._serializer import (
    RegistrySerializer,
    check_bool,
    check_to_dict,
    refuse_coroutine,
    schema_of,
)
from aioproducer.security._cleared_frames import clears_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioproducer.integrations.schema_registry._avro_fit import AvroType, Check, Fault
    from aioproducer.integrations.schema_registry._registry import RegistryArgument
    from aioproducer.integrations.schema_registry._serializer import Encode

ValueT = TypeVar("ValueT")

_FIELD: Final = "value"
"""Field of the record around a schema that is none; also the name of such a value in errors."""
_AROUND: Final = "aioproducer_value"
"""Name of that record."""


class AvroSerializer(RegistrySerializer[ValueT]):
    """Encodes values as Avro.

    Args:
        schema: its JSON, or a `Schema` with references; None is only for `use_latest_version`.
        registry: a URL, a configuration or an `AsyncSchemaRegistryClient` of confluent-kafka's, or a `SchemaRegistry`.
        to_dict: makes what fastavro takes of a value, such as `dataclasses.asdict`.
        validate: refuse also what fastavro would write although it does not fit, such as 2.9 for a `long`, of which it
            writes 2, an `int` of more than 32 bits, infinity for a number that a `float` cannot hold, text that is no
            UUID, or a dict with a key that is not a field; takes longer than the encoding.
        **options: `SchemaOptions`.

    Raises:
        ModuleNotFoundError: the extra `registry` is not installed.
        TypeError, ValueError: an argument, or a schema that is not valid.
    """

    @overload
    def __init__(
        self: AvroSerializer[object],
        schema: str | Schema | None,
        registry: RegistryArgument,
        *,
        to_dict: None = None,
        validate: bool = False,
        **options: Unpack[SchemaOptions],
    ) -> None: ...

    @overload
    def __init__(
        self,
        schema: str | Schema | None,
        registry: RegistryArgument,
        *,
        to_dict: Callable[[ValueT], object],
        validate: bool = False,
        **options: Unpack[SchemaOptions],
    ) -> None: ...

    @clears_frames
    def __init__(
        self,
        schema: str | Schema | None,
        registry: RegistryArgument,
        *,
        to_dict: Callable[[ValueT], object] | None = None,
        validate: bool = False,
        **options: Unpack[SchemaOptions],
    ) -> None:
        check_installed("AvroSerializer needs fastavro", "registry", module="fastavro")
        check_bool("validate", validate)
        check_to_dict(to_dict)
        own = schema_of(schema, "AVRO")
        self._to_dict = to_dict
        self._validates = validate
        name = None if own is None else parse(own).name
        super().__init__("AVRO", own, registry, record_name=name, **options)

    def _encoder(self, schema: Schema, prefix: bytes) -> Encode[ValueT]:
        from fastavro import schemaless_writer  # noqa: PLC0415  # optional

        parsed, to_dict, validates = parse(schema), self._to_dict, self._validates
        record, is_wrapped, is_bytes = parsed.record, parsed.is_wrapped, parsed.is_bytes
        check = parsed.check()

        def encode(value: ValueT) -> bytes:
            out = BytesIO()
            plain = value if to_dict is None else to_dict(value)
            if validates and (faults := check(plain)):
                refuse_coroutine("to_dict", plain)
                raise parsed.misfit(faults)
            if not is_bytes:
                out.write(prefix)
            try:
                schemaless_writer(out, record, {_FIELD: plain} if is_wrapped else plain)
            except Exception as error:
                refuse_coroutine("to_dict", plain)
                cause = None if _is_long(error) else error  # it may be the whole value
                if faults := check(plain):
                    raise parsed.misfit(faults) from cause
                if cause is None:
                    raise ValueError(shortened(f"{type(error).__name__}: {error}")) from None
                raise
            return prefix + _without_length(out.getvalue()) if is_bytes else out.getvalue()

        return encode


class ParsedSchema(NamedTuple):
    """A schema as fastavro has parsed it.

    fastavro finds named types only from a record, so that any other schema is the field of one here. Its bytes are
    the same: a record is its fields, without anything between or around them.
    """

    record: dict[str, object]
    """The record, or the one around the schema."""
    types: dict[str, dict[str, object]]
    """The named types, by full name."""
    is_wrapped: bool
    """Whether the record is the one around the schema."""

    @property
    def schema(self) -> AvroType:
        """The schema itself."""
        fields = cast("list[dict[str, object]]", self.record["fields"])
        return cast("AvroType", fields[0]["type"]) if self.is_wrapped else self.record

    @property
    def name(self) -> str | None:
        """Name of the type, also of one that the schema only names; None if it has none."""
        schema = self.schema
        found = self.types.get(schema) if isinstance(schema, str) else schema
        name = found.get("name") if isinstance(found, dict) else None
        return name if isinstance(name, str) else None

    @property
    def is_bytes(self) -> bool:
        """Whether it is `bytes`, which Java's serializer writes as they are, without their length."""
        schema = self.schema
        return schema == "bytes" or (isinstance(schema, dict) and schema["type"] == "bytes")

    def check(self) -> Check:
        """Return the check of its values."""
        return check_of(self.schema, self.types)

    def misfit(self, faults: Sequence[Fault]) -> ValueError:
        """Return the error of a value that does not fit."""
        name = self.name or _FIELD
        return ValueError(first_places(f"{shortened(f'{name}{path}', 150)} {text}" for path, text in faults))


def parse(schema: Schema) -> ParsedSchema:
    """Return the schema as fastavro reads it.

    Raises:
        ValueError: not a valid schema.
    """
    from fastavro.schema import SchemaParseException, UnknownType  # noqa: PLC0415  # optional

    types: dict[str, dict[str, object]] = {}
    try:
        _parse_references(schema, types)
        document = json.loads(schema.text)
        _check_kind_of(document)
        is_wrapped = not (isinstance(document, dict) and document["type"] in {"record", "error"})
        if is_wrapped:
            document = {"type": "record", "name": _AROUND, "fields": [{"name": _FIELD, "type": document}]}
        record = cast("dict[str, object]", _parsed(document, types))
    except UnknownType as error:
        raise ValueError(f"schema: the type {error.name!r} is not known; is a reference missing?") from error
    except (SchemaParseException, json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"schema: not a valid Avro schema: {type(error).__name__}: {error}") from error
    return ParsedSchema(record, types, is_wrapped)


def _parse_references(schema: Schema, types: dict[str, dict[str, object]]) -> None:
    for reference in schema.references:
        _parse_references(reference.schema, types)
        document = json.loads(reference.schema.text)
        _check_kind_of(document)
        _parsed(document, types)


def _check_kind_of(schema: object) -> None:
    """Raise a ValueError for a schema with another one in the place of its type's name, which Java refuses too."""
    if isinstance(schema, list):
        for branch in schema:
            _check_kind_of(branch)
    if not isinstance(schema, dict):
        return
    if "type" not in schema:
        raise ValueError(f'schema: not a valid Avro schema: "type" is missing: {shown(schema)}')
    if not isinstance(schema["type"], str):
        text = '"type" must be the name of a type; write the inner schema alone, without another one around it'
        raise ValueError(f"schema: not a valid Avro schema: {text}: {shown(schema)}")  # noqa: TRY004  # of a document
    for name in ("items", "values"):
        _check_kind_of(schema.get(name))
    fields = schema.get("fields")
    for field in fields if isinstance(fields, list) else ():
        _check_kind_of(field.get("type") if isinstance(field, dict) else None)


def _is_long(error: Exception) -> bool:
    text = str(error)
    return shortened(text) != text


def _parsed(document: AvroType, types: dict[str, dict[str, object]]) -> AvroType:
    """Return a schema with full names, and add its types to the known ones.

    A name that is not known in its namespace may be that of a type without one, as for Java.
    """
    from fastavro import parse_schema  # noqa: PLC0415  # optional
    from fastavro.schema import UnknownType  # noqa: PLC0415

    while True:
        try:
            return cast("AvroType", parse_schema(document, named_schemas=types))
        except UnknownType as error:
            name = str(error.name)
            bare = name.rpartition(".")[2]
            if name == bare or bare not in types:
                raise
            types[name] = types[bare]


def _without_length(encoded: bytes) -> bytes:
    """Return Avro's bytes without the varint of their length before them."""
    begin = 0
    while encoded[begin] > 0x7F:  # noqa: PLR2004  # another byte follows
        begin += 1
    return encoded[begin + 1 :]
