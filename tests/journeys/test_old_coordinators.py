"""Transactions on brokers before Kafka 2.5: what their requests cannot say is not left out in silence."""

import asyncio

import pytest

from aioproducer import (
    ConsumerGroupMetadata,
    ProducerFencedError,
    TopicPartition,
    TransactionAbortableError,
    UnsupportedVersionError,
)
from tests.fakes.transactional_cluster import FIRST, Release, asked, cluster_of, committed, one_more, producer_of
from tests.fakes.virtual_cluster import in_virtual_time

OLD_RELEASE = Release(profile="2.4", transaction_version=0)

on_old_releases = pytest.mark.parametrize(
    "release", [OLD_RELEASE, Release(profile="2.1", transaction_version=0)], ids=["2.4", "2.1"]
)


@on_old_releases
@in_virtual_time
async def test_fenced_producer_does_not_take_the_id_back(release: Release) -> None:
    """KIP-360: InitProducerId has no place for the identity there, so a look-up would fence the successor."""
    async with cluster_of(release) as cluster, producer_of(cluster) as older:  # noqa: PLR1702  # blocks within blocks are what it is about
        await older.begin_transaction()
        await older.send("t", b"older", partition=0)
        async with producer_of(cluster) as newer:
            with pytest.raises(TransactionAbortableError, match="INVALID_PRODUCER_EPOCH"):
                await older.commit_transaction()
            for call in (older.abort_transaction, older.begin_transaction):
                with pytest.raises(ProducerFencedError):
                    await call()

            async with newer.transaction() as txn:
                await txn.send("t", b"newer", partition=0)

        assert committed(cluster) == [b"newer"]


@on_old_releases
@in_virtual_time
async def test_record_that_fails_costs_its_transaction_alone(release: Release) -> None:
    """The coordinator confirms the end, so a fresh identity fences no one."""
    async with cluster_of(release) as cluster, producer_of(cluster) as producer:
        cluster.faults.error(29, FIRST)
        with pytest.raises(TransactionAbortableError):  # at its end
            async with producer.transaction() as txn:
                await txn.enqueue("t", b"refused", partition=0)

        await one_more(producer, cluster)
        assert asked(cluster).count("INIT_PRODUCER_ID") == 2


@on_old_releases
@in_virtual_time
async def test_member_of_a_group_is_never_left_out(release: Release) -> None:
    """KIP-447: TxnOffsetCommit has no place for the member there: a replaced consumer's offsets got through."""
    async with cluster_of(release) as cluster, producer_of(cluster) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        with pytest.raises(UnsupportedVersionError, match=r"older than Kafka 2\.5.*the group's id alone"):
            await producer.send_offsets({("t", 1): 5}, ConsumerGroupMetadata("readers", 7, "member-1"))
        with pytest.raises(UnsupportedVersionError):
            await producer.commit_transaction()

        assert "TXN_OFFSET_COMMIT" not in asked(cluster)
        assert committed(cluster) == []


@on_old_releases
@in_virtual_time
async def test_group_without_a_member_is_enough(release: Release) -> None:
    """A consumer with manually assigned partitions has no member id."""
    async with cluster_of(release) as cluster, producer_of(cluster) as producer:
        async with producer.transaction() as txn:
            await txn.send("t", b"v", partition=0)
            await txn.send_offsets({("t", 1): 5}, "readers")

        assert committed(cluster) == [b"v"]


@on_old_releases
@in_virtual_time
async def test_unstable_offsets_are_not_asked_for_repeatedly(release: Release) -> None:
    """Such a coordinator never hides offsets of an open transaction: asking again would not help."""
    async with cluster_of(release) as cluster, producer_of(cluster) as producer:
        before = asyncio.get_running_loop().time()
        with pytest.raises(UnsupportedVersionError, match=r"Kafka 2\.5 or newer is needed"):
            await producer.committed_offsets("readers", [TopicPartition("t", 0)])

        assert asyncio.get_running_loop().time() - before < 1
