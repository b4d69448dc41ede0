"""Whether a value fits an Avro schema, and if not, where: fastavro's errors often name no field, and it writes more.

A value fits if what is written is read back as it was. Everything else that fastavro takes, such as a `datetime`, fits.
"""

from __future__ import annotations

import array
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import islice
from numbers import Integral, Real
from struct import pack
from typing import Final, NamedTuple, TypeAlias, cast
from uuid import UUID

from aioproducer._shown_values import MOST_PLACES, shortened, shown

AvroType: TypeAlias = str | list[object] | dict[str, object]

_INT: Final = range(-(2**31), 2**31)
_LONG: Final = range(-(2**63), 2**63)
_ENOUGH: Final = MOST_PLACES + 1
"""Faults after which no others are looked for: those that are shown, and one more, which says that there are more."""


class Fault(NamedTuple):
    """A place in a value that does not fit."""

    path: str
    """Path behind the value's name, such as `.items[3]`."""
    text: str
    """What is wrong there."""


Check: TypeAlias = Callable[[object], Sequence[Fault]]
"""Returns the first faults of a value."""


def check_of(schema: AvroType, types: Mapping[str, dict[str, object]]) -> Check:
    """Return the check of a schema as fastavro has parsed it.

    Args:
        schema: the schema, with full names.
        types: the named types, by full name.
    """
    return _Checks(types).of(schema)


class _Checks:
    """Checks of one schema and the types that it names, each made once."""

    def __init__(self, types: Mapping[str, dict[str, object]]) -> None:
        self._types = types
        self._made: dict[str, Check] = {}

    def of(self, schema: AvroType) -> Check:
        if isinstance(schema, list):
            branches = cast("list[AvroType]", schema)
            return partial(_union, [(_name_of(each), self._is_record(each), self.of(each)) for each in branches])
        if isinstance(schema, str):
            return self._named(schema) if schema in self._types else _leaf(schema, {})
        kind = str(schema["type"])
        match kind:
            case "record" | "error":
                made = self._record(schema)
            case "array":
                made = partial(_array, self.of(cast("AvroType", schema["items"])))
            case "map":
                made = partial(_map, self.of(cast("AvroType", schema["values"])))
            case _:
                made = _leaf(kind, schema)
        return made

    def _named(self, name: str) -> Check:
        def check(value: object) -> Sequence[Fault]:
            made = self._made.get(name)
            if made is None:  # only now, because a type may have a field of its own type
                made = self._made[name] = self.of(self._types[name])
            return made(value)

        return check

    def _record(self, schema: dict[str, object]) -> Check:
        fields: dict[str, tuple[Check, bool]] = {}
        for field in cast("list[dict[str, object]]", schema["fields"]):
            of_type = cast("AvroType", field["type"])
            may_be_null = "null" in (of_type if isinstance(of_type, list) else [of_type])
            fields[str(field["name"])] = (self.of(of_type), may_be_null or "default" in field)
        return partial(_record, fields)

    def _is_record(self, schema: AvroType) -> bool:
        found = self._types.get(schema, {}) if isinstance(schema, str) else schema
        return isinstance(found, dict) and found.get("type") in {"record", "error"}


def _record(fields: Mapping[str, tuple[Check, bool]], value: object) -> Sequence[Fault]:
    if not isinstance(value, Mapping):
        return [_fault(value, "a dict")]
    faults: list[Fault] = []
    for name, (check, may_be_missing) in fields.items():
        if name in value:
            faults += [Fault(f".{name}{path}", text) for path, text in check(value[name])]
        elif not may_be_missing:
            faults.append(Fault(f".{name}", "is missing"))
    if len(value) > len(fields) or not fields.keys() >= value.keys():
        unknown = (name for name in value if name not in fields and name != "-type")  # fastavro's name of the record
        faults += [Fault(f".{_short(name)}", "is not a field of the schema") for name in islice(unknown, _ENOUGH)]
    return faults[:_ENOUGH]


def _array(check: Check, value: object) -> Sequence[Fault]:
    if isinstance(value, str) or not isinstance(value, Sequence | array.array):
        return [_fault(value, "array")]
    faults: list[Fault] = []
    for index, item in enumerate(value):
        if found := check(item):
            faults += [Fault(f"[{index}]{path}", text) for path, text in found]
            if len(faults) >= _ENOUGH:
                break
    return faults[:_ENOUGH]


def _map(check: Check, value: object) -> Sequence[Fault]:
    if not isinstance(value, Mapping):
        return [_fault(value, "map")]
    faults: list[Fault] = []
    for key, item in value.items():
        found, of_key = check(item), _KEY(key)
        if found or of_key:
            faults += [Fault("", f"has a key that {text}") for _, text in of_key]
            faults += [Fault(f"[{shown(key)}]{path}", text) for path, text in found]
            if len(faults) >= _ENOUGH:
                break
    return faults[:_ENOUGH]


def _union(branches: Sequence[tuple[str, bool, Check]], value: object) -> Sequence[Fault]:
    """Return no fault if one type fits, else the faults of the type that was meant, if only one can be."""
    if isinstance(value, tuple) and len(value) == 2:  # noqa: PLR2004  # fastavro's pair of name and value
        named = [check for name, _, check in branches if name == value[0]]
        if named:
            return named[0](value[1])
    least: Sequence[Fault] = ()
    others: list[Sequence[Fault]] = []
    for name, is_record, check in branches:
        faults = check(value)
        if not faults:
            return ()
        if is_record and isinstance(value, Mapping) and (not least or len(faults) < len(least)):
            least = faults
        if name != "null":
            others.append(faults)
    if not least and len(others) == 1:
        return others[0]
    return least or [_fault(value, " or ".join(name for name, _, _ in branches))]


# Types without others in them


def _leaf(kind: str, schema: dict[str, object]) -> Check:
    logical = schema.get("logicalType")
    expected = f"{kind} ({logical})" if logical else kind
    fits: Callable[[object], bool]
    if kind == "fixed":
        fits, expected = partial(_is_fixed, schema), f"{expected} of {schema['size']} bytes"
    elif kind == "enum":
        fits, expected = partial(_is_symbol, schema), f"one of {shown(schema['symbols'])}"
    else:
        fits = _is_uuid if logical == "uuid" else _FITS[kind]
    if logical == "decimal":
        return partial(_decimal, _Leaf(fits, expected, schema))
    from fastavro.write import LOGICAL_WRITERS  # noqa: PLC0415  # optional

    prepare = cast("Callable[[object, object], object] | None", LOGICAL_WRITERS.get(f"{kind}-{logical}"))
    return partial(_plain, _Leaf(fits, expected, schema, prepare))


class _Leaf(NamedTuple):
    """A type without others in it."""

    fits: Callable[[object], bool]
    """Returns whether a value is of the type; or raises an error that says why not."""
    expected: str
    schema: dict[str, object]
    prepare: Callable[[object, object], object] | None = None
    """Makes what is written of a value of the logical type."""


def _plain(leaf: _Leaf, value: object) -> Sequence[Fault]:
    try:
        if leaf.fits(value if leaf.prepare is None else leaf.prepare(value, leaf.schema)):
            return ()
    except Exception as error:  # noqa: BLE001  # also of a user's function for a logical type
        return [Fault("", f"{_fault(value, leaf.expected).text}: {shortened(str(error))}")]
    return [_fault(value, leaf.expected)]


def _decimal(leaf: _Leaf, value: object) -> Sequence[Fault]:
    if not isinstance(value, Decimal):
        return _plain(leaf, value)
    scale, precision = cast("int", leaf.schema.get("scale", 0)), cast("int", leaf.schema.get("precision", 0))
    if value.is_finite():
        _, digits, exponent = value.as_tuple()
        shift = cast("int", exponent) + scale
        if shift >= 0 and (not any(digits) or len("".join(map(str, digits)).lstrip("0")) + shift <= precision):
            return ()
    expected = f"a decimal of at most {precision} digits, {scale} of them behind the point"
    return [Fault("", f"is {shortened(str(value), 100)}, expected {expected}")]


def _is_int(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) in _INT


def _is_long(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) in _LONG


def _is_float(value: object) -> bool:
    return _packs(">f", value)


def _is_double(value: object) -> bool:
    return _packs(">d", value)


def _packs(form: str, value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    pack(form, value)  # raises where fastavro would write infinity
    return True


def _is_text(value: object) -> bool:
    if not isinstance(value, str):
        return False
    value.encode()  # raises for half of a surrogate pair
    return True


def _is_bytes(value: object) -> bool:
    return isinstance(value, bytes | bytearray)


def _is_fixed(schema: dict[str, object], value: object) -> bool:
    return isinstance(value, bytes | bytearray) and len(value) == schema["size"]


def _is_symbol(schema: dict[str, object], value: object) -> bool:
    return value in cast("list[object]", schema["symbols"])


def _is_uuid(value: object) -> bool:
    return isinstance(value, str) and bool(UUID(value))


_FITS: Final[Mapping[str, Callable[[object], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "int": _is_int,
    "long": _is_long,
    "float": _is_float,
    "double": _is_double,
    "string": _is_text,
    "bytes": _is_bytes,
}

_KEY: Final[Check] = partial(_plain, _Leaf(_is_text, "string", {}))
"""Check of a map's keys."""


def _fault(value: object, expected: str) -> Fault:
    return Fault("", f"is <{_short(value)}> of type {type(value)} expected {expected}")


def _short(value: object) -> str:
    text = shown(value)
    return text[1:-1] if isinstance(value, str) and text[-1:] == text[:1] else text


def _name_of(schema: AvroType) -> str:
    if isinstance(schema, dict):
        return str(schema.get("name", schema["type"]))
    return schema if isinstance(schema, str) else "union"
