"""Type checkers see what `integrations.asgi` and `integrations.schema_registry` give. Checked, never run."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass
from typing import assert_type

from confluent_kafka.schema_registry import AsyncSchemaRegistryClient
from fastapi import FastAPI, Request
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from aioproducer import BlockingProducer, Producer
from aioproducer.integrations.asgi import deadline, inspector, lifespan, readiness
from aioproducer.integrations.schema_registry import (
    AvroSerializer,
    ConfluentRegistry,
    JsonSchemaSerializer,
    Schema,
    SchemaId,
    SchemaReference,
)

producer = Producer("localhost:9092")
blocking = BlockingProducer("localhost:9092")


@asynccontextmanager
async def with_state(app: FastAPI) -> AsyncIterator[Mapping[str, object]]:
    yield {"title": app.title}


routes = [Route("/ready", readiness(producer, blocking)), Mount("/producer", inspector(producer, blocking))]
FastAPI(lifespan=lifespan(producer), routes=routes)
FastAPI(lifespan=lifespan(producer, wait=False, then=with_state))
Starlette(lifespan=lifespan(producer))
assert_type(lifespan(producer), Callable[[object], AbstractAsyncContextManager[None]])

lifespan(blocking)  # type: ignore[call-overload]
lifespan(producer, wait="no")  # type: ignore[call-overload]
readiness("localhost:9092")  # type: ignore[arg-type]


def handler(request: Request) -> None:
    assert_type(deadline(request), float | None)
    assert_type(deadline(request.scope, at_most=5, headers=["x-budget-ms"]), float | None)
    deadline(request, at_most="5")  # type: ignore[arg-type]


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
