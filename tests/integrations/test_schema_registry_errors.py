"""Errors of values and schemas: short for a value of any size, and with the name of what is wrong."""

import json
from collections.abc import Callable
from decimal import Decimal
from time import process_time
from typing import cast

import pytest

from aioproducer._shown_values import shown
from aioproducer.integrations.schema_registry import AvroSerializer, JsonSchemaSerializer, Schema, SchemaReference
from aioproducer.integrations.schema_registry._serializer import RegistrySerializer
from tests.fakes.schema_registry import KnownSchemas

MANY = 100_000


def avro(kind: object, *, validate: bool = False) -> RegistrySerializer[object]:
    fields = [{"name": "lines", "type": kind}]
    schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
    return AvroSerializer(schema, KnownSchemas(), validate=validate)


def of_json(kind: object) -> RegistrySerializer[object]:
    schema = {"type": "object", "properties": {"lines": kind}, "additionalProperties": False}
    return JsonSchemaSerializer(json.dumps(schema), KnownSchemas())


async def error_of(serializer: RegistrySerializer[object], value: object) -> ValueError:
    """Return the error, after a look at the time that it took."""
    await serializer.prepare("orders")
    begin = process_time()
    with pytest.raises(ValueError, match=r"^(Order|\$)") as caught:
        serializer.serialize("orders", value)
    assert process_time() - begin < 0.5
    return caught.value


# Values of any size

AVRO_INTS = {"type": "array", "items": "int"}
JSON_INTS = {"type": "array", "items": {"type": "integer"}}
JSON_NULL = {"type": "null"}
AVRO_TREE = ["null", {"type": "array", "items": ["null", "Order"]}]


INTS = {"type": "map", "values": "int"}
SYMBOLS = {"type": "enum", "name": "E", "symbols": [f"S{number}" for number in range(MANY)]}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4}
XS = ["x"] * MANY
LONG_TEXTS = ["y" * 100] * MANY
LONG_TEXT = "x" * 1_000_000

LARGE: dict[str, tuple[RegistrySerializer[object], object, str, str]] = {
    "avro array": (avro(AVRO_INTS), XS, "Order.lines[0] is <x> of type", "expected int; and more"),
    "avro array, validated": (avro(AVRO_INTS, validate=True), XS, "Order.lines[0] is <x>", "int; and more"),
    "avro map": (avro(INTS), dict.fromkeys(map(str, range(MANY)), "x"), "Order.lines['0'] is <x>", "; and more"),
    "avro keys of a map": (
        avro(INTS),
        dict.fromkeys(range(MANY), 1),
        "Order.lines has a key that is <0>",
        "; and more",
    ),
    "avro item": (avro(AVRO_INTS), [LONG_TEXTS], "Order.lines[0] is <['yyy", "expected int"),
    "avro union": (avro(["null", "int"]), LONG_TEXT, "Order.lines is <'xxx", "expected int"),
    "avro enum": (avro(SYMBOLS), "x", "Order.lines is <x>", "..."),
    "avro decimal": (avro(DECIMAL), Decimal("1" * 9999), "Order.lines is 111", "behind the point"),
    "json array": (of_json(JSON_INTS), XS, "$.lines[0]: 'x' is not of type 'integer'; $.", "; and more"),
    "json item": (of_json(JSON_INTS), [LONG_TEXTS], "$.lines[0]: ['yyy", "... is not of type 'integer'"),
    "json anyOf": (of_json({"anyOf": [JSON_NULL, JSON_INTS]}), XS, "$.lines: ['x', ", "any of the given schemas"),
    "json oneOf": (of_json({"oneOf": [JSON_NULL, JSON_INTS]}), XS, "$.lines: ['x', ", "any of the given schemas"),
    "json oneOf, both": (of_json({"oneOf": [True, {"enum": [XS]}]}), XS, "$.lines: ['x', ", "..."),
    "json enum": (of_json({"enum": [1]}), XS, "$.lines: ['x', ", "is not one of [1]"),
    "json text": (of_json(JSON_NULL), LONG_TEXT, "$.lines: 'xxx", "... is not of type 'null'"),
}


@pytest.mark.parametrize("name", LARGE)
async def test_error_of_a_large_value_is_short(name: str) -> None:
    serializer, value, begin, end = LARGE[name]
    error = await error_of(serializer, {"lines": value})

    assert str(error).startswith(begin)
    assert str(error).endswith(end)
    assert len(f"{error}{error.__cause__}") < 2_000


WHOLES: dict[str, object] = {
    "list": LONG_TEXTS,
    "many fields": dict.fromkeys(map(str, range(MANY)), 1),
    "long name": {"lines": "x", "k" * MANY: 1},
}


@pytest.mark.parametrize("value", WHOLES.values(), ids=WHOLES)
@pytest.mark.parametrize("serializer", [avro("int"), avro("int", validate=True), of_json({"type": "integer"})])
async def test_error_of_a_whole_value_is_short(serializer: RegistrySerializer[object], value: object) -> None:
    error = await error_of(serializer, value)

    assert len(f"{error}{error.__cause__}") < 2_000


async def test_few_places_are_all_named() -> None:
    for serializer in (avro(AVRO_INTS), of_json(JSON_INTS)):
        five, six = [str(await error_of(serializer, {"lines": ["x"] * number})) for number in (5, 6)]

        assert "lines[4]" in five
        assert five.count("; ") == 4
        assert six == f"{five}; and more"


async def test_fault_deep_in_a_tree_is_found_once() -> None:
    """Each array in a union was looked at twice, so that the time doubled with each level."""
    value: object = {"lines": "x"}
    for _ in range(25):
        value = {"lines": [value]}

    assert "x" in str(await error_of(avro(AVRO_TREE), value))


async def test_place_deep_in_a_value_is_shortened() -> None:
    value: object = {"lines": "x"}
    for _ in range(100):
        value = {"lines": value}
    schema = {"properties": {"lines": {"$ref": "#"}}, "type": "object"}
    serializer = JsonSchemaSerializer[object](json.dumps(schema), KnownSchemas())
    text = str(await error_of(serializer, value))

    assert text.startswith("$.lines.lines.")
    assert "....." not in text
    assert text.endswith("lines.lines: 'x' is not of type 'object'")
    assert len(text) < 300


@pytest.mark.parametrize(
    "value",
    [
        *([], {}, (), (1,), (1, "a"), [1, [2.5, None]], {"a": [b"b", {1: (2,)}]}, "it's", b'"', bytearray(b"ab")),
        *(True, {1, 2}, "x" * 98, ["x" * 94]),
    ],
)
def test_shown_value_is_its_repr(value: object) -> None:
    assert shown(value) == repr(value)
    long = [value] * 100
    assert shown(long) == f"{repr(long)[:100]}..."


# What fastavro writes for a value that does not fit


@pytest.mark.parametrize(
    "kind, value, read",
    [
        ("int", 1.5, b"\2"),
        ("long", 2.9, b"\4"),
        ("long", Decimal("2.7"), b"\4"),
        ("boolean", "no", b"\1"),
        ("boolean", 5, b"\1"),
        ("boolean", None, b"\0"),
        ("int", 2**31, b"\x80\x80\x80\x80\x10"),
        ("double", "1.5", b"\0\0\0\0\0\0\xf8\x3f"),
        ("float", True, b"\0\0\x80\x3f"),
        ({"type": "long", "logicalType": "timestamp-millis"}, 1.5, b"\2"),
    ],
)
async def test_avro_writes_another_value_unless_validated(kind: object, value: object, read: bytes) -> None:
    """The page on schemas lists them."""
    unchecked, checked = avro(kind), avro(kind, validate=True)
    await unchecked.prepare("orders")

    assert cast("bytes", unchecked.serialize("orders", {"lines": value}))[5:] == read
    assert str(await error_of(checked, {"lines": value})).startswith("Order.lines is <")


# Regular expressions that Python does not have

LETTERS = {"type": "object", "properties": {"name": {"type": "string", "pattern": "^\\p{L}+$"}}}
UNREADABLE = r"Python's re cannot read the regular expression '\^\\\\p.*: bad escape .*, or give validate=False"


@pytest.mark.parametrize(
    "schema",
    [
        LETTERS,
        {"$schema": "https://json-schema.org/draft/2020-12/schema", **LETTERS},
        {"patternProperties": {"^\\p{L}+$": {}}},
        {"$ref": "#/own", "own": LETTERS},
        {"$schema": "http://json-schema.org/draft-04/schema#", "patternProperties": {"^\\p{L}+$": {}}},
    ],
)
async def test_regular_expression_that_python_lacks_is_named(schema: object) -> None:
    """When the serializer is made, or by the first record where the draft does not say what is one."""
    with pytest.raises(ValueError, match=UNREADABLE):
        await error_that_is_raised(JsonSchemaSerializer(json.dumps(schema), KnownSchemas()))

    unchecked = JsonSchemaSerializer(json.dumps(schema), KnownSchemas(), validate=False)
    await unchecked.prepare("orders")
    assert unchecked.serialize("orders", {"name": "é"}) == b'\0\0\0\0\1{"name":"\xc3\xa9"}'


async def error_that_is_raised(serializer: RegistrySerializer[object]) -> None:
    await serializer.prepare("orders")
    serializer.serialize("orders", {"name": "x"})


# Schemas

ADDRESS = Schema('{"type": "record", "name": "Address", "fields": []}', "AVRO")
REFERENCE = SchemaReference("Address", "address", ADDRESS)
RECORD = {"type": "record", "name": "N", "fields": [{"name": "a", "type": "int"}]}


@pytest.mark.parametrize(
    "make, kind, message",
    [
        (lambda: Schema("{}", "AVRO", (("A", "a", 1),)), TypeError, "references must be of SchemaReference, not tuple"),  # type: ignore[arg-type]
        (lambda: Schema("{}", "AVRO", REFERENCE), TypeError, "references must be a tuple of SchemaReference"),  # type: ignore[arg-type]
        (lambda: Schema("{}", "JSON", (REFERENCE,)), ValueError, "of kind JSON must be JSON too: 'Address' is AVRO"),
        (lambda: Schema({}, "JSON"), TypeError, "text must be text, not dict"),  # type: ignore[arg-type]
        (lambda: Schema("{}", "avro"), ValueError, "kind must be one of AVRO, JSON, PROTOBUF, not 'avro'"),  # type: ignore[arg-type]
        (lambda: SchemaReference("A", "a", "{}"), TypeError, "schema must be a Schema, not str"),  # type: ignore[arg-type]
        (lambda: SchemaReference("A", 5, ADDRESS), TypeError, "subject must be text, not int"),  # type: ignore[arg-type]
        (lambda: SchemaReference(None, "a", ADDRESS), TypeError, "name must be text, not NoneType"),  # type: ignore[arg-type]
        (lambda: SchemaReference("A", "a", ADDRESS, "1"), TypeError, "version must be an int or None, not str"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_invalid_schema_or_reference_is_refused(
    make: Callable[[], object], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        make()


def test_references_may_be_a_list() -> None:
    assert Schema("{}", "AVRO", [REFERENCE]).references == (REFERENCE,)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": RECORD},
        {"type": ["null", "string"]},
        ["null", {"type": RECORD}],
        {"type": "array", "items": {"type": RECORD}},
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": {"type": "map", "values": "int"}}}]},
    ],
)
def test_avro_schema_around_another_one_is_refused(schema: object) -> None:
    """As by Java."""
    message = 'schema: not a valid Avro schema: "type" must be the name of a type; write the inner schema alone'
    with pytest.raises(ValueError, match=message):
        AvroSerializer(json.dumps(schema), KnownSchemas())
    with pytest.raises(ValueError, match=r'not a valid Avro schema: "type" is missing: \{\}'):
        AvroSerializer("{}", KnownSchemas())
