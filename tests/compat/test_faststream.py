"""FastStream's broker sends through the stand-in after one assignment, without a change to FastStream."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiokafka
import pytest
from faststream.exceptions import FeatureNotSupportedException
from faststream.kafka import KafkaBroker, KafkaMessage
from faststream.kafka.exceptions import BatchBufferOverflowException

from aioproducer.compat import AIOKafkaProducer
from aioproducer.testing import ApiKey, FakeCluster, Where

NOT_AUTHORIZED = 29


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiokafka, "AIOKafkaProducer", AIOKafkaProducer)


@asynccontextmanager
async def connected(servers: str, **options: object) -> AsyncIterator[KafkaBroker]:
    async with KafkaBroker(servers, logger=logging.getLogger("tests.faststream"), **options) as broker:  # type: ignore[arg-type]
        assert isinstance(broker.config.producer._producer.producer, AIOKafkaProducer)  # noqa: SLF001  # no other way
        yield broker


async def test_publish(one_broker: FakeCluster) -> None:
    async with connected(one_broker.bootstrap_servers) as broker:
        metadata = await broker.publish({"n": 1}, "orders", key=b"k", partition=1, headers={"h": "1"}, timestamp_ms=5)
        future = await broker.publish("text", "orders", partition=1, no_confirm=True)
        unconfirmed = await future
        await broker.publish(None, "orders", key=b"k", partition=1)
        await broker.publisher("orders").publish(b"3", partition=1)

    first, second, third, fourth = one_broker.records("orders", 1)
    assert (metadata.partition, metadata.offset, unconfirmed.offset) == (1, 0, 1)
    assert (first.key, first.value, first.timestamp) == (b"k", b'{"n":1}', 5)
    assert ("h", b"1") in list(first.headers)
    assert [second.value, third.value, fourth.value] == [b"text", None, b"3"]


@pytest.mark.parametrize("partition", [None, 2])
async def test_publish_batch(one_broker: FakeCluster, partition: int | None) -> None:
    async with connected(one_broker.bootstrap_servers) as broker:
        metadata = await broker.publish_batch("1", "2", "3", topic="orders", partition=partition)
        future = await broker.publish_batch("4", topic="orders", partition=metadata.partition, no_confirm=True)
        assert (await future).offset == 3
        with pytest.raises(BatchBufferOverflowException):
            await broker.publish_batch("1", bytes(20_000), topic="orders", partition=partition)

    assert partition in {None, metadata.partition}
    assert [record.value for record in one_broker.records("orders", metadata.partition)] == [b"1", b"2", b"3", b"4"]


async def test_request_is_refused_by_faststream(one_broker: FakeCluster) -> None:
    """FastStream raises its own exception, as over aiokafka: only its test client has requests over Kafka."""
    async with connected(one_broker.bootstrap_servers) as broker:
        with pytest.raises(FeatureNotSupportedException):
            await broker.request("1", "orders")


async def test_ping_and_errors(one_broker: FakeCluster) -> None:
    async with connected(one_broker.bootstrap_servers) as broker:
        assert await broker.ping(timeout=30)
        one_broker.faults.error(NOT_AUTHORIZED, Where(api=ApiKey.PRODUCE))
        with pytest.raises(aiokafka.errors.TopicAuthorizationFailedError):
            await broker.publish("1", "orders", partition=0)
        await broker.stop()
        assert broker.config.producer.closed
        await broker.connect()
        assert (await broker.publish("2", "orders", partition=0)).offset == 0


async def test_transactional_broker(one_broker: FakeCluster) -> None:
    """FastStream passes the options on; its producer has aiokafka's transactions."""
    async with connected(one_broker.bootstrap_servers, transactional_id="billing-1") as broker:
        producer = broker.config.producer._producer.producer  # noqa: SLF001  # as above
        async with producer.transaction():
            await broker.publish("1", "orders", partition=0)

    assert [record.value for record in one_broker.committed_records("orders", 0)] == [b"1"]


async def round_trip(servers: str, topic: str) -> list[str]:
    found: asyncio.Queue[str] = asyncio.Queue()
    broker = KafkaBroker(servers, logger=None)

    @broker.subscriber(topic, group_id=f"{topic}-readers", auto_offset_reset="earliest")
    async def take(body: str, message: KafkaMessage) -> None:
        found.put_nowait(f"{body} {message.headers.get('n')}")

    async with broker, asyncio.timeout(60):
        await broker.start()
        await broker.publish("one", topic, headers={"n": "1"})
        await broker.publish_batch("two", "three", topic=topic, headers={"n": "2"})
        return [await found.get() for _ in range(3)]


@pytest.mark.slow
async def test_subscriber_gets_what_was_published(one_broker: FakeCluster) -> None:
    assert sorted(await round_trip(one_broker.bootstrap_servers, "orders")) == ["one 1", "three 2", "two 2"]


@pytest.mark.kafka
@pytest.mark.slow
async def test_faststream_on_real_kafka(broker_of_release: tuple[str, str], topic: str) -> None:
    _, servers = broker_of_release

    assert sorted(await round_trip(servers, topic)) == ["one 1", "three 2", "two 2"]
    async with connected(servers) as broker:
        assert await broker.ping(timeout=30)
