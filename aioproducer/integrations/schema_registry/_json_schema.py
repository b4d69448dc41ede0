"""JSON Schema: compact JSON, validated by jsonschema.

Source: io.confluent.kafka.serializers.json.KafkaJsonSchemaSerializer.
"""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias, TypeVar, Unpack, overload
from urllib.parse import urljoin, urlsplit

from aioproducer._shown_values import MOST_PLACES, first_places, shortened, shown
from aioproducer.integrations._extras import check_installed
from aioproducer.integrations.schema_registry._registry import Schema, SchemaOptions
from aioproducer.integrations.schema_registry._serializer import (
    RegistrySerializer,
    check_bool,
    check_to_dict,
    refuse_coroutine,
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
    def iter_errors(self, instance: object) -> Iterator[_Misfit]: ...

    def descend(self, instance: object, schema: JsonDocument) -> Iterator[_Misfit]: ...

    def is_type(self, instance: object, type: str) -> bool: ...  # noqa: A002  # jsonschema's name


class JsonSchemaSerializer(RegistrySerializer[ValueT]):
    """Encodes values as JSON that a JSON Schema describes.

    Args:
        schema: its JSON, or a `Schema` with references; None is only for `use_latest_version`.
        registry: as that of `AvroSerializer`.
        to_dict: makes what JSON has a type for of a value, such as `dataclasses.asdict`.
        validate: refuse a value that does not fit, and a schema with a regular expression that Python's `re` cannot
            read; takes most of the time of a record.
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
            validator_of(own, validates=validate)
            name = _title_of(own)
        super().__init__("JSON", own, registry, record_name=name, **options)

    def _encoder(self, schema: Schema, prefix: bytes) -> Encode[ValueT]:
        validator = validator_of(schema) if self._validates else None
        to_dict, to_json = self._to_dict, self._json.serialize

        def encode(value: ValueT) -> bytes:
            plain = value if to_dict is None else to_dict(value)
            try:
                if validator is not None:
                    _refuse_misfit(validator, plain)
                return prefix + to_json("", plain)
            except Exception:
                refuse_coroutine("to_dict", plain)
                raise

        return encode


def _refuse_misfit(validator: _Validator, value: object) -> None:
    """Raise a ValueError that names the first places in a value that do not fit."""
    from referencing.exceptions import Unresolvable  # noqa: PLC0415  # optional

    try:
        misfits = [*islice(validator.iter_errors(value), MOST_PLACES + 1)]
    except Unresolvable as error:
        raise ValueError(f"schema: {error.ref!r} is not known; is a reference missing?") from error
    except re.error as error:  # in a place that the draft's own schema does not check
        raise ValueError(_unreadable(error.pattern, error)) from error
    if misfits:
        raise ValueError(first_places(f"{shortened(each.json_path, 150)}: {each.message}" for each in misfits))


@cache
def _validator_class(draft: str) -> Callable[..., _Validator]:  # type: ignore[explicit-any]  # jsonschema has no types
    """Return jsonschema's class for a draft, with keywords that neither look for every error nor show a whole value.

    A value may have a million items, each of them wrong, of which `anyOf` and `oneOf` would note every one.
    """
    from jsonschema.validators import extend, validator_for  # noqa: PLC0415  # optional

    keywords = {"type": _type_errors, "anyOf": _any_of_errors, "oneOf": _one_of_errors}
    made: Callable[..., _Validator] = extend(validator_for({"$schema": draft}), keywords)  # type: ignore[explicit-any]
    return made


def _type_errors(validator: _Validator, types: str | list[str], value: object, _schema: object) -> Iterator[Exception]:
    names = [types] if isinstance(types, str) else types
    for name in names:
        if validator.is_type(value, name):
            return
    yield _keyword_error(f"{shown(value)} is not of type {', '.join(map(repr, names))}")


def _any_of_errors(
    validator: _Validator, schemas: list[JsonDocument], value: object, _schema: object
) -> Iterator[Exception]:
    if not any(_fits(validator, value, schema) for schema in schemas):
        yield _keyword_error(f"{shown(value)} is not valid under any of the given schemas")


def _one_of_errors(
    validator: _Validator, schemas: list[JsonDocument], value: object, _schema: object
) -> Iterator[Exception]:
    fitting = [schema for schema in schemas if _fits(validator, value, schema)]
    if not fitting:
        yield _keyword_error(f"{shown(value)} is not valid under any of the given schemas")
    elif len(fitting) > 1:
        yield _keyword_error(f"{shown(value)} is valid under each of {', '.join(map(shown, fitting))}")


def _keyword_error(text: str) -> Exception:
    from jsonschema import ValidationError  # noqa: PLC0415  # optional

    error: Exception = ValidationError(text)
    return error


def _fits(validator: _Validator, value: object, schema: JsonDocument) -> bool:
    return next(validator.descend(value, schema), None) is None


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


def validator_of(schema: Schema, *, validates: bool = True) -> _Validator:
    """Return the validator of a schema and its references.

    Args:
        schema: the schema.
        validates: whether the validator is used, so that Python has to read the schema's regular expressions.

    Raises:
        ValueError: not a valid schema.
    """
    from referencing import Registry, Resource  # noqa: PLC0415
    from referencing.jsonschema import specification_with  # noqa: PLC0415

    document = _loads(schema)
    draft = _draft_of(document, _DRAFT_7)
    resources: list[tuple[str, Resource[JsonDocument]]] = []
    for each in _references(schema, _Document(document, draft)):
        _check(each.contents, each.draft, validates=validates)
        resource = specification_with(each.draft).create_resource(each.contents)
        resources += [(uri, resource) for uri in each.uris]
    _check(document, draft, validates=validates)
    registry: Registry[JsonDocument] = Registry().with_resources(reversed(resources))  # of two same names the outer one
    return _validator_class(draft)(_with_definitions(document), registry=registry)


def _check(document: JsonDocument, draft: str, *, validates: bool) -> None:
    from jsonschema import SchemaError  # noqa: PLC0415  # optional
    from jsonschema.validators import validator_for  # noqa: PLC0415

    options = {} if validates else {"format_checker": None}  # of formats, it checks regular expressions
    try:
        validator_for({"$schema": draft}).check_schema(document, **options)
    except SchemaError as error:
        place = shortened(error.json_path)
        if (error.validator, error.validator_value) == ("format", "regex"):
            raise ValueError(_unreadable(error.instance, error.cause, place)) from error
        raise ValueError(f"schema: not a valid JSON Schema: {shortened(error.message)} (at {place})") from error


def _unreadable(pattern: object, error: object, place: str = "") -> str:
    at = f" (at {place})" if place else ""
    return (
        f"schema: Python's re cannot read the regular expression {shown(pattern)}{at}: {error}; "
        "write it otherwise, or give validate=False"
    )


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
