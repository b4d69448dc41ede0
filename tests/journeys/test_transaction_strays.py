"""Copies of requests that arrive late, and transactions that outlive their time: no effect on the next one."""

import asyncio

import pytest

from aioproducer import (
    KafkaError,
    ProducerFencedError,
    TransactionAbortableError,
)
from tests.fakes.transactional_cluster import (
    END_TXN,
    PRODUCE,
    V2_RELEASE,
    Release,
    asked,
    cluster_of,
    committed,
    on_v1,
    one_more,
    producer_of,
)
from tests.fakes.virtual_cluster import in_virtual_time

# Late copies


@on_v1
@in_virtual_time
async def test_v1_late_produce_is_not_committed_with_the_next_transaction(release: Release) -> None:
    """Seen on real brokers without the guard: aborted, then visible (Jepsen, KIP-890)."""
    async with cluster_of(release) as cluster:  # noqa: SIM117  # one belongs to the other
        async with producer_of(cluster, request_timeout_ms=1000, batch_size=0) as producer:
            await producer.begin_transaction()
            await producer.send("t", b"acknowledged", partition=0)
            cluster.faults.delay(4.0, PRODUCE, after_append=False)
            producer.send("t", b"stray", partition=0)
            await asyncio.sleep(0.1)
            await producer.abort_transaction()
            await one_more(producer, cluster)
            async with producer.transaction() as txn:
                await txn.send("t", b"third", partition=1)
                await asyncio.sleep(8)

            assert committed(cluster) == [b"next", b"next", b"third"]


@on_v1
@in_virtual_time
async def test_v1_late_end_does_not_end_the_next_transaction(release: Release) -> None:
    """A stray commit of one transaction committed the next one."""
    async with cluster_of(release) as cluster, producer_of(cluster, request_timeout_ms=1000) as producer:
        cluster.faults.delay(4.0, END_TXN, after_append=False)
        async with producer.transaction() as txn:
            await txn.send("t", b"first", partition=0)
        await producer.begin_transaction()
        await producer.send("t", b"never", partition=0)
        await asyncio.sleep(8)
        await producer.abort_transaction()

        assert committed(cluster) == [b"first"]


@in_virtual_time
async def test_v2_late_copies_are_of_an_older_epoch() -> None:
    """Produce and EndTxn alike; nothing is asked besides."""
    async with cluster_of(V2_RELEASE) as cluster:  # noqa: SIM117  # one belongs to the other
        async with producer_of(cluster, request_timeout_ms=1000, batch_size=0) as producer:
            await producer.begin_transaction()
            await producer.send("t", b"acknowledged", partition=0)
            cluster.faults.delay(4.0, PRODUCE, after_append=False)
            producer.send("t", b"stray", partition=0)
            await asyncio.sleep(0.1)
            await producer.abort_transaction()
            await one_more(producer, cluster)
            await asyncio.sleep(8)

            assert committed(cluster) == [b"next", b"next"]
            assert asked(cluster).count("INIT_PRODUCER_ID") == 1


@on_v1
@in_virtual_time
async def test_v1_takes_a_new_epoch_only_where_something_may_be_late(release: Release) -> None:
    """A transaction that was aborted with all its batches answered needs none."""
    async with cluster_of(release) as cluster, producer_of(cluster) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        await producer.abort_transaction()
        await one_more(producer, cluster)
        assert asked(cluster).count("INIT_PRODUCER_ID") == 1

        cluster.faults.drop_connection(END_TXN, after_append=True)
        async with producer.transaction() as txn:
            await txn.send("t", b"w", partition=0)
        await producer.begin_transaction()
        assert asked(cluster).count("INIT_PRODUCER_ID") == 2


@on_v1
@in_virtual_time
async def test_v1_abort_waits_until_every_attempt_is_answered(release: Release) -> None:
    """Else the marker would stand before records of the transaction."""
    async with cluster_of(release) as cluster, producer_of(cluster) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        cluster.faults.delay(3.0, PRODUCE)
        producer.send("t", b"w", partition=0)
        await asyncio.sleep(0.1)
        began = asyncio.get_running_loop().time()
        await producer.abort_transaction()

        assert asyncio.get_running_loop().time() - began > 2.5
        await one_more(producer, cluster)


# Time-outs


@in_virtual_time
async def test_v2_transaction_that_timed_out_is_aborted_and_the_next_one_works() -> None:
    """The same object goes on, under the epoch that EndTxn answers."""
    async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster, transaction_timeout_ms=2000) as producer:
        with pytest.raises(TransactionAbortableError):  # noqa: PT012  # it is the end of the block that raises
            async with producer.transaction() as txn:
                await txn.send("t", b"v", partition=0)
                await asyncio.sleep(30)
        with pytest.raises(TransactionAbortableError):  # noqa: PT012  # it is the end of the block that raises
            async with producer.transaction() as txn:
                await txn.send("t", b"v", partition=0)
                await asyncio.sleep(30)
                await txn.enqueue("t", b"w", partition=0)

        await one_more(producer, cluster)


@on_v1
@in_virtual_time
async def test_v1_transaction_that_timed_out_is_the_end_and_says_so(release: Release) -> None:
    """Nothing without fencing a successor could save the identity."""
    async with cluster_of(release) as cluster:
        producer = await producer_of(cluster, transaction_timeout_ms=2000).start()
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        await asyncio.sleep(30)

        with pytest.raises(KafkaError):
            await producer.commit_transaction()
        with pytest.raises(ProducerFencedError, match="or the transaction timed out"):
            await producer.abort_transaction()
        with pytest.raises(ProducerFencedError):
            await producer.begin_transaction()
        assert asked(cluster).count("INIT_PRODUCER_ID") <= 2
        await producer.close()
        assert committed(cluster) == []
