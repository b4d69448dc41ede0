"""Serializers with a schema registry: what they write is read back by confluent's deserializers."""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass

import pytest
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient
from confluent_kafka.schema_registry.avro import AsyncAvroDeserializer
from confluent_kafka.schema_registry.json_schema import AsyncJSONDeserializer
from confluent_kafka.schema_registry.protobuf import AsyncProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.message import Message

from aioproducer import ConfigurationError, Outcome, Producer, SerializationError
from aioproducer.integrations.schema_registry import (
    AvroSerializer,
    ConfluentRegistry,
    JsonSchemaSerializer,
    ProtobufSerializer,
    Schema,
    SchemaId,
    SchemaReference,
    SchemaRegistryError,
)
from aioproducer.integrations.schema_registry._protobuf import message_path
from aioproducer.integrations.schema_registry._registry import RegistryArgument
from aioproducer.testing import FakeCluster
from tests.fakes.schema_registry import FakeSchemaRegistry
from tests.produced import values

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": "id", "type": "int"}, {"name": "article", "type": ["null", "string"], "default": None}],
    }
)
JSON = json.dumps(
    {
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "article": {"type": "string"}},
        "required": ["id"],
    }
)
ORDER = {"id": 7, "article": "tea"}
ONE_REQUEST = ["POST /subjects/orders-value/versions?normalize=False"]


def messages() -> dict[str, type[Message]]:
    """Make the classes of two files, one of which imports the other and one of Protobuf's own."""
    address = descriptor_pb2.FileDescriptorProto(name="address.proto", package="shop", syntax="proto3")
    address.message_type.add(name="Address").field.add(name="town", number=1, type=9, label=1)
    order = descriptor_pb2.FileDescriptorProto(
        name="order.proto",
        package="shop",
        syntax="proto3",
        dependency=["address.proto", "google/protobuf/timestamp.proto"],
    )
    message = order.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=5, label=1)
    message.field.add(name="to", number=2, type=11, label=1, type_name=".shop.Address")
    message.field.add(name="at", number=3, type=11, label=1, type_name=".google.protobuf.Timestamp")
    other = order.message_type.add(name="Other")
    other.nested_type.add(name="First")
    other.nested_type.add(name="Second").field.add(name="id", number=1, type=5, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(address)
    pool.Add(order)
    names = ("shop.Order", "shop.Address", "shop.Other", "shop.Other.Second")
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names}


MESSAGES = messages()


@pytest.fixture(name="registry")
async def fixture_registry() -> AsyncIterator[FakeSchemaRegistry]:
    async with FakeSchemaRegistry() as registry:
        yield registry


async def read_back(registry: FakeSchemaRegistry, kind: str, record: object, *, field: str = "value") -> object:
    async with AsyncSchemaRegistryClient({"url": registry.url}) as client:
        if kind == "avro":
            deserializer = await AsyncAvroDeserializer(client)
        elif kind == "json":
            deserializer = await AsyncJSONDeserializer(None, schema_registry_client=client)
        else:
            deserializer = await AsyncProtobufDeserializer(
                MESSAGES[kind], {"use.deprecated.format": False}, schema_registry_client=client
            )
        context = SerializationContext("orders", MessageField(field), list(record.headers))  # type: ignore[attr-defined]
        return await deserializer(getattr(record, field), context)


@pytest.mark.parametrize("id_in_header", [False, True])
@pytest.mark.parametrize("field", ["key", "value"])
async def test_avro_is_read_back(
    one_broker: FakeCluster, registry: FakeSchemaRegistry, field: str, *, id_in_header: bool
) -> None:
    serializer: AvroSerializer[object] = AvroSerializer(AVRO, registry.url, id_in_header=id_in_header)
    option = {f"{field}_serializer": serializer}
    async with Producer(one_broker.bootstrap_servers, **option) as producer:  # type: ignore[arg-type]
        arguments = {"key": ORDER, "value": b"v"} if field == "key" else {"key": b"k", "value": ORDER}
        for _ in range(3):
            await producer.send_and_wait("orders", partition=0, **arguments)  # type: ignore[arg-type]
        await producer.send("orders", partition=0, **arguments)  # type: ignore[arg-type]  # the id is known by now

    records = one_broker.records("orders", 0)
    assert [await read_back(registry, "avro", record, field=field) for record in records] == [ORDER] * 4
    assert registry.requests[0] == f"POST /subjects/orders-{field}/versions?normalize=False"
    assert bool(records[0].headers) is id_in_header
    payload = getattr(records[0], field)
    assert (payload[:5] == b"\0\0\0\0\1") is not id_in_header


@pytest.mark.parametrize("id_in_header", [False, True])
async def test_json_schema_is_read_back(
    one_broker: FakeCluster, registry: FakeSchemaRegistry, *, id_in_header: bool
) -> None:
    serializer: JsonSchemaSerializer[object] = JsonSchemaSerializer(JSON, registry.url, id_in_header=id_in_header)
    async with Producer(one_broker.bootstrap_servers) as producer:
        await producer.topic("orders", value=serializer).send_and_wait(ORDER, partition=0)

    [record] = one_broker.records("orders", 0)
    assert await read_back(registry, "json", record) == ORDER


@pytest.mark.parametrize("id_in_header", [False, True])
@pytest.mark.parametrize("name", ["shop.Order", "shop.Other", "shop.Other.Second"])
async def test_protobuf_is_read_back(
    one_broker: FakeCluster, registry: FakeSchemaRegistry, name: str, *, id_in_header: bool
) -> None:
    kind = MESSAGES[name]
    message = kind(id=7) if name != "shop.Other" else kind()
    if name == "shop.Order":
        message.to.town = "Ghent"
    serializer = ProtobufSerializer(kind, registry.url, id_in_header=id_in_header)
    async with Producer(one_broker.bootstrap_servers, value_serializer=serializer) as producer:
        await producer.send_and_wait("orders", message, partition=0)

    [record] = one_broker.records("orders", 0)
    assert await read_back(registry, name, record) == message
    assert set(registry.subjects) == {"address.proto", "orders-value"}  # not Protobuf's own


def test_path_of_a_message_is_as_in_java() -> None:
    paths = {name: message_path(kind.DESCRIPTOR) for name, kind in MESSAGES.items()}

    assert paths["shop.Order"] == b"\0"
    assert paths["shop.Other"] == b"\2\2"
    assert paths["shop.Other.Second"] == b"\4\2\2"


async def test_thousand_first_uses_are_one_request(one_broker: FakeCluster, registry: FakeSchemaRegistry) -> None:
    serializer: AvroSerializer[object] = AvroSerializer(AVRO, registry.url)
    async with Producer(one_broker.bootstrap_servers, value_serializer=serializer) as producer:
        calls = [producer.enqueue("orders", {"id": number}, partition=0) for number in range(1_000)]
        await asyncio.gather(*calls)

    assert registry.requests == ONE_REQUEST
    assert [value[5:] for value in values(one_broker, "orders") if value][:3] == [b"\0\0", b"\2\0", b"\4\0"]


@dataclass
class Order:
    id: int
    article: str


async def test_value_is_made_a_dict(one_broker: FakeCluster, registry: FakeSchemaRegistry) -> None:
    avro: AvroSerializer[Order] = AvroSerializer(AVRO, registry.url, to_dict=asdict)
    as_json: JsonSchemaSerializer[Order] = JsonSchemaSerializer(JSON, registry.url, to_dict=asdict, is_key=True)
    async with Producer(one_broker.bootstrap_servers) as producer:
        orders = producer.topic("orders", key=as_json, value=avro)
        await orders.send_and_wait(Order(7, "tea"), key=Order(7, "tea"), partition=0)

    [record] = one_broker.records("orders", 0)
    assert record.key is not None
    assert record.key[5:] == b'{"id":7,"article":"tea"}'
    assert await read_back(registry, "avro", record) == ORDER


@pytest.mark.parametrize(
    "subject, expected",
    [
        ("topic", "orders-value"),
        ("record", "shop.Order"),
        ("topic_record", "orders-shop.Order"),
        (lambda topic, name, is_key: f"{topic}/{name}/{is_key}", "orders/shop.Order/False"),
    ],
)
async def test_subject_follows_the_strategy(registry: FakeSchemaRegistry, subject: object, expected: str) -> None:
    serializer: AvroSerializer[object] = AvroSerializer(AVRO, registry.url, subject=subject)  # type: ignore[call-overload]
    await serializer.prepare("orders")
    await serializer.close()

    assert list(registry.subjects) == [expected]


async def test_options_decide_what_is_asked(registry: FakeSchemaRegistry) -> None:
    async with registered(registry, AVRO):
        for options, requests in (
            ({"normalize": True}, ["POST /subjects/orders-value/versions?normalize=True"]),
            ({"auto_register": False}, ["POST /subjects/orders-value?normalize=False&deleted=False"]),
            ({"use_latest_version": True}, ["GET /subjects/orders-value/versions/latest", "GET /schemas/ids/1"]),
        ):
            registry.requests.clear()
            serializer: AvroSerializer[object] = AvroSerializer(AVRO, registry.url, **options)  # type: ignore[call-overload]
            await serializer.prepare("orders")
            await serializer.close()
            asked = [request.split("?")[0] if "/ids/" in request else request for request in registry.requests]
            assert asked == requests


@contextlib.asynccontextmanager
async def registered(registry: FakeSchemaRegistry, schema: str) -> AsyncIterator[None]:
    serializer: AvroSerializer[object] = AvroSerializer(schema, registry.url)
    await serializer.prepare("orders")
    await serializer.close()
    yield


async def test_latest_schema_needs_no_own(one_broker: FakeCluster, registry: FakeSchemaRegistry) -> None:
    async with registered(registry, AVRO):
        serializer: AvroSerializer[object] = AvroSerializer(None, registry.url, use_latest_version=True)
        async with Producer(one_broker.bootstrap_servers, value_serializer=serializer) as producer:
            await producer.send_and_wait("orders", ORDER, partition=0)

    [record] = one_broker.records("orders", 0)
    assert await read_back(registry, "avro", record) == ORDER


async def test_latest_schema_of_another_format_is_refused(registry: FakeSchemaRegistry) -> None:
    async with registered(registry, AVRO):
        serializer: JsonSchemaSerializer[object] = JsonSchemaSerializer(None, registry.url, use_latest_version=True)
        with pytest.raises(SchemaRegistryError, match="latest schema of subject 'orders-value' is AVRO, not JSON"):
            await serializer.prepare("orders")
        await serializer.close()


ADDRESS = json.dumps({"type": "record", "name": "Address", "fields": [{"name": "town", "type": "string"}]})
ORDER_TO = json.dumps({"type": "record", "name": "OrderTo", "fields": [{"name": "to", "type": "Address"}]})
JSON_ADDRESS = json.dumps({"type": "object", "properties": {"town": {"type": "string"}}})
JSON_ORDER_TO = json.dumps({"type": "object", "properties": {"to": {"$ref": "address.json"}}})


@pytest.mark.parametrize("uses_latest", [False, True])
@pytest.mark.parametrize("kind", ["avro", "json"])
async def test_references_are_registered_and_read_back(
    one_broker: FakeCluster, registry: FakeSchemaRegistry, kind: str, *, uses_latest: bool
) -> None:
    value = {"to": {"town": "Ghent"}}
    schema = (
        Schema(ORDER_TO, "AVRO", (SchemaReference("Address", "address", Schema(ADDRESS, "AVRO")),))
        if kind == "avro"
        else Schema(JSON_ORDER_TO, "JSON", (SchemaReference("address.json", "address", Schema(JSON_ADDRESS, "JSON")),))
    )
    made = AvroSerializer[object] if kind == "avro" else JsonSchemaSerializer[object]
    first = made(schema, registry.url)
    await first.prepare("orders")
    await first.close()
    serializer = made(None, registry.url, use_latest_version=True) if uses_latest else made(schema, registry.url)
    async with Producer(one_broker.bootstrap_servers, value_serializer=serializer) as producer:
        await producer.send_and_wait("orders", value, partition=0)
        with pytest.raises(SerializationError, match="town"):
            await producer.send_and_wait("orders", {"to": {"town": 5}}, partition=0)

    [record] = one_broker.records("orders", 0)
    assert await read_back(registry, kind, record) == value
    assert registry.schemas[1]["references"] == [
        {"name": schema.references[0].name, "subject": "address", "version": 1}
    ]


# Values and schemas that do not fit


@pytest.mark.parametrize(
    "value, names",
    [
        ({"id": "seven"}, r"shop\.Order\.id"),
        ({}, r"shop\.Order\.id"),
        ({"id": 7, "article": 5}, r"shop\.Order\.article"),
        (5, "5"),
    ],
)
async def test_avro_value_that_does_not_fit_names_the_field(  # noqa: PLR0917  # the parts of a row
    one_broker: FakeCluster, registry: FakeSchemaRegistry, value: object, names: str
) -> None:
    serializer: AvroSerializer[object] = AvroSerializer(AVRO, registry.url)
    async with Producer(one_broker.bootstrap_servers, value_serializer=serializer) as producer:
        await serializer.prepare("orders")
        for send in (producer.send, producer.send_and_wait):
            with pytest.raises(SerializationError, match=names) as caught:
                await send("orders", value)

            assert caught.value.outcome is Outcome.NOT_WRITTEN
    assert values(one_broker, "orders") == []


async def test_avro_value_out_of_range_is_refused_if_validated(registry: FakeSchemaRegistry) -> None:
    serializer: AvroSerializer[object] = AvroSerializer(AVRO, registry.url, validate=True)
    await serializer.prepare("orders")
    with pytest.raises(ValueError, match=r"shop\.Order\.id"):
        serializer.serialize("orders", {"id": 2**40})

    assert serializer.serialize("orders", {"id": 1}) == b"\0\0\0\0\1\2\0"
    await serializer.close()


async def test_json_value_that_does_not_fit_names_the_field(registry: FakeSchemaRegistry) -> None:
    serializer: JsonSchemaSerializer[object] = JsonSchemaSerializer(JSON, registry.url)
    unchecked: JsonSchemaSerializer[object] = JsonSchemaSerializer(JSON, registry.url, validate=False)
    await serializer.prepare("orders")
    await unchecked.prepare("orders")
    with pytest.raises(ValueError, match=r"\$\.id: 'seven' is not of type 'integer'"):
        serializer.serialize("orders", {"id": "seven"})

    assert unchecked.serialize("orders", {"id": "seven"}) == b'\0\0\0\0\1{"id":"seven"}'
    await serializer.close()
    await unchecked.close()


async def test_message_of_another_class_is_refused(registry: FakeSchemaRegistry) -> None:
    serializer = ProtobufSerializer(MESSAGES["shop.Order"], registry.url)
    await serializer.prepare("orders")
    with pytest.raises(TypeError, match="expected Order, not Address"):
        serializer.serialize("orders", MESSAGES["shop.Address"]())
    await serializer.close()


@pytest.mark.parametrize(
    "make, kind, message",
    [
        (lambda: AvroSerializer("{", "http://r"), ValueError, "schema: not a valid Avro schema"),
        (lambda: AvroSerializer('{"type": "record"}', "http://r"), ValueError, "not a valid Avro schema: .*name"),
        (lambda: AvroSerializer(ORDER_TO, "http://r"), ValueError, "type 'Address' is not known"),
        (lambda: AvroSerializer(5, "http://r"), TypeError, "schema must be text or a Schema, not int"),  # type: ignore[call-overload]
        (lambda: AvroSerializer(Schema(JSON, "JSON"), "http://r"), ValueError, "schema must be AVRO, not JSON"),
        (lambda: AvroSerializer(None, "http://r"), ValueError, "only with use_latest_version=True"),
        (lambda: AvroSerializer(AVRO, 5), TypeError, "registry must be a URL, a config"),  # type: ignore[call-overload]
        (lambda: ConfluentRegistry(5), TypeError, "registry must be a URL, a mapping"),  # type: ignore[arg-type]
        (lambda: AvroSerializer(AVRO, "http://r", subject="x"), ValueError, "must be one of topic"),  # type: ignore[call-overload]
        (lambda: AvroSerializer('"int"', "http://r", subject="record"), ValueError, "needs a schema whose type has a"),
        (lambda: AvroSerializer(AVRO, "http://r", autoRegister=True), TypeError, "has no option"),  # type: ignore[call-overload]
        (lambda: AvroSerializer(AVRO, "http://r", to_dict=5), TypeError, "to_dict must be a function or None, not int"),  # type: ignore[call-overload]
        (lambda: JsonSchemaSerializer(JSON, "http://r", to_dict=5), TypeError, "to_dict must be a function"),  # type: ignore[call-overload]
        (lambda: JsonSchemaSerializer("{", "http://r"), ValueError, "schema: not JSON"),
        (lambda: JsonSchemaSerializer('{"type": 5}', "http://r"), ValueError, r"not a valid JSON Schema: .*\$\.type"),
        (lambda: ProtobufSerializer(Order, "http://r"), TypeError, "must be a class of Protobuf"),  # type: ignore[type-var]
    ],
)
def test_invalid_argument_is_refused(make: Callable[[], object], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        make()


@pytest.mark.parametrize("wrong", ["false", 1, None])
@pytest.mark.parametrize("make", [AvroSerializer, JsonSchemaSerializer])
def test_option_that_is_not_a_bool_is_refused(make: Callable[..., object], wrong: object) -> None:  # type: ignore[explicit-any]  # of two classes
    for name in ("auto_register", "use_latest_version", "normalize", "id_in_header", "is_key", "validate"):
        with pytest.raises(TypeError, match=f"{name} must be a bool, not {type(wrong).__name__}"):
            make("{}" if make is JsonSchemaSerializer else AVRO, "http://r", **{name: wrong})


@pytest.mark.parametrize(
    "configuration, kind, message",
    [
        ({}, TypeError, "registry: url must be text, not NoneType"),
        ({"url": 5}, TypeError, "registry: url must be text, not int"),
        ("localhost:8081", ValueError, "registry: url must be one or more URLs, http:// or https://, with commas"),
        ("http://r,s", ValueError, "registry: url must be one or more URLs"),
        ({"url": "http://r", "no.such": 1}, ValueError, "registry: .*no.such"),
        ({"url": "http://r", "max.retries": "2"}, TypeError, "registry: max.retries must be a number"),
        (
            {"url": "http://r", "ssl.ca.location": "/no/such"},
            ValueError,
            "FileNotFoundError.* .of ssl.ca.location='/no",
        ),
        ({"url": "http://r", "timeout": "10"}, TypeError, "registry: timeout must be a number of seconds, not str"),
        ("http://r:99999", ValueError, "registry: the port of a url must be a number from 0 to 65535"),
        ("http://a:b@r,http://r2", ValueError, "registry: all URLs must have the same user and password, or none"),
        ({"url": "http://a:b@r", "basic.auth.user.info": "a:b"}, ValueError, "registry: give user and password in url"),
    ],
)
def test_invalid_registry_is_refused(configuration: RegistryArgument, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        AvroSerializer(AVRO, configuration)


async def test_serializer_of_keys_is_not_one_of_values(one_broker: FakeCluster) -> None:
    serializer: AvroSerializer[object] = AvroSerializer(AVRO, "http://localhost:1")
    with pytest.raises(ConfigurationError, match="encodes either keys or values"):
        Producer(one_broker.bootstrap_servers, key_serializer=serializer, value_serializer=serializer)


# Registries in trouble

NO_RETRIES = {"max.retries": 0}


def failing(registry: FakeSchemaRegistry) -> AvroSerializer[object]:
    return AvroSerializer(AVRO, {"url": registry.url, **NO_RETRIES})


@pytest.mark.parametrize(
    "fault, message",
    [
        ((404, {"error_code": 40401, "message": "Subject not found"}), "HTTP 404, error 40401: Subject not found"),
        ((409, {"error_code": 409, "message": "incompatible"}), "subject 'orders-value': .* HTTP 409: incompatible"),
        ((422, {"error_code": 42201, "message": "Invalid schema"}), "HTTP 422, error 42201: Invalid schema"),
        ((500, {"error_code": 50001, "message": "broken"}), "HTTP 500, error 50001: broken"),
        ((500, "text"), "HTTP 500"),
        ((200, {}), "the answer has no id"),
        (b"<html>welcome</html>", "the answer is not JSON; is the URL that of a schema registry"),
        (b"", "the answer is not that of a schema registry; is the URL right"),
        ((200, None), "the answer is not that of a schema registry"),
        ((200, [1]), "the answer is not that of a schema registry"),
        ((502, b"<html>Bad Gateway</html>"), "HTTP 502"),
    ],
)
async def test_bad_answer_is_a_serialization_error_and_forgotten(  # noqa: PLR0917
    one_broker: FakeCluster, registry: FakeSchemaRegistry, fault: object, message: str
) -> None:
    registry.fault = lambda: fault  # type: ignore[assignment]
    async with Producer(one_broker.bootstrap_servers, value_serializer=failing(registry)) as producer:
        for send in (producer.enqueue, producer.send_and_wait):
            with pytest.raises(SerializationError, match=message) as caught:
                await send("orders", ORDER)

            assert caught.value.outcome is Outcome.NOT_WRITTEN
            assert isinstance(caught.value.__cause__, SchemaRegistryError)
            assert len(str(caught.value)) < 600
        registry.fault = None
        await producer.send_and_wait("orders", ORDER)

    assert len(values(one_broker, "orders")) == 1


async def test_slow_registry_blocks_no_one_else(one_broker: FakeCluster, registry: FakeSchemaRegistry) -> None:
    one_broker.create_topic("audit", partitions=1)
    registry.fault = lambda: 0.2
    serializer = failing(registry)
    async with Producer(one_broker.bootstrap_servers, value_serializer=serializer) as producer:
        slow = asyncio.ensure_future(producer.enqueue("orders", ORDER))
        plain = producer.topic("audit", value=bytes)
        written = 0
        while not slow.done():
            await plain.send_and_wait(b"v", partition=0)
            written += 1
            await asyncio.sleep(0.005)

    assert written > 10
    assert values(one_broker, "audit") == [b"v"] * written
    assert registry.requests == ONE_REQUEST


@pytest.mark.parametrize("is_there", [True, False])
async def test_registry_that_never_answers_ends_at_max_block_ms(
    one_broker: FakeCluster, registry: FakeSchemaRegistry, *, is_there: bool
) -> None:
    """Not there, confluent's client tries again for seconds."""
    registry.fault = lambda: 1e3
    url = registry.url if is_there else "http://127.0.0.1:9"
    serializer: AvroSerializer[object] = AvroSerializer(AVRO, url)
    async with Producer(one_broker.bootstrap_servers, value_serializer=serializer, max_block_ms=1_500) as producer:
        await producer.partitions_for("orders")
        calls = [producer.enqueue("orders", ORDER) for _ in range(100)]
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(error) for error in errors} == {SerializationError}
        assert registry.requests == (ONE_REQUEST if is_there else [])
        with pytest.raises(SerializationError):  # asks again
            await producer.enqueue("orders", ORDER)

    assert len(registry.requests) == (2 if is_there else 0)
    assert [task.get_name() for task in asyncio.all_tasks() if "_ask" in repr(task)] == []


async def test_send_says_that_it_cannot_wait(one_broker: FakeCluster, registry: FakeSchemaRegistry) -> None:
    serializer: AvroSerializer[object] = AvroSerializer(AVRO, registry.url)
    async with Producer(one_broker.bootstrap_servers, value_serializer=serializer) as producer:
        with pytest.raises(SerializationError, match="AvroSerializer returned a coroutine"):
            producer.send("orders", ORDER)
        await serializer.prepare("orders", "other")
        await producer.send("orders", ORDER)

    assert registry.requests == [*ONE_REQUEST, "POST /subjects/other-value/versions?normalize=False"]


async def test_password_is_not_shown(one_broker: FakeCluster) -> None:
    url = "http://user:s3cret@127.0.0.1:9"
    serializer: AvroSerializer[object] = AvroSerializer(AVRO, {"url": url, **NO_RETRIES})
    async with Producer(one_broker.bootstrap_servers, value_serializer=serializer) as producer:
        with pytest.raises(SerializationError) as caught:
            await producer.enqueue("orders", ORDER)

    assert "s3cret" not in f"{caught.value} {caught.value!r} {serializer!r} {ConfluentRegistry(url)!r}"


# A client of one's own


class Table:
    """A registry in memory, with the two methods alone."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    async def schema_id(self, subject: str, schema: Schema | None, *, register: bool, normalize: bool) -> SchemaId:
        self.asked.append((subject, schema, register, normalize))
        return SchemaId(258)

    async def schema(self, schema_id: int) -> Schema:
        self.asked.append(schema_id)
        return Schema(AVRO, "AVRO")


@pytest.mark.parametrize("id_in_header", [False, True])
async def test_own_client_of_two_methods_will_do(one_broker: FakeCluster, *, id_in_header: bool) -> None:
    """Without a guid the header has the id itself."""
    table = Table()
    serializer: AvroSerializer[object] = AvroSerializer(AVRO, table, id_in_header=id_in_header)
    async with Producer(one_broker.bootstrap_servers, value_serializer=serializer) as producer:
        await producer.send_and_wait("orders", {"id": 1}, partition=0)

    [record] = one_broker.records("orders", 0)
    frame = b"\0\0\0\1\2"
    assert record.value == (b"\2\0" if id_in_header else frame + b"\2\0")
    assert list(record.headers) == ([("__value_schema_id", frame)] if id_in_header else [])
    assert table.asked == [("orders-value", Schema(AVRO, "AVRO"), True, False)]


async def test_client_of_confluent_stays_open(registry: FakeSchemaRegistry) -> None:
    async with AsyncSchemaRegistryClient({"url": registry.url}) as client:
        for topic in ("orders", "other"):
            serializer: AvroSerializer[object] = AvroSerializer(AVRO, client)
            await serializer.prepare(topic)
            await serializer.close()

    assert list(registry.subjects) == ["orders-value", "other-value"]


async def test_registry_that_was_closed_is_opened_again(registry: FakeSchemaRegistry) -> None:
    """As by a serializer whose first producer has closed it."""
    serializer: AvroSerializer[object] = AvroSerializer(AVRO, registry.url)
    for topic in ("orders", "other"):
        await serializer.prepare(topic)
        await serializer.close()

    assert list(registry.subjects) == ["orders-value", "other-value"]


def test_package_imports_none_of_it() -> None:
    program = (
        "import sys, aioproducer, aioproducer.integrations.schema_registry;"
        "print(sorted({'confluent_kafka', 'fastavro', 'jsonschema', 'google.protobuf', 'httpx2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.timing
async def test_encoding_costs_little_more_than_fastavro() -> None:
    """A known id costs a look-up and five bytes."""
    from io import BytesIO  # noqa: PLC0415  # of this comparison alone
    from time import process_time  # noqa: PLC0415

    from fastavro import parse_schema, schemaless_writer  # noqa: PLC0415

    fields = [{"name": f"field{number}", "type": "string"} for number in range(10)]
    text = json.dumps({"type": "record", "name": "Wide", "fields": fields})
    value = {f"field{number}": "text of some length" for number in range(10)}
    serializer: AvroSerializer[object] = AvroSerializer(text, Table())
    parsed = parse_schema(json.loads(text))

    def plain() -> None:
        out = BytesIO()
        schemaless_writer(out, parsed, value)
        out.getvalue()

    def seconds(call: Callable[[], Awaitable[object] | object]) -> float:
        begin = process_time()
        for _ in range(20_000):
            call()
        return process_time() - begin

    await serializer.prepare("orders")
    pairs = [(seconds(plain), seconds(lambda: serializer.serialize("orders", value))) for _ in range(5)]
    assert min(ours / theirs for theirs, ours in pairs) < 1.3
