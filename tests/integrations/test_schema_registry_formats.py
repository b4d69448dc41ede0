"""What is written for a schema and a value, as Java's serializers do, and errors that name the place in the value."""

import base64
import json
from decimal import Decimal

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

from aioproducer.integrations.schema_registry import (
    AvroSerializer,
    JsonSchemaSerializer,
    ProtobufSerializer,
    Schema,
    SchemaReference,
    SchemaRegistryError,
)
from tests.fakes.schema_registry import KnownSchemas

FRAME = b"\0\0\0\0\1"


def avro_record(name: str, *fields: tuple[str, object]) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind} for field, kind in fields]}


def reference(name: str, schema: object, *references: SchemaReference, kind: str = "AVRO") -> SchemaReference:
    return SchemaReference(name, name.lower(), Schema(json.dumps(schema), kind, references))  # type: ignore[arg-type]


async def written(schema: Schema | str, value: object, *, validate: bool = False) -> bytes:
    """Return what Avro's serializer writes behind the id."""
    serializer = AvroSerializer(schema, KnownSchemas(), validate=validate)
    await serializer.prepare("orders")
    encoded = serializer.serialize("orders", value)
    assert isinstance(encoded, bytes)
    return encoded.removeprefix(FRAME)


# Avro: schemas that are not records

ORDER_AND_BILL = (
    reference("Order", avro_record("Order", ("id", "int"))),
    reference("shop.Bill", avro_record("shop.Bill", ("total", "long"), ("of", "Order"))),
)


@pytest.mark.parametrize(
    "schema, value, expected",
    [
        (["Order", "shop.Bill"], {"id": 1}, b"\0\2"),
        (["Order", "shop.Bill"], ("shop.Bill", {"total": 2, "of": {"id": 1}}), b"\2\4\2"),
        (["null", "Order"], {"id": 1}, b"\2\2"),
        ({"type": "array", "items": "Order"}, [{"id": 1}], b"\2\2\0"),
        ({"type": "array", "items": ["null", "Order"]}, [None, {"id": 1}], b"\4\0\2\2\0"),
        ({"type": "map", "values": "Order"}, {"a": {"id": 1}}, b"\2\2a\2\0"),
        ({"type": "map", "values": {"type": "array", "items": "Order"}}, {"a": [{"id": 1}]}, b"\2\2a\2\2\0\0"),
        ("Order", {"id": 1}, b"\2"),
        (["Order", {"type": "array", "items": "Order"}], [{"id": 1}], b"\2\2\2\0"),
        (avro_record("Cart", ("orders", {"type": "array", "items": "Order"})), {"orders": [{"id": 1}]}, b"\2\2\0"),
    ],
)
async def test_avro_schema_uses_its_references_anywhere(schema: object, value: object, expected: bytes) -> None:
    order, bill = ORDER_AND_BILL
    bill = SchemaReference(bill.name, bill.subject, Schema(bill.schema.text, "AVRO", (order,)))

    assert await written(Schema(json.dumps(schema), "AVRO", (order, bill)), value) == expected


@pytest.mark.parametrize(
    "schema, value, expected",
    [
        ('"int"', 5, b"\n"),
        ('{"type": "string"}', "ab", b"\4ab"),
        ('["null", "string"]', "ab", b"\2\4ab"),
        ('"null"', None, b""),
        ('"bytes"', b"ab" * 100, b"ab" * 100),
        ('{"type": "bytes"}', b"", b""),
        ('["null", "bytes"]', b"ab", b"\2\4ab"),
        ('{"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}', Decimal("1.5"), b"\0\x96"),
        ('{"type": "enum", "name": "E", "symbols": ["A", "B"]}', "B", b"\2"),
    ],
)
async def test_avro_type_without_a_record(schema: str, value: object, expected: bytes) -> None:
    """Java's serializer writes `bytes` as they are, without their length."""
    assert await written(schema, value) == expected


async def test_avro_name_of_a_reference_is_the_subject() -> None:
    serializer = AvroSerializer(Schema('"Order"', "AVRO", ORDER_AND_BILL[:1]), KnownSchemas(), subject="record")
    assert "Order" in repr(serializer)

    with pytest.raises(ValueError, match="needs a schema whose type has a name"):
        AvroSerializer(Schema('["null", "Order"]', "AVRO", ORDER_AND_BILL[:1]), KnownSchemas(), subject="record")


# Avro: values that do not fit

PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
UUID_TEXT = {"type": "string", "logicalType": "uuid"}
NESTED = avro_record(
    "shop.Order",
    ("price", PRICE),
    ("text", ["null", "string"]),
    ("lines", {"type": "array", "items": avro_record("Line", ("amount", "int"), ("ratio", "float"))}),
    ("tags", {"type": "map", "values": ["null", UUID_TEXT]}),
    ("size", {"type": "enum", "name": "Size", "symbols": ["S", "L"]}),
    ("hash", {"type": "fixed", "name": "Hash", "size": 2}),
    ("at", ["null", {"type": "long", "logicalType": "timestamp-millis"}]),
    ("next", ["shop.Order", "null"]),
)
GOOD = {"price": Decimal(1), "lines": [{"amount": 1, "ratio": 0.5}], "tags": {}, "size": "S", "hash": b"ab"}


@pytest.mark.parametrize("validate", [False, True])
@pytest.mark.parametrize(
    "bad, place",
    [
        ({"price": Decimal("1.234")}, r"shop\.Order\.price is 1\.234, expected a decimal of at most 6 digits, 2 of"),
        ({"price": Decimal(10**9)}, r"shop\.Order\.price is 1000000000, expected"),
        ({"price": Decimal("NaN")}, r"shop\.Order\.price is NaN, expected"),
        ({"price": Decimal("Infinity")}, r"shop\.Order\.price is Infinity"),
        ({"price": "1"}, r"shop\.Order\.price is <1> of type <class 'str'> expected bytes \(decimal\)"),
        ({"text": "\ud800"}, r"shop\.Order\.text is <\\ud800> .* surrogates not allowed"),
        ({"text": 5}, r"shop\.Order\.text is <5> of type <class 'int'> expected string"),
        ({"lines": [GOOD["lines"][0], {"amount": "x", "ratio": 1.0}]}, r"shop\.Order\.lines\[1\]\.amount is <x>"),  # type: ignore[index]
        ({"lines": [{"ratio": 1.0}]}, r"shop\.Order\.lines\[0\]\.amount is missing"),
        ({"lines": 5}, r"shop\.Order\.lines is <5> of type <class 'int'> expected array"),
        ({"tags": {"a": 5}}, r"shop\.Order\.tags\['a'\] is <5> .*expected string \(uuid\)"),
        ({"tags": {5: None}}, r"shop\.Order\.tags has a key that is <5> .*expected string"),
        ({"size": "M"}, r"shop\.Order\.size is <M> .*expected one of \['S', 'L'\]"),
        ({"hash": b"abc"}, r"shop\.Order\.hash is <b'abc'> .*expected fixed of 2 bytes"),
        ({"at": "noon"}, r"shop\.Order\.at is <noon> .*expected long \(timestamp-millis\)"),
        ({"next": GOOD | {"size": 5}}, r"shop\.Order\.next\.size is <5>"),
    ],
)
async def test_avro_misfit_names_the_place(bad: dict[str, object], place: str, *, validate: bool) -> None:
    with pytest.raises(ValueError, match=place):
        await written(json.dumps(NESTED), GOOD | bad, validate=validate)


@pytest.mark.parametrize(
    "bad, place",
    [
        ({"lines": [{"amount": 2**31, "ratio": 1.0}]}, r"shop\.Order\.lines\[0\]\.amount is <2147483648>"),
        ({"lines": [{"amount": 1, "ratio": 1e300}]}, r"shop\.Order\.lines\[0\]\.ratio is <1e\+300> .*too large"),
        ({"lines": [{"amount": 1, "ratio": 1.0, "amuont": 2}]}, r"lines\[0\]\.amuont is not a field of the schema"),
        ({"tags": {"a": "nonsense"}}, r"shop\.Order\.tags\['a'\] is <nonsense> .*expected string \(uuid\)"),
        ({"price": Decimal(100000)}, r"shop\.Order\.price is 100000, expected a decimal of at most 6 digits"),
        ({"txet": "x"}, r"shop\.Order\.txet is not a field of the schema"),
        ({"next": GOOD | {"txet": 5}}, r"shop\.Order\.next\.txet is not a field of the schema"),
    ],
)
async def test_avro_value_that_is_lost_is_refused_if_validated(bad: dict[str, object], place: str) -> None:
    """Fastavro writes them: another number, infinity, text that no reader takes, or nothing at all."""
    assert await written(json.dumps(NESTED), GOOD | bad)
    with pytest.raises(ValueError, match=place):
        await written(json.dumps(NESTED), GOOD | bad, validate=True)


@pytest.mark.parametrize(
    "schema, value",
    [
        ('"float"', float("inf")),
        ('"float"', float("nan")),
        ('"double"', 1e300),
        (json.dumps(UUID_TEXT), "9f1c1b0e-4f5d-4c0e-8d8e-111111111111"),
        (json.dumps(NESTED), GOOD | {"next": GOOD | {"-type": "shop.Order"}}),
        (json.dumps(avro_record("A", ("a", ["null", "int"]))), {}),
        ('["int", "string"]', ("string", "x")),
    ],
)
async def test_avro_value_that_fits_is_written_if_validated(schema: str, value: object) -> None:
    assert await written(schema, value, validate=True) == await written(schema, value)


# JSON Schema

DRAFTS = {
    "draft-04": "http://json-schema.org/draft-04/schema#",
    "draft-06": "http://json-schema.org/draft-06/schema#",
    "draft-07": "https://json-schema.org/draft-07/schema",
    "2019-09": "https://json-schema.org/draft/2019-09/schema",
    "2020-12": "https://json-schema.org/draft/2020-12/schema#",
    "none": None,
}
TEXT = {"type": "string"}


def of_draft(draft: str, schema: dict[str, object]) -> dict[str, object]:
    return schema if DRAFTS[draft] is None else {"$schema": DRAFTS[draft], **schema}


async def refuses(schema: Schema, value: object) -> str | None:
    """Return why JSON's serializer refuses a value, None if it does not."""
    serializer = JsonSchemaSerializer(schema, KnownSchemas())
    await serializer.prepare("orders")
    try:
        serializer.serialize("orders", value)
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("own_id", [None, "https://example.com/orders/order.json"])
@pytest.mark.parametrize("name, ref", [("text.json", "text.json"), ("text.json", "./text.json"), ("./text.json",) * 2])
async def test_json_reference_by_a_relative_name(  # noqa: PLR0917  # the parts of a row
    draft: str, own_id: str | None, name: str, ref: str
) -> None:
    """Relative to the schema's `$id`, in draft 4 `id`, if it has one."""
    main = of_draft(draft, {"properties": {"c": {"$ref": ref}}})
    if own_id is not None:
        main["id" if draft == "draft-04" else "$id"] = own_id
    schema = Schema(json.dumps(main), "JSON", (reference(name, of_draft(draft, TEXT), kind="JSON"),))

    assert await refuses(schema, {"c": "x"}) is None
    assert await refuses(schema, {"c": 5}) == "$.c: 5 is not of type 'string'"


@pytest.mark.parametrize(
    "draft, ref, referred",
    [
        ("2020-12", "t.json#street", {"$defs": {"s": {"$anchor": "street", **TEXT}}}),
        ("2019-09", "t.json#street", {"$defs": {"s": {"$anchor": "street", **TEXT}}}),
        ("draft-07", "t.json#street", {"definitions": {"s": {"$id": "#street", **TEXT}}}),
        ("draft-04", "http://x/t.json", {"id": "http://x/t.json", **TEXT}),
        ("draft-06", "http://x/t.json", {"$id": "http://x/t.json", **TEXT}),
        ("draft-04", "t.json#/definitions/s", {"definitions": {"s": TEXT}}),
        ("2020-12", "t.json#/$defs/s", {"$defs": {"s": TEXT}}),
        ("draft-07", "t.json#/$defs/s", {"definitions": {"s": TEXT}}),
        ("none", "t.json#/definitions/s", {"definitions": {"s": TEXT}}),
    ],
)
async def test_json_reference_into_a_schema(draft: str, ref: str, referred: dict[str, object]) -> None:
    """By anchor, id or path; the referred schema is of the draft of the one that refers, if it names none."""
    for contents in (referred, of_draft(draft, referred)):
        main = of_draft(draft, {"properties": {"c": {"$ref": ref}}})
        schema = Schema(json.dumps(main), "JSON", (reference("t.json", contents, kind="JSON"),))

        assert await refuses(schema, {"c": "x"}) is None
        assert await refuses(schema, {"c": 5}) == "$.c: 5 is not of type 'string'"


async def test_json_reference_of_a_reference_is_relative_to_it() -> None:
    street = reference("street.json", TEXT, kind="JSON")
    address = reference("parts/address.json", {"properties": {"s": {"$ref": "street.json"}}}, street, kind="JSON")
    schema = Schema('{"properties": {"a": {"$ref": "parts/address.json"}}}', "JSON", (address,))

    assert await refuses(schema, {"a": {"s": "x"}}) is None
    assert await refuses(schema, {"a": {"s": 5}}) == "$.a.s: 5 is not of type 'string'"


async def test_json_schema_that_names_no_draft_is_draft_7() -> None:
    """As for Java; the same for a `$schema` that Java does not know."""
    pair = {"type": "array", "items": [{"type": "integer"}]}
    for document in (pair, {"$schema": "https://example.com/own", **pair}):
        assert await refuses(Schema(json.dumps(document), "JSON"), [1, "x"]) is None
        assert await refuses(Schema(json.dumps(document), "JSON"), ["x"]) == "$[0]: 'x' is not of type 'integer'"


async def test_json_schema_may_be_a_boolean() -> None:
    assert await refuses(Schema("true", "JSON"), 5) is None
    assert "False schema does not allow 5" in str(await refuses(Schema("false", "JSON"), 5))
    with pytest.raises(ValueError, match="a JSON Schema is an object or a boolean, not list"):
        JsonSchemaSerializer("[]", KnownSchemas())


async def test_json_reference_that_is_missing_is_named() -> None:
    schema = Schema('{"properties": {"c": {"$ref": "gone.json"}}}', "JSON")
    assert await refuses(schema, {"c": 1}) == "schema: 'gone.json' is not known; is a reference missing?"

    invalid = Schema("{}", "JSON", (reference("t.json", {"type": 5}, kind="JSON"),))
    with pytest.raises(ValueError, match=r"not a valid JSON Schema: 5 .*\$\.type"):
        JsonSchemaSerializer(invalid, KnownSchemas())


# Protobuf


def file_of(*names: str, package: str = "shop") -> descriptor_pb2.FileDescriptorProto:
    made = descriptor_pb2.FileDescriptorProto(name="o.proto", package=package, syntax="proto3")
    for name in names:
        made.message_type.add(name=name)
    return made


def in_base64(file: descriptor_pb2.FileDescriptorProto) -> Schema:
    return Schema(base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF")


def message_of(file: descriptor_pb2.FileDescriptorProto, name: str) -> type[Message]:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


ORDER = message_of(file_of("Order"), "shop.Order")
WITH_MAP = file_of("Order")
ENTRY = WITH_MAP.message_type[0].nested_type.add(name="SumsEntry")
ENTRY.options.map_entry = True
for number, field in enumerate(("key", "value"), 1):
    ENTRY.field.add(name=field, number=number, type=5, label=1)
WITH_MAP.message_type[0].field.add(name="sums", number=1, type=11, label=3, type_name=".shop.Order.SumsEntry")
WITH_MAP.message_type[0].nested_type.add(name="Line")
LINE = message_of(WITH_MAP, "shop.Order.Line")

TEXT_OF_PROTOBUF = """
// message Comment {}
syntax = "proto3"; package shop /* message Other { } */ ;
import "message No {";
option (about) = { message { name: "message No {" } };
enum Kind { MESSAGE = 0; option allow_alias = true; }
message Envelope { string message = 1; oneof of { int32 a = 2; bytes b = 3 [(about) = { a: 1 }]; } message Order {} }
service Orders { rpc Get (Order) returns (Envelope) { option deprecated = true; } }
message Order {
  map<int32, int32> sums = 1;
  enum Size { S = 0; }
  message Other { message Line {} }
  message Line { option deprecated = true; reserved "message"; }
}
"""


@pytest.mark.parametrize(
    "message, latest, indexes",
    [
        (ORDER, in_base64(file_of("Envelope", "Order")), b"\2\2"),
        (ORDER, in_base64(file_of("Order", "Envelope")), b"\0"),
        (ORDER, Schema(TEXT_OF_PROTOBUF, "PROTOBUF"), b"\2\2"),
        (LINE, Schema(TEXT_OF_PROTOBUF, "PROTOBUF"), b"\4\2\2"),
        (LINE, in_base64(WITH_MAP), b"\4\0\2"),
        (
            LINE,
            Schema('syntax="proto3";package shop;message Order{map<int32,int32> sums=1;message Line{}}', "PROTOBUF"),
            b"\4\0\0",
        ),
        (ORDER, in_base64(file_of(*(f"M{index}" for index in range(63)), "Order")), b"\2\x7e"),
        (ORDER, in_base64(file_of(*(f"M{index}" for index in range(64)), "Order")), b"\2\x80\1"),
        (ORDER, in_base64(file_of(*(f"M{index}" for index in range(8_192)), "Order")), b"\2\x80\x80\1"),
    ],
)
@pytest.mark.parametrize("options", [{"use_latest_version": True}, {"normalize": True}, {"auto_register": False}, {}])
async def test_protobuf_indexes_are_of_the_schema_of_the_id(  # noqa: PLR0917
    message: type[Message], latest: Schema, indexes: bytes, options: dict[str, bool]
) -> None:
    """Readers look the message up there; a map has a message of its own in a descriptor, but not in text."""
    serializer = ProtobufSerializer(message, KnownSchemas(latest=latest), **options)  # type: ignore[arg-type]
    await serializer.prepare("orders")

    assert serializer.serialize("orders", message()) == FRAME + indexes


@pytest.mark.parametrize("index", [0, 63, 64, 300])
async def test_protobuf_index_of_the_own_file(index: int) -> None:
    """With a registry that keeps no schemas."""
    names = [f"M{number}" for number in range(index + 1)]
    message = message_of(file_of(*names), f"shop.M{index}")
    serializer = ProtobufSerializer(message, KnownSchemas())
    await serializer.prepare("orders")

    expected = {0: b"\0", 63: b"\2\x7e", 64: b"\2\x80\1", 300: b"\2\xd8\4"}
    assert serializer.serialize("orders", message()) == FRAME + expected[index]


@pytest.mark.parametrize(
    "latest, message",
    [
        (
            in_base64(file_of("Envelope", "Bill")),
            "schema 1: the schema has no message shop.Order; its messages: shop.Env",
        ),
        (in_base64(file_of("Order", package="other")), "no message shop.Order; its messages: other.Order"),
        (Schema("", "PROTOBUF"), "no message shop.Order; its messages: none"),
        (Schema("AAAA", "PROTOBUF"), "not a valid Protobuf schema"),
        (Schema("{}", "JSON"), "the latest schema of subject 'orders-value' is JSON, not PROTOBUF"),
        (None, "the registry does not return schema 1 of subject 'orders-value'"),
    ],
)
async def test_protobuf_schema_without_the_message_is_refused(latest: Schema | None, message: str) -> None:
    """Java writes the index of the first message, so that readers decode another one."""
    serializer = ProtobufSerializer(
        ORDER, KnownSchemas(latest=latest), use_latest_version=latest != in_base64(file_of())
    )
    with pytest.raises(SchemaRegistryError, match=message):
        await serializer.prepare("orders")


# Ids


@pytest.mark.parametrize("number", [2**32, 2**40, -1, None, "7"])
async def test_id_that_does_not_fit_is_named(number: object) -> None:
    serializer = AvroSerializer('"int"', KnownSchemas(number))  # type: ignore[arg-type]
    with pytest.raises(SchemaRegistryError, match=r"subject 'orders-value', .*id .* does not fit into the four bytes"):
        await serializer.prepare("orders")


async def test_highest_id_is_written() -> None:
    serializer = AvroSerializer('"int"', KnownSchemas(2**32 - 1))
    await serializer.prepare("orders")

    assert serializer.serialize("orders", 1) == b"\0\xff\xff\xff\xff\2"


async def test_guid_that_is_not_one_is_named() -> None:
    serializer = AvroSerializer('"int"', KnownSchemas(guid="nonsense"), id_in_header=True)
    with pytest.raises(SchemaRegistryError, match=r"subject 'orders-value', schema 1: .*guid 'nonsense' is not a UUID"):
        await serializer.prepare("orders")
