"""The cluster's `transaction.version` changes while a producer runs: between transactions and in the middle of one.

Brokers say which level is finalized when they are connected to, and clients keep their connections. A cluster that was
upgraded serves transactions V1 as before. One that was downgraded refuses V2, 35 UNSUPPORTED_VERSION, and answers 51
to everything about a transactional id that was refused, until it has another coordinator (Kafka 4.3).
"""

import asyncio

import pytest

from aioproducer import BrokerError, Producer, TransactionTimeoutError
from aioproducer.testing import FakeCluster
from tests.fakes.transactional_cluster import V1_OF_4, V2_RELEASE, asked, cluster_of, committed, producer_of
from tests.fakes.virtual_cluster import in_virtual_time

on_both_ends = pytest.mark.parametrize("verb", ["commit_transaction", "abort_transaction"])


async def restart(cluster: FakeCluster) -> None:
    """Connections begin anew, and coordinators too."""
    await cluster.kill(1)
    await cluster.restart(1)
    cluster.move_coordinator("billing-1", 1)


async def end(producer: Producer, verb: str) -> None:
    """Commit or abort the open transaction."""
    await getattr(producer, verb)()


async def check_next(producer: Producer, cluster: FakeCluster, before: list[bytes], *, verb: str) -> None:
    """The next transaction works; of the one before, all or nothing is seen, as it ended."""
    async with producer.transaction() as txn:
        await txn.send("t", b"next", partition=0)

    assert committed(cluster) == [*(before if verb == "commit_transaction" else []), b"next"]


@on_both_ends
@pytest.mark.parametrize("is_told", [False, True], ids=["unnoticed", "told"])
@in_virtual_time
async def test_upgrade_in_the_middle_of_a_transaction(verb: str, *, is_told: bool) -> None:
    """It goes on as it began; the next one is V2 once a connection has said so, with an epoch of its own."""
    async with cluster_of(V1_OF_4) as cluster, producer_of(cluster) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"before", partition=0)
        cluster.finalize_transaction_version(2)
        if is_told:
            await restart(cluster)
        await producer.send("t", b"after", partition=0)
        await end(producer, verb)

        await check_next(producer, cluster, [b"before", b"after"], verb=verb)

    assert asked(cluster).count("ADD_PARTITIONS_TO_TXN") == (1 if is_told else 2)


@on_both_ends
@pytest.mark.parametrize("wait_s", [0.0, 1.0], ids=["by the connection of its end", "before"])
@in_virtual_time
async def test_downgrade_in_the_middle_of_a_transaction_that_is_told(verb: str, wait_s: float) -> None:
    """It ends as V1: EndTxn 5 would be refused, and the transactional id with it."""
    async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"before", partition=0)
        cluster.finalize_transaction_version(0)
        await restart(cluster)
        await asyncio.sleep(wait_s)
        await end(producer, verb)

        await check_next(producer, cluster, [b"before"], verb=verb)


@on_both_ends
@in_virtual_time
async def test_downgrade_in_the_middle_of_a_transaction_that_is_not_noticed(verb: str) -> None:
    """Its end is refused, and waits for another coordinator."""
    async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster, max_block_ms=5_000) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"before", partition=0)
        cluster.finalize_transaction_version(0)
        with pytest.raises(TransactionTimeoutError, match="CONCURRENT_TRANSACTIONS"):
            await end(producer, verb)
        await restart(cluster)
        await end(producer, verb)

        await check_next(producer, cluster, [b"before"], verb=verb)


@in_virtual_time
async def test_downgrade_between_transactions_that_is_not_noticed() -> None:
    """The first record is refused; abort, and go on once the id has another coordinator."""
    async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster, max_block_ms=5_000) as producer:
        async with producer.transaction() as txn:
            await txn.send("t", b"before", partition=0)
        cluster.finalize_transaction_version(0)
        await producer.begin_transaction()
        with pytest.raises(BrokerError, match="TRANSACTION_ABORTABLE"):
            await producer.send("t", b"never", partition=0)
        with pytest.raises(TransactionTimeoutError):
            await producer.abort_transaction()
        await restart(cluster)
        await producer.abort_transaction()

        await check_next(producer, cluster, [b"before"], verb="commit_transaction")


@on_both_ends
@pytest.mark.parametrize("is_told", [False, True], ids=["unnoticed", "told"])
@in_virtual_time
async def test_downgrade_before_offsets_are_sent(verb: str, *, is_told: bool) -> None:
    """The group is named to the coordinator, as V1 asks for: once it has been started anew it takes that."""
    async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster, max_block_ms=5_000) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"before", partition=0)
        cluster.finalize_transaction_version(0)
        if is_told:
            await restart(cluster)
            await asyncio.sleep(1)
        else:
            with pytest.raises(TransactionTimeoutError):
                await producer.send_offsets({("t", 0): 7}, "readers")
            await restart(cluster)
        await producer.send_offsets({("t", 0): 7}, "readers")
        await end(producer, verb)

        await check_next(producer, cluster, [b"before"], verb=verb)


@in_virtual_time
async def test_other_partitions_after_a_downgrade_are_named_to_the_coordinator() -> None:
    """The rest of the transaction is V1."""
    async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"before", partition=0)
        cluster.finalize_transaction_version(0)
        await restart(cluster)
        await asyncio.sleep(1)
        await producer.send("t", b"other", partition=1)
        await producer.send("t", b"same", partition=0)
        await producer.commit_transaction()

        assert committed(cluster) == [b"before", b"same", b"other"]
