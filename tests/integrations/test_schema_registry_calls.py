"""Which calls of a schema registry are made: one for all callers that wait, of the right subject, and none unasked."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from aioproducer import ConfigurationError, Producer, ProducerConfig, SerializationError
from aioproducer.integrations.schema_registry import (
    AvroSerializer,
    JsonSchemaSerializer,
    Schema,
    SchemaId,
    SchemaReference,
    SchemaRegistryError,
)
from aioproducer.integrations.schema_registry._serializer import RegistrySerializer
from aioproducer.testing import FakeCluster
from tests.fakes.schema_registry import FakeSchemaRegistry, KnownSchemas
from tests.integrations.test_schema_registry import ADDRESS, AVRO, ORDER, ORDER_TO, Table


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


# Keys and values


async def test_key_serializer_prepared_early_asks_again(one_broker: FakeCluster, registry: FakeSchemaRegistry) -> None:
    """What was asked for values is not what keys need."""
    keys: AvroSerializer[object] = AvroSerializer(AVRO, registry.url, id_in_header=True)
    await keys.prepare("orders")
    registry.requests.clear()
    async with Producer(one_broker.bootstrap_servers) as producer:
        await producer.topic("orders", key=keys, value=bytes).send_and_wait(b"v", key=ORDER, partition=0)

    assert [request.split("?")[0] for request in registry.requests] == ["POST /subjects/orders-key/versions"]
    [record] = one_broker.records("orders", 0)
    assert [name for name, _ in record.headers] == ["__key_schema_id"]


async def test_answer_for_values_that_is_late_is_not_for_keys() -> None:
    """The role is decided while the registry is asked."""
    table = SlowTable()
    serializer: AvroSerializer[object] = AvroSerializer(AVRO, table)
    early = asyncio.ensure_future(serializer.prepare("orders"))
    await asyncio.sleep(0)
    serializer.configure(ProducerConfig(bootstrap_servers="b:1"), True)  # as the producer does
    table.may_answer.set()
    await early
    await serializer.prepare("orders")

    assert [asked[0] for asked in table.asked] == ["orders-value", "orders-key"]  # type: ignore[index]


@pytest.mark.parametrize("way", ["option", "prepare"])
async def test_key_serializer_is_prepared_as_one(
    one_broker: FakeCluster, registry: FakeSchemaRegistry, way: str
) -> None:
    if way == "option":
        keys: AvroSerializer[object] = AvroSerializer(AVRO, registry.url, is_key=True)
        await keys.prepare("orders")
    else:
        keys = AvroSerializer(AVRO, registry.url)
        await keys.prepare("orders", is_key=True)
    async with Producer(one_broker.bootstrap_servers, key_serializer=keys) as producer:
        await producer.send("orders", b"v", key=ORDER)
        with pytest.raises(ValueError, match=r"make one for each \(is_key is True for this one\)"):
            await keys.prepare("orders", is_key=False)

    assert list(registry.subjects) == ["orders-key"]


@pytest.mark.parametrize("given", [False, True])
async def test_given_is_key_that_contradicts_the_use_is_refused(*, given: bool) -> None:
    used = "value_serializer" if given else "key_serializer"
    by_option: AvroSerializer[object] = AvroSerializer(AVRO, Table(), is_key=given)
    prepared: AvroSerializer[object] = AvroSerializer(AVRO, Table())
    await prepared.prepare("orders", is_key=given)
    for serializer in (by_option, prepared):
        with pytest.raises(ConfigurationError, match=f"is_key is {given}, but .* encoded: it must be {not given}"):
            Producer("b:1", **{used: serializer})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is_key must be a bool, not int"):
        await prepared.prepare("orders", is_key=1)  # type: ignore[arg-type]


# Functions of the user's


async def later(*_: object) -> str:
    return "x"


@pytest.mark.parametrize(
    "subject, message",
    [
        (lambda *_: None, "subject must return the name of a subject as text: it returned None"),
        (lambda *_: 5, "subject must return the name of a subject as text: it returned 5"),
        (lambda *_: "", "subject must return the name of a subject as text: it returned ''"),
        (lambda *_: later(), "subject must not be async: it is not awaited"),
    ],
)
async def test_subject_that_is_no_text_is_named(one_broker: FakeCluster, subject: object, message: str) -> None:
    table = Table()
    serializer: AvroSerializer[object] = AvroSerializer(AVRO, table, subject=subject)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=message):
        await serializer.prepare("orders")
    async with Producer(one_broker.bootstrap_servers, value_serializer=serializer) as producer:
        with pytest.raises(SerializationError, match=message) as caught:
            await producer.send_and_wait("orders", ORDER)

    assert isinstance(caught.value.__cause__, TypeError)
    assert table.asked == []


@pytest.mark.parametrize("make", [AvroSerializer, JsonSchemaSerializer])
async def test_async_function_is_refused(make: Callable[..., RegistrySerializer[object]]) -> None:  # type: ignore[explicit-any]  # of two classes
    schema = "{}" if make is JsonSchemaSerializer else AVRO
    for name in ("subject", "to_dict"):
        with pytest.raises(TypeError, match=f"{name} must not be async"):
            make(schema, Table(), **{name: later})
    serializer = make(schema, KnownSchemas(), to_dict=lambda _: later())
    await serializer.prepare("orders")
    with pytest.raises(TypeError, match="to_dict must not be async"):
        serializer.serialize("orders", ORDER)
