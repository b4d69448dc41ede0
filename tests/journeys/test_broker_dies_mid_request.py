"""A broker dies with requests in hand: what it had is sent again, once, in order, and nothing is said too early."""

import asyncio

import pytest

from aioproducer import DeliveryTimeoutError, Outcome, Producer
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.virtual_cluster import in_virtual_time


@in_virtual_time
async def test_unanswered_records_are_written_once_elsewhere_in_order() -> None:
    async with (
        FakeCluster(3, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0, batch_size=0) as producer,
    ):
        await producer.send("orders", b"0")
        leader = cluster.leader_of("orders", 0)
        cluster.faults.stall(Where(api=ApiKey.PRODUCE, node_id=leader))
        deliveries = [producer.send("orders", b"%d" % number) for number in range(1, 30)]
        await asyncio.sleep(1)
        await cluster.kill(leader)
        await asyncio.gather(*deliveries)

        assert [record.value for record in cluster.records("orders", 0)] == [b"%d" % number for number in range(30)]


@in_virtual_time
async def test_copy_is_not_written_when_only_the_answer_was_lost() -> None:
    """The broker knows the sequence, and answers with the offset of the first attempt."""
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0) as producer,
    ):
        await producer.send("orders", b"0")
        cluster.faults.drop_connection(Where(api=ApiKey.PRODUCE), after_append=True)

        metadata = await producer.send("orders", b"1", timestamp=77)

        assert (metadata.offset, metadata.timestamp, metadata.timestamp_type) == (1, 77, 0)
        assert [record.value for record in cluster.records("orders", 0)] == [b"0", b"1"]
        assert producer.statistics().records_retried == 1


@in_virtual_time
async def test_silent_broker_is_given_up_after_the_request_timeout() -> None:
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0, request_timeout_ms=2_000) as producer,
    ):
        await producer.send("orders", b"0")
        cluster.faults.stall(Where(api=ApiKey.PRODUCE), times=1)
        loop = asyncio.get_running_loop()
        began = loop.time()

        await producer.send("orders", b"1")

        assert 2.0 <= loop.time() - began < 4.0
        assert [record.value for record in cluster.records("orders", 0)] == [b"0", b"1"]


@in_virtual_time
async def test_record_in_flight_at_its_deadline_ends_unknown() -> None:
    """Its memory and its sequence stay reserved until the connection is lost."""
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(
            cluster.bootstrap_servers, linger_ms=0, request_timeout_ms=2_000, delivery_timeout_ms=2_000
        ) as producer,
    ):
        await producer.send("orders", b"0")
        stall = cluster.faults.stall(Where(api=ApiKey.PRODUCE))
        first = producer.send("orders", b"1")
        await asyncio.sleep(1)
        second = producer.send("orders", b"2")
        with pytest.raises(DeliveryTimeoutError) as raised:
            await first
        assert raised.value.outcome is Outcome.UNKNOWN
        cluster.faults.remove(stall)
        await asyncio.wait([second])
        third = await producer.send("orders", b"3")

        assert third.offset >= 1
        assert [record.value for record in cluster.records("orders", 0)][-1] == b"3"
        statistics = producer.statistics()
        assert statistics.buffer_available_bytes == statistics.buffer_total_bytes


@in_virtual_time
async def test_later_records_deadline_is_kept_after_a_delivery() -> None:
    """The timer of the first record stands for the whole partition."""
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(
            cluster.bootstrap_servers, linger_ms=0, request_timeout_ms=1_000, delivery_timeout_ms=10_000
        ) as producer,
    ):
        loop = asyncio.get_running_loop()
        await producer.send("orders", b"0")
        await asyncio.sleep(9)
        await cluster.kill(1)
        began = loop.time()
        with pytest.raises(DeliveryTimeoutError) as raised:
            await producer.send("orders", b"1")

        assert 10.0 <= loop.time() - began < 10.1
        assert raised.value.outcome is Outcome.NOT_WRITTEN
