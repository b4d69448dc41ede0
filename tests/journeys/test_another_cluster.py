"""The addresses lead to another cluster: it was created again, or they were switched to a standby."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from aioproducer import BrokerError, Producer, ProducerFencedError, TransactionAbortableError
from aioproducer.testing import FakeCluster
from tests.fakes.virtual_cluster import in_virtual_time
from tests.produced import values

TIME_TO_NOTICE_S = 3
"""Metadata is asked for once a second while no broker answers."""


@asynccontextmanager
async def another_in_place_of(cluster: FakeCluster, profile: str) -> AsyncIterator[FakeCluster]:
    """Stop a cluster, and run another one at its address, in which producer ids start again."""
    ports = [broker.port for broker in cluster.model.brokers.values()]
    for node_id in list(cluster.model.brokers):
        await cluster.kill(node_id)
    async with FakeCluster(len(ports), ports=ports, topics={"gone": 1}, cluster_id="there", profile=profile) as other:
        other.delete_topic("gone")  # so that topics have other ids than in the cluster before
        other.create_topic("orders", 1)
        yield other


@pytest.mark.parametrize("profile", ["4.3.1", "3.9.1", "2.4"])
@in_virtual_time
async def test_same_producer_id_from_two_clusters_loses_no_record(profile: str) -> None:
    """Under one id a broker takes the records of either for duplicates of the other's, or refuses them."""
    async with (
        FakeCluster(1, topics={"orders": 1}, cluster_id="here", profile=profile) as here,
        Producer(here.bootstrap_servers, linger_ms=0) as producer,
    ):
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


@pytest.mark.parametrize("profile", ["4.3.1", "3.9.1"])
@in_virtual_time
async def test_transaction_of_another_cluster_is_not_committed(profile: str) -> None:
    """Half of it would be missing; and the other cluster does not know whether the producer was fenced."""
    async with (
        FakeCluster(1, topics={"orders": 1}, cluster_id="here", profile=profile) as here,
        Producer(here.bootstrap_servers, linger_ms=0, transactional_id="billing-1") as producer,
    ):
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


@pytest.mark.parametrize("profile", ["4.3.1", "3.9.1", "2.4"])
@in_virtual_time
async def test_one_id_in_both_clusters_commits_no_foreign_record(profile: str) -> None:
    """The other producer's transaction would be committed with a record of this one in it."""
    async with (
        FakeCluster(1, topics={"orders": 1}, cluster_id="here", profile=profile) as here,
        Producer(here.bootstrap_servers, linger_ms=0, transactional_id="billing-1") as producer,
        another_in_place_of(here, profile) as there,
        Producer(there.bootstrap_servers, linger_ms=0, transactional_id="billing-1") as other,
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
    async with FakeCluster(1, topics={"orders": 1}, cluster_id="here") as here:
        for level in (0, 2):
            here.finalize_transaction_version(level)
        producer = Producer(here.bootstrap_servers, linger_ms=0, transactional_id="billing-1")
        async with producer, another_in_place_of(here, "3.9.1") as there:
            async with Producer(there.bootstrap_servers, transactional_id="billing-1"):
                """There, too, the id has this identity now."""
            await asyncio.sleep(TIME_TO_NOTICE_S)
            async with producer.transaction() as txn:
                await txn.send("orders", b"there")

            assert [record.value for record in there.committed_records("orders", 0)] == [b"there"]


@pytest.mark.parametrize("profile", ["4.3.1", "3.9.1"])
@in_virtual_time
async def test_idle_transactional_producer_fails_in_another_cluster(profile: str) -> None:
    """The producer may have been fenced in the first cluster, whose records the other may have by replication."""
    async with FakeCluster(1, topics={"orders": 1}, cluster_id="here", profile=profile) as here:
        producer = Producer(here.bootstrap_servers, linger_ms=0, transactional_id="billing-1")
        async with producer, another_in_place_of(here, profile) as there:
            await asyncio.sleep(TIME_TO_NOTICE_S)
            with pytest.raises(BrokerError, match="INVALID_PRODUCER_ID_MAPPING"):
                await producer.begin_transaction()
            with pytest.raises(BrokerError, match="INVALID_PRODUCER_ID_MAPPING"):
                await producer.begin_transaction()

            assert there.records("orders", 0) == []
