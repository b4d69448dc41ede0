"""Transactions that fail: commit says so, readers see nothing of them, and the next one works.

A test of a defect that another producer had names it; names like `testCommit` are of tests of Kafka's own producer.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from aioproducer import (
    BrokerError,
    DeliveryTimeoutError,
    KafkaError,
    Producer,
    ProducerFencedError,
    ProducerOptions,
    RecordTooLargeError,
    TopicAuthorizationError,
    Transaction,
    TransactionAbortableError,
    TransactionAbortedError,
    UndeliveredError,
)
from aioproducer._transactions.commit_abort import TransactionCompleter
from aioproducer._transactions.manager import TransactionManager
from aioproducer._transactions.states import TransactionState
from aioproducer.records import TopicPartition
from aioproducer.testing import ApiKey, Where
from tests.fakes.transaction_faces import OURS, Face, cause_of, on_both_faces
from tests.fakes.transactional_cluster import (
    ADD_PARTITIONS,
    END_TXN,
    FIRST,
    PRODUCE,
    V2_RELEASE,
    Release,
    asked,
    begin,
    cluster_of,
    committed,
    in_transaction,
    in_virtual_time_on_every_release,
    on_old_releases,
    on_v1,
    one_more,
    producer_of,
    transacting,
)
from tests.fakes.virtual_loop import in_virtual_time

INVALID_PRODUCER_EPOCH: Final = 47
INVALID_RECORD: Final = 87
PRODUCER_FENCED: Final = 90


@on_both_faces
@pytest.mark.parametrize("code", [10, 17, 29, 42, 43, 45, 47, 48, 59, 87, 120, 999])
@in_virtual_time_on_every_release
async def test_unseen_failure_fails_the_commit(release: Release, code: int, face: Face) -> None:
    """The record was not awaited; aiokafka itself commits the rest of the transaction."""
    async with cluster_of(release) as cluster, face.make(cluster) as producer:
        await producer.begin_transaction()
        await (await face.send(producer, b"first", partition=1))
        cluster.faults.error(code, FIRST)
        await face.send(producer, b"second")

        with pytest.raises(face.failure) as caught:
            await producer.commit_transaction()
        cause = cause_of(caught.value)
        assert isinstance(cause, BrokerError)
        assert cause.code == code
        await producer.abort_transaction()

        assert committed(cluster) == []
        await face.one_more(producer, cluster)


@in_virtual_time_on_every_release
async def test_unknown_identity_ends_the_producer(release: Release) -> None:
    async with in_transaction(release, b"first", partition=1) as (cluster, producer):
        cluster.faults.error(49, FIRST)
        producer.send("t", b"second", partition=0)

        for call in (producer.commit_transaction, producer.abort_transaction, producer.begin_transaction):
            with pytest.raises(BrokerError, match=r"transactional\.id\.expiration\.ms") as caught:
                await call()
            assert caught.value.code == 49
        assert committed(cluster) == []


@in_virtual_time
async def test_failed_commit_is_not_counted() -> None:
    async with transacting(V2_RELEASE) as (cluster, producer):
        cluster.faults.error(29, FIRST)
        await producer.begin_transaction()
        producer.send("t", b"v", partition=0)
        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()
        statistics = producer.statistics()
        assert (statistics.transactions_committed, statistics.commit_total_s) == (0, 0.0)

        await producer.abort_transaction()
        statistics = producer.statistics()
        assert (statistics.transactions_committed, statistics.transactions_aborted) == (0, 1)


@on_v1
@in_virtual_time
async def test_topic_too_new_for_coordinator_is_retried(release: Release) -> None:
    async with transacting(release) as (cluster, producer):
        cluster.faults.error(3, Where(api=ApiKey.ADD_PARTITIONS_TO_TXN, topic="t", partition=1))
        async with producer.transaction() as txn:
            await asyncio.gather(*(txn.send("t", b"a", partition=number) for number in (0, 1)))

        assert committed(cluster) == [b"a", b"a"]
        assert asked(cluster).count("ADD_PARTITIONS_TO_TXN") == 2


@in_virtual_time_on_every_release
async def test_refused_bulk_row_fails_the_commit(release: Release) -> None:
    """Its call raised nothing, so the transaction is incomplete."""
    async with transacting(release) as (cluster, producer):
        with pytest.raises(TransactionAbortableError) as caught:  # noqa: PT012  # it is the end of the block that raises
            async with producer.transaction() as txn:
                bulk = await txn.send_many("t", [b"a", bytes(2_000_000), b"b"], partition=0)
                assert list(bulk.refused) == [1]

        assert isinstance(caught.value.__cause__, RecordTooLargeError)
        assert committed(cluster) == []
        await one_more(producer, cluster)


@in_virtual_time
async def test_bulk_without_room_fails_the_commit() -> None:
    """One slow broker is enough for that; the rows that had room are not committed alone."""
    async with transacting(V2_RELEASE, buffer_memory=50_000, batch_size=10_000, max_block_ms=3_000) as (
        cluster,
        producer,
    ):
        stalled = cluster.faults.stall(PRODUCE)
        with pytest.raises(TransactionAbortableError):  # noqa: PT012  # it is the end of the block that raises
            async with producer.transaction() as txn:
                await txn.send_many("t", [bytes(1_000)] * 1_000, partition=0)
                cluster.faults.remove(stalled)

        assert committed(cluster) == []
        await one_more(producer, cluster)


@in_virtual_time_on_every_release
async def test_block_aborts_after_failure(release: Release) -> None:
    async with transacting(release) as (cluster, producer):
        cluster.faults.error(29, FIRST)
        with pytest.raises(TransactionAbortableError, match="must be aborted") as caught:  # noqa: PT012  # it is the end of the block that raises
            async with producer.transaction() as txn:
                await txn.send("t", b"first", partition=1)
                await txn.enqueue("t", b"second", partition=0)

        assert isinstance(caught.value.__cause__, TopicAuthorizationError)
        await one_more(producer, cluster)


@on_v1
@in_virtual_time
async def test_record_names_refused_add_at_its_deadline(release: Release) -> None:
    async with transacting(release, delivery_timeout_ms=2_000, request_timeout_ms=1_000) as (cluster, producer):
        cluster.faults.error(51, ADD_PARTITIONS, times=None)
        await producer.begin_transaction()
        with pytest.raises(DeliveryTimeoutError, match="the partition is not part of the transaction yet"):
            await producer.send("t", b"a", partition=0)
        cluster.faults.clear()
        await producer.abort_transaction()

        await one_more(producer, cluster)


@on_both_faces
@in_virtual_time_on_every_release
async def test_failed_transaction_raises_until_aborted(release: Release, face: Face) -> None:
    async with cluster_of(release) as cluster, face.make(cluster) as producer:
        await producer.begin_transaction()
        await (await face.send(producer, b"first", partition=1))
        cluster.faults.error(29, FIRST)
        stalled = cluster.faults.stall(PRODUCE, skip=1)
        failing = await face.send(producer, b"second")
        with pytest.raises((TopicAuthorizationError, face.failure)):
            await failing
        await asyncio.sleep(0)

        send_offsets = producer.send_offsets if face is OURS else producer.send_offsets_to_transaction
        for call in (
            lambda: face.send(producer, b"third"),
            lambda: send_offsets({TopicPartition("t", 0): 1}, "readers"),
            producer.commit_transaction,
            producer.commit_transaction,
            *([lambda: producer.enqueue("t", b"third", partition=0)] if face is OURS else []),
        ):
            with pytest.raises(face.failure):
                await call()
        cluster.faults.remove(stalled)
        await producer.abort_transaction()
        await face.one_more(producer, cluster)


@in_virtual_time_on_every_release
async def test_records_behind_a_failure_fail_with_it(release: Release) -> None:
    async with in_transaction(release, b"ok", batch_size=0) as (cluster, producer):
        cluster.faults.error(29, FIRST)
        deliveries = [producer.send("t", b"%d" % number, partition=0) for number in range(50)]
        results = await asyncio.gather(*deliveries, return_exceptions=True)
        await producer.abort_transaction()

        assert isinstance(results[0], TopicAuthorizationError)
        late = results[-1]
        assert isinstance(late, TransactionAbortedError)
        assert isinstance(late.__cause__, TransactionAbortableError)
        await one_more(producer, cluster)


@in_virtual_time_on_every_release
async def test_commit_raises_when_all_records_timed_out(release: Release) -> None:
    async with transacting(release, request_timeout_ms=500, delivery_timeout_ms=1000) as (cluster, producer):
        await producer.begin_transaction()
        await producer.partitions_for("t")
        stalled = cluster.faults.stall(PRODUCE)
        for number in range(10):
            producer.send("t", b"%d" % number, partition=number % 2)

        with pytest.raises(TransactionAbortableError) as caught:
            await producer.commit_transaction()
        assert isinstance(caught.value.__cause__, DeliveryTimeoutError)
        cluster.faults.remove(stalled)
        await producer.abort_transaction()

        await one_more(producer, cluster)


@in_virtual_time_on_every_release
async def test_lost_sequence_opens_no_other_transaction(release: Release) -> None:
    """45 led to InitProducerId, earlier records were lost, and commit succeeded (librdkafka #3575)."""
    async with in_transaction(release, b"kept?", batch_size=0) as (cluster, producer):
        cluster.faults.error(45, FIRST)
        producer.send("t", b"lost", partition=0)
        producer.send("t", b"after", partition=0)

        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()
        assert asked(cluster).count("INIT_PRODUCER_ID") == 1
        await producer.abort_transaction()

        await one_more(producer, cluster)


@in_virtual_time_on_every_release
async def test_raised_error_fails_no_transaction(release: Release) -> None:
    """The record was never accepted, so the transaction continues without it."""
    async with transacting(release) as (cluster, producer):
        async with producer.transaction() as txn:
            with pytest.raises(RecordTooLargeError):
                await txn.enqueue("t", bytes(2_000_000))
            with pytest.raises(TypeError):
                await txn.send("t", "text")
            await txn.send("t", b"v", partition=0)

        assert committed(cluster) == [b"v"]


@pytest.mark.parametrize("fault", ["lost before", "lost after", "error after"])
@in_virtual_time_on_every_release
async def test_records_survive_lost_connections_and_leaders(release: Release, fault: str) -> None:
    async with transacting(release, batch_size=0) as (cluster, producer):
        async with producer.transaction() as txn:
            await txn.send("t", b"0", partition=0)
            if fault == "error after":
                cluster.faults.error_after_append(7, FIRST, skip=3)
            else:
                cluster.faults.drop_connection(PRODUCE, after_append=fault == "lost after", skip=3)
            for number in range(1, 20):
                await txn.enqueue("t", b"%d" % number, partition=0)

        assert committed(cluster) == [b"%d" % number for number in range(20)]


@in_virtual_time_on_every_release
async def test_wait_for_markers_uses_no_retries(release: Release) -> None:
    async with transacting(release, retries=1) as (cluster, producer):
        cluster.faults.error(51, FIRST, times=5)
        async with producer.transaction() as txn:
            await txn.send("t", b"kept", partition=0)
        cluster.faults.error(6, FIRST, times=2)
        with pytest.raises(BrokerError, match="NOT_LEADER"):
            async with producer.transaction() as txn:
                await txn.send("t", b"lost", partition=0)

        assert committed(cluster) == [b"kept"]


@in_virtual_time_on_every_release
async def test_markers_are_awaited_after_the_last_retry(release: Release) -> None:
    """Another failure had used up the retries."""
    async with transacting(release, retries=1) as (cluster, producer):
        cluster.faults.error(6, FIRST, times=1)
        async with producer.transaction() as txn:
            txn.send("t", b"kept", partition=0)
            while not any(each.api is ApiKey.PRODUCE for each in cluster.requests):  # noqa: ASYNC110  # nothing tells
                await asyncio.sleep(0.001)
            cluster.faults.error(51, FIRST, times=2)

        assert committed(cluster) == [b"kept"]


@on_both_faces
@pytest.mark.parametrize("code", [47, 90])
@in_virtual_time_on_every_release
async def test_fenced_by_a_leader_raises_at_every_call(release: Release, code: int, face: Face) -> None:
    """Only the first call raised ProducerFencedError once; the others raised the record's error."""
    async with cluster_of(release) as cluster, face.make(cluster) as producer:
        await producer.begin_transaction()
        cluster.faults.error(code, FIRST)
        with pytest.raises((BrokerError, face.fenced)):
            await (await face.send(producer, b"v"))
        if code == INVALID_PRODUCER_EPOCH and face is OURS:
            with pytest.raises(face.failure, match="INVALID_PRODUCER_EPOCH"):  # the abort decides whether it is fenced
                await producer.commit_transaction()
            return

        with pytest.raises(face.fenced):
            await producer.commit_transaction()
        calls = (producer.abort_transaction, producer.begin_transaction, lambda: face.send(producer, b"again"))
        for call in calls if code == PRODUCER_FENCED else ():
            with pytest.raises(face.fenced):
                await call()


@in_virtual_time_on_every_release
async def test_close_after_fencing_repeats_no_failures(release: Release) -> None:
    """In a `finally` they hid the ProducerFencedError that the program ended with."""
    async with in_transaction(release, b"a") as (cluster, producer):
        async with producer_of(cluster):
            await producer.enqueue("t", b"b", partition=0)
        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()
        with pytest.raises(ProducerFencedError):
            await producer.abort_transaction()
        with pytest.raises(ProducerFencedError):
            await producer.begin_transaction()

        await producer.close()


@on_v1
@in_virtual_time
async def test_close_reports_records_of_unawaited_end(release: Release) -> None:
    """No caller waited for the end, so none has learnt that the producer was fenced."""
    async with in_transaction(release, b"a") as (cluster, producer):
        cluster.faults.error(29, PRODUCE)
        await producer.enqueue("t", b"b", partition=0)
        await asyncio.sleep(1)
        cluster.faults.error(90, END_TXN, times=None)
        producer._transaction_handle().abandon()
        await asyncio.sleep(5)

        with pytest.raises(UndeliveredError):
            await producer.close()


async def check_failed(producer: Producer) -> None:
    calls: list[Callable[[], Awaitable[object]]] = [
        producer.begin_transaction,
        producer.commit_transaction,
        producer.abort_transaction,
        lambda: producer.send_offsets({TopicPartition("t", 0): 1}, "readers"),
        lambda: producer.send("t", b"v"),
    ]
    for call in calls:
        with pytest.raises(KafkaError, match="cannot go from"):
            await asyncio.wait_for(call(), 1)
    await asyncio.wait_for(producer.close(), 5)


@in_virtual_time_on_every_release
async def test_invalid_transition_in_background_is_fatal(release: Release) -> None:
    """A response causes it, so it is unknown what was left undone."""
    async with transacting(release) as (_, producer):
        await producer.begin_transaction()
        delivery = producer.send("t", b"v", partition=0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TransactionManager, "_end", lambda self, _: self._move_to(TransactionState.UNINITIALIZED))
            with pytest.raises(KafkaError, match="cannot go from"):
                await asyncio.wait_for(producer.commit_transaction(), 5)

        assert delivery.done()
        await check_failed(producer)


@in_virtual_time_on_every_release
async def test_defect_in_a_failure_callback_is_fatal(release: Release) -> None:
    """It happens in a callback of the loop, which no task awaits."""
    told: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

    def settle(completer: TransactionCompleter) -> None:
        del completer
        raise RuntimeError("cannot go from here")

    async with transacting(release) as (cluster, producer):
        await producer.begin_transaction()
        cluster.faults.error(INVALID_RECORD, FIRST)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TransactionCompleter, "settle", settle)
            with pytest.raises(KafkaError):
                await producer.send("t", b"v", partition=0)
            await asyncio.sleep(1)

        await check_failed(producer)
        assert committed(cluster) == []


@in_virtual_time_on_every_release
async def test_block_that_fails_to_begin_leaves_none_open(release: Release) -> None:
    """The transaction had begun, but no caller had its handle to end it."""

    def attach(*_: object) -> None:
        raise MemoryError

    async with transacting(release) as (cluster, producer):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Transaction, "_enable_sending", attach)
            with pytest.raises(MemoryError):
                await producer.transaction().__aenter__()

        async with producer.transaction() as txn:
            await txn.send("t", b"next", partition=0)
        await begin(producer, b"by its own verbs")
        await producer.commit_transaction()

        assert committed(cluster) == [b"next", b"by its own verbs"]


@in_virtual_time_on_every_release
async def test_response_after_the_deadline_is_ignored(release: Release) -> None:
    """`testReceiveFailedBatchTwiceWithTransactions`: INVALID_TXN_STATE for an expired batch was fatal."""
    options: ProducerOptions = {"delivery_timeout_ms": 1_000, "request_timeout_ms": 1_000, "max_block_ms": 5_000}
    async with in_transaction(release, **options) as (cluster, producer):
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


@on_v1
@in_virtual_time
async def test_refused_partition_fails_only_the_transaction(release: Release) -> None:
    """`testRecoveryFromAbortableErrorTransactionNotStarted`, `shouldNotSendAbortTxnRequestWhenOnlyAddPartitions...`."""
    async with transacting(release) as (cluster, producer):
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


@on_old_releases
@in_virtual_time
async def test_record_that_fails_costs_its_transaction_alone(release: Release) -> None:
    """The coordinator confirms the end, so a fresh identity fences no one."""
    async with transacting(release) as (cluster, producer):
        cluster.faults.error(29, FIRST)
        with pytest.raises(TransactionAbortableError):  # at its end
            async with producer.transaction() as txn:
                await txn.enqueue("t", b"refused", partition=0)

        await one_more(producer, cluster)
        assert asked(cluster).count("INIT_PRODUCER_ID") == 2
