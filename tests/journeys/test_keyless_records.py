"""Records that may go to any partition do not follow one another into one that cannot take them."""

import asyncio
from random import Random

import pytest

from aioproducer import KafkaError, Producer
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.virtual_cluster import in_virtual_time

NOT_ENOUGH_REPLICAS = 19
CONCURRENT_TRANSACTIONS = 51
PARTITIONS = 6
RECORDS = 100


def with_choices_of_its_own(producer: Producer) -> Producer:
    """The same in each run: by chance many records may choose the one partition that takes none, one after another."""
    return producer._use_sources(random=Random(1), wall_clock=lambda: 1_700_000_000_000)


async def awaited_one_by_one(producer: Producer) -> list[int | None]:
    """The partition of each record; None: it failed."""
    partitions: list[int | None] = []
    for _ in range(RECORDS):
        try:
            partitions.append((await producer.send("orders", b"v")).partition)
        except KafkaError:
            partitions.append(None)
    return partitions


async def awaited_until(producer: Producer, ends_at: float) -> None:
    """Send one record after another, as a request handler does."""
    while asyncio.get_running_loop().time() < ends_at:
        await producer.send("orders", b"v" * 100)
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("is_adaptive", [True, False])
@in_virtual_time
async def test_one_record_waits_for_a_leader_and_others_go_elsewhere(*, is_adaptive: bool) -> None:
    """The record waits until its deadline, because the only replica of the partition is gone."""
    async with (
        FakeCluster(3, topics={"orders": PARTITIONS}, replication_factor=1) as cluster,
        Producer(
            cluster.bootstrap_servers, linger_ms=0, partitioner_adaptive_partitioning_enable=is_adaptive
        ) as producer,
    ):
        stuck = (await producer.send("orders", b"v")).partition
        await cluster.kill(cluster.leader_of("orders", stuck))

        partitions = await asyncio.wait_for(awaited_one_by_one(producer), 150)

        assert partitions.count(None) == 1
        assert stuck not in partitions


@in_virtual_time
async def test_one_record_waits_for_replicas_others_go_elsewhere() -> None:
    async with (
        FakeCluster(3, topics={"orders": PARTITIONS}) as cluster,
        with_choices_of_its_own(Producer(cluster.bootstrap_servers, linger_ms=0)) as producer,
    ):
        stuck = (await producer.send("orders", b"v")).partition
        where = Where(api=ApiKey.PRODUCE, topic="orders", partition=stuck)
        cluster.faults.error(NOT_ENOUGH_REPLICAS, where, times=None)

        partitions = await asyncio.wait_for(awaited_one_by_one(producer), 500)

        assert partitions.count(None) <= 2  # a record that returns to it by chance waits, too
        assert len(set(partitions) - {None, stuck}) >= 1


@in_virtual_time
async def test_one_record_waits_to_connect_and_others_go_elsewhere() -> None:
    """Only this producer cannot reach the leader: no attempt fails, because there is none."""
    async with (
        FakeCluster(10, topics={"orders": 10}) as cluster,
        with_choices_of_its_own(
            Producer(
                cluster.bootstrap_servers, linger_ms=0, connections_max_idle_ms=5_000, metadata_max_idle_ms=3_600_000
            )
        ) as producer,
    ):
        stuck = (await producer.send("orders", b"v")).partition
        cluster.faults.stall(Where(api=ApiKey.API_VERSIONS, node_id=cluster.leader_of("orders", stuck)))
        await asyncio.sleep(60)

        partitions = await asyncio.wait_for(awaited_one_by_one(producer), 1_000)

        assert 1 <= partitions.count(None) <= 5  # a record that returns to it by chance waits, too
        assert stuck not in partitions


@in_virtual_time
async def test_transaction_waiting_for_markers_keeps_its_partition() -> None:
    """Each further partition needs a marker, and the next transaction would wait for them all."""
    async with (
        FakeCluster(1, topics={"orders": PARTITIONS}) as cluster,
        Producer(cluster.bootstrap_servers, transactional_id="billing-1", linger_ms=0) as producer,
    ):
        cluster.faults.error(CONCURRENT_TRANSACTIONS, Where(api=ApiKey.PRODUCE), times=20)
        async with producer.transaction() as txn:
            deliveries = []
            for _ in range(100):
                deliveries.append(txn.send("orders", b"v"))
                await asyncio.sleep(0.001)
            partitions = {(await delivery).partition for delivery in deliveries}

        assert len(partitions) == 1


async def awaited_with_pauses(producer: Producer) -> set[int | None]:
    """The partitions of records of which each is a choice of its own."""
    partitions: set[int | None] = set()
    for _ in range(RECORDS):
        partitions.add((await producer.send("orders", b"v")).partition)
        await asyncio.sleep(0.2)
    return partitions


@in_virtual_time
async def test_records_stay_in_the_rack_while_it_has_a_leader() -> None:
    async with (
        FakeCluster(3, topics={"orders": PARTITIONS}, racks={1: "a", 2: "b", 3: "c"}) as cluster,
        Producer(cluster.bootstrap_servers, partitioner_rack_aware=True, client_rack="b") as producer,
    ):
        local = {number for number in range(PARTITIONS) if cluster.leader_of("orders", number) == 2}
        keyed = {(await producer.send("orders", b"v", key=b"%d" % number)).partition for number in range(50)}
        before = await awaited_with_pauses(producer)
        await cluster.kill(2)
        meanwhile = await awaited_with_pauses(producer)
        await cluster.restart(2)
        cluster.move_leader("orders", 5, 2)
        await producer.send("orders", b"v", partition=5)  # the response of the old leader names the new one's rack
        after = await awaited_with_pauses(producer)

    assert (len(local), before, keyed) == (2, local, set(range(PARTITIONS)))
    assert (meanwhile, after) == (set(range(PARTITIONS)), {5})


@pytest.mark.parametrize("timeout_ms, least, most", [(0, 100, 130), (1_000, 5, 15)])
@in_virtual_time
async def test_records_leave_a_node_that_takes_none_for_too_long(timeout_ms: int, least: int, most: int) -> None:
    """Without a time-out they join its open batch until that is closed, after a tenth of the delivery time-out."""
    async with (
        FakeCluster(10, topics={"orders": 10}) as cluster,
        with_choices_of_its_own(
            Producer(
                cluster.bootstrap_servers,
                partitioner_availability_timeout_ms=timeout_ms,
                connections_max_idle_ms=5_000,
                metadata_max_idle_ms=3_600_000,
            )
        ) as producer,
    ):
        stuck = (await producer.send("orders", b"v")).partition
        cluster.faults.stall(Where(api=ApiKey.API_VERSIONS, node_id=cluster.leader_of("orders", stuck)))
        await asyncio.sleep(60)

        deliveries = []
        for _ in range(200):
            deliveries.append(producer.send("orders", b"v"))
            await asyncio.sleep(0.1)

        assert least < sum(not delivery.done() for delivery in deliveries) < most
        cluster.faults.clear()
        assert stuck in {(await delivery).partition for delivery in deliveries}
        assert stuck in await awaited_with_pauses(producer)


@pytest.mark.parametrize("is_adaptive, least, most", [(True, 5_000, 50_000), (False, 200, 2_000)])
@in_virtual_time
async def test_awaited_records_do_not_stay_with_a_node_that_is_slow(
    *, is_adaptive: bool, least: int, most: int
) -> None:
    """All callers wait for the slow node, so its queue is as short as the others: only time tells."""
    async with (
        FakeCluster(3, topics={"orders": PARTITIONS}, replication_factor=1) as cluster,
        with_choices_of_its_own(
            Producer(cluster.bootstrap_servers, partitioner_adaptive_partitioning_enable=is_adaptive)
        ) as producer,
    ):
        cluster.faults.delay(0.2, Where(api=ApiKey.PRODUCE, node_id=1), times=None)
        ends_at = asyncio.get_running_loop().time() + 20
        await asyncio.gather(*(awaited_until(producer, ends_at) for _ in range(20)))

        assert least < producer.statistics().records_acknowledged < most
