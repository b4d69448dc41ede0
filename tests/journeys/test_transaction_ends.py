"""The end of a transaction: repeated until it is done, and never said to be done when it is not.

Where a test is a defect that another producer had, it names it.
"""

import asyncio

import pytest

from aioproducer import (
    BrokerError,
    Outcome,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionalIdAuthorizationError,
)
from aioproducer.testing import ApiKey, Where
from tests.fakes.transactional_cluster import (
    ADD_PARTITIONS,
    END_TXN,
    FIRST,
    V2_RELEASE,
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


@on_every_release
@pytest.mark.parametrize("code", [-1, 14, 15, 16, 51])
@in_virtual_time
async def test_end_is_repeated_until_it_is_done(release: Release, code: int) -> None:
    """UNKNOWN_SERVER_ERROR, then a retry that did nothing, was "committed" (franz-go before 1.21.4)."""
    async with cluster_of(release) as cluster, producer_of(cluster) as producer:
        cluster.faults.error(code, END_TXN, times=3)
        async with producer.transaction() as txn:
            await txn.send("t", b"v", partition=0)

        assert committed(cluster) == [b"v"]
        assert asked(cluster).count("END_TXN") == 4


@on_every_release
@pytest.mark.parametrize("verb", ["commit", "abort"])
@pytest.mark.parametrize("after", [False, True], ids=["before it is done", "after it is done"])
@in_virtual_time
async def test_unanswered_end_is_repeated_and_means_the_same(
    release: Release,
    verb: str,
    after: bool,  # noqa: FBT001
) -> None:
    """The connection was lost: whether it was done is found out."""
    async with cluster_of(release) as cluster, producer_of(cluster) as producer:
        cluster.faults.drop_connection(END_TXN, after_append=after)
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        await (producer.commit_transaction if verb == "commit" else producer.abort_transaction)()
        assert committed(cluster) == ([b"v"] if verb == "commit" else [])

        await producer.begin_transaction()
        await producer.send("t", b"w", partition=0)
        await producer.commit_transaction()
        assert committed(cluster)[-1:] == [b"w"]


@on_every_release
@pytest.mark.parametrize("code", [90, 53])
@in_virtual_time
async def test_commit_that_is_refused_for_good_never_seems_fine(release: Release, code: int) -> None:
    """Librdkafka before 1.6 told nobody that it had been fenced."""
    async with cluster_of(release) as cluster:
        producer = await producer_of(cluster).start()
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        cluster.faults.error(code, END_TXN)

        kind = ProducerFencedError if code == 90 else TransactionalIdAuthorizationError
        with pytest.raises(kind):
            await producer.commit_transaction()
        with pytest.raises(kind):
            await producer.begin_transaction()
        await producer.close()


@on_every_release
@pytest.mark.parametrize("is_lost", [True, False])
@in_virtual_time
async def test_commit_whose_answer_is_lost_before_a_successor_comes_is_not_said_to_be_none(
    release: Release,
    is_lost: bool,  # noqa: FBT001
) -> None:
    """It was committed; a command said "nothing of it is there", and its user sent everything again."""
    async with cluster_of(release) as cluster:
        loser = await producer_of(cluster, request_timeout_ms=3000).start()
        await loser.begin_transaction()
        await loser.send("t", b"v", partition=0)
        if is_lost:
            cluster.faults.delay(30, END_TXN)
            commit = asyncio.create_task(loser.commit_transaction())
            await asyncio.sleep(1)
        async with producer_of(cluster):
            if not is_lost:
                commit = asyncio.create_task(loser.commit_transaction())
            with pytest.raises(ProducerFencedError) as caught:
                await commit
            with pytest.raises(ProducerFencedError) as later:
                await loser.begin_transaction()
        await loser.close()

        assert committed(cluster) == ([b"v"] if is_lost else [])
        assert caught.value.outcome is (Outcome.UNKNOWN if is_lost else None)
        assert ("not known" in "".join(getattr(caught.value, "__notes__", []))) is is_lost
        assert later.value.outcome is None


@in_virtual_time
async def test_v2_transaction_that_timed_out_costs_no_producer_also_where_its_commit_is_called_fenced() -> None:
    """Kafka after 4.4 answers so (KAFKA-20785); the producer was at its end, though nobody had fenced it."""
    async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster, transaction_timeout_ms=1000) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        await asyncio.sleep(60)
        cluster.faults.error(90, END_TXN)

        with pytest.raises(TransactionAbortableError, match="timed out"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        await one_more(producer, cluster)


@in_virtual_time
async def test_v2_abort_that_a_coordinator_mistakes_for_a_copy_ends_all_the_same() -> None:
    """One that was being shut down answered PRODUCER_FENCED; a worker that nobody had fenced was at its end."""
    async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        cluster.faults.error(90, END_TXN)
        await producer.abort_transaction()
        await one_more(producer, cluster)


@pytest.mark.parametrize("code", [47, 90])
@in_virtual_time
async def test_v2_abort_of_who_was_called_outdated_before_asks_for_no_other_identity(code: int) -> None:
    """A leader has seen a newer epoch, so the refusal is no mistake: to ask would fence whoever took over."""
    async with cluster_of(V2_RELEASE) as cluster:
        producer = await producer_of(cluster).start()
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        cluster.faults.error(47, FIRST)
        cluster.faults.error(code, END_TXN)
        with pytest.raises(BrokerError):
            await producer.send("t", b"w", partition=0)

        with pytest.raises(ProducerFencedError):
            await producer.abort_transaction()
        await producer.close(0)

        assert asked(cluster).count("INIT_PRODUCER_ID") == 1


@on_v1
@in_virtual_time
async def test_failed_addition_of_one_partition_does_not_forget_the_others(release: Release) -> None:
    """It un-marked those added before, so commit skipped EndTxn and said yes (franz-go)."""
    async with cluster_of(release) as cluster, producer_of(cluster) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        cluster.faults.error(29, ADD_PARTITIONS)
        producer.send("t", b"w", partition=1)

        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()

        assert asked(cluster)[-1] == "END_TXN"
        await one_more(producer, cluster)


@on_v1
@in_virtual_time
async def test_partition_is_never_written_to_before_the_coordinator_knows_of_it(release: Release) -> None:
    """Also where a full batch sends a record elsewhere than it was meant for (KAFKA-13782)."""
    async with cluster_of(release, topics={"t": 8}) as cluster, producer_of(cluster, batch_size=200) as producer:  # noqa: PLR1702  # blocks within blocks are what it is about
        for _ in range(3):
            async with producer.transaction() as txn:
                for number in range(100):
                    await txn.enqueue("t", b"%d" % number * 10)

        assert len(committed(cluster)) == 300


@on_v1
@in_virtual_time
async def test_partition_that_is_being_added_does_not_stop_the_others(release: Release) -> None:
    """Those that the coordinator knows are sent to meanwhile."""
    async with cluster_of(release, 2) as cluster, producer_of(cluster) as producer:
        cluster.move_leader("t", 0, 1)
        cluster.move_coordinator("billing-1", 2)
        async with producer.transaction() as txn:
            await txn.send("t", b"a", partition=0)
            adding = cluster.faults.delay(5.0, ADD_PARTITIONS)
            slow = txn.send("t", b"c", partition=1)
            began = asyncio.get_running_loop().time()
            await txn.send("t", b"b", partition=0)
            assert (adding.hits, slow.done()) == (1, False)
            assert asyncio.get_running_loop().time() - began < 5
            await slow

        assert committed(cluster) == [b"a", b"b", b"c"]


@in_virtual_time
async def test_record_that_is_given_up_with_a_failed_transaction_says_why_that_failed() -> None:
    """Also where its caller aborts in the very turn in which another record fails."""
    async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster) as producer:
        cluster.faults.error(29, FIRST)
        cluster.faults.error(19, Where(api=ApiKey.PRODUCE, topic="t", partition=1), times=None)
        await producer.begin_transaction()
        producer.send("t", b"v", partition=0)
        waiting = producer.send("t", b"v", partition=1)
        while not producer.statistics().records_failed:  # noqa: ASYNC110  # it must be seen in the very turn
            await asyncio.sleep(0)
        assert not waiting.done()
        await producer.abort_transaction()

        error = waiting.exception()
        assert isinstance(error, TransactionAbortedError)
        assert isinstance(error.__cause__, TransactionAbortableError)
