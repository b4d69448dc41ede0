"""Which calls of a schema registry are made: one for all callers that wait, and none that registers unasked."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from aioproducer.integrations.schema_registry import (
    AvroSerializer,
    Schema,
    SchemaId,
    SchemaReference,
    SchemaRegistryError,
)
from tests.fakes.schema_registry import FakeSchemaRegistry
from tests.integrations.test_schema_registry import ADDRESS, AVRO, ORDER_TO, Table


@pytest.fixture(name="registry")
async def fixture_registry() -> AsyncIterator[FakeSchemaRegistry]:
    async with FakeSchemaRegistry() as registry:
        yield registry


async def test_references_are_only_looked_up_without_auto_register(
    registry: FakeSchemaRegistry,
) -> None:
    schema = Schema(ORDER_TO, "AVRO", (SchemaReference("Address", "address", Schema(ADDRESS, "AVRO")),))
    strict: AvroSerializer[object] = AvroSerializer(schema, registry.url, auto_register=False)
    with pytest.raises(SchemaRegistryError, match="subject 'address' of the reference 'Address'"):
        await strict.prepare("orders")
    assert registry.subjects == {}

    first: AvroSerializer[object] = AvroSerializer(schema, registry.url)
    await first.prepare("orders")
    await first.close()
    registry.requests.clear()
    await strict.prepare("orders")
    await strict.close()

    paths = [request.split("?")[0] for request in registry.requests]
    assert paths == ["POST /subjects/address", "POST /subjects/orders-value"]


class SlowTable(Table):
    """Answers when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()
        self.cancelled = 0

    async def schema_id(self, subject: str, schema: Schema | None, *, register: bool, normalize: bool) -> SchemaId:
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return await super().schema_id(subject, schema, register=register, normalize=normalize)


async def test_cancelled_caller_leaves_the_schema_to_the_others() -> None:
    table = SlowTable()
    serializer: AvroSerializer[object] = AvroSerializer(AVRO, table)
    callers = [asyncio.ensure_future(serializer.prepare("orders")) for _ in range(3)]
    await asyncio.sleep(0)
    callers[0].cancel()
    await asyncio.wait(callers[:1])
    later = asyncio.ensure_future(serializer.prepare("orders"))
    await asyncio.sleep(0)
    table.may_answer.set()
    await asyncio.gather(*callers[1:], later)

    assert callers[0].cancelled()
    assert (len(table.asked), table.cancelled) == (1, 0)


async def test_schema_that_no_caller_waits_for_is_not_asked_for() -> None:
    table = SlowTable()
    serializer: AvroSerializer[object] = AvroSerializer(AVRO, table)
    callers = [asyncio.ensure_future(serializer.prepare("orders")) for _ in range(2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for caller in callers:
        caller.cancel()
    await asyncio.wait(callers)
    await asyncio.sleep(0)
    assert table.cancelled == 1

    table.may_answer.set()
    await serializer.prepare("orders")
    assert len(table.asked) == 1
