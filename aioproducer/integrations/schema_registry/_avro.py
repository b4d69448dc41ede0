"""Avro, encoded by fastavro.

Source: io.confluent.kafka.serializers.KafkaAvroSerializer.
"""

from __future__ import annotations

import json
from io import BytesIO
from typing import TYPE_CHECKING, TypeVar, Unpack, overload

from aioproducer.integrations._extras import check_installed
from aioproducer.integrations.schema_registry._registry import Schema, SchemaOptions
from aioproducer.integrations.schema_registry._serializer import (
    RegistrySerializer,
    check_bool,
    check_to_dict,
    schema_of,
)
from aioproducer.security._cleared_frames import clears_frames

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.integrations.schema_registry._registry import RegistryArgument
    from aioproducer.integrations.schema_registry._serializer import Encode

    Parsed = str | list[object] | dict[str, object]

ValueT = TypeVar("ValueT")


class AvroSerializer(RegistrySerializer[ValueT]):
    """Encodes values as Avro.

    Args:
        schema: its JSON, or a `Schema` with references; None is only for `use_latest_version`.
        registry: a URL, a configuration or an `AsyncSchemaRegistryClient` of confluent-kafka's, or a `SchemaRegistry`.
        to_dict: makes what fastavro takes of a value, such as `dataclasses.asdict`.
        validate: refuse also what fastavro would write although it does not fit, such as an `int` of more than 32
            bits; takes longer than the encoding.
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
        name = None if own is None else _name_of(parse(own))
        super().__init__("AVRO", own, registry, record_name=name, **options)

    def _encoder(self, schema: Schema, prefix: bytes) -> Encode[ValueT]:
        from fastavro import schemaless_writer  # noqa: PLC0415  # optional
        from fastavro.validation import validate  # noqa: PLC0415

        parsed, to_dict, validates = parse(schema), self._to_dict, self._validates

        def encode(value: ValueT) -> bytes:
            out = BytesIO()
            out.write(prefix)
            plain = value if to_dict is None else to_dict(value)
            try:
                if validates:
                    validate(plain, parsed, raise_errors=True)
                schemaless_writer(out, parsed, plain)
            except Exception as error:
                raise misfit(parsed, plain, error) from error
            return out.getvalue()

        return encode


def parse(schema: Schema) -> Parsed:
    """Return the schema as fastavro reads it.

    Raises:
        ValueError: not a valid schema.
    """
    from fastavro import parse_schema  # noqa: PLC0415  # optional
    from fastavro.schema import SchemaParseException, UnknownType  # noqa: PLC0415

    named: dict[str, dict[str, object]] = {}
    try:
        _parse_references(schema, named)
        parsed: Parsed = parse_schema(json.loads(schema.text), named_schemas=named)
    except UnknownType as error:
        raise ValueError(f"schema: the type {error.name!r} is not known; is a reference missing?") from error
    except (SchemaParseException, json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"schema: not a valid Avro schema: {type(error).__name__}: {error}") from error
    return parsed


def _parse_references(schema: Schema, named: dict[str, dict[str, object]]) -> None:
    from fastavro import parse_schema  # noqa: PLC0415  # optional

    for reference in schema.references:
        _parse_references(reference.schema, named)
        parse_schema(json.loads(reference.schema.text), named_schemas=named)


def _name_of(parsed: Parsed) -> str | None:
    name = parsed.get("name") if isinstance(parsed, dict) else None
    return name if isinstance(name, str) else None


def misfit(parsed: Parsed, value: object, error: Exception) -> Exception:
    """Return the error of a value that does not fit: it names the field, which fastavro's may not."""
    from fastavro.validation import ValidationError, validate  # noqa: PLC0415  # optional

    try:
        validate(value, parsed, raise_errors=True, strict=False)
    except ValidationError as found:
        return ValueError("; ".join(str(each) for each in found.errors))
    except Exception:  # noqa: BLE001  # of values that fastavro does not expect; the first error says more
        return error
    return error
