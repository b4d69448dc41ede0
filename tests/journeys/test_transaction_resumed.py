"""Cancelled, timed out, and called again; starting with a transactional id, and what changes meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aioproducer import (
    BrokerError,
    IllegalStateError,
    KafkaError,
    Producer,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionalIdAuthorizationError,
    TransactionTimeoutError,
)
from tests.fakes.transactional_cluster import (
    END_TXN,
    INIT,
    PRODUCE,
    V1_OF_4,
    V1_RELEASE,
    V2_RELEASE,
    Release,
    asked,
    cluster_of,
    committed,
    on_every_release,
    one_more,
    producer_of,
)
from tests.fakes.virtual_cluster import in_virtual_time

WITHOUT_IDS = Release(profile="2.4", transaction_version=0)
"""Of topics."""

# Cancelled, timed out, and called again


@on_every_release
@pytest.mark.parametrize("verb", ["commit_transaction", "abort_transaction"])
@pytest.mark.parametrize("waits", [0.0, 0.05, 0.5])
@in_virtual_time
async def test_end_that_was_cancelled_is_joined_by_the_same_call(release: Release, verb: str, waits: float) -> None:
    """Aiokafka's next call failed with an AssertionError."""
    async with cluster_of(release) as cluster, producer_of(cluster) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        delayed = cluster.faults.delay(0.2, END_TXN, after_append=False)
        end: Callable[[], Awaitable[None]] = getattr(producer, verb)
        ending = asyncio.ensure_future(end())
        await asyncio.sleep(0.1)
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
        await asyncio.sleep(waits)

        await end()

        assert (delayed.hits, asked(cluster).count("END_TXN")) == (1, 1)
        assert committed(cluster) == ([b"v"] if verb == "commit_transaction" else [])
        with pytest.raises(IllegalStateError):
            await end()


@on_every_release
@in_virtual_time
async def test_commit_that_waits_to_be_sent_is_not_sent_once_an_abort_is_wanted(release: Release) -> None:
    """Whoever was told of an abort must not find the records committed."""
    async with cluster_of(release) as cluster, producer_of(cluster) as producer:
        cluster.faults.throttle(1_000, PRODUCE)
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.commit_transaction(), 0.5)

        await producer.abort_transaction()

        assert (asked(cluster).count("END_TXN"), committed(cluster)) == (1, [])
        await one_more(producer, cluster)


@on_every_release
@in_virtual_time
async def test_begin_after_a_cancelled_commit_waits_for_it(release: Release) -> None:
    """It is not lost, and not torn."""
    async with cluster_of(release) as cluster, producer_of(cluster) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"first", partition=0)
        cluster.faults.delay(0.2, END_TXN, after_append=False)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.commit_transaction(), 0.1)
        await producer.begin_transaction()
        await producer.send("t", b"second", partition=0)
        await producer.commit_transaction()

        assert committed(cluster) == [b"first", b"second"]


@on_every_release
@in_virtual_time
async def test_commit_times_out_with_max_block_ms_and_goes_on(release: Release) -> None:
    """The same call joins it (KAFKA-13412)."""
    async with cluster_of(release) as cluster, producer_of(cluster, max_block_ms=300) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        stalled = cluster.faults.stall(END_TXN)
        for _ in range(2):
            with pytest.raises(TransactionTimeoutError, match="not committed after max_block_ms=300"):
                await producer.commit_transaction()
        with pytest.raises(IllegalStateError, match=r"await commit_transaction\(\) again"):
            await producer.abort_transaction()
        cluster.faults.remove(stalled)

        await producer.commit_transaction()

        assert committed(cluster) == [b"v"]


@on_every_release
@in_virtual_time
async def test_block_that_is_cancelled_aborts_and_leaves_the_next_one_alone(release: Release) -> None:
    """In the body, and while it commits."""
    async with cluster_of(release) as cluster, producer_of(cluster) as producer:

        async def work(name: bytes, seconds: float) -> None:
            async with producer.transaction() as txn:
                await txn.send("t", name, partition=0)
                await asyncio.sleep(seconds)

        for name, seconds in ((b"in the body", 5), (b"in the commit", 0)):
            cluster.faults.delay(1.0, END_TXN, after_append=False)
            task = asyncio.ensure_future(work(name, seconds))
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        async with producer.transaction() as txn:
            await txn.send("t", b"after", partition=0)

        assert committed(cluster) == [b"in the commit", b"after"]


@on_every_release
@in_virtual_time
async def test_exception_of_the_body_wins_over_the_aborts(release: Release) -> None:
    """A failure to abort becomes its note."""
    async with cluster_of(release) as cluster:
        producer = await producer_of(cluster, max_block_ms=200).start()
        stalled = cluster.faults.stall(END_TXN)
        with pytest.raises(LookupError, match="the body's own") as caught:  # noqa: PT012  # it is the end of the block that raises
            async with producer.transaction() as txn:
                await txn.send("t", b"v", partition=0)
                raise LookupError("the body's own")

        assert "the transaction was not aborted" in "\n".join(caught.value.__notes__)
        cluster.faults.remove(stalled)
        await asyncio.sleep(1)
        async with producer.transaction() as txn:
            await txn.send("t", b"next", partition=0)
        assert committed(cluster) == [b"next"]
        await producer.close()


# Starting


@on_every_release
@pytest.mark.parametrize(
    "code, kind", [(53, TransactionalIdAuthorizationError), (90, ProducerFencedError), (50, BrokerError)]
)
@in_virtual_time
async def test_start_says_what_no_transaction_can_get_over(release: Release, code: int, kind: type[KafkaError]) -> None:
    """Librdkafka 1.9 retried being fenced for ever; Kafka's was wedged by a missing right (KAFKA-13668)."""
    async with cluster_of(release) as cluster:
        cluster.faults.error(code, INIT)

        with pytest.raises(kind):
            await producer_of(cluster).start()

        assert asked(cluster) == ["INIT_PRODUCER_ID"]
        async with producer_of(cluster) as producer:
            await one_more(producer, cluster)


@on_every_release
@in_virtual_time
async def test_start_that_times_out_leaves_nothing_and_can_be_tried_with_another(release: Release) -> None:
    """No coordinator answers within max_block_ms."""
    async with cluster_of(release) as cluster:
        stalled = cluster.faults.stall(INIT)
        with pytest.raises(TransactionTimeoutError, match="there is no identity for transactional_id 'billing-1'"):
            await producer_of(cluster, max_block_ms=500).start()
        cluster.faults.remove(stalled)

        async with producer_of(cluster) as producer:
            await one_more(producer, cluster)


@on_every_release
@in_virtual_time
async def test_initialisation_can_be_waited_for_again(release: Release) -> None:
    """Started without waiting; the first wait times out (KAFKA-13412)."""
    async with cluster_of(release) as cluster:
        stalled = cluster.faults.stall(INIT)
        producer = await producer_of(cluster, max_block_ms=300).start(wait=False)
        for call in (producer.init_transactions, producer.begin_transaction):
            with pytest.raises(TransactionTimeoutError):
                await call()
        cluster.faults.remove(stalled)

        await producer.init_transactions()
        await one_more(producer, cluster)
        await producer.close()


# Topics and clusters that change


@on_every_release
@in_virtual_time
async def test_topic_that_is_made_again_within_a_transaction_ends_it(release: Release) -> None:
    """What was acknowledged is gone with the old topic: it must not be committed as if it were whole."""
    async with cluster_of(release) as cluster, producer_of(cluster, metadata_max_age_ms=200) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"gone", partition=0)
        cluster.delete_topic("t")
        cluster.create_topic("t", 2)
        await asyncio.sleep(1)

        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        await one_more(producer, cluster)


async def one_to_each(producer: Producer, keys: list[bytes]) -> None:
    """A whole transaction of one record for each key."""
    async with producer.transaction() as txn:
        await asyncio.gather(*(txn.send("t", b"next", key=key) for key in keys))


@on_every_release
@in_virtual_time
async def test_topic_that_is_made_again_between_transactions_is_no_trouble(release: Release) -> None:
    """Sequences begin at 0 again."""
    async with cluster_of(release) as cluster, producer_of(cluster, metadata_max_age_ms=200) as producer:
        async with producer.transaction() as txn:
            await txn.send("t", b"gone", partition=0)
        cluster.delete_topic("t")
        cluster.create_topic("t", 2)
        await asyncio.sleep(1)

        await one_more(producer, cluster)


@pytest.mark.parametrize("release", [WITHOUT_IDS, V1_RELEASE, V1_OF_4, V2_RELEASE])
@in_virtual_time
async def test_topic_that_is_made_again_smaller_between_transactions_costs_one_of_them(release: Release) -> None:
    """With V1 nothing is sent before the coordinator knows the partition: it is the only one to say what is gone."""
    async with (
        cluster_of(release, topics={"t": 8}, auto_create_topics=False) as cluster,
        producer_of(cluster, metadata_max_age_ms=3_600_000) as producer,
    ):
        keys = [b"%d" % number for number in range(20)]
        async with producer.transaction() as txn:
            await asyncio.gather(*(txn.send("t", b"gone", key=key) for key in keys))
        cluster.delete_topic("t")
        cluster.create_topic("t", 2)

        with pytest.raises(KafkaError, match="made again"):
            await asyncio.wait_for(one_to_each(producer, keys), 5)
        await one_to_each(producer, keys)

        assert committed(cluster) == [b"next"] * 20


@in_virtual_time
async def test_cluster_that_is_upgraded_and_downgraded_is_followed() -> None:
    """Each transaction speaks what the cluster had finalized when its connections were made (KIP-890)."""
    async with cluster_of(V1_OF_4) as cluster, producer_of(cluster) as producer:
        for level in (0, 2, 0, 2):
            cluster.finalize_transaction_version(level)
            await cluster.kill(1)
            await cluster.restart(1)
            await asyncio.sleep(2)
            async with producer.transaction() as txn:
                await txn.send("t", b"%d" % level, partition=0)

        assert committed(cluster) == [b"0", b"2", b"0", b"2"]
