"""Transactional producers and read_committed consumers that are not ours, on the embedded cluster and on real Kafka."""

import asyncio
import secrets
from collections.abc import Mapping

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

from tests.contracts.clients import RawClient

PATIENCE_S = 15.0
COMMITS: Mapping[bytes, bool] = {b"one": True, b"two": False, b"three": True}
KEPT = [value for value, is_kept in COMMITS.items() if is_kept]


@pytest.fixture
async def place(broker_of_release: tuple[str, str], topic: str) -> tuple[str, str]:
    _, bootstrap_servers = broker_of_release
    name = f"{topic[:100]}-{secrets.token_hex(3)}"
    client = await RawClient.connect(bootstrap_servers)
    await client.create_topic(name)
    await client.close()
    return bootstrap_servers, name


async def read_by_aiokafka(bootstrap_servers: str, topic: str, isolation: str, *, count: int) -> list[bytes | None]:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id=f"g-{secrets.token_hex(6)}",
        isolation_level=isolation,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            return [(await consumer.getone()).value for _ in range(count)]
    finally:
        await consumer.stop()


def read_by_confluent(bootstrap_servers: str, topic: str, isolation: str, *, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"g-{secrets.token_hex(6)}",
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    try:
        found = []
        while len(found) < count and (message := consumer.poll(PATIENCE_S)) is not None:
            if message.error() is None:
                found.append(message.value())
        return found
    finally:
        consumer.close()


async def write_by_aiokafka(bootstrap_servers: str, topic: str) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers, transactional_id=f"id-{secrets.token_hex(6)}", acks="all"
    )
    await producer.start()
    try:
        for value, is_kept in COMMITS.items():
            await producer.begin_transaction()
            await producer.send_and_wait(topic, value)
            await (producer.commit_transaction() if is_kept else producer.abort_transaction())
    finally:
        await producer.stop()


def write_by_confluent(bootstrap_servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": f"id-{secrets.token_hex(6)}"})
    producer.init_transactions(PATIENCE_S)
    for value, is_kept in COMMITS.items():
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(PATIENCE_S)
        (producer.commit_transaction if is_kept else producer.abort_transaction)(PATIENCE_S)


async def test_aiokafka_writes_and_confluent_reads(place: tuple[str, str]) -> None:
    await write_by_aiokafka(*place)

    committed = await asyncio.to_thread(read_by_confluent, *place, "read_committed", count=len(KEPT))
    everything = await asyncio.to_thread(read_by_confluent, *place, "read_uncommitted", count=len(COMMITS))

    assert (committed, everything) == (KEPT, list(COMMITS))


async def test_confluent_writes_and_aiokafka_reads(place: tuple[str, str]) -> None:
    await asyncio.to_thread(write_by_confluent, *place)

    committed = await read_by_aiokafka(*place, "read_committed", count=len(KEPT))
    everything = await read_by_aiokafka(*place, "read_uncommitted", count=len(COMMITS))

    assert (committed, everything) == (KEPT, list(COMMITS))


async def test_offsets_of_aiokafka_are_committed_with_the_transaction(place: tuple[str, str]) -> None:
    bootstrap_servers, topic = place
    partition, group = TopicPartition(topic, 0), f"g-{secrets.token_hex(6)}"
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, transactional_id=f"id-{secrets.token_hex(6)}")
    await producer.start()
    for offset, is_kept in ((3, True), (8, False)):
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({partition: offset}, group)
        await (producer.commit_transaction() if is_kept else producer.abort_transaction())
    await producer.stop()
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap_servers, group_id=group, enable_auto_commit=False)
    await consumer.start()
    consumer.assign([partition])

    try:
        async with asyncio.timeout(PATIENCE_S):
            assert await consumer.committed(partition) == 3
    finally:
        await consumer.stop()


async def test_confluent_consumer_sends_offsets_to_the_transaction(place: tuple[str, str]) -> None:
    """It passes its group's metadata (KIP-447), so that the coordinator knows it as a member."""
    bootstrap_servers, topic = place
    await write_by_aiokafka(bootstrap_servers, topic)

    def transform() -> int:
        group = f"g-{secrets.token_hex(6)}"
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([topic])
        assert consumer.poll(PATIENCE_S) is not None
        producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": f"id-{group}"})
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        producer.send_offsets_to_transaction(
            consumer.position([ConfluentPartition(topic, 0)]), consumer.consumer_group_metadata(), PATIENCE_S
        )
        producer.commit_transaction(PATIENCE_S)
        (committed,) = consumer.committed([ConfluentPartition(topic, 0)], PATIENCE_S)
        consumer.close()
        return int(committed.offset)

    assert await asyncio.to_thread(transform) == 1


async def test_second_producer_of_confluent_fences_the_first(place: tuple[str, str]) -> None:
    """The first hears of it at its next commit, and nothing of it is read."""
    bootstrap_servers, topic = place

    def story() -> str:
        settings = {"bootstrap.servers": bootstrap_servers, "transactional.id": f"id-{secrets.token_hex(6)}"}
        first, second = Producer(settings), Producer(settings)
        first.init_transactions(PATIENCE_S)
        first.begin_transaction()
        first.produce(topic, b"lost")
        first.flush(PATIENCE_S)
        second.init_transactions(PATIENCE_S)
        second.begin_transaction()
        second.produce(topic, b"kept")
        second.commit_transaction(PATIENCE_S)
        with pytest.raises(KafkaException) as refused:
            first.commit_transaction(PATIENCE_S)
        return str(refused.value.args[0].name())

    fenced = await asyncio.to_thread(story)

    assert fenced in {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}
    assert await asyncio.to_thread(read_by_confluent, *place, "read_committed", count=1) == [b"kept"]
