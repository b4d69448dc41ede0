"""A topic that was created again, and a cluster that was replaced by another."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from aioproducer import (
    BrokerError,
    KafkaError,
    Outcome,
    Producer,
    ProducerFencedError,
    ProducerOptions,
    TransactionAbortableError,
)
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.producing import producing
from tests.fakes.transactional_cluster import (
    Release,
    in_virtual_time_on_every_release,
    one_more,
    transacting,
)
from tests.fakes.virtual_loop import in_virtual_time
from tests.produced import values


@pytest.mark.parametrize("keeps", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("profile", ["4.4.0", "3.9.1"])
@in_virtual_time
async def test_records_go_on_after_their_topic_was_recreated(profile: str, keeps: str) -> None:
    """With and without topic ids: offset 0 of the new log is not taken for that of the old one."""
    async with producing(FakeCluster(1, profile=profile, auto_create_topics=False), linger_ms=0) as (cluster, producer):
        cluster.create_topic("orders", 2, configs={"message.timestamp.type": keeps})
        for _ in range(3):
            await producer.send("orders", b"old", partition=0)
        cluster.delete_topic("orders")
        await asyncio.sleep(0.1)
        cluster.create_topic("orders", 2, configs={"message.timestamp.type": keeps})

        delivered = await asyncio.wait_for(producer.send("orders", b"new", partition=0), 10)

        assert delivered.offset == 0
        assert [record.value for record in cluster.records("orders", 0)] == [b"new"]


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("profile", ["4.4.0", "2.4"])
@in_virtual_time
async def test_records_of_removed_partitions_fail_and_keys_move(profile: str, nodes: int) -> None:
    async with producing(
        FakeCluster(nodes, topics={"orders": 8}, auto_create_topics=False, profile=profile),
        linger_ms=0,
        delivery_timeout_ms=5_000,
        request_timeout_ms=1_000,
    ) as (cluster, producer):
        await asyncio.gather(*(producer.send("orders", b"old", partition=number) for number in range(8)))
        cluster.delete_topic("orders")
        cluster.create_topic("orders", 2)
        lost = producer.send("orders", b"lost", partition=7)
        with pytest.raises(KafkaError, match="made again"):
            await asyncio.wait_for(lost, 4)

        found = await asyncio.wait_for(
            asyncio.gather(*(producer.send("orders", b"x", key=b"%d" % number) for number in range(50))), 4
        )

    assert {metadata.partition for metadata in found} <= {0, 1}


@in_virtual_time
async def test_ambiguous_record_of_a_recreated_topic_ends_unknown() -> None:
    made = FakeCluster(1, topics={"orders": 1}, auto_create_topics=False)
    async with producing(made, linger_ms=0) as (cluster, producer):
        await producer.send("orders", b"old")
        cluster.faults.drop_connection(Where(api=ApiKey.PRODUCE), after_append=True)
        cluster.faults.error(7, Where(api=ApiKey.PRODUCE), times=2)
        delivery = producer.send("orders", b"ambiguous")
        await asyncio.sleep(0.05)
        cluster.delete_topic("orders")
        cluster.create_topic("orders", 1)

        with pytest.raises(KafkaError) as raised:
            await asyncio.wait_for(delivery, 10)

    assert raised.value.outcome is Outcome.UNKNOWN


async def make_again(cluster: FakeCluster) -> None:
    """Delete topic "t" and create it again, before any metadata shows it."""
    cluster.delete_topic("t")
    await asyncio.sleep(0.1)
    cluster.create_topic("t", 2)


when_it_shows = pytest.mark.parametrize("pause_s", [0, 1], ids=["by a record", "by metadata"])


@when_it_shows
@in_virtual_time_on_every_release
async def test_transaction_survives_a_recreated_topic(release: Release, pause_s: int) -> None:
    """Sequences begin at 0 again."""
    async with transacting(release, metadata_max_age_ms=200) as (cluster, producer):
        async with producer.transaction() as txn:
            await asyncio.gather(*(txn.send("t", b"gone", partition=number) for number in (0, 1)))
        await make_again(cluster)
        await asyncio.sleep(pause_s)

        await one_more(producer, cluster)


@when_it_shows
@in_virtual_time_on_every_release
async def test_transaction_whose_records_are_gone_is_not_committed(release: Release, pause_s: int) -> None:
    """Also where only the offset of its next record shows that the log is another one."""
    async with transacting(release, metadata_max_age_ms=200) as (cluster, producer):
        await producer.begin_transaction()
        for _ in range(2):
            await producer.send("t", b"gone", partition=0)
        await make_again(cluster)
        await asyncio.sleep(pause_s)
        if not pause_s:
            await asyncio.gather(producer.send("t", b"never", partition=0), return_exceptions=True)

        with pytest.raises(TransactionAbortableError, match="made again"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        await one_more(producer, cluster)


@pytest.mark.parametrize("profile", ["4.4.0", "3.9.1"])
@in_virtual_time
async def test_old_answer_names_no_leader_of_the_new_topic(profile: str) -> None:
    """The topic is deleted and created again between two Metadata responses: its epochs start again."""
    async with producing(
        FakeCluster(3, topics={"orders": 1}, auto_create_topics=False, profile=profile),
        linger_ms=0,
        metadata_max_age_ms=1_000,
    ) as (cluster, producer):
        for node_id in (2, 3, 1):
            cluster.move_leader("orders", 0, node_id)
        await producer.send("orders", b"old")
        cluster.move_leader("orders", 0, 2)
        cluster.faults.delay(3, Where(api=ApiKey.PRODUCE))
        delivery = producer.send("orders", b"new")
        await asyncio.sleep(0.1)
        cluster.delete_topic("orders")
        cluster.create_topic("orders", 1)
        cluster.move_leader("orders", 0, 3)

        await asyncio.wait_for(delivery, 10)

        assert [record.value for record in cluster.records("orders", 0)] == [b"new"]


@in_virtual_time
async def test_answer_of_the_old_log_lets_nothing_overtake() -> None:
    """The new log does not know the producer, and takes any sequence: its first batch goes alone."""
    async with producing(
        FakeCluster(3, topics={"orders": 1}, auto_create_topics=False),
        linger_ms=0,
        batch_size=2_000,
        metadata_max_age_ms=1_000,
    ) as (cluster, producer):
        await producer.send("orders", b"old")
        leader = cluster.leader_of("orders", 0)
        cluster.faults.delay(3, Where(api=ApiKey.PRODUCE))
        old = producer.send("orders", b"old")
        await asyncio.sleep(0.1)
        cluster.delete_topic("orders")
        cluster.create_topic("orders", 1)
        cluster.move_leader("orders", 0, leader)
        await asyncio.sleep(2)
        cluster.faults.error(19, Where(api=ApiKey.PRODUCE))  # NOT_ENOUGH_REPLICAS, of the first batch
        new = [producer.send("orders", b"%d" % number + bytes(1_500)) for number in range(5)]

        await asyncio.wait_for(asyncio.gather(old, *new), 10)

        assert [record.value[:1] for record in cluster.records("orders", 0)] == [b"0", b"1", b"2", b"3", b"4"]


# The addresses lead to another cluster: it was created again, or they were switched to a standby


TIME_TO_NOTICE_S = 3  # metadata is asked for once a second while no broker answers


TRANSACTIONAL: ProducerOptions = {"linger_ms": 0, "transactional_id": "billing-1"}


def first_cluster(profile: str) -> FakeCluster:
    return FakeCluster(1, topics={"orders": 1}, cluster_id="here", profile=profile)


@asynccontextmanager
async def another_in_place_of(cluster: FakeCluster, profile: str) -> AsyncIterator[FakeCluster]:
    ports = [broker.port for broker in cluster.model.brokers.values()]
    for node_id in list(cluster.model.brokers):
        await cluster.kill(node_id)
    async with FakeCluster(len(ports), ports=ports, topics={"gone": 1}, cluster_id="there", profile=profile) as other:
        other.delete_topic("gone")  # so that topics have other ids than in the cluster before
        other.create_topic("orders", 1)
        yield other


@pytest.mark.parametrize("profile", ["4.4.0", "3.9.1", "2.4"])
@in_virtual_time
async def test_same_producer_id_from_two_clusters_loses_no_record(profile: str) -> None:
    """Under one id a broker takes the records of either for duplicates of the other's, or refuses them."""
    async with producing(first_cluster(profile), linger_ms=0) as (here, producer):
        for _ in range(6):
            await producer.send("orders", b"here")
        async with another_in_place_of(here, profile) as there, Producer(there.bootstrap_servers) as other:
            for _ in range(7):
                await other.send("orders", b"other's")
            await asyncio.sleep(TIME_TO_NOTICE_S)

            for _ in range(3):
                await producer.send("orders", b"there")
                await other.send("orders", b"other's")

            assert sorted(values(there, "orders")) == [b"other's"] * 10 + [b"there"] * 3


@pytest.mark.parametrize("profile", ["4.4.0", "3.9.1"])
@in_virtual_time
async def test_transaction_of_another_cluster_is_not_committed(profile: str) -> None:
    """Half of it would be missing; and the other cluster does not know whether the producer was fenced."""
    async with producing(first_cluster(profile), **TRANSACTIONAL) as (here, producer):
        await producer.begin_transaction()
        await producer.send("orders", b"half")
        async with another_in_place_of(here, profile) as there:
            await asyncio.sleep(TIME_TO_NOTICE_S)
            with pytest.raises(TransactionAbortableError):
                await producer.commit_transaction()
            with pytest.raises(BrokerError, match="INVALID_PRODUCER_ID_MAPPING"):
                await producer.abort_transaction()
            with pytest.raises(BrokerError, match="INVALID_PRODUCER_ID_MAPPING"):
                await producer.begin_transaction()
            new = Producer(there.bootstrap_servers, transactional_id="billing-1")
            async with new, new.transaction() as txn:
                await txn.send("orders", b"whole")

            assert [record.value for record in there.committed_records("orders", 0)] == [b"whole"]


@pytest.mark.parametrize("profile", ["4.4.0", "3.9.1", "2.4"])
@in_virtual_time
async def test_one_id_in_both_clusters_commits_no_foreign_record(profile: str) -> None:
    """The other producer's transaction would be committed with a record of this one in it."""
    async with (
        producing(first_cluster(profile), **TRANSACTIONAL) as (here, producer),
        another_in_place_of(here, profile) as there,
        Producer(there.bootstrap_servers, **TRANSACTIONAL) as other,
    ):
        await asyncio.sleep(TIME_TO_NOTICE_S)
        async with other.transaction() as txn:
            await txn.send("orders", b"other's")
            with suppress(ProducerFencedError, TransactionAbortableError):
                await producer.begin_transaction()
                await producer.send("orders", b"there")
                await producer.flush()

        assert [record.value for record in there.committed_records("orders", 0)] == [b"other's"]


@in_virtual_time
async def test_transactions_use_the_features_of_the_new_cluster() -> None:
    """Each cluster numbers its features by itself: a lower epoch must not count as old."""
    async with first_cluster("4.4.0") as here:
        for level in (0, 2):
            here.finalize_transaction_version(level)
        producer = Producer(here.bootstrap_servers, **TRANSACTIONAL)
        async with producer, another_in_place_of(here, "3.9.1") as there:
            async with Producer(there.bootstrap_servers, transactional_id="billing-1"):
                """There, too, the id has this identity now."""
            await asyncio.sleep(TIME_TO_NOTICE_S)
            async with producer.transaction() as txn:
                await txn.send("orders", b"there")

            assert [record.value for record in there.committed_records("orders", 0)] == [b"there"]


@pytest.mark.parametrize("profile", ["4.4.0", "3.9.1"])
@in_virtual_time
async def test_idle_transactional_producer_fails_in_another_cluster(profile: str) -> None:
    """The producer may have been fenced in the first cluster, whose records the other may have by replication."""
    async with (
        producing(first_cluster(profile), **TRANSACTIONAL) as (here, producer),
        another_in_place_of(here, profile) as there,
    ):
        await asyncio.sleep(TIME_TO_NOTICE_S)
        for _ in range(2):
            with pytest.raises(BrokerError, match="INVALID_PRODUCER_ID_MAPPING"):
                await producer.begin_transaction()

        assert there.records("orders", 0) == []
