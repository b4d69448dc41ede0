"""Sessions that end under load, on real brokers: nothing lost, doubled or out of order, and no connection lost."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from aioproducer import Delivery, Producer
from aioproducer.config.producer_options import ProducerOptions
from aioproducer.metrics import ProducerStatistics
from aioproducer.testing.kafka import KafkaCluster

pytestmark = pytest.mark.kafka

SECONDS = 7.0


def producer_for(kafka: KafkaCluster, mechanism: str, **options: object) -> Producer:
    return Producer(**cast("ProducerOptions", kafka.client_options("SASL_PLAINTEXT", mechanism) | options))


def goes_on() -> Callable[[], bool]:
    loop = asyncio.get_running_loop()
    end = loop.time() + SECONDS
    return lambda: loop.time() < end


def check(before: ProducerStatistics, after: ProducerStatistics) -> None:
    assert after.connections_created == before.connections_created
    assert after.records_retried == before.records_retried
    assert after.records_failed == 0
    assert after.reauthentications >= 2


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_many_records_in_flight(kafka_with_sessions: KafkaCluster, mechanism: str) -> None:
    topic = f"load-{mechanism}"
    async with producer_for(kafka_with_sessions, mechanism) as producer:
        await producer.send(topic, b"first", partition=0)
        before, more, deliveries = producer.statistics(), goes_on(), list[Delivery]()
        while more():
            deliveries += [await producer.enqueue(topic, b"x" * 100, partition=0) for _ in range(100)]
            await asyncio.sleep(0.002)
        offsets = [(await delivery).offset for delivery in deliveries]
        check(before, producer.statistics())

    assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512"])
async def test_transactions(kafka_with_sessions: KafkaCluster, mechanism: str) -> None:
    name = f"txn-{mechanism}"
    async with producer_for(kafka_with_sessions, mechanism, transactional_id=name) as producer:
        async with producer.transaction() as txn:
            await txn.send(name, b"first")
        before, more = producer.statistics(), goes_on()
        while more():
            async with producer.transaction() as txn:
                await txn.send(name, b"value")
        after = producer.statistics()
        check(before, after)

    assert after.transactions_aborted == 0


@pytest.mark.parametrize("mechanism", ["PLAIN"])
async def test_records_without_acknowledgement(kafka_with_sessions: KafkaCluster, mechanism: str) -> None:
    topic = f"acks-0-{mechanism}"
    async with producer_for(kafka_with_sessions, mechanism) as producer:
        start = (await producer.send(topic, b"first", partition=0)).offset
    async with producer_for(kafka_with_sessions, mechanism, acks=0, enable_idempotence=False) as producer:
        await producer.send(topic, b"value", partition=0)
        before, more, sent = producer.statistics(), goes_on(), 1
        while more():
            await asyncio.gather(*(producer.send(topic, b"value", partition=0) for _ in range(20)))
            sent += 20
            await asyncio.sleep(0.005)
        await producer.flush()
        check(before, producer.statistics())
    async with producer_for(kafka_with_sessions, mechanism) as producer:
        end = (await producer.send(topic, b"last", partition=0)).offset

    assert end - start - 1 == sent
