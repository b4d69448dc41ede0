"""JSON Schema: compact JSON, validated by jsonschema.

Source: io.confluent.kafka.serializers.json.KafkaJsonSchemaSerializer.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol, TypeVar, Unpack, overload

from aioproducer.integrations._extras import check_installed
from aioproducer.integrations.schema_registry._registry import Schema, SchemaOptions
from aioproducer.integrations.schema_registry._serializer import (
    RegistrySerializer,
    check_bool,
    check_to_dict,
    schema_of,
)
from aioproducer.security._cleared_frames import clears_frames
from aioproducer.serializers import JsonSerializer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioproducer.integrations.schema_registry._registry import RegistryArgument
    from aioproducer.integrations.schema_registry._serializer import Encode

ValueT = TypeVar("ValueT")


class _Misfit(Protocol):
    message: str
    json_path: str


class _Validator(Protocol):
    def is_valid(self, instance: object) -> bool: ...

    def iter_errors(self, instance: object) -> Iterator[_Misfit]: ...


class JsonSchemaSerializer(RegistrySerializer[ValueT]):
    """Encodes values as JSON that a JSON Schema describes.

    Args:
        schema: its JSON, or a `Schema` with references; None is only for `use_latest_version`.
        registry: as that of `AvroSerializer`.
        to_dict: makes what JSON has a type for of a value, such as `dataclasses.asdict`.
        validate: refuse a value that does not fit; takes most of the time of a record.
        **options: `SchemaOptions`. The type's name is the schema's `title`.

    Raises:
        ModuleNotFoundError: the extra `registry` is not installed.
        TypeError, ValueError: an argument, or a schema that is not valid.
    """

    @overload
    def __init__(
        self: JsonSchemaSerializer[object],
        schema: str | Schema | None,
        registry: RegistryArgument,
        *,
        to_dict: None = None,
        validate: bool = True,
        **options: Unpack[SchemaOptions],
    ) -> None: ...

    @overload
    def __init__(
        self,
        schema: str | Schema | None,
        registry: RegistryArgument,
        *,
        to_dict: Callable[[ValueT], object],
        validate: bool = True,
        **options: Unpack[SchemaOptions],
    ) -> None: ...

    @clears_frames
    def __init__(
        self,
        schema: str | Schema | None,
        registry: RegistryArgument,
        *,
        to_dict: Callable[[ValueT], object] | None = None,
        validate: bool = True,
        **options: Unpack[SchemaOptions],
    ) -> None:
        check_installed("JsonSchemaSerializer needs jsonschema", "registry", module="jsonschema")
        check_bool("validate", validate)
        check_to_dict(to_dict)
        own = schema_of(schema, "JSON")
        self._to_dict = to_dict
        self._validates = validate
        self._json = JsonSerializer()
        name = None
        if own is not None:
            validator_of(own)
            title = _loads(own).get("title")
            name = title if isinstance(title, str) else None
        super().__init__("JSON", own, registry, record_name=name, **options)

    def _encoder(self, schema: Schema, prefix: bytes) -> Encode[ValueT]:
        validator = validator_of(schema) if self._validates else None
        to_dict, to_json = self._to_dict, self._json.serialize

        def encode(value: ValueT) -> bytes:
            plain = value if to_dict is None else to_dict(value)
            if validator is not None and not validator.is_valid(plain):
                places = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(plain)]
                raise ValueError("; ".join(places))
            return prefix + to_json("", plain)

        return encode


def _loads(schema: Schema) -> dict[str, object]:
    try:
        document = json.loads(schema.text)
    except json.JSONDecodeError as error:
        raise ValueError(f"schema: not JSON: {error}") from error
    return document if isinstance(document, dict) else {}


def validator_of(schema: Schema) -> _Validator:
    """Return the validator of a schema and its references.

    Raises:
        ValueError: not a valid schema.
    """
    from jsonschema import SchemaError  # noqa: PLC0415  # optional
    from jsonschema.validators import validator_for  # noqa: PLC0415
    from referencing import Registry  # noqa: PLC0415
    from referencing.jsonschema import DRAFT7  # noqa: PLC0415

    document = _loads(schema)
    kind = validator_for(document)
    try:
        kind.check_schema(document)
    except SchemaError as error:
        raise ValueError(f"schema: not a valid JSON Schema: {error.message} (at {error.json_path})") from error
    resources = [(name, DRAFT7.create_resource(found)) for name, found in _references(schema)]
    validator: _Validator = kind(document, registry=Registry().with_resources(resources))
    return validator


def _references(schema: Schema) -> Iterator[tuple[str, dict[str, object]]]:
    for reference in schema.references:
        yield reference.name, _loads(reference.schema)
        yield from _references(reference.schema)
