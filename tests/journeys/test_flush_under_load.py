"""A flush waits for exactly the records accepted before it, however many come after."""

import asyncio

import pytest

from aioproducer import Producer
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.virtual_cluster import in_virtual_time

PRODUCE = Where(api=ApiKey.PRODUCE)


@in_virtual_time
async def test_flush_ends_although_records_keep_coming() -> None:
    async with (
        FakeCluster(1, topics={"orders": 3}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=1_000) as producer,
    ):

        async def keep_sending() -> None:
            while True:
                await producer.enqueue("orders", b"x", on_delivery=lambda *_: None)
                await asyncio.sleep(0.001)

        sending = asyncio.ensure_future(keep_sending())
        before = [producer.send("orders", b"b") for _ in range(100)]
        await asyncio.wait_for(producer.flush(), 5)

        assert all(delivery.done() for delivery in before)
        sending.cancel()
        await asyncio.wait([sending])


@in_virtual_time
async def test_later_records_do_not_stand_in_for_an_earlier_one() -> None:
    async with (
        FakeCluster(2, topics={"orders": 2}, replication_factor=1) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0) as producer,
    ):
        await asyncio.gather(*(producer.send("orders", b"0", partition=number) for number in (0, 1)))
        stall = cluster.faults.stall(Where(api=ApiKey.PRODUCE, node_id=cluster.leader_of("orders", 0)))
        early = producer.send("orders", b"early", partition=0)
        flush = asyncio.ensure_future(producer.flush())
        for _ in range(100):
            await producer.send("orders", b"late", partition=1)
        assert not flush.done()

        cluster.faults.remove(stall)
        await flush

        assert early.done()


@in_virtual_time
async def test_split_batch_is_waited_for_to_its_last_part() -> None:
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=1_000) as producer,
    ):
        await producer.partitions_for("orders")
        cluster.faults.error(10, PRODUCE, times=3)
        deliveries = [producer.send("orders", b"x" * 100) for _ in range(64)]
        await producer.flush()

        assert [delivery.result().offset for delivery in deliveries] == list(range(64))


@in_virtual_time
async def test_flush_that_times_out_says_so_and_the_records_go_on() -> None:
    async with FakeCluster(1, topics={"orders": 1}) as cluster, Producer(cluster.bootstrap_servers) as producer:
        stall = cluster.faults.stall(PRODUCE)
        delivery = producer.send("orders", b"x")
        with pytest.raises(TimeoutError, match="not yet acknowledged"):
            await producer.flush(1)
        cluster.faults.remove(stall)

        await producer.flush(1)

        assert delivery.result().offset == 0


@in_virtual_time
async def test_flush_with_nothing_to_do_ends_at_once() -> None:
    async with FakeCluster(1) as cluster, Producer(cluster.bootstrap_servers) as producer:
        await asyncio.wait_for(asyncio.gather(producer.flush(), producer.flush(), producer.flush(0)), 1)
