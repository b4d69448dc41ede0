"""Parts of the tests of exactly-once processing: consumers, producers, and another consumer's view of the output."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import aiokafka
from aiokafka import AIOKafkaConsumer, ConsumerRecord
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from aioproducer import Producer, TopicPartition
from aioproducer.integrations.aiokafka import BatchTransaction, ExactlyOnce, exactly_once

PATIENCE_S = 30.0
GROUP = "workers"


async def make_topics(bootstrap_servers: str, *names: str, partitions: int = 4) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        answer = await admin.create_topics([NewTopic(name, partitions, 1) for name in names])
        assert {code for _, code, *_ in answer.topic_errors} == {0}
        led = 0
        while led < partitions * len(names):
            described = await admin.describe_topics(list(names))
            led = sum(partition["leader"] >= 0 for topic in described for partition in topic["partitions"])
    finally:
        await admin.close()


async def fill(bootstrap_servers: str, topic: str, numbers: Sequence[int], *, partitions: int = 4) -> None:
    async with Producer(bootstrap_servers) as producer:
        for number in numbers:
            await producer.enqueue(topic, b"%d" % number, partition=number % partitions)


@asynccontextmanager
async def consuming(bootstrap_servers: str, topic: str, **options: object) -> AsyncIterator[AIOKafkaConsumer]:
    options = {
        "group_id": f"{GROUP}-{topic}",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "isolation_level": "read_committed",
        "heartbeat_interval_ms": 100,
        "session_timeout_ms": 6_000,
        "fetch_max_wait_ms": 50,
        **options,
    }
    async with AIOKafkaConsumer(topic, bootstrap_servers=bootstrap_servers, **options) as consumer:
        yield consumer


def transacting(bootstrap_servers: str, transactional_id: str, **options: object) -> Producer:
    return Producer(bootstrap_servers, transactional_id=transactional_id, **options)  # type: ignore[arg-type]


async def read_committed(bootstrap_servers: str, topic: str, *, count: int, partitions: int = 4) -> list[int]:
    """Return that many records of a read_committed consumer, and any that follow at once; sorted."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    consumer.assign([aiokafka.TopicPartition(topic, number) for number in range(partitions)])
    values: list[int] = []
    async with consumer, asyncio.timeout(PATIENCE_S):
        while len(values) < count:
            values += _values(await consumer.getmany(timeout_ms=200))
        values += _values(await consumer.getmany(timeout_ms=300))
    return sorted(values)


async def committed_offsets(bootstrap_servers: str, topic: str, *, partitions: int = 4) -> list[int]:
    async with Producer(bootstrap_servers) as producer:
        places = [TopicPartition(topic, number) for number in range(partitions)]
        found = await producer.committed_offsets(f"{GROUP}-{topic}", places)
    return [0 if (offset := found[place]) is None else offset.offset for place in places]


def _values(fetched: dict[object, list[ConsumerRecord]]) -> list[int]:
    return [int(record.value) for records in fetched.values() for record in records]


@asynccontextmanager
async def working(
    bootstrap_servers: str, transactional_id: str = "copy", **limits: object
) -> AsyncIterator[ExactlyOnce]:
    async with (
        consuming(bootstrap_servers, "input") as consumer,
        transacting(bootstrap_servers, transactional_id) as producer,
        exactly_once(consumer, producer, **limits) as batches,  # type: ignore[arg-type]
    ):
        yield batches


async def copy(records: Sequence[ConsumerRecord], txn: BatchTransaction) -> None:
    for record in records:
        await txn.enqueue("output", record.value, partition=record.partition)


async def copy_until_processed(batches: ExactlyOnce, bootstrap_servers: str, total: int) -> int:
    given = 0
    stopping = asyncio.create_task(stop_when_processed(batches, bootstrap_servers, total))
    async for records, txn in batches:
        await copy(records, txn)
        given += len(records)
    await stopping
    return given


async def run_until_processed(
    batches: ExactlyOnce,
    bootstrap_servers: str,
    total: int,
    *,
    transform: Callable[[Sequence[ConsumerRecord], BatchTransaction], Awaitable[object]],
) -> None:
    stopping = asyncio.create_task(stop_when_processed(batches, bootstrap_servers, total))
    await batches.run(transform)
    await stopping


async def stop_when_processed(batches: ExactlyOnce, bootstrap_servers: str, total: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while sum(await committed_offsets(bootstrap_servers, "input")) < total:  # noqa: ASYNC110 - a broker tells only who asks
            await asyncio.sleep(0.05)
    batches.stop()


async def assert_copied_once(bootstrap_servers: str, total: int) -> None:
    assert await read_committed(bootstrap_servers, "output", count=total) == list(range(total))
    assert sum(await committed_offsets(bootstrap_servers, "input")) == total
