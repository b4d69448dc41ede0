"""Types of topics with typed keys and values that checkers must accept and infer. Checked, never run."""

from dataclasses import dataclass
from typing import TypedDict, Unpack, assert_type
from uuid import UUID

import msgspec
import pydantic

from aioproducer import (
    BlockingProducer,
    BlockingTopic,
    BooleanSerializer,
    BulkDelivery,
    BulkResult,
    ColumnFields,
    Delivery,
    DoubleSerializer,
    JsonSerializer,
    LongSerializer,
    Producer,
    RecordFields,
    RecordMetadata,
    Serializer,
    Topic,
    TopicOptions,
    UUIDSerializer,
)


@dataclass
class Order:
    id: int


class Model(pydantic.BaseModel):
    id: int


class Struct(msgspec.Struct):
    id: int


class Fields(TypedDict):
    id: int


class OrderSerializer:
    def serialize(self, _topic: str, value: Order, /) -> bytes:
        return b"%d" % value.id


def number_text(number: int) -> bytes:
    return b"%d" % number


def handles(producer: Producer) -> None:
    assert_type(producer.topic("orders", value=Order), Topic[bytes, Order])
    assert_type(producer.topic("orders", key=str, value=Order, headers=[("h", b"1")]), Topic[str, Order])
    assert_type(producer.topic("orders", key=UUID, value=Model), Topic[UUID, Model])
    assert_type(producer.topic("orders", key=bytes, value=Struct), Topic[bytes, Struct])
    assert_type(producer.topic("orders", value=bytes), Topic[bytes, bytes])
    assert_type(producer.topic("orders", key=str, value=bytes), Topic[str, bytes])
    assert_type(producer.topic("orders", value=Fields), Topic[bytes, Fields])
    assert_type(producer.topic("orders", value=dict[str, int]), Topic[bytes, dict[str, int]])
    assert_type(producer.topic("orders", key=number_text, value=OrderSerializer()), Topic[int, Order])
    assert_type(producer.topic("orders", value=JsonSerializer()), Topic[bytes, object])
    assert_type(producer.topic("orders", key=UUIDSerializer(), value=LongSerializer()), Topic[UUID, int])
    assert_type(producer.topic("orders", key=BooleanSerializer(), value=DoubleSerializer()), Topic[bool, float])
    own: Serializer[Order] = OrderSerializer()
    assert_type(producer.topic("orders", value=own), Topic[bytes, Order])
    assert_type(producer.topic("orders", value=bytes, linger_ms=5, compression_type="lz4"), Topic[bytes, bytes])
    options: TopicOptions = {"delivery_timeout_ms": 60_000}
    assert_type(producer.topic("orders", key=str, value=Order, **options), Topic[str, Order])
    producer.topic("orders", value=bytes, linger_ms="5")  # type: ignore[call-overload]
    producer.topic("orders", value=bytes, acks=1)  # type: ignore[call-overload]
    producer.topic("orders")  # type: ignore[call-overload]
    producer.topic("orders", value=5)  # type: ignore[call-overload]


async def buffers(producer: Producer, blocking: BlockingProducer) -> None:
    """A checker takes the one type that a topic names; at run time each of the three is taken."""
    read = producer.topic("orders", key=memoryview, value=bytearray)
    assert_type(await read.send(bytearray(b"v"), key=memoryview(b"k")), RecordMetadata)
    assert_type(await read.send_many([bytearray(b"v")], keys=[memoryview(b"k")]), BulkDelivery)
    blocking.topic("orders", value=memoryview).send(memoryview(b"v"))
    await producer.topic("orders", value=bytes).send(bytes(bytearray(b"v")))
    await producer.topic("orders", value=bytes).send(bytearray(b"v"))  # type: ignore[arg-type]
    blocking.topic("orders", value=bytes).enqueue(memoryview(b"v"))  # type: ignore[arg-type]


async def verbs(orders: Topic[str, Order], order: Order) -> None:
    assert_type(orders.name, str)
    assert_type(orders.send(order), Delivery)
    assert_type(await orders.send(order, key="k", partition=0, timestamp=0, headers=[("h", b"1")]), RecordMetadata)
    assert_type(await orders.send_and_wait(order, key=None), RecordMetadata)
    assert_type(await orders.enqueue(None, key="k"), Delivery)
    assert_type(orders.send_nowait(order, on_delivery=lambda _metadata, _error: None), Delivery)
    assert_type(await orders.send_many([order], keys=iter(["k"])), BulkDelivery)
    assert_type(await orders.partitions_for(), list[int])


async def mistakes(orders: Topic[str, Order], order: Order) -> None:
    orders.send({"id": 7})  # type: ignore[arg-type]
    orders.send(order, key=b"k")  # type: ignore[arg-type]
    await orders.send_and_wait("order")  # type: ignore[arg-type]
    await orders.enqueue(order, key=7)  # type: ignore[arg-type]
    orders.send_nowait(b"")  # type: ignore[arg-type]
    await orders.send_many(["order"])  # type: ignore[list-item]
    await orders.send_many([order], keys=[7])  # type: ignore[list-item]
    orders.send("orders", order)  # type: ignore[arg-type, call-arg]


def blocking(producer: BlockingProducer, order: Order) -> None:
    orders = producer.topic("orders", key=str, value=Order)
    assert_type(orders, BlockingTopic[str, Order])
    assert_type(producer.topic("orders", value=bytes), BlockingTopic[bytes, bytes])
    assert_type(producer.topic("orders", value=Order, linger_ms=5), BlockingTopic[bytes, Order])
    assert_type(orders.send(order, key="k"), RecordMetadata)
    assert_type(orders.send_many([order], keys=["k"]), BulkResult)
    orders.enqueue(order)
    orders.enqueue({"id": 7})  # type: ignore[arg-type]
    orders.send(order, key=b"k")  # type: ignore[arg-type]


async def passed_on(producer: Producer, orders: Topic[str, Order], order: Order) -> None:
    fields: RecordFields[str] = {"key": "k", "partition": 0, "timestamp": 0, "deadline": 1.5}
    assert_type(await orders.send_and_wait(order, **fields), RecordMetadata)
    assert_type(orders.send(order, **fields), Delivery)
    assert_type(await publish(producer, b"v", key=b"k", headers=[("h", None)]), RecordMetadata)
    columns: ColumnFields[str] = {"keys": ["k"], "timestamps": [0], "record_headers": [None]}
    assert_type(await orders.send_many([order], **columns), BulkDelivery)


async def publish(producer: Producer, value: object, **fields: Unpack[RecordFields[object]]) -> RecordMetadata:
    return await producer.send_and_wait("orders", value, **fields)


class Quoting(Producer):
    async def send_and_wait(
        self, topic: str, value: object = None, **fields: Unpack[RecordFields[object]]
    ) -> RecordMetadata:
        return await super().send_and_wait(topic, f'"{value}"', **fields)


async def mistakes_by_name(producer: Producer, orders: Topic[str, Order], order: Order) -> None:
    await producer.send_and_wait("orders", b"v", lane=0)  # type: ignore[call-arg]
    await producer.send_and_wait("orders", b"v", partition="0")  # type: ignore[arg-type]
    await producer.send_and_wait(value=b"v")  # type: ignore[call-arg]
    producer.send_threadsafe("orders", b"v", deadline="1")  # type: ignore[arg-type]
    await producer.send_many("orders", [b"v"], timestamps=0)  # type: ignore[arg-type]
    await producer.send_arrow("orders", [], key=b"k")  # type: ignore[arg-type]
    await orders.send_and_wait(order, key=b"k")  # type: ignore[arg-type]
    await orders.send_and_wait(order, cb=print)  # type: ignore[call-arg]


def blocking_mistakes_by_name(producer: BlockingProducer, orders: BlockingTopic[str, Order], order: Order) -> None:
    producer.enqueue("orders", b"v", lane=0)  # type: ignore[call-arg]
    producer.send("orders", b"v", timestamp="0")  # type: ignore[arg-type]
    orders.send_threadsafe(order, key=b"k")  # type: ignore[arg-type]
    orders.send_many([order], keys=7)  # type: ignore[arg-type]
