"""The options as a JSON Schema, draft 2020-12, and the texts under them."""

from __future__ import annotations

import ast
import inspect
from copy import deepcopy
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

from aioproducer.config._network_types import AddressMapOption, AllowedBrokers
from aioproducer.config._option_types import (
    Acks,
    BoolOption,
    ClientId,
    EnumOption,
    FloatOption,
    GzipLevel,
    IntOption,
    OptionalTimeout,
    OptionalWhole,
    Plugin,
    TransactionalId,
)
from aioproducer.config._security_types import (
    MECHANISMS,
    PROTOCOLS,
    STORE_TYPES,
    NameCheck,
    SaslMechanism,
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

_OF_KIND: Final[Mapping[type, Schema]] = {
    BoolOption: {"type": "boolean"},
    Acks: {"enum": ["all", "-1", "0", "1", -1, 0, 1]},
    GzipLevel: {"enum": [-1, *range(1, 10)]},
    SecurityProtocol: {"enum": [*PROTOCOLS]},
    SaslMechanism: {"enum": [*MECHANISMS, None]},
    StoreType: {"enum": [*STORE_TYPES, None]},
    NameCheck: {"enum": ["https", ""]},
    ClientId: _TEXT,
    TransactionalId: {"type": ["string", "null"], "minLength": 1},
    Words: {"anyOf": [_TEXT, _TEXTS]},
    AllowedBrokers: {"anyOf": [_TEXT, _TEXTS, _NOTHING]},
    AddressMapOption: {"anyOf": [_TEXT, {"type": "object", "additionalProperties": _TEXT}, _NOTHING]},
}
"""Kinds of options whose values do not depend on the option."""


def schema_of(kinds: Mapping[str, OptionKind], defaults: Mapping[str, object], module: ModuleType) -> Schema:
    """Return the schema of all options that a document can hold; `module` is that of `ProducerConfig`."""
    texts = dict(field_texts(module, {"bootstrap_servers", *kinds}))
    options: dict[str, Schema] = {
        "bootstrap_servers": {"anyOf": [{**_TEXT, "minLength": 1}, {**deepcopy(_TEXTS), "minItems": 1}]}
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


def _values(kind: OptionKind) -> Schema | None:  # noqa: PLR0911  # one return per kind
    """Return the allowed values of a kind of option; None if only Python has any."""
    match kind:
        case OptionalWhole() | OptionalTimeout():
            return {"type": ["integer", "null"], "minimum": kind.minimum, "maximum": kind.maximum}
        case IntOption():
            return {"type": "integer", "minimum": kind.minimum, "maximum": kind.maximum}
        case FloatOption():
            return {"type": "number", "minimum": kind.minimum, "maximum": kind.maximum}
        case EnumOption():
            return {"enum": [*kind.words]}
        case Plugin():
            return {"enum": [*kind.classes, None]} if kind.classes else None
        case TlsContextOption():
            return None
    secret: Schema = {"writeOnly": True} if getattr(kind, "is_secret", False) else {}
    # A copy: the document is the caller's to change.
    return deepcopy(_OF_KIND.get(type(kind), {"type": ["string", "null"], **secret}))


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
