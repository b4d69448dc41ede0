"""The options as a JSON Schema, draft 2020-12, and the texts under them."""

from __future__ import annotations

import ast
import inspect
from functools import singledispatch
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

from aioproducer.config._network_types import AddressMapOption, AllowedBrokers
from aioproducer.config._option_types import (
    Acks,
    BoolOption,
    ClientId,
    EnumOption,
    GzipLevel,
    IntOption,
    OptionalWhole,
    Plugin,
    TransactionalId,
)
from aioproducer.config._sasl_types import MECHANISMS, FloatOption, OptionalTimeout, SaslMechanism
from aioproducer.config._security_types import (
    PROTOCOLS,
    STORE_TYPES,
    NameCheck,
    SecurityProtocol,
    StoreType,
    TlsContextOption,
    Words,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType

    from aioproducer.config._option_types import OptionKind

Schema: TypeAlias = dict[str, object]

_TEXT: Final[Schema] = {"type": "string"}
_TEXTS: Final[Schema] = {"type": "array", "items": _TEXT}
_NOTHING: Final[Schema] = {"type": "null"}


def schema_of(kinds: Mapping[str, OptionKind], defaults: Mapping[str, object], module: ModuleType) -> Schema:
    """Return the schema of all options that a document can hold.

    Args:
        kinds: by option name, without `bootstrap_servers`.
        defaults: by option name.
        module: that of `ProducerConfig`, whose source has the texts.
    """
    texts = dict(field_texts(module, {"bootstrap_servers", *kinds}))
    options: dict[str, Schema] = {
        "bootstrap_servers": {"anyOf": [{**_TEXT, "minLength": 1}, {**_TEXTS, "minItems": 1}]}
    }
    for name, kind in kinds.items():
        if (values := _values(kind)) is not None:
            options[name] = {**values, **_default(kind, defaults[name])}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "aioproducer",
        "type": "object",
        "properties": {
            name: {"description": " ".join(texts.get(name, "").split()), **option} for name, option in options.items()
        },
        "required": ["bootstrap_servers"],
        "additionalProperties": False,
    }


@singledispatch
def _values(kind: object) -> Schema | None:
    """Return the allowed values of a kind of option; None if only Python has any."""
    secret: Schema = {"writeOnly": True} if getattr(kind, "is_secret", False) else {}
    return {"type": ["string", "null"], **secret}


@_values.register
def _(kind: IntOption) -> Schema:
    return {"type": "integer", "minimum": kind.minimum, "maximum": kind.maximum}


@_values.register(OptionalWhole)
@_values.register(OptionalTimeout)
def _(kind: IntOption) -> Schema:
    return {"type": ["integer", "null"], "minimum": kind.minimum, "maximum": kind.maximum}


@_values.register
def _(kind: FloatOption) -> Schema:
    return {"type": "number", "minimum": kind.minimum, "maximum": kind.maximum}


@_values.register
def _(_: BoolOption) -> Schema:
    return {"type": "boolean"}


@_values.register
def _(kind: EnumOption) -> Schema:
    return {"enum": [*kind.words]}


@_values.register
def _(_: Acks) -> Schema:
    return {"enum": ["all", "-1", "0", "1", -1, 0, 1]}


@_values.register
def _(_: GzipLevel) -> Schema:
    return {"enum": [-1, *range(1, 10)]}


@_values.register
def _(_: SecurityProtocol) -> Schema:
    return {"enum": [*PROTOCOLS]}


@_values.register
def _(_: SaslMechanism) -> Schema:
    return {"enum": [*MECHANISMS, None]}


@_values.register
def _(_: StoreType) -> Schema:
    return {"enum": [*STORE_TYPES, None]}


@_values.register
def _(_: NameCheck) -> Schema:
    return {"enum": ["https", ""]}


@_values.register
def _(_: ClientId) -> Schema:
    return {"type": "string"}


@_values.register
def _(_: TransactionalId) -> Schema:
    return {"type": ["string", "null"], "minLength": 1}


@_values.register
def _(_: Words) -> Schema:
    return {"anyOf": [_TEXT, _TEXTS]}


@_values.register
def _(_: AllowedBrokers) -> Schema:
    return {"anyOf": [_TEXT, _TEXTS, _NOTHING]}


@_values.register
def _(_: AddressMapOption) -> Schema:
    return {"anyOf": [_TEXT, {"type": "object", "additionalProperties": _TEXT}, _NOTHING]}


@_values.register
def _(kind: Plugin) -> Schema | None:
    return {"enum": [*kind.classes, None]} if kind.classes else None


@_values.register
def _(_: TlsContextOption) -> None:
    return None


def _default(kind: OptionKind, value: object) -> Schema:
    match kind:
        case Acks():
            return {"default": "all"}
        case OptionalWhole() | Plugin() | AllowedBrokers():
            return {"default": None}
    return {"default": list(value) if isinstance(value, tuple) else value}


def field_texts(module: ModuleType, options: set[str]) -> Iterator[tuple[str, str]]:
    """Yield each option's name and the text under its field, in the order of the fields; none without the source."""
    try:
        statements = ast.parse(inspect.getsource(module)).body
    except OSError:
        return
    (body,) = (each.body for each in statements if isinstance(each, ast.ClassDef) and each.name == "ProducerConfig")
    for statement, following in pairwise(body):
        match statement, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ) if name in options:
                yield name, inspect.cleandoc(text)
