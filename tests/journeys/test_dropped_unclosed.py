"""A producer that is dropped without `close`, and the callers that still wait for their records."""

import asyncio
from typing import NamedTuple

import pytest

from aioproducer import BrokerError, Delivery, KafkaError, Outcome, Producer, ProducerClosedError
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.log_capture import LogCapture
from tests.fakes.virtual_cluster import in_virtual_time

PRODUCE = Where(api=ApiKey.PRODUCE)


class LeftWaiting(NamedTuple):
    """What is pending when the producer is dropped; none of it holds the producer."""

    on_wire: asyncio.Future[object]
    in_line: asyncio.Future[object]
    enqueue: asyncio.Future[Delivery]


async def drop_with_records(cluster: FakeCluster) -> LeftWaiting:
    """Drop a producer with a record on the wire, an unawaited one in a wait queue, and a call that waits."""
    producer = await Producer(cluster.bootstrap_servers, linger_ms=0).start()
    await producer.send("orders", b"0")
    cluster.faults.stall(PRODUCE)
    on_wire, in_line = producer.send("orders", b"1"), producer.send("nowhere", b"2")
    left = LeftWaiting(
        asyncio.ensure_future(on_wire),
        asyncio.ensure_future(in_line),
        asyncio.ensure_future(producer.enqueue("no", b"")),
    )
    await asyncio.sleep(0.1)
    with pytest.warns(ResourceWarning, match="was dropped without close"):
        del producer
    return left


@in_virtual_time
async def test_all_who_wait_are_told_when_the_producer_is_dropped() -> None:
    async with FakeCluster(1, topics={"orders": 1}, auto_create_topics=False) as cluster:
        left = await drop_with_records(cluster)

        _, pending = await asyncio.wait(left, timeout=0.1)

        assert not pending
        errors = [each.exception() for each in left]
        assert [type(error) for error in errors] == [ProducerClosedError] * 3
        assert "dropped without close()" in str(errors[0])
        outcomes = [error.outcome for error in errors if isinstance(error, KafkaError)]
        assert outcomes == [Outcome.UNKNOWN, Outcome.NOT_WRITTEN, Outcome.NOT_WRITTEN]


@in_virtual_time
async def test_enqueue_that_is_awaited_after_the_drop_is_refused() -> None:
    """`enqueue` begins to wait when it is awaited, and the producer is gone by then."""
    async with FakeCluster(1, topics={"orders": 1}) as cluster:
        producer = await Producer(cluster.bootstrap_servers).start()
        enqueue = producer.enqueue("nowhere", b"1")
        with pytest.warns(ResourceWarning, match="was dropped without close"):
            del producer
        await asyncio.sleep(0.1)

        with pytest.raises(ProducerClosedError, match="dropped without close"):
            await asyncio.wait_for(enqueue, 10)


@in_virtual_time
async def test_failed_producer_keeps_its_cause_when_dropped() -> None:
    with LogCapture() as log:
        async with FakeCluster(1, topics={"orders": 1}) as cluster:
            producer = await Producer(cluster.bootstrap_servers).start()
            cluster.faults.error(31, PRODUCE)  # CLUSTER_AUTHORIZATION_FAILED
            with pytest.raises(BrokerError):
                await producer.send("orders", b"0")
            with pytest.warns(ResourceWarning, match="was dropped without close"):
                del producer
            await asyncio.sleep(0.1)

    assert len(log.naming("producer_failed")) == 1
