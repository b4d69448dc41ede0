"""Type checkers see the serializers of `aioproducer.integrations.schema_registry`. Checked, never run."""

from dataclasses import asdict, dataclass
from typing import assert_type

from confluent_kafka.schema_registry import AsyncSchemaRegistryClient

from aioproducer import Producer
from aioproducer.integrations.schema_registry import (
    AvroSerializer,
    ConfluentRegistry,
    JsonSchemaSerializer,
    Schema,
    SchemaId,
    SchemaReference,
)


@dataclass
class Order:
    id: int


class Table:
    """A registry of one's own."""

    async def schema_id(self, subject: str, schema: Schema | None, *, register: bool, normalize: bool) -> SchemaId:
        return SchemaId(len(subject) if schema and register and normalize else 8)

    async def schema(self, schema_id: int) -> Schema:
        return Schema(str(schema_id), "AVRO", (SchemaReference("Address", "address", Schema("{}", "AVRO")),))


def to_dict(order: Order) -> object:
    return asdict(order)


shared = ConfluentRegistry({"url": "http://localhost:8081", "basic.auth.user.info": "key:secret"})
assert_type(AvroSerializer("{}", shared), AvroSerializer[object])
assert_type(AvroSerializer("{}", "http://localhost:8081", to_dict=to_dict), AvroSerializer[Order])
AvroSerializer(None, Table(), use_latest_version=True, subject="topic_record", is_key=True)
JsonSchemaSerializer(Schema("{}", "JSON"), AsyncSchemaRegistryClient({"url": "http://localhost:8081"}), validate=False)
JsonSchemaSerializer("{}", shared, subject=lambda topic, name, is_key: f"{topic}-{name}-{is_key}")
Producer("localhost:9092", value_serializer=AvroSerializer("{}", shared))

AvroSerializer(5, shared)  # type: ignore[call-overload]
AvroSerializer("{}", 5)  # type: ignore[call-overload]
AvroSerializer("{}", shared, id_in_header=1)  # type: ignore[call-overload]
AvroSerializer("{}", shared, subject="other")  # type: ignore[call-overload]
Schema("{}", "XML")  # type: ignore[arg-type]


async def ready(serializer: AvroSerializer[Order]) -> None:
    assert_type(await serializer.prepare("orders", "returns"), None)
    assert_type(await shared.schema(7), Schema)
