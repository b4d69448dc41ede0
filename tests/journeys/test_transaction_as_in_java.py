"""Scenes of the tests of Kafka's own producer, as its users would see them here; each names the test it is taken from.

Source: TransactionManagerTest, SenderTest and KafkaProducerTest of Apache Kafka.
"""

import asyncio
from typing import Final

import pytest

from aioproducer import (
    DeliveryTimeoutError,
    Producer,
    ProducerClosedError,
    ProducerOptions,
    TopicAuthorizationError,
    TopicPartition,
    TransactionAbortableError,
)
from aioproducer.testing import ApiKey, Where
from tests.fakes.transactional_cluster import (
    ADD_PARTITIONS,
    END_TXN,
    FIRST,
    INIT,
    PRODUCE,
    Release,
    asked,
    cluster_of,
    committed,
    on_every_release,
    on_v1,
    one_more,
    producer_of,
)
from tests.fakes.virtual_cluster import in_virtual_time

FIND: Final = Where(api=ApiKey.FIND_COORDINATOR)
MESSAGE_TOO_LARGE: Final = 10
ADD_OFFSETS: Final = Where(api=ApiKey.ADD_OFFSETS_TO_TXN)
COMMIT_OFFSETS: Final = Where(api=ApiKey.TXN_OFFSET_COMMIT)

OFFSETS: Final = {TopicPartition("t", 1): 5, TopicPartition("t", 0): 4}

# Close


@pytest.mark.parametrize("where", [FIND, INIT], ids=["FindCoordinator", "InitProducerId"])
@on_every_release
@in_virtual_time
async def test_close_ends_the_wait_for_an_identity(release: Release, where: Where) -> None:
    """`testCloseIsForcedOnPendingFindCoordinator`, `...InitProducerId`: without a response close still ends."""
    async with cluster_of(release) as cluster:
        cluster.faults.stall(where)
        producer = await producer_of(cluster).start(wait=False)
        waiting = asyncio.ensure_future(producer.init_transactions())
        await asyncio.sleep(0.5)

        await asyncio.wait_for(producer.close(0), 1)

        with pytest.raises(ProducerClosedError):
            await asyncio.wait_for(waiting, 1)


@pytest.mark.parametrize(
    "where", [FIND, ADD_OFFSETS, COMMIT_OFFSETS], ids=["FindCoordinator", "AddOffsetsToTxn", "TxnOffsetCommit"]
)
@on_v1
@in_virtual_time
async def test_close_ends_the_wait_for_offsets(release: Release, where: Where) -> None:
    """`testCloseIsForcedOnPendingAddOffsetRequest`."""
    async with cluster_of(release) as cluster:
        producer = await producer_of(cluster).start()
        await producer.begin_transaction()
        cluster.faults.stall(where)
        waiting = asyncio.ensure_future(producer.send_offsets(OFFSETS, "readers"))
        await asyncio.sleep(0.5)

        await asyncio.wait_for(producer.close(0), 1)

        with pytest.raises(ProducerClosedError):
            await asyncio.wait_for(waiting, 1)


async def commit_that_waits(producer: Producer) -> asyncio.Future[None]:
    await producer.begin_transaction()
    producer.send("t", b"v", partition=0)
    waiting = asyncio.ensure_future(producer.commit_transaction())
    await asyncio.sleep(0.5)
    return waiting


@on_every_release
@in_virtual_time
async def test_close_lets_a_running_commit_end(release: Release) -> None:
    """`testTransactionalRequestsSentOnShutdown`: if there is time."""
    async with cluster_of(release) as cluster, producer_of(cluster) as producer:
        cluster.faults.stall(END_TXN)
        waiting = await commit_that_waits(producer)
        asyncio.get_running_loop().call_later(1, cluster.faults.clear)

        await producer.close(5)

        await waiting
        assert committed(cluster) == [b"v"]


@on_every_release
@in_virtual_time
async def test_close_without_time_leaves_commit_unknown(release: Release) -> None:
    """`testForceShutdownWithIncompleteTransaction`."""
    async with cluster_of(release) as cluster, producer_of(cluster) as producer:
        cluster.faults.stall(END_TXN)
        waiting = await commit_that_waits(producer)

        await producer.close(0)

        with pytest.raises(ProducerClosedError):
            await waiting
        assert committed(cluster) == []


# Offsets


@pytest.mark.parametrize("code", [22, 25, 30, 82, 120])
@on_every_release
@in_virtual_time
async def test_offsets_failing_behind_a_commit_fail_it(release: Release, code: int) -> None:
    """`testIllegalGenerationInTxnOffsetCommitByGroupMetadata` and others: they were not awaited yet."""
    async with cluster_of(release) as cluster, producer_of(cluster) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        cluster.faults.error(code, COMMIT_OFFSETS)
        offsets = asyncio.ensure_future(producer.send_offsets(OFFSETS, "readers"))
        await asyncio.sleep(0)

        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()

        with pytest.raises(TransactionAbortableError):
            await offsets
        assert committed(cluster) == []
        await producer.abort_transaction()
        await one_more(producer, cluster)


@pytest.mark.parametrize("code", [3, 13, 14])
@on_every_release
@in_virtual_time
async def test_retriable_offset_holds_back_the_commit(release: Release, code: int) -> None:
    """`testHandlingOfUnknownTopicPartitionErrorOnTxnOffsetCommit` and others: all are committed."""
    async with cluster_of(release) as cluster, producer_of(cluster) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        refused = cluster.faults.error(code, COMMIT_OFFSETS, times=None)
        offsets = asyncio.ensure_future(producer.send_offsets(OFFSETS, "readers"))
        commit = asyncio.ensure_future(producer.commit_transaction())
        await asyncio.sleep(3)
        assert not offsets.done()
        assert "END_TXN" not in asked(cluster)

        cluster.faults.remove(refused)
        await commit

        await offsets
        assert committed(cluster) == [b"v"]
        found = await producer.committed_offsets("readers", OFFSETS.keys())
        assert {place: offset and offset.offset for place, offset in found.items()} == OFFSETS


# Records


@on_every_release
@in_virtual_time
async def test_response_after_the_deadline_is_ignored(release: Release) -> None:
    """`testReceiveFailedBatchTwiceWithTransactions`: INVALID_TXN_STATE for an expired batch was fatal."""
    options: ProducerOptions = {"delivery_timeout_ms": 1_000, "request_timeout_ms": 1_000, "max_block_ms": 5_000}
    async with cluster_of(release) as cluster, producer_of(cluster, **options) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        cluster.faults.error(6, FIRST)
        cluster.faults.error(48, FIRST)
        cluster.faults.delay(0.95, PRODUCE, skip=1)
        with pytest.raises(DeliveryTimeoutError):
            await producer.send("t", b"late", partition=0)
        await asyncio.sleep(0.5)

        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        await one_more(producer, cluster)


@on_every_release
@in_virtual_time
async def test_commit_ends_the_linger_of_its_records(release: Release) -> None:
    """`testRecordsFlushedImmediatelyOnTransactionCompletion`."""
    loop = asyncio.get_running_loop()
    async with cluster_of(release) as cluster, producer_of(cluster, linger_ms=2_000) as producer:
        for _ in range(2):
            began = loop.time()
            await producer.begin_transaction()
            delivery = producer.send("t", b"v", partition=0)
            await asyncio.sleep(1)
            assert not delivery.done()
            await producer.commit_transaction()

            assert loop.time() - began < 1.5
        assert committed(cluster) == [b"v", b"v"]


@on_v1
@in_virtual_time
async def test_refused_partition_fails_only_the_transaction(release: Release) -> None:
    """`testRecoveryFromAbortableErrorTransactionNotStarted`, `shouldNotSendAbortTxnRequestWhenOnlyAddPartitions...`."""
    async with cluster_of(release) as cluster, producer_of(cluster) as producer:
        cluster.faults.error(29, ADD_PARTITIONS)
        await producer.begin_transaction()
        producer.send("t", b"v", partition=0)
        with pytest.raises(TransactionAbortableError, match=r"AddPartitionsToTxn of 'billing-1' for t-0") as caught:
            await producer.commit_transaction()
        assert isinstance(caught.value.__cause__, TopicAuthorizationError)
        assert caught.value.__cause__.topic == "t"

        await producer.abort_transaction()

        assert asked(cluster) == ["INIT_PRODUCER_ID", "ADD_PARTITIONS_TO_TXN"]
        await one_more(producer, cluster)


@pytest.mark.parametrize("skip", [0, 1, 3])
@pytest.mark.parametrize("times", [1, 2])
@on_every_release
@in_virtual_time
async def test_split_batch_keeps_its_order(release: Release, *, times: int, skip: int) -> None:
    """`testTransactionalSplitBatchAndSend`, with batches on the wire and in the queue behind it."""
    async with cluster_of(release) as cluster, producer_of(cluster, batch_size=16_000, linger_ms=5) as producer:
        expected = []
        for verb in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
            await producer.begin_transaction()
            await producer.send("t", b"first", partition=0)
            refused = cluster.faults.error(MESSAGE_TOO_LARGE, FIRST, times=times, skip=skip)
            for number in range(400):
                producer.send("t", b"%d" % number * 50, partition=0)
            await producer.send_offsets(OFFSETS, "readers")
            await verb()
            cluster.faults.remove(refused)
            if verb == producer.commit_transaction:
                assert refused.hits == times
                expected += [b"first", *(b"%d" % number * 50 for number in range(400))]
            assert committed(cluster) == expected
        assert asked(cluster).count("INIT_PRODUCER_ID") <= 2  # another one is for what an abort left unanswered


@on_v1
@in_virtual_time
async def test_partition_left_by_its_record_is_not_added(release: Release) -> None:
    """`testPartitionAddedToTransactionAfterFullBatchRetry`: the coordinator would write a needless marker."""
    async with (
        cluster_of(release, topics={"t": 16}) as cluster,
        producer_of(cluster, batch_size=200, linger_ms=20) as producer,
    ):
        async with producer.transaction() as txn:
            for number in range(12):
                await txn.enqueue("t", b"%d" % number * 40)

        written = {number for number in range(16) if cluster.committed_records("t", number)}
        assert {number for number in range(16) if cluster.end_offset("t", number)} == written
        assert len(committed(cluster)) == 12


# Identities


@on_v1
@in_virtual_time
async def test_lost_renewal_fences_no_producer(release: Release) -> None:
    """`testBumpTransactionalEpochOnAbortableError`, and the copy of InitProducerId is answered as the first."""
    async with cluster_of(release) as cluster, producer_of(cluster, request_timeout_ms=1_000) as producer:
        await producer.begin_transaction()
        cluster.faults.error(29, FIRST)
        with pytest.raises(TopicAuthorizationError):
            await producer.send("t", b"v", partition=0)
        cluster.faults.drop_connection(INIT, after_append=True)

        await producer.abort_transaction()

        await one_more(producer, cluster)
        assert asked(cluster).count("INIT_PRODUCER_ID") == 3


@pytest.mark.parametrize("where", [FIND, INIT], ids=["FindCoordinator", "InitProducerId"])
@on_every_release
@in_virtual_time
async def test_throttled_start_waits_and_succeeds(release: Release, where: Where) -> None:
    """`testInitTransactionWhileThrottled`."""
    loop = asyncio.get_running_loop()
    async with cluster_of(release) as cluster:
        cluster.faults.throttle(700, where)
        began = loop.time()
        async with producer_of(cluster) as producer:
            await one_more(producer, cluster)

        assert 0.7 <= loop.time() - began < 2
