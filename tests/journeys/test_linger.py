"""Lingers, and the hint for callers that await each send."""

import asyncio
from functools import partial

from aioproducer import Producer
from aioproducer.testing import ApiKey, FakeCluster
from tests.fakes.producing import producing
from tests.fakes.virtual_cluster import in_virtual_time

SOON_S = 10  # less than the tenth of `delivery_timeout_ms` after which a batch is closed, however long its linger


def note_time(left: asyncio.Future[float], *_: object) -> None:
    left.set_result(left.get_loop().time())


@in_virtual_time
async def test_lone_records_leave_after_their_linger_each_time() -> None:
    """The timer of an earlier batch of the partition does not count for them."""
    loop = asyncio.get_running_loop()
    took: list[float] = []
    async with producing(FakeCluster(1, topics={"orders": 1}), linger_ms=40) as (_, producer):
        await producer.partitions_for("orders")
        for number in range(4):
            left: asyncio.Future[float] = loop.create_future()
            began = loop.time()
            producer.send("orders", b"%d" % number, partition=0, on_delivery=partial(note_time, left))
            took.append(await left - began)

    assert all(0.039 < seconds < 0.05 for seconds in took), took


async def test_flush_does_not_wait_out_a_linger(cluster: FakeCluster) -> None:
    """Regression in aiokafka: it waited for the linger."""
    async with Producer(cluster.bootstrap_servers, linger_ms=60_000) as producer:
        producer.send("orders", b"x")
        await asyncio.wait_for(producer.flush(), SOON_S)

        assert producer.statistics().records_acknowledged == 1


async def test_awaiting_ends_a_linger(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, linger_ms=60_000) as producer:
        metadata = await asyncio.wait_for(producer.send("orders", b"x"), SOON_S)

    assert metadata.offset == 0


async def test_records_of_one_turn_leave_in_one_batch_although_awaited(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, linger_ms=60_000) as producer:
        await producer.partitions_for("orders")
        await asyncio.gather(*(producer.send("orders", b"x", partition=0) for _ in range(100)))

        assert producer.statistics().batches_sent == 1


@in_virtual_time
async def test_partitions_with_a_trickle_each_share_their_requests() -> None:
    async with (
        FakeCluster(2, topics={"orders": 100}, replication_factor=1) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=50) as producer,
    ):
        await producer.partitions_for("orders")
        for number in range(1_000):
            await producer.enqueue("orders", b"x", partition=number * 37 % 100)
            await asyncio.sleep(0.001)
        await producer.flush()
        requests = sum(request.api is ApiKey.PRODUCE for request in cluster.requests)

        assert producer.statistics().batches_sent > 900
        assert requests <= 2 * (1_000 // 50 + 1)
