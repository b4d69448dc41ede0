"""A producer that sent nothing for a while: what it finds out before it sends again, and does meanwhile."""

import asyncio
from collections.abc import Callable

import pytest

from aioproducer import (
    InvalidPartitionError,
    KafkaError,
    MetadataNotReadyError,
    Partitioner,
    Producer,
    partition_for_key,
)
from aioproducer.cluster import Cluster
from aioproducer.testing import ApiKey, FakeCluster
from tests.fakes.virtual_cluster import ClusterLoop, in_virtual_time


def turns() -> int:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ClusterLoop)
    return loop.turns


def forgetful(cluster: FakeCluster, *, partitioner: Partitioner | None = None) -> Producer:
    """A producer that has forgotten a topic when nothing was sent to it for a minute."""
    return Producer(
        cluster.bootstrap_servers,
        linger_ms=0,
        metadata_max_idle_ms=5_000,
        metadata_max_age_ms=10_000,
        partitioner=partitioner,
    )


@in_virtual_time
async def test_leader_that_died_while_idle_is_replaced_at_once() -> None:
    async with FakeCluster(3) as cluster, Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
        await producer.send("orders", b"1", partition=0)
        await cluster.kill(cluster.leader_of("orders", 0))
        await asyncio.sleep(10)

        metadata = await asyncio.wait_for(producer.send("orders", b"2", partition=0), 5)

        assert metadata.offset == 1


@in_virtual_time
async def test_forgotten_topic_is_asked_for_when_used_again() -> None:
    async with FakeCluster(3) as cluster, forgetful(cluster) as producer:
        await producer.send("idle", b"1", partition=0)
        await asyncio.sleep(60)
        await cluster.kill(cluster.leader_of("idle", 0))
        await asyncio.sleep(60)
        named = [request.size for request in cluster.requests if request.api is ApiKey.METADATA]
        assert named[-1] < named[1]

        metadata = await asyncio.wait_for(producer.send("idle", b"2", partition=0), 5)

        assert metadata.offset == 1


@pytest.mark.parametrize("profile", ["4.3.1", "2.4"])
@in_virtual_time
async def test_topic_recreated_smaller_while_forgotten_takes_all_keys(profile: str) -> None:
    """Keys of removed partitions go to others, or nothing with such a key would ever be delivered."""
    async with (
        FakeCluster(1, topics={"idle": 8}, auto_create_topics=False, profile=profile) as cluster,
        forgetful(cluster) as producer,
    ):
        keys = [b"%d" % number for number in range(20)]
        await asyncio.gather(*(producer.send("idle", b"1", key=key) for key in keys))
        await asyncio.sleep(60)
        cluster.delete_topic("idle")
        cluster.create_topic("idle", 2)
        await asyncio.sleep(60)
        await producer.send("idle", b"2", partition=0)

        sent = [producer.send("idle", b"2", key=key) for key in keys]
        found = await asyncio.wait_for(asyncio.gather(*sent), 5)

        assert {metadata.partition for metadata in found} == {0, 1}


@in_virtual_time
async def test_key_of_a_forgotten_topic_goes_to_its_current_partition() -> None:
    """The topic has more partitions by now; among the old ones a reader by key would not find the record."""
    async with FakeCluster(1, topics={"idle": 2}) as cluster, forgetful(cluster) as producer:
        await producer.send("idle", b"1", key=b"a")
        await asyncio.sleep(60)
        cluster.model.topics.add_partitions(cluster.model.topics.named("idle"), 16)

        found = await asyncio.gather(*(producer.send("idle", b"2", key=key) for key in (b"a", b"b", b"c")))

        assert [metadata.partition for metadata in found] == [partition_for_key(key, 16) for key in (b"a", b"b", b"c")]


@in_virtual_time
async def test_record_refused_after_a_long_pause_delays_no_later_one() -> None:
    """The record was to be placed by old metadata, and its partition does not exist any more."""
    async with FakeCluster(1, topics={"idle": 2}) as cluster, forgetful(cluster) as producer:
        await producer.send("idle", b"1", partition=0)
        await asyncio.sleep(60)
        with pytest.raises(InvalidPartitionError):
            producer.send_nowait("idle", b"2", partition=99)

        metadata = await asyncio.wait_for(producer.send("idle", b"3", partition=0), 5)

        assert metadata.offset == 1
        await asyncio.sleep(1)
        assert (await asyncio.wait_for(producer.send("idle", b"4", partition=0), 5)).offset == 2


@in_virtual_time
async def test_send_nowait_after_a_long_pause_is_accepted() -> None:
    """The record goes by old metadata, or the first one after every pause would be refused."""
    async with FakeCluster(1, topics={"idle": 2}) as cluster, forgetful(cluster) as producer:
        await producer.send("idle", b"1")
        await asyncio.sleep(60)
        assert (await producer.send_nowait("idle", b"2", partition=1)).offset >= 0
        await asyncio.sleep(60)
        waiting = producer.send("idle", b"3", partition=0)

        with pytest.raises(MetadataNotReadyError):
            producer.send_nowait("idle", b"4", partition=0)

        assert (await waiting).partition == 0


@in_virtual_time
async def test_leaderless_partition_without_records_is_not_asked_for() -> None:
    """Its records have failed: else the producer would ask forever, and never forget the topic."""
    async with (
        FakeCluster(2, topics={"orders": 2}, replication_factor=1) as cluster,
        Producer(
            cluster.bootstrap_servers,
            linger_ms=0,
            request_timeout_ms=500,
            delivery_timeout_ms=2_000,
            metadata_max_idle_ms=5_000,
        ) as producer,
    ):
        await producer.send("orders", b"1", partition=0)
        await cluster.kill(cluster.leader_of("orders", 0))
        with pytest.raises(KafkaError):
            await producer.send("orders", b"2", partition=0)
        await asyncio.sleep(20)
        asked = len(cluster.requests)

        await asyncio.sleep(60)

        assert len(cluster.requests) == asked


@in_virtual_time
async def test_partitioner_is_asked_when_a_forgotten_topic_returns() -> None:
    shown: list[int | None] = []

    class Last:
        def partition(self, topic: str, *given: object) -> int:
            cluster = given[-1]
            assert isinstance(cluster, Cluster)
            shown.append(cluster.partition_count(topic))
            return (shown[-1] or 0) - 1

    async with FakeCluster(1, topics={"idle": 3}) as cluster, forgetful(cluster, partitioner=Last()) as producer:
        for _ in range(2):
            assert (await producer.send("idle", b"v")).partition == 2
            await asyncio.sleep(60)

    assert shown == [3, 3]


@in_virtual_time
async def test_partitioned_record_queues_behind_unpartitioned_ones() -> None:
    """Regression: it went into a batch of the old partitions while the others waited for metadata."""

    class First:
        def partition(self, *_: object) -> int:
            return 0

    async with FakeCluster(1, topics={"idle": 3}) as cluster, forgetful(cluster, partitioner=First()) as producer:
        await producer.send("idle", b"before")
        await asyncio.sleep(60)
        producer.send("idle", b"1")
        producer.send("idle", b"2", partition=0)
        given_up = asyncio.ensure_future(producer.enqueue("idle", b"3"))
        await asyncio.sleep(0)
        given_up.cancel()
        await producer.enqueue("idle", b"4", partition=0)
        await (await producer.send_many("idle", [b"5", b"6"], partition=0))

        assert [record.value for record in cluster.records("idle", 0)] == [b"before", b"1", b"2", b"4", b"5", b"6"]
        assert producer.send_nowait("idle", b"7", partition=0) is not None


class ToTheFirst:
    """Sends everything to one partition, so that order can be seen."""

    on_call: Callable[[], object] = staticmethod(lambda: None)

    def partition(self, *_: object) -> int:
        self.on_call()
        return 0


@in_virtual_time
async def test_send_nowait_asks_for_a_forgotten_topic() -> None:
    """Regression: the error said that memory was short, and the topic was never asked for."""
    async with FakeCluster(1, topics={"idle": 3}) as cluster, forgetful(cluster, partitioner=ToTheFirst()) as producer:
        await producer.send("idle", b"before")
        await asyncio.sleep(60)
        with pytest.raises(MetadataNotReadyError):
            producer.send_nowait("idle", b"1")
        await asyncio.sleep(1)
        await producer.send_nowait("idle", b"1")

        await asyncio.sleep(60)
        producer.send("idle", b"2")
        with pytest.raises(MetadataNotReadyError):
            producer.send_nowait("idle", b"3", partition=0)


@in_virtual_time
async def test_partitioner_may_send_while_a_forgotten_topic_returns() -> None:
    """Regression: its record queued behind those still to be partitioned, until the next metadata."""
    partitioner = ToTheFirst()
    async with FakeCluster(1, topics={"idle": 3}) as cluster, forgetful(cluster, partitioner=partitioner) as producer:
        await producer.send("idle", b"before")
        await asyncio.sleep(60)

        def send_another() -> None:
            partitioner.on_call = lambda: None
            producer.send("idle", b"nested", partition=0)

        partitioner.on_call = send_another
        first, second = producer.send("idle", b"1"), producer.send("idle", b"2")
        await asyncio.wait_for(asyncio.gather(first, second, producer.send("idle", b"3", partition=0)), 1)
        await asyncio.wait_for(producer.send("idle", b"4", partition=0), 1)

        assert [record.value for record in cluster.records("idle", 0)] == [b"before", b"1", b"2", b"3", b"nested", b"4"]


@in_virtual_time
async def test_partition_identity_survives_its_topic_being_forgotten() -> None:
    """Else the broker would take the next records for duplicates of the first and drop them."""
    async with FakeCluster(3) as cluster, forgetful(cluster) as producer:
        for number in range(10):
            await producer.send("idle", b"%d" % number, partition=0)
            await asyncio.sleep(60)

        assert [record.value for record in cluster.records("idle", 0)] == [b"%d" % number for number in range(10)]


@in_virtual_time
async def test_hour_without_records_is_a_few_metadata_requests() -> None:
    async with FakeCluster(3) as cluster, Producer(cluster.bootstrap_servers) as producer:
        await producer.send("orders", b"1")
        await producer.flush()
        before = turns()
        await asyncio.sleep(3600)

        assert turns() - before < 400


@in_virtual_time
async def test_minutes_without_brokers_cost_few_attempts() -> None:
    async with FakeCluster(3) as cluster, Producer(cluster.bootstrap_servers, close_timeout_ms=0) as producer:
        await producer.send("orders", b"1")
        for node_id in (1, 2, 3):
            await cluster.kill(node_id)
        before = turns()
        for _ in range(10):
            producer.send("orders", b"2", on_delivery=lambda *_: None)
            await asyncio.sleep(60)

        assert turns() - before < 600 * 40


@in_virtual_time
async def test_unreachable_leader_of_a_waiting_record_is_no_storm() -> None:
    """One node is down and stays leader: metadata is asked for slowly."""
    async with (
        FakeCluster(2, topics={"orders": 2}, replication_factor=1) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0) as producer,
    ):
        await asyncio.gather(*(producer.send("orders", b"1", partition=number) for number in (0, 1)))
        await cluster.kill(cluster.leader_of("orders", 0))
        before = turns(), len(cluster.requests)
        lost = producer.send("orders", b"2", partition=0, on_delivery=lambda *_: None)
        await asyncio.sleep(60)

        assert turns() - before[0] < 60 * 60
        assert len(cluster.requests) - before[1] < 60 * 12
        assert not lost.done()
