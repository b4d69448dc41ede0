"""Coordinators that metadata does not name (yet): FindCoordinator gives their address, and each failure its reason."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aioproducer import (
    BrokerConnectionError,
    KafkaError,
    Producer,
    TopicPartition,
    TransactionTimeoutError,
)
from aioproducer._admin.cluster_requests import ClusterRequests
from aioproducer._admin.transactions import Transactions
from aioproducer.config import ProducerConfig
from aioproducer.testing import ApiKey, FakeCluster, Where
from aioproducer.testing.fake_broker.coordinators import CoordinatorKind
from tests.fakes.transactional_cluster import (
    END_TXN,
    INIT,
    V2_RELEASE,
    Release,
    cluster_of,
    committed,
    in_virtual_time_on_every_release,
    producer_of,
)
from tests.fakes.virtual_loop import in_virtual_time

HIDDEN = 2
COORDINATOR = f"broker {HIDDEN} at "


@asynccontextmanager
async def hidden_coordinator(release: Release) -> AsyncIterator[FakeCluster]:
    """Yield a cluster whose second broker coordinates everything, and that Metadata does not name."""
    async with cluster_of(release, nodes=2, topics={"t": 2, "in": 1}) as cluster:
        for topic, partition in (("t", 0), ("t", 1), ("in", 0)):
            cluster.move_leader(topic, partition, 1)
        cluster.move_coordinator("billing-1", HIDDEN)
        cluster.move_coordinator("readers", HIDDEN, kind=CoordinatorKind.GROUP)
        cluster.model.brokers[HIDDEN].is_in_metadata = False
        yield cluster


@asynccontextmanager
async def admin(cluster: FakeCluster, timeout_s: float = 5.0) -> AsyncIterator[Transactions]:
    config = ProducerConfig(bootstrap_servers=cluster.bootstrap_servers)
    async with ClusterRequests(config.bootstrap, timeout_s) as requests:
        await requests.refresh()
        yield Transactions(requests)


@in_virtual_time_on_every_release
async def test_transaction_runs_at_an_unnamed_coordinator(release: Release) -> None:
    """Offsets too, whose group has such a coordinator; metadata that comes meanwhile changes nothing."""
    async with hidden_coordinator(release) as cluster, producer_of(cluster, metadata_max_age_ms=500) as producer:
        for value in (b"a", b"b"):
            async with producer.transaction() as txn:
                await txn.send("t", value, partition=0)
                await txn.send_offsets({TopicPartition("in", 0): 7}, "readers")

        offsets = await producer.committed_offsets("readers", [TopicPartition("in", 0)])

        assert committed(cluster) == [b"a", b"b"]
        assert offsets[TopicPartition("in", 0)].offset == 7  # type: ignore[union-attr]


@in_virtual_time
async def test_unnamed_coordinator_may_be_named_later() -> None:
    async with hidden_coordinator(V2_RELEASE) as cluster, producer_of(cluster, metadata_max_age_ms=100) as producer:
        async with producer.transaction() as txn:
            await txn.send("t", b"a", partition=0)
        cluster.model.brokers[HIDDEN].is_in_metadata = True
        cluster.move_leader("t", 0, HIDDEN)
        async with producer.transaction() as txn:
            await txn.send("t", b"b", partition=0)

        assert committed(cluster) == [b"a", b"b"]


@in_virtual_time
async def test_prepared_transaction_completes_at_unnamed_one() -> None:
    async with hidden_coordinator(V2_RELEASE) as cluster, producer_of(cluster) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"a", partition=0)
        prepared = await producer.prepare_transaction()
        async with Producer(cluster.bootstrap_servers) as other:
            await other.complete_transaction(prepared)

        assert committed(cluster) == [b"a"]


@in_virtual_time
async def test_commands_ask_an_unnamed_coordinator() -> None:
    async with hidden_coordinator(V2_RELEASE) as cluster, producer_of(cluster) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"a", partition=0)
        async with admin(cluster) as transactions:
            described = await transactions.described("billing-1")
            many = await transactions.all_described(["billing-1"])
            await transactions.fence("billing-1")

        assert (described.state, [each.transactional_id for each in many]) == ("Ongoing", ["billing-1"])
        assert committed(cluster) == []


# What the errors say


@in_virtual_time
async def test_silent_coordinator_is_named_in_the_time_out() -> None:
    async with hidden_coordinator(V2_RELEASE) as cluster:
        cluster.faults.stall(INIT)
        with pytest.raises(TransactionTimeoutError, match=f"InitProducerId waits for {COORDINATOR}"):
            await producer_of(cluster, max_block_ms=2_000).start()
        cluster.faults.stall(Where(api=ApiKey.DESCRIBE_TRANSACTIONS))
        async with admin(cluster, 2.0) as transactions:
            with pytest.raises(KafkaError, match=f"DescribeTransactions waits for {COORDINATOR}"):
                await transactions.described("billing-1")


@in_virtual_time
async def test_lost_coordinator_is_the_reason_of_the_time_out() -> None:
    async with hidden_coordinator(V2_RELEASE) as cluster:
        cluster.faults.drop_connection(INIT, times=None)
        closed = f"InitProducerId: {COORDINATOR}.*closed the connection"
        with pytest.raises(TransactionTimeoutError, match=closed) as raised:
            await producer_of(cluster, max_block_ms=2_000).start()

    assert isinstance(raised.value.last_broker_error, BrokerConnectionError)


@in_virtual_time
async def test_refusing_coordinator_is_the_reason_of_the_time_out() -> None:
    """Its code is the last error."""
    async with hidden_coordinator(V2_RELEASE) as cluster, producer_of(cluster, max_block_ms=2_000) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"a", partition=0)
        cluster.faults.error(51, END_TXN, times=None)
        with pytest.raises(TransactionTimeoutError, match="CONCURRENT_TRANSACTIONS") as raised:
            await producer.commit_transaction()
        cluster.faults.clear()
        await producer.commit_transaction()

    assert getattr(raised.value.last_broker_error, "code", None) == 51
