"""What librdkafka's own tests hold its producer to, where nothing else here does; each names the test it comes from."""

import asyncio

import pytest

from aioproducer import KafkaError, Outcome, Producer, RecordMetadata
from aioproducer.testing import ApiKey, FakeCluster, Where
from aioproducer.testing.fake_broker.transactions.coordinators import CoordinatorKind
from tests.fakes.transactional_cluster import (
    PRODUCE,
    Release,
    cluster_of,
    committed,
    on_every_release,
    producer_of,
)
from tests.fakes.virtual_cluster import in_virtual_time
from tests.fakes.virtual_loop import virtual_loop
from tests.produced import values


@in_virtual_time
async def test_first_record_of_a_topic_costs_one_metadata_request() -> None:
    """0055_producer_latency_mock: librdkafka asked on a timer, up to a second later."""
    async with (
        FakeCluster(1, auto_create_topics=False) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0) as producer,
    ):
        loop = asyncio.get_running_loop()
        for number in range(50):
            cluster.create_topic(f"topic{number}", 1)
            began = loop.time()
            await producer.send(f"topic{number}", b"x")
            assert loop.time() - began < 0.02
            await asyncio.sleep(0.001)

        assert sum(seen.api is ApiKey.METADATA for seen in cluster.requests) == 51


@pytest.mark.parametrize("unanswered", [1, 2, 3, 4, 5])
@in_virtual_time
async def test_possibly_written_records_lose_none_behind_them(unanswered: int) -> None:
    """0144_idempotence_mock, issue 3584: the first is refused when sent again, and sequences seem to be missing."""
    async with (
        FakeCluster(1, topics={"t": 1}) as cluster,
        Producer(cluster.bootstrap_servers, batch_size=1, linger_ms=0) as producer,
    ):
        await asyncio.gather(*(producer.send("t", b"before") for _ in range(5)))
        stalled = cluster.faults.stall(PRODUCE)
        deliveries = [producer.send("t", b"%d" % number) for number in range(unanswered)]
        await asyncio.sleep(0.25)
        await cluster.kill(1)
        cluster.faults.remove(stalled)
        cluster.faults.error(19, PRODUCE)
        cluster.faults.error(45, PRODUCE, times=4)
        deliveries += [producer.send("t", b"%d" % number) for number in range(unanswered, 5)]
        await cluster.restart(1)

        ends = await asyncio.gather(*deliveries, return_exceptions=True)
        cluster.faults.clear()
        await producer.send("t", b"after")

        written = [number for number, end in enumerate(ends) if isinstance(end, RecordMetadata)]
        doubtful = [end for end in ends if isinstance(end, KafkaError)]
        assert {end.outcome for end in doubtful} <= {Outcome.UNKNOWN}
        assert len(doubtful) <= unanswered
        assert values(cluster, "t")[5:] == [*(b"%d" % number for number in written), b"after"]


@on_every_release
@in_virtual_time
async def test_briefly_missing_topic_loses_no_later_transaction(release: Release) -> None:
    """0105, do_test_topic_disappears_for_awhile: sequences started again, and records were taken for duplicates."""
    async with (
        cluster_of(release, topics={"t": 10}, auto_create_topics=False) as cluster,
        producer_of(cluster, linger_ms=100, metadata_max_age_ms=2_000) as producer,
    ):
        for _ in range(2):
            async with producer.transaction() as txn:
                await asyncio.gather(*(txn.send("t", b"x", partition=number % 10) for number in range(60)))
            denied = cluster.faults.error(3, Where(api=ApiKey.METADATA, topic="t"), times=None)
            await asyncio.sleep(6)
            cluster.faults.remove(denied)

        assert committed(cluster) == [b"x"] * 120


@pytest.mark.parametrize("moves", [False, True], ids=["comes back", "is another one then"])
@on_every_release
@in_virtual_time
async def test_unreachable_group_coordinator_is_tried_again(release: Release, *, moves: bool) -> None:
    """0105, do_test_disconnected_group_coord: librdkafka tried to connect once."""
    async with (
        cluster_of(release, 3, topics={"t": 1, "source": 1}) as cluster,
        producer_of(cluster) as producer,
    ):
        cluster.move_coordinator("billing-1", 1)
        cluster.move_coordinator("readers", 2, kind=CoordinatorKind.GROUP)
        cluster.move_leader("t", 0, 3)
        await producer.begin_transaction()
        await producer.send("t", b"x", partition=0)
        address = "127.0.0.1", cluster.model.brokers[2].port
        stopped = virtual_loop().servers.pop(address)
        cluster.faults.drop_connection(Where(node_id=2), times=None)
        sending = asyncio.create_task(producer.send_offsets({("source", 0): 1}, "readers"))
        await asyncio.sleep(3)
        assert not sending.done()

        if moves:
            cluster.move_coordinator("readers", 3, kind=CoordinatorKind.GROUP)
        else:
            cluster.faults.clear()
            virtual_loop().servers[address] = stopped
        await asyncio.wait_for(sending, 3)
        await producer.commit_transaction()

        assert committed(cluster) == [b"x"]


@pytest.mark.parametrize("nodes", [1, 3])
@in_virtual_time
async def test_brokers_at_new_addresses_get_the_waiting_records(nodes: int) -> None:
    """0149 and 0151: a node is its id at any address, and one that left may return while it is being closed."""

    def first_broker() -> asyncio.Protocol | asyncio.BufferedProtocol:
        listening = loop.servers.get(("127.0.0.1", cluster.model.brokers[1].port))
        if listening is None:
            raise ConnectionRefusedError(111, "Connection refused")
        return listening()

    loop = virtual_loop()
    async with FakeCluster(nodes, topics={"t": 3}, replication_factor=1) as cluster:
        loop.servers["seed", 9092] = first_broker
        async with Producer("seed:9092", linger_ms=0) as producer:
            for node_id in range(1, nodes + 1):
                stalled = cluster.faults.stall(Where(api=ApiKey.PRODUCE, node_id=node_id))
                deliveries = [producer.send("t", b"on the wire", partition=number) for number in range(3)]
                await asyncio.sleep(0.1)
                await cluster.kill(node_id)
                cluster.faults.remove(stalled)
                cluster.model.brokers[node_id].port += 1000
                deliveries += [producer.send("t", b"waiting", partition=number) for number in range(3)]
                await asyncio.sleep(3)
                await cluster.restart(node_id)
                await asyncio.wait_for(asyncio.gather(*deliveries), 3)

            assert values(cluster, "t") == [b"on the wire", b"waiting"] * nodes * 3
