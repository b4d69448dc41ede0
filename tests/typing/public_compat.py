"""What type checkers must accept and know of the stand-in for aiokafka's producer. Checked, never run."""

import asyncio
import json
from typing import assert_type

from aioproducer import RecordMetadata
from aioproducer.compat import AIOKafkaProducer, BatchBuilder


def choose(key: bytes | None, every: list[int], available: list[int]) -> int:
    """Choose a partition as aiokafka asks for it."""
    return available[0] if key is None else every[-1]


async def program() -> None:
    """As written for aiokafka."""
    async with AIOKafkaProducer(
        bootstrap_servers=["a:9092", "b:9092"],
        acks="all",
        compression_type="gzip",
        enable_idempotence=True,
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


async def batches(producer: AIOKafkaProducer) -> None:
    """Made by hand."""
    batch = producer.create_batch()
    assert_type(batch, BatchBuilder)
    appended = batch.append(timestamp=None, key=b"k", value=b"v")
    if appended is not None:
        assert_type(appended.offset, int)
    assert_type(await producer.send_batch(batch, "orders", partition=0), asyncio.Future[RecordMetadata])


def mistakes() -> None:
    """What must not pass."""
    AIOKafkaProducer("localhost:9092")  # type: ignore[arg-type, call-arg]
    AIOKafkaProducer(linger=5)  # type: ignore[call-arg]
    AIOKafkaProducer(acks=5)  # type: ignore[arg-type]
