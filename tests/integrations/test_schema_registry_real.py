"""Serializers with a real schema registry: their records are read by Confluent's deserializers, and by Java's."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient
from confluent_kafka.schema_registry.avro import AsyncAvroDeserializer
from confluent_kafka.schema_registry.json_schema import AsyncJSONDeserializer
from confluent_kafka.schema_registry.protobuf import AsyncProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

from aioproducer import Producer
from aioproducer.integrations.schema_registry import (
    AvroSerializer,
    JsonSchemaSerializer,
    ProtobufSerializer,
    Schema,
    SchemaReference,
    SchemaRegistryError,
)
from aioproducer.integrations.schema_registry._serializer import RegistrySerializer
from aioproducer.testing import FakeCluster
from aioproducer.testing.kafka import MissingToolError
from tests.produced import values
from tests.real_registry import RealRegistry, newest_java, registry_folder

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module", name="registry")
def fixture_registry(
    tmp_path_factory: pytest.TempPathFactory, kafka_thread: ThreadPoolExecutor
) -> Iterator[RealRegistry]:
    try:
        java = newest_java()
        folder = kafka_thread.submit(lambda: asyncio.run(registry_folder())).result()
    except MissingToolError as error:
        pytest.skip(str(error))
    log = tmp_path_factory.mktemp("registry") / "registry.log"
    registry = kafka_thread.submit(RealRegistry, folder, java, log).result()  # ends with the thread that starts it
    try:
        registry.wait_until_ready()
        yield registry
    finally:
        registry.stop()


@pytest.fixture(name="topic")
def fixture_topic(request: pytest.FixtureRequest) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


async def sent(cluster: FakeCluster, serializer: RegistrySerializer[object], topic: str, *given: object) -> list[bytes]:
    """Send values, and return their bytes."""
    cluster.create_topic(topic, partitions=1)
    async with Producer(cluster.bootstrap_servers, value_serializer=serializer) as producer:
        for value in given:
            await producer.send_and_wait(topic, value)
    return [value for value in values(cluster, topic) if value is not None]


async def read_by_confluent(
    registry: RealRegistry, topic: str, record: bytes, *, message: type[Message] | None = None
) -> object:
    """Return what the deserializer of the schema's kind reads."""
    context = SerializationContext(topic, MessageField.VALUE)
    settings = {"url": registry.url, "timeout": 20}  # without one it waits without end
    async with AsyncSchemaRegistryClient(settings) as client:
        if message is not None:  # without the client: it asks for a format of which Apicurio returns invalid bytes
            of_messages = await AsyncProtobufDeserializer(message, {"use.deprecated.format": False})
            return await of_messages(record, context)
        if (await client.get_schema(int.from_bytes(record[1:5], "big"))).schema_type == "JSON":
            of_json = await AsyncJSONDeserializer(None, schema_registry_client=client)
            return await of_json(record, context)
        return await (await AsyncAvroDeserializer(client))(record, context)


def avro_record(name: str, *fields: tuple[str, object]) -> str:
    return json.dumps(
        {"type": "record", "name": name, "fields": [{"name": field, "type": kind} for field, kind in fields]}
    )


ORDER = avro_record("shop.Order", ("id", "int"), ("article", ["null", "string"]))
BILL = avro_record("shop.Bill", ("total", "double"))
EVENTS = (
    SchemaReference("shop.Order", "shop.Order", Schema(ORDER, "AVRO")),
    SchemaReference("shop.Bill", "shop.Bill", Schema(BILL, "AVRO")),
)
TEA, PAID = {"id": 7, "article": "tea"}, {"total": 1.5}

AVRO = {
    "record": (Schema(ORDER, "AVRO"), [TEA], ['{"id": 7, "article": "tea"}']),
    "union": (
        Schema('["shop.Order", "shop.Bill"]', "AVRO", EVENTS),
        [TEA, PAID],
        ['{"id": 7, "article": "tea"}', '{"total": 1.5}'],
    ),
    "array": (
        Schema('{"type": "array", "items": "shop.Order"}', "AVRO", EVENTS[:1]),
        [[TEA]],
        ['[{"id": 7, "article": "tea"}]'],
    ),
    "map": (
        Schema('{"type": "map", "values": "shop.Bill"}', "AVRO", EVENTS[1:]),
        [{"a": PAID}],
        ['{a={"total": 1.5}}'],
    ),
    "text": (Schema('"string"', "AVRO"), ["tea"], ["tea"]),
}


@pytest.mark.parametrize("kind", AVRO)
async def test_avro_is_read_by_confluent(  # noqa: PLR0917  # the parts of a row
    one_broker: FakeCluster, registry: RealRegistry, topic: str, kind: str
) -> None:
    schema, given, _ = AVRO[kind]
    records = await sent(one_broker, AvroSerializer(schema, registry.url, validate=True), topic, *given)

    assert [await read_by_confluent(registry, topic, record) for record in records] == given


async def test_avro_name_of_a_reference_is_written(one_broker: FakeCluster, registry: RealRegistry, topic: str) -> None:
    """Neither confluent's deserializer nor Avro 1.12.0 for Java reads such a schema."""
    schema = Schema('"shop.Order"', "AVRO", EVENTS[:1])
    [record] = await sent(one_broker, AvroSerializer(schema, registry.url), topic, TEA)

    assert record[5:] == b"\x0e\2\6tea"


async def test_java_reads_records(one_broker: FakeCluster, registry: RealRegistry, topic: str) -> None:
    """One process for all of them."""
    records: list[tuple[str, bytes]] = []
    for kind, (schema, given, _) in AVRO.items():
        found = await sent(one_broker, AvroSerializer(schema, registry.url), f"{topic}-{kind}", *given)
        records += [("AVRO", record) for record in found]
    for draft in DRAFTS:
        serializer = JsonSchemaSerializer(json.dumps(json_order(draft, {"type": "string"})), registry.url)
        [record] = await sent(one_broker, serializer, f"{topic}-{draft}", {"town": "Ghent"})
        records.append(("JSON", record))

    expected = [text for _, _, by_java in AVRO.values() for text in by_java]
    assert registry.read_by_java(*records) == [*expected, *(['{"town":"Ghent"}'] * len(DRAFTS))]


async def test_avro_bytes_are_read_by_confluent(one_broker: FakeCluster, registry: RealRegistry, topic: str) -> None:
    """Apicurio's deserializer expects a length, which Confluent's serializers do not write."""
    [record] = await sent(one_broker, AvroSerializer('"bytes"', registry.url), topic, b"tea" * 100)

    assert await read_by_confluent(registry, topic, record) == b"tea" * 100


DRAFTS = {
    "draft-04": ("http://json-schema.org/draft-04/schema#", "id"),
    "draft-06": ("http://json-schema.org/draft-06/schema#", "$id"),
    "draft-07": ("http://json-schema.org/draft-07/schema#", "$id"),
    "2019-09": ("https://json-schema.org/draft/2019-09/schema", "$id"),
    "2020-12": ("https://json-schema.org/draft/2020-12/schema", "$id"),
}


def json_order(draft: str, town: dict[str, object]) -> dict[str, object]:
    url, id_keyword = DRAFTS[draft]
    own_id = f"https://example.com/{draft}/order.json"
    return {"$schema": url, id_keyword: own_id, "title": "Order", "properties": {"town": town}}


@pytest.mark.parametrize("draft", DRAFTS)
async def test_json_is_read_by_confluent(  # noqa: PLR0917  # the parts of a row
    one_broker: FakeCluster, registry: RealRegistry, topic: str, draft: str
) -> None:
    """With a reference; relative to the schema's id, confluent's deserializer does not find it."""
    url, id_keyword = DRAFTS[draft]
    address = Schema(json.dumps({"$schema": url, "definitions": {"town": {"type": "string"}}}), "JSON")
    references = (SchemaReference("address.json", f"address-{draft}", address),)
    with_id = json_order(draft, {"$ref": "address.json#/definitions/town"})
    without_id = {name: value for name, value in with_id.items() if name != id_keyword}
    records = []
    for number, order in enumerate((with_id, without_id)):
        serializer = JsonSchemaSerializer(Schema(json.dumps(order), "JSON", references), registry.url)
        records += await sent(one_broker, serializer, f"{topic}-{number}", {"town": "Ghent"})

    assert [record[5:] for record in records] == [b'{"town":"Ghent"}'] * 2
    assert await read_by_confluent(registry, topic, records[1]) == {"town": "Ghent"}


def messages() -> dict[str, type[Message]]:
    """Make classes of a file with a map, whose entry is a message in the descriptor, before other messages."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=5, label=1)
    entry = order.nested_type.add(name="SumsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=5, label=1)
    order.field.add(name="sums", number=2, type=11, label=3, type_name=".shop.Order.SumsEntry")
    order.nested_type.add(name="Line").field.add(name="amount", number=1, type=5, label=1)
    for number in range(64):
        file.message_type.add(name=f"M{number}").field.add(name="id", number=1, type=5, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = ("shop.Order", "shop.Order.Line", "shop.M63")
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names}


MESSAGES = messages()
TEXT = """
syntax = "proto3";
package shop;
message Envelope { string about = 1; }
message Order {
  int32 id = 1;
  map<string, int32> sums = 2;
  message Line { int32 amount = 1; }
}
"""


@pytest.mark.parametrize(
    "name, indexes", [("shop.Order", b"\0"), ("shop.Order.Line", b"\4\0\2"), ("shop.M63", b"\2\x80\1")]
)
@pytest.mark.parametrize("options", [{}, {"normalize": True}])
async def test_protobuf_is_read_by_confluent(  # noqa: PLR0917  # the parts of a row
    one_broker: FakeCluster, registry: RealRegistry, topic: str, name: str, indexes: bytes, options: dict[str, bool]
) -> None:
    message = MESSAGES[name](**({"amount": 7} if name == "shop.Order.Line" else {"id": 7}))
    serializer = ProtobufSerializer(MESSAGES[name], registry.url, **options)  # type: ignore[arg-type]
    [record] = await sent(one_broker, serializer, topic, message)  # type: ignore[arg-type]

    assert record[5:].startswith(indexes)
    assert await read_by_confluent(registry, topic, record, message=MESSAGES[name]) == message


@pytest.mark.parametrize("name, indexes", [("shop.Order", b"\2\2"), ("shop.Order.Line", b"\4\2\0")])
async def test_protobuf_by_the_latest_text_is_read_by_confluent(  # noqa: PLR0917  # the parts of a row
    one_broker: FakeCluster, registry: RealRegistry, topic: str, name: str, indexes: bytes
) -> None:
    """The text has another message first, and no message for the map."""
    number = registry.register(f"{topic}-value", TEXT, "PROTOBUF")
    message = MESSAGES[name](**({"amount": 7} if name == "shop.Order.Line" else {"id": 7}))
    serializer = ProtobufSerializer(MESSAGES[name], registry.url, use_latest_version=True)
    [record] = await sent(one_broker, serializer, topic, message)  # type: ignore[arg-type]

    assert record[:5] == b"\0" + number.to_bytes(4, "big")
    assert record[5:].startswith(indexes)
    assert await read_by_confluent(registry, topic, record, message=MESSAGES[name]) == message


async def test_real_refusal_names_subject_and_cause(registry: RealRegistry, topic: str) -> None:
    serializer = AvroSerializer(ORDER, registry.url, auto_register=False)
    with pytest.raises(SchemaRegistryError, match=f"subject '{topic}-value': the registry answers HTTP 404, error 404"):
        await serializer.prepare(topic)
    await serializer.close()
