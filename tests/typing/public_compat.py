"""Types of the stand-in for aiokafka's producer that checkers must accept and infer. Checked, never run."""

import asyncio
import json
from dataclasses import dataclass
from typing import assert_type

import aiokafka

from aioproducer import RecordMetadata, TopicPartition
from aioproducer.compat import AIOKafkaProducer, BatchBuilder


@dataclass
class Order:
    id: int


def order_bytes(order: Order) -> bytes:
    return b"%d" % order.id


class FieldsSerializer:
    def __call__(self, fields: dict[str, int]) -> bytes:
        return json.dumps(fields).encode()


def choose_by_key(key: bytes, _every: list[int], available: list[int]) -> int:
    """Choose for a program whose records all have keys."""
    return available[key[0] % len(available)]


def serializers() -> None:
    """Functions that take their own types: aiokafka has no types, so a checker has let them pass."""
    AIOKafkaProducer(key_serializer=str.encode, value_serializer=order_bytes)
    AIOKafkaProducer(value_serializer=FieldsSerializer(), partitioner=choose_by_key)
    AIOKafkaProducer(key_serializer=bytes, value_serializer=lambda order: b"%d" % order.id)
    BatchBuilder(1024, key_serializer=str.encode, value_serializer=order_bytes)
    AIOKafkaProducer(value_serializer=b"v")  # type: ignore[arg-type]
    AIOKafkaProducer(key_serializer=lambda: b"k")  # type: ignore[arg-type, misc]


def choose(key: bytes | None, every: list[int], available: list[int]) -> int:
    """Choose a partition as aiokafka asks for it."""
    return available[0] if key is None else every[-1]


async def program() -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=["a:9092", "b:9092"],
        acks="all",
        compression_type="gzip",
        enable_idempotence=True,
        transactional_id="billing-1",
        transaction_timeout_ms=60_000,
        key_serializer=lambda key: str(key).encode(),
        value_serializer=lambda value: json.dumps(value).encode(),
        partitioner=choose,
    ) as producer:
        assert_type(producer, AIOKafkaProducer)
        future = await producer.send("orders", {"id": 7}, "k", 0, 5, [("h", b"1")])
        assert_type(future, asyncio.Future[RecordMetadata])
        assert_type(await future, RecordMetadata)
        assert_type(await asyncio.gather(future, future), tuple[RecordMetadata, RecordMetadata])
        assert_type(await producer.send_and_wait("orders", value=b"v", key=b"k", timestamp_ms=5), RecordMetadata)
        assert_type(await producer.partitions_for("orders"), set[int])
        assert_type(await producer.flush(), None)
        await batches(producer)
        await transactions(producer)


async def transactions(producer: AIOKafkaProducer) -> None:
    """Transactions by the block and by the methods; offsets as aiokafka takes them."""
    async with producer.transaction():
        await producer.send("orders", b"v")
        await producer.send_offsets_to_transaction({TopicPartition("orders", 0): 5}, "billing")
    offsets: dict[aiokafka.TopicPartition, int] = {aiokafka.TopicPartition("orders", 0): 5}
    assert_type(await producer.begin_transaction(), None)
    assert_type(await producer.send_offsets_to_transaction(offsets, group_id="billing"), None)
    await producer.send_offsets_to_transaction({aiokafka.TopicPartition("orders", 0): (5, "five")}, "billing")
    assert_type(await producer.commit_transaction(), None)
    assert_type(await producer.abort_transaction(), None)
    await producer.send_offsets_to_transaction({"orders": 5}, "billing")  # type: ignore[dict-item]


async def batches(producer: AIOKafkaProducer) -> None:
    batch = producer.create_batch()
    assert_type(batch, BatchBuilder)
    appended = batch.append(timestamp=None, key=b"k", value=b"v")
    if appended is not None:
        assert_type(appended.offset, int)
    assert_type(await producer.send_batch(batch, "orders", partition=0), asyncio.Future[RecordMetadata])


def mistakes() -> None:
    AIOKafkaProducer("localhost:9092")  # type: ignore[arg-type, call-arg]
    AIOKafkaProducer(linger=5)  # type: ignore[call-arg]
    AIOKafkaProducer(acks=5)  # type: ignore[arg-type]
