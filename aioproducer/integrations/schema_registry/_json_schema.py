"""JSON Schema: compact JSON, validated by jsonschema.

Source: io.confluent.kafka.serializers.json.KafkaJsonSchemaSerializer.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias, TypeVar, Unpack, overload
from urllib.parse import urljoin, urlsplit

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
JsonDocument: TypeAlias = dict[str, object] | bool

_DRAFT_4: Final = "http://json-schema.org/draft-04/schema"
_DRAFT_7: Final = "http://json-schema.org/draft-07/schema"
"""Draft of a schema that names none."""
_DRAFTS: Final = {
    "json-schema.org/schema": _DRAFT_4,
    "json-schema.org/draft-04/schema": _DRAFT_4,
    "json-schema.org/draft-06/schema": "http://json-schema.org/draft-06/schema",
    "json-schema.org/draft-07/schema": _DRAFT_7,
    "json-schema.org/draft/2019-09/schema": "https://json-schema.org/draft/2019-09/schema",
    "json-schema.org/draft/2020-12/schema": "https://json-schema.org/draft/2020-12/schema",
}
"""Drafts by what follows `http://` or `https://` in `$schema`, as Java's `SpecificationVersion` has them."""


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
            name = _title_of(own)
        super().__init__("JSON", own, registry, record_name=name, **options)

    def _encoder(self, schema: Schema, prefix: bytes) -> Encode[ValueT]:
        from referencing.exceptions import Unresolvable  # noqa: PLC0415  # optional

        validator = validator_of(schema) if self._validates else None
        to_dict, to_json = self._to_dict, self._json.serialize

        def encode(value: ValueT) -> bytes:
            plain = value if to_dict is None else to_dict(value)
            try:
                if validator is not None and not validator.is_valid(plain):
                    places = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(plain)]
                    raise ValueError("; ".join(places))
            except Unresolvable as error:
                raise ValueError(f"schema: {error.ref!r} is not known; is a reference missing?") from error
            return prefix + to_json("", plain)

        return encode


def _loads(schema: Schema) -> JsonDocument:
    try:
        document = json.loads(schema.text)
    except json.JSONDecodeError as error:
        raise ValueError(f"schema: not JSON: {error}") from error
    if isinstance(document, dict | bool):
        return document
    raise ValueError(f"schema: a JSON Schema is an object or a boolean, not {type(document).__name__}")


def _title_of(schema: Schema) -> str | None:
    document = _loads(schema)
    title = document.get("title") if isinstance(document, dict) else None
    return title if isinstance(title, str) else None


def validator_of(schema: Schema) -> _Validator:
    """Return the validator of a schema and its references.

    Raises:
        ValueError: not a valid schema.
    """
    from jsonschema.validators import validator_for  # noqa: PLC0415  # optional
    from referencing import Registry, Resource  # noqa: PLC0415
    from referencing.jsonschema import specification_with  # noqa: PLC0415

    document = _loads(schema)
    draft = _draft_of(document, _DRAFT_7)
    resources: list[tuple[str, Resource[JsonDocument]]] = []
    for each in _references(schema, _Document(document, draft)):
        _check(each.contents, each.draft)
        resource = specification_with(each.draft).create_resource(each.contents)
        resources += [(uri, resource) for uri in each.uris]
    _check(document, draft)
    registry: Registry[JsonDocument] = Registry().with_resources(reversed(resources))  # of two same names the outer one
    validator: _Validator = validator_for({"$schema": draft})(_with_definitions(document), registry=registry)
    return validator


def _check(document: JsonDocument, draft: str) -> None:
    from jsonschema import SchemaError  # noqa: PLC0415  # optional
    from jsonschema.validators import validator_for  # noqa: PLC0415

    try:
        validator_for({"$schema": draft}).check_schema(document)
    except SchemaError as error:
        raise ValueError(f"schema: not a valid JSON Schema: {error.message} (at {error.json_path})") from error


def _draft_of(document: JsonDocument, default: str) -> str:
    """Return the URL of a schema's draft: the default if it names none, or one that Java does not know."""
    named = document.get("$schema") if isinstance(document, dict) else None
    return default if not isinstance(named, str) else _DRAFTS.get(named.removesuffix("#").partition("://")[2], default)


def _with_definitions(document: JsonDocument) -> JsonDocument:
    """Return the schema in which `#/$defs/NAME` also finds what older drafts have under `definitions`, as in Java."""
    older, newer = (document.get(name, {}) if isinstance(document, dict) else None for name in ("definitions", "$defs"))
    if not (isinstance(document, dict) and isinstance(older, dict) and isinstance(newer, dict) and older):
        return document
    return {**document, "$defs": {**older, **newer}}


class _Document(NamedTuple):
    """A schema within others."""

    contents: JsonDocument
    draft: str
    base: str = ""
    """URI by which others get it."""
    uris: frozenset[str] = frozenset()
    """All to which a `$ref` to it may be resolved."""

    @property
    def own_base(self) -> str:
        """The URI to which its references are relative."""
        own = self.contents.get("id" if self.draft == _DRAFT_4 else "$id") if isinstance(self.contents, dict) else None
        return urljoin(self.base, own) if isinstance(own, str) else self.base


def _references(schema: Schema, within: _Document) -> Iterator[_Document]:
    """Yield what a schema refers to, and what that refers to."""
    for reference in schema.references:
        name, contents = reference.name, _with_definitions(_loads(reference.schema))
        uri = urljoin(within.own_base, name)
        uris = {name, name.removeprefix("./"), uri, *(() if urlsplit(name).scheme else (f"./{name}",))}
        found = _Document(contents, _draft_of(contents, within.draft), uri, frozenset(uris))
        yield found
        yield from _references(reference.schema, found)
