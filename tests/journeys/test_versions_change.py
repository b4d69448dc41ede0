"""A broker is up- or downgraded, or another one stands behind its address, while a producer is connected to it."""

import asyncio
from dataclasses import replace

import pytest

from aioproducer import Producer
from aioproducer.errors import BrokerError, Outcome
from aioproducer.testing import ApiKey, FakeCluster, Where
from aioproducer.testing.fake_broker.version_profiles import profile_named
from tests.fakes.virtual_cluster import in_virtual_time

PRODUCE = Where(api=ApiKey.PRODUCE)


def versions(cluster: FakeCluster, api: ApiKey = ApiKey.PRODUCE) -> list[int]:
    return [request.version for request in cluster.requests if request.api is api]


@in_virtual_time
async def test_record_goes_in_the_version_that_is_left() -> None:
    """Kafka's own producer fails the record."""
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0) as producer,
    ):
        cluster.faults.error(35, PRODUCE)
        cluster.faults.delay(1.0, PRODUCE)
        delivery = producer.send("orders", b"v")
        await asyncio.sleep(0.5)
        cluster.model.settings = replace(cluster.model.settings, profile=profile_named("2.8"))

        assert (await delivery).offset == 0
        assert versions(cluster) == [13, 9]


@in_virtual_time
async def test_other_requests_are_answered_before_closing() -> None:
    async with (
        FakeCluster(1, topics={"orders": 2}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0, enable_idempotence=False) as producer,
    ):
        await asyncio.gather(*(producer.send("orders", b"0", partition=number) for number in (0, 1)))
        cluster.faults.error(35, PRODUCE)
        cluster.faults.delay(1.0, PRODUCE, skip=1)
        first = producer.send("orders", b"1", partition=0)
        await asyncio.sleep(0)
        second = producer.send("orders", b"1", partition=1)
        await asyncio.gather(first, second)

        assert [cluster.end_offset("orders", number) for number in (0, 1)] == [2, 2]
        assert producer.statistics().records_retried == 1


@in_virtual_time
async def test_broker_that_lists_what_it_refuses_is_asked_a_few_times() -> None:
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0) as producer,
    ):
        fault = cluster.faults.error(35, PRODUCE, times=None)
        with pytest.raises(BrokerError) as raised:
            await producer.send("orders", b"v")
        cluster.faults.remove(fault)

        assert (raised.value.code, raised.value.outcome) == (35, Outcome.NOT_WRITTEN)
        assert len(versions(cluster)) == 1 + 3
        assert (await producer.send("orders", b"w")).offset == 0


@pytest.mark.parametrize("api", [ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID])
@in_virtual_time
async def test_any_broker_requests_use_the_remaining_version(api: ApiKey) -> None:
    async with FakeCluster(1, topics={"orders": 1}) as cluster:
        cluster.faults.error(35, Where(api=api))
        cluster.faults.delay(1.0, Where(api=api))
        producer = Producer(cluster.bootstrap_servers, linger_ms=0)
        starting = asyncio.create_task(producer.start())
        await asyncio.sleep(0.5)
        cluster.model.settings = replace(cluster.model.settings, profile=profile_named("2.1"))
        await starting

        assert (await producer.send("orders", b"v")).offset == 0
        newest, *others = versions(cluster, api)
        assert others
        assert max(others) < newest
        await producer.close()
