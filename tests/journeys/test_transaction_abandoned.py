"""Transactions that another task ends, that no task waits for, or that are open at close.

Names like `testCommit` are of tests of Kafka's own producer.
"""

import asyncio
from collections.abc import Awaitable

import pytest

from aioproducer import (
    IllegalStateError,
    KafkaError,
    Producer,
    ProducerClosedError,
    TopicAuthorizationError,
    TopicPartition,
    TransactionAbortedError,
    TransactionalIdAuthorizationError,
    TransactionTimeoutError,
)
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.transactional_cluster import (
    ADD_OFFSETS,
    COMMIT_OFFSETS,
    END_TXN,
    FIND,
    INIT,
    PRODUCE,
    V1_RELEASE,
    V2_RELEASE,
    Release,
    begin,
    cluster_of,
    committed,
    in_transaction,
    in_virtual_time_on_every_release,
    on_v1,
    producer_of,
    transacting,
)
from tests.fakes.virtual_loop import in_virtual_time, now

CONCURRENT_TRANSACTIONS = 51
STEP_S = 0.002
OFFSETS = {TopicPartition("t", 1): 5, TopicPartition("t", 0): 4}


async def one_block(producer: Producer, value: bytes = b"v") -> None:
    async with producer.transaction() as txn:
        await txn.send("t", value, partition=1)


async def error_of(work: Awaitable[object]) -> tuple[str, float]:
    try:
        await work
    except Exception as error:  # noqa: BLE001  # that is the question
        return type(error).__name__, now()
    return "ok", now()


# What is said of an end


@in_virtual_time_on_every_release
async def test_commit_raises_after_abort_timed_out(release: Release) -> None:
    """Neither during the abort nor after it; a second call once joined an end that it had not asked for."""
    async with in_transaction(release, b"aborted", max_block_ms=300) as (cluster, producer):
        stalled = cluster.faults.stall(END_TXN)
        with pytest.raises(TransactionTimeoutError):
            await producer.abort_transaction()
        for _ in range(2):
            with pytest.raises(IllegalStateError, match="is being aborted"):
                await producer.commit_transaction()
        cluster.faults.remove(stalled)
        await asyncio.sleep(1)
        with pytest.raises(IllegalStateError, match="no transaction is open"):
            await producer.commit_transaction()

        assert committed(cluster) == []
        assert producer.statistics().transactions_committed == 0


@pytest.mark.parametrize("pause_s", [0.0, 5.0], ids=["at once", "when it is answered"])
@in_virtual_time_on_every_release
async def test_topic_recreated_during_commit_changes_nothing(release: Release, pause_s: float) -> None:
    """Only the response to EndTxn decides; once "must be aborted" was reported for a committed transaction."""
    topics = {"t": 2, "other": 1}
    async with cluster_of(release, 3, topics) as cluster, producer_of(cluster, metadata_max_age_ms=200) as producer:
        await begin(producer, b"gone")
        await producer.send("other", b"stays", partition=0)
        cluster.faults.delay(3.0, END_TXN, after_append=True)
        committing = asyncio.ensure_future(producer.commit_transaction())
        await asyncio.sleep(0.5)
        cluster.delete_topic("t")
        cluster.create_topic("t", 2)
        await asyncio.sleep(pause_s)

        await committing
        assert committed(cluster, "other") == [b"stays"]
        await one_block(producer)
        assert committed(cluster) == [b"v"]


@in_virtual_time_on_every_release
async def test_commit_ends_when_another_task_aborts(release: Release) -> None:
    """It used to wait until its time was over."""
    async with transacting(release) as (cluster, producer):
        await producer.begin_transaction()
        cluster.faults.delay(2.0, PRODUCE)
        left = producer.send("t", b"x", partition=0)
        committing = asyncio.ensure_future(error_of(producer.commit_transaction()))
        await asyncio.sleep(0.5)
        began = now()
        await producer.abort_transaction()

        assert await committing == (TransactionAbortedError.__name__, began)
        with pytest.raises(TransactionAbortedError):
            await left
        await one_block(producer)
        assert committed(cluster) == [b"v"]


@in_virtual_time_on_every_release
async def test_fatal_error_after_abortable_one_fails_producer(release: Release) -> None:
    """The second error was once ignored: flush succeeded, and the producer continued."""
    async with transacting(release) as (cluster, producer):
        await producer.begin_transaction()
        cluster.faults.error(29, PRODUCE)
        with pytest.raises(TopicAuthorizationError):
            await producer.send("t", b"x", partition=0)
        cluster.faults.error(53, END_TXN)
        with pytest.raises(TransactionalIdAuthorizationError):
            await producer.abort_transaction()

        with pytest.raises(TransactionalIdAuthorizationError):
            await producer.flush()
        assert " failed " in repr(producer)
        await producer.close()


# The turn


@in_virtual_time
async def test_repeated_commit_skips_another_tasks_transaction() -> None:
    """The first commit ended after its caller gave up; the next call must not commit half of another task's records."""
    async with transacting(V2_RELEASE) as (cluster, producer):
        await producer.begin_transaction()
        other = asyncio.ensure_future(producer.begin_transaction(wait=True))
        await asyncio.sleep(0)
        committing = asyncio.ensure_future(producer.commit_transaction())
        await asyncio.sleep(0)
        committing.cancel()
        await asyncio.wait([committing])
        await asyncio.sleep(0.5)

        await producer.commit_transaction()
        await other
        await producer.send("t", b"half", partition=0)
        seen = committed(cluster)
        await producer.abort_transaction()

        assert (committing.cancelled(), seen) == (True, [])


@in_virtual_time_on_every_release
async def test_commit_without_caller_releases_the_lock(release: Release) -> None:
    """No other task could begin otherwise."""
    async with in_transaction(release, b"x", max_block_ms=5000) as (cluster, producer):
        cluster.faults.delay(1.0, END_TXN)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.commit_transaction(), 0.1)
        await asyncio.create_task(one_block(producer, b"another's"))
        await one_block(producer, b"the same task's")

        assert committed(cluster) == [b"x", b"another's", b"the same task's"]


@in_virtual_time
async def test_callers_that_leave_do_not_keep_the_lock() -> None:
    """The lock is kept for one second for a caller that may return; a second caller's was once kept forever."""
    async with transacting(V2_RELEASE, max_block_ms=6_000) as (cluster, producer):

        async def leave(value: bytes) -> None:
            await producer.begin_transaction(wait=True)
            producer.send("t", value, partition=0)
            committing = asyncio.create_task(producer.commit_transaction())
            await asyncio.sleep(0)
            committing.cancel()
            await asyncio.wait([committing])

        for value in (b"a", b"b", b"c"):
            await asyncio.create_task(leave(value))
        await asyncio.create_task(one_block(producer))

        assert committed(cluster) == [b"a", b"b", b"c", b"v"]


@in_virtual_time_on_every_release
async def test_abandoned_failed_transaction_ends(release: Release) -> None:
    """Also long after the failure, when no other event would end it."""
    async with in_transaction(release, b"x", max_block_ms=6_000) as (cluster, producer):
        in_hand = producer._transaction_handle()
        producer._reject_commit(KafkaError("it must not be committed"))
        await asyncio.sleep(10)
        in_hand.abandon()

        began = now()
        await asyncio.create_task(one_block(producer))
        assert now() - began < 1
        assert committed(cluster) == [b"v"]


@in_virtual_time
async def test_late_end_does_not_release_the_next_lock() -> None:
    """B begins during A's commit: when A learns of the end, B holds the lock and C waits for it."""
    async with in_transaction(V2_RELEASE, b"a") as (cluster, producer):
        cluster.faults.delay(0.5, END_TXN)
        committing = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(0.1)
        await producer.begin_transaction()
        await committing
        third = asyncio.create_task(one_block(producer, b"c"))
        await asyncio.sleep(0.1)
        await producer.send("t", b"b", partition=0)
        assert not third.done()
        await producer.commit_transaction()
        await third

        assert committed(cluster) == [b"a", b"b", b"c"]


@in_virtual_time
async def test_begin_that_times_out_keeps_anothers_lock() -> None:
    """A second begin is refused while the first waits, and once released the first one's lock."""
    async with cluster_of(V2_RELEASE) as cluster:
        stalled = cluster.faults.stall(INIT)
        producer = await producer_of(cluster, max_block_ms=1000).start(wait=False)
        beginning = asyncio.create_task(error_of(producer.begin_transaction()))
        await asyncio.sleep(0.5)
        with pytest.raises(IllegalStateError, match="open already"):
            await producer.begin_transaction()
        assert (await beginning)[0] == TransactionTimeoutError.__name__
        cluster.faults.remove(stalled)
        await producer.begin_transaction()
        waiting = asyncio.create_task(one_block(producer))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await producer.commit_transaction()
        await waiting
        await producer.close()


# Calls that wait when the producer ends


@pytest.mark.parametrize("is_fatal", [False, True], ids=["closed", "failed"])
@in_virtual_time_on_every_release
async def test_waiting_begin_fails_when_producer_ends(release: Release, *, is_fatal: bool) -> None:
    """It used to wait, and then report another task's open transaction."""
    async with transacting(release) as (cluster, producer):
        await producer.begin_transaction()
        waiting = asyncio.ensure_future(error_of(one_block(producer)))
        await asyncio.sleep(0.1)
        if is_fatal:
            cluster.faults.error(53, PRODUCE)
            with pytest.raises(TransactionalIdAuthorizationError):
                await producer.send("t", b"x", partition=0)
        else:
            await producer.close()
        ended = now()

        kind = TransactionalIdAuthorizationError if is_fatal else ProducerClosedError
        assert await waiting == (kind.__name__, ended)


@in_virtual_time
async def test_begin_paused_for_strays_fails_at_close() -> None:
    """The pause after an unanswered InitProducerId is half a minute."""
    async with transacting(V1_RELEASE) as (cluster, producer):
        cluster.faults.drop_connection(END_TXN, after_append=True)
        dropped = cluster.faults.drop_connection(INIT, after_append=True)
        await one_block(producer)
        beginning = asyncio.ensure_future(error_of(producer.begin_transaction()))
        await asyncio.sleep(3)
        assert (dropped.hits, beginning.done()) == (1, False)
        await producer.close()

        assert await beginning == (ProducerClosedError.__name__, now())


@pytest.mark.parametrize("is_fatal", [False, True], ids=["closed", "failed"])
@in_virtual_time
async def test_committed_offsets_fail_when_producer_ends(*, is_fatal: bool) -> None:
    """The call used to ask a closed client until its time was over."""
    async with cluster_of(V2_RELEASE, nodes=2) as cluster:
        cluster.move_leader("t", 0, 2)
        cluster.move_coordinator("g", 1)  # not where records go: those would stand behind its answer
        producer = await producer_of(cluster).start()
        cluster.faults.stall(Where(api=ApiKey.OFFSET_FETCH))
        asking = asyncio.ensure_future(error_of(producer.committed_offsets("g", [TopicPartition("t", 0)])))
        await asyncio.sleep(1)
        if is_fatal:
            await producer.begin_transaction()
            cluster.faults.error(53, PRODUCE)
            with pytest.raises(TransactionalIdAuthorizationError):
                await producer.send("t", b"x", partition=0)
        else:
            await producer.close()
        ended = now()

        kind = TransactionalIdAuthorizationError if is_fatal else ProducerClosedError
        assert await asking == (kind.__name__, ended)
        await producer.close()


@pytest.mark.parametrize("where", [FIND, INIT], ids=["FindCoordinator", "InitProducerId"])
@in_virtual_time_on_every_release
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
    async with transacting(release) as (cluster, producer):
        await producer.begin_transaction()
        cluster.faults.stall(where)
        waiting = asyncio.ensure_future(producer.send_offsets(OFFSETS, "readers"))
        await asyncio.sleep(0.5)

        await asyncio.wait_for(producer.close(0), 1)

        with pytest.raises(ProducerClosedError):
            await asyncio.wait_for(waiting, 1)


@in_virtual_time_on_every_release
async def test_close_lets_a_running_commit_end(release: Release) -> None:
    """`testTransactionalRequestsSentOnShutdown`: if there is time."""
    async with in_transaction(release) as (cluster, producer):
        cluster.faults.stall(END_TXN)
        waiting = asyncio.ensure_future(producer.commit_transaction())
        await asyncio.sleep(0.5)
        asyncio.get_running_loop().call_later(1, cluster.faults.clear)

        await producer.close(5)

        await waiting
        assert committed(cluster) == [b"v"]


# Clocks


class HastyClock(asyncio.SelectorEventLoop):
    """Two milliseconds go by with every look at the clock: a pause may be over between two looks."""

    gone_by_s = 0.0

    def time(self) -> float:
        self.gone_by_s += STEP_S
        return super().time() + self.gone_by_s


async def commit_some(count: int) -> list[bytes | None]:
    async with FakeCluster(nodes=1, topics={"t": 1}) as cluster:
        producer = Producer(cluster.bootstrap_servers, transactional_id="clock", max_block_ms=20_000)
        await producer.start()
        for number in range(count):
            cluster.faults.error(CONCURRENT_TRANSACTIONS, Where(api=ApiKey.END_TXN), times=2)
            async with producer.transaction() as txn:
                await txn.enqueue("t", b"%d" % number)
        await producer.close()
        return [record.value for record in cluster.records("t", 0)]


def test_pause_that_ends_between_clock_readings_ends() -> None:
    """The next request is sent; the task once slept forever."""
    with asyncio.Runner(loop_factory=HastyClock) as runner:
        assert runner.run(commit_some(40)) == [b"%d" % number for number in range(40)]
