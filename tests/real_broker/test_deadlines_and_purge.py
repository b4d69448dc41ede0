"""Real Kafka is frozen: records with deadlines, and purged ones, are in the log as their outcomes say."""

import asyncio

import aiokafka
import pytest

from aioproducer import Delivery, DeliveryTimeoutError, KafkaError, Outcome, Producer, PurgedError
from aioproducer.testing.kafka import KafkaCluster

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

READ_TIMEOUT_S = 30


async def read_until(kafka: KafkaCluster, topic: str, last: bytes) -> list[bytes | None]:
    place = aiokafka.TopicPartition(topic, 0)
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest")
    consumer.assign([place])
    await consumer.start()
    try:
        found: list[bytes | None] = []
        async with asyncio.timeout(READ_TIMEOUT_S):
            while last not in found:
                found += [record.value for record in (await consumer.getmany(place, timeout_ms=1000)).get(place, [])]
    finally:
        await consumer.stop()
    return found


def outcome_of(delivery: Delivery, kind: type[KafkaError]) -> Outcome | None:
    error = delivery.exception()
    assert isinstance(error, kind)
    return error.outcome


@pytest.mark.parametrize("release", ["3.9.1", "4.3.1"])
async def test_log_holds_what_the_outcomes_say(request: pytest.FixtureRequest, topic: str, release: str) -> None:
    """`max_in_flight` is one, so that what follows the first batch is certainly not sent."""
    kafka: KafkaCluster = request.getfixturevalue(f"kafka_{release.replace('.', '')}")
    [node_id] = kafka.node_ids
    async with Producer(kafka.bootstrap_servers, linger_ms=0, max_in_flight_requests_per_connection=1) as producer:
        await producer.send(topic, b"first", partition=0)
        await asyncio.to_thread(kafka.pause, node_id)
        try:
            on_wire = [producer.send(topic, b"on the wire", partition=0, deadline=limit) for limit in (1.0, None)]
            await asyncio.sleep(0.2)
            late = producer.send(topic, b"late", partition=0, deadline=1.0)
            kept = producer.send(topic, b"kept", partition=0)
            await asyncio.wait([late, on_wire[0]])
            purged = producer.send(topic, b"purged", partition=0)
            assert producer.purge() == 2
            after = producer.send(topic, b"after", partition=0)
        finally:
            await asyncio.to_thread(kafka.resume, node_id)
        await asyncio.gather(on_wire[1], after)
        await producer.send(topic, b"last", partition=0)
        assert outcome_of(on_wire[0], DeliveryTimeoutError) is Outcome.UNKNOWN
        assert outcome_of(late, DeliveryTimeoutError) is Outcome.NOT_WRITTEN
        assert [outcome_of(each, PurgedError) for each in (kept, purged)] == [Outcome.NOT_WRITTEN] * 2

    found = await read_until(kafka, topic, b"last")
    assert found == [b"first", b"on the wire", b"on the wire", b"after", b"last"]
