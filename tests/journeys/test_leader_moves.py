"""A partition gets another leader while records are on their way."""

import asyncio

import pytest

from aioproducer import Producer
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.virtual_cluster import in_virtual_time


def other_node(cluster: FakeCluster, partition: int) -> int:
    return cluster.leader_of("orders", partition) % 3 + 1


@pytest.mark.parametrize("profile", ["4.3.1", "3.9.1"])
@in_virtual_time
async def test_records_follow_the_leader_in_order(profile: str) -> None:
    """With and without hints in the response, and without an error for any caller."""
    async with (
        FakeCluster(3, topics={"orders": 1}, profile=profile) as cluster,
        Producer(cluster.bootstrap_servers, batch_size=100, linger_ms=0) as producer,
    ):
        deliveries = []
        for number in range(300):
            deliveries.append(await producer.enqueue("orders", b"%d" % number))
            if number % 50 == 25:
                await asyncio.sleep(0.001)
                cluster.move_leader("orders", 0, other_node(cluster, 0))
        offsets = [metadata.offset for metadata in await asyncio.gather(*deliveries)]

        assert offsets == list(range(300))
        assert [record.value for record in cluster.records("orders", 0)] == [b"%d" % number for number in range(300)]


@in_virtual_time
async def test_leader_named_by_the_answer_is_used_at_once() -> None:
    """KIP-951: neither metadata nor the retry backoff is waited for."""
    async with (
        FakeCluster(3, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0, retry_backoff_ms=900) as producer,
    ):
        loop = asyncio.get_running_loop()
        for _ in range(2):
            await producer.send("orders", b"x")
            cluster.move_leader("orders", 0, other_node(cluster, 0))
        began = loop.time()
        await producer.send("orders", b"x")

        assert loop.time() - began < 0.1


@in_virtual_time
async def test_new_leader_waits_for_the_old_ones_answer() -> None:
    async with (
        FakeCluster(3, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0, request_timeout_ms=5_000) as producer,
    ):
        await producer.send("orders", b"0")
        old = cluster.leader_of("orders", 0)
        stall = cluster.faults.stall(Where(api=ApiKey.PRODUCE, node_id=old))
        first = producer.send("orders", b"1")
        await asyncio.sleep(0.1)
        cluster.move_leader("orders", 0, other_node(cluster, 0))
        await producer.partitions_for("elsewhere")  # metadata with the new leader
        second = producer.send("orders", b"2")
        await asyncio.sleep(1)
        assert not second.done()

        cluster.faults.remove(stall)
        await asyncio.gather(first, second)

        assert [record.value for record in cluster.records("orders", 0)] == [b"0", b"1", b"2"]


@pytest.mark.slow
@in_virtual_time
async def test_many_leader_changes_cost_few_metadata_requests() -> None:
    async with (
        FakeCluster(3, topics={"wide": 3000}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0) as producer,
    ):
        await asyncio.gather(*(producer.send("wide", b"1", partition=number) for number in range(3000)))
        asked = sum(request.api is ApiKey.METADATA for request in cluster.requests)
        await cluster.kill(2)
        await asyncio.gather(*(producer.send("wide", b"2", partition=number) for number in range(3000)))

        assert sum(request.api is ApiKey.METADATA for request in cluster.requests) - asked < 10
