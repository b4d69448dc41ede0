"""acks=0 and acks=1: what they promise, and no more."""

import asyncio

import pytest

from aioproducer import KafkaError, Outcome, Producer
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.virtual_cluster import in_virtual_time


@in_virtual_time
async def test_acks_0_records_complete_in_order_without_an_offset() -> None:
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, acks=0, linger_ms=0, batch_size=0) as producer,
    ):
        results = await asyncio.gather(*(producer.send("orders", b"%d" % number) for number in range(100)))
        await producer.flush()
        await asyncio.sleep(1)

        assert {metadata.offset for metadata in results} == {-1}
        assert [record.value for record in cluster.records("orders", 0)] == [b"%d" % number for number in range(100)]


@in_virtual_time
async def test_refusal_nobody_hears_of_only_costs_a_connection() -> None:
    """The broker hangs up; the next records are delivered."""
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, acks=0, linger_ms=0) as producer,
    ):
        await producer.send("orders", b"0")
        cluster.faults.error(29, Where(api=ApiKey.PRODUCE))
        await asyncio.wait([producer.send("orders", b"1")])  # delivered or unknown, as the bytes had left or not
        await asyncio.sleep(1)
        await producer.send("orders", b"2")
        await asyncio.sleep(1)

        assert [record.value for record in cluster.records("orders", 0)] == [b"0", b"2"]


@in_virtual_time
async def test_leader_alone_acknowledges() -> None:
    async with (
        FakeCluster(3, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, acks=1, linger_ms=0) as producer,
    ):
        for node_id in (1, 2, 3):
            if node_id != cluster.leader_of("orders", 0):
                cluster.hold_replication(node_id)

        metadata = await asyncio.wait_for(producer.send("orders", b"x"), 5)

        assert metadata.offset == 0


@in_virtual_time
async def test_all_in_sync_replicas_acknowledge_by_default() -> None:
    async with (
        FakeCluster(3, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0) as producer,
    ):
        follower = cluster.leader_of("orders", 0) % 3 + 1
        cluster.hold_replication(follower)
        delivery = producer.send("orders", b"x")
        await asyncio.sleep(5)
        assert not delivery.done()

        cluster.hold_replication(follower, held=False)

        assert (await delivery).offset == 0


@pytest.mark.parametrize("code", [19, 20])
@in_virtual_time
async def test_too_few_replicas_is_tried_until_there_are_enough(code: int) -> None:
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0) as producer,
    ):
        where = Where(api=ApiKey.PRODUCE)
        faults = cluster.faults
        (faults.error if code == 19 else faults.error_after_append)(code, where, times=5)

        assert (await producer.send("orders", b"x")).offset == 0
        assert len(cluster.records("orders", 0)) == 1


@in_virtual_time
async def test_used_up_retries_end_with_the_outcome_that_is_known() -> None:
    """NOT_WRITTEN after 19, UNKNOWN after 20; the error gives the attempts and the broker's last error."""
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0, retries=2) as producer,
    ):
        outcomes = []
        for code in (19, 20):
            cluster.faults.error(code, Where(api=ApiKey.PRODUCE), times=3)
            with pytest.raises(KafkaError) as raised:
                await producer.send("orders", b"x")
            outcomes.append((raised.value.outcome, raised.value.attempts))

        assert outcomes == [(Outcome.NOT_WRITTEN, 3), (Outcome.UNKNOWN, 3)]
        assert (await producer.send("orders", b"y")).offset == 0
