"""Lost and late requests, restarts, recreated topics, identities, and changes of `transaction.version`.

Names like `testCommit` are of tests of Kafka's own producer.
"""

import asyncio
from typing import Final

import pytest

from aioproducer import (
    BrokerError,
    KafkaError,
    Producer,
    ProducerFencedError,
    TopicAuthorizationError,
    TopicPartition,
    TransactionAbortableError,
    TransactionalIdAuthorizationError,
    TransactionTimeoutError,
)
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.transactional_cluster import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    COMMIT_OFFSETS,
    END_TXN,
    FIND,
    FIRST,
    INIT,
    PRODUCE,
    V1_OF_4,
    V1_RELEASE,
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
from tests.fakes.virtual_loop import in_virtual_time, now

OFFSETS: Final = {TopicPartition("t", 0): 4, TopicPartition("t", 1): 5}
OF_V1: Final = {ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN}
WITHOUT_IDS = Release(profile="2.4", transaction_version=0)  # of topics
on_both_ends = pytest.mark.parametrize("verb", ["commit_transaction", "abort_transaction"])


def on_each_that_asks(*rows: Where) -> pytest.MarkDecorator:
    names = {"3.9.1": V1_RELEASE, "4.4.0 with V1": V1_OF_4, "4.4.0": V2_RELEASE}
    pairs = [
        pytest.param(release, where, id=f"{name}-{where.api.name if where.api is not None else 'any'}")
        for name, release in names.items()
        for where in rows
        if release is not V2_RELEASE or where.api not in OF_V1
    ]
    return pytest.mark.parametrize("release, where", pairs)


async def found_offsets(producer: Producer) -> dict[TopicPartition, int | None]:
    found = await producer.committed_offsets("readers", OFFSETS.keys())
    return {place: offset.offset for place, offset in found.items() if offset is not None}


async def next_one_is_whole(producer: Producer, cluster: FakeCluster, before: list[bytes]) -> None:
    async with producer.transaction() as txn:
        await txn.send("t", b"next", partition=1)
        await txn.send_offsets({place: offset + 100 for place, offset in OFFSETS.items()}, "readers")
    assert committed(cluster) == [*before, b"next"]
    assert await found_offsets(producer) == {place: offset + 100 for place, offset in OFFSETS.items()}


@pytest.mark.parametrize("after", [False, True], ids=["before it is done", "after it is done"])
@pytest.mark.parametrize("verb", ["commit", "abort"])
@on_each_that_asks(FIND, INIT, ADD_PARTITIONS, PRODUCE, ADD_OFFSETS, COMMIT_OFFSETS, END_TXN)
@in_virtual_time
async def test_transaction_survives_any_lost_request(release: Release, where: Where, *, verb: str, after: bool) -> None:
    """Its connection is lost with it, and the producer finds out whether it was done."""
    async with cluster_of(release) as cluster:
        lost = cluster.faults.drop_connection(where, after_append=after)
        async with producer_of(cluster) as producer:
            await begin(producer)
            await producer.send_offsets(OFFSETS, "readers")
            await (producer.commit_transaction if verb == "commit" else producer.abort_transaction)()

            assert lost.hits == 1
            is_commit = verb == "commit"
            assert committed(cluster) == ([b"v"] if is_commit else [])
            assert await found_offsets(producer) == (OFFSETS if is_commit else {})
            await next_one_is_whole(producer, cluster, [b"v"] if is_commit else [])


@pytest.mark.parametrize("ends", ["answered late", "connection lost"])
@on_each_that_asks(ADD_PARTITIONS, PRODUCE, ADD_OFFSETS, COMMIT_OFFSETS)
@in_virtual_time
async def test_abort_during_a_hanging_request_is_clean(release: Release, where: Where, ends: str) -> None:
    """The request may take effect before the end or not at all, but never in the next transaction."""
    async with transacting(release, request_timeout_ms=1_500, delivery_timeout_ms=20_000) as (cluster, producer):
        await producer.begin_transaction()
        hanging = cluster.faults.stall(where)
        record = producer.send("t", b"v", partition=0)
        offsets = asyncio.ensure_future(producer.send_offsets(OFFSETS, "readers"))
        await asyncio.sleep(0.5)
        assert hanging.hits

        aborting = asyncio.ensure_future(producer.abort_transaction())
        await asyncio.sleep(0.5 if ends == "answered late" else 2.5)
        cluster.faults.remove(hanging)
        await asyncio.wait_for(aborting, 10)

        await asyncio.gather(record, offsets, return_exceptions=True)
        assert committed(cluster) == []
        assert await found_offsets(producer) == {}
        await next_one_is_whole(producer, cluster, [])


# Late copies


@on_v1
@in_virtual_time
async def test_v1_late_produce_is_not_committed(release: Release) -> None:
    """Seen on real brokers without the guard: aborted records became visible (Jepsen, KIP-890)."""
    async with in_transaction(release, b"acknowledged", request_timeout_ms=1000, batch_size=0) as (cluster, producer):
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
async def test_v1_late_end_spares_the_next_transaction(release: Release) -> None:
    """A stray commit of one transaction committed the next one."""
    async with transacting(release, request_timeout_ms=1000) as (cluster, producer):
        cluster.faults.delay(4.0, END_TXN, after_append=False)
        async with producer.transaction() as txn:
            await txn.send("t", b"first", partition=0)
        await begin(producer, b"never")
        await asyncio.sleep(8)
        await producer.abort_transaction()

        assert committed(cluster) == [b"first"]


@in_virtual_time
async def test_v2_late_copies_have_an_older_epoch() -> None:
    """Produce and EndTxn alike, without further requests."""
    async with in_transaction(V2_RELEASE, b"acknowledged", request_timeout_ms=1000, batch_size=0) as (
        cluster,
        producer,
    ):
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
async def test_v1_takes_new_epoch_only_after_strays(release: Release) -> None:
    """An aborted transaction whose batches were all answered needs none."""
    async with in_transaction(release) as (cluster, producer):
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
async def test_v1_abort_waits_for_all_attempts(release: Release) -> None:
    """Otherwise the marker would come before records of the transaction."""
    async with in_transaction(release) as (cluster, producer):
        cluster.faults.delay(3.0, PRODUCE)
        producer.send("t", b"w", partition=0)
        await asyncio.sleep(0.1)
        began = now()
        await producer.abort_transaction()

        assert now() - began > 2.5
        await one_more(producer, cluster)


# Time-outs


@in_virtual_time
async def test_v2_timed_out_transaction_is_aborted() -> None:
    """The producer continues under the epoch of the EndTxn response."""
    async with transacting(V2_RELEASE, transaction_timeout_ms=2000) as (cluster, producer):
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
async def test_v1_timed_out_transaction_is_fatal(release: Release) -> None:
    """The identity could only be kept by fencing a successor."""
    async with in_transaction(release, transaction_timeout_ms=2000) as (cluster, producer):
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


# Starting


@pytest.mark.parametrize(
    "code, kind", [(53, TransactionalIdAuthorizationError), (90, ProducerFencedError), (50, BrokerError)]
)
@in_virtual_time_on_every_release
async def test_start_raises_fatal_refusals(release: Release, code: int, kind: type[KafkaError]) -> None:
    """Librdkafka 1.9 retried being fenced forever; Kafka's client hung without a permission (KAFKA-13668)."""
    async with cluster_of(release) as cluster:
        cluster.faults.error(code, INIT)

        with pytest.raises(kind):
            await producer_of(cluster).start()

        assert asked(cluster) == ["INIT_PRODUCER_ID"]
        async with producer_of(cluster) as producer:
            await one_more(producer, cluster)


@in_virtual_time_on_every_release
async def test_start_that_times_out_leaves_nothing(release: Release) -> None:
    """No coordinator responds within max_block_ms; another producer can start."""
    async with cluster_of(release) as cluster:
        stalled = cluster.faults.stall(INIT)
        with pytest.raises(TransactionTimeoutError, match="there is no identity for transactional_id 'billing-1'"):
            await producer_of(cluster, max_block_ms=500).start()
        cluster.faults.remove(stalled)

        async with producer_of(cluster) as producer:
            await one_more(producer, cluster)


@in_virtual_time_on_every_release
async def test_initialization_can_be_awaited_again(release: Release) -> None:
    """The first wait, after a start without waiting, times out (KAFKA-13412)."""
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


async def one_to_each(producer: Producer, keys: list[bytes]) -> None:
    async with producer.transaction() as txn:
        await asyncio.gather(*(txn.send("t", b"next", key=key) for key in keys))


@pytest.mark.parametrize("release", [WITHOUT_IDS, V1_RELEASE, V1_OF_4, V2_RELEASE])
@in_virtual_time
async def test_topic_recreated_smaller_fails_one_transaction(release: Release) -> None:
    """Under V1 only the coordinator can report the missing partition, since nothing is sent before."""
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
async def test_upgrades_and_downgrades_are_followed() -> None:
    """Each transaction uses the version finalized when its connections were made (KIP-890)."""
    async with transacting(V1_OF_4) as (cluster, producer):
        for level in (0, 2, 0, 2):
            cluster.finalize_transaction_version(level)
            await cluster.kill(1)
            await cluster.restart(1)
            await asyncio.sleep(2)
            async with producer.transaction() as txn:
                await txn.send("t", b"%d" % level, partition=0)

        assert committed(cluster) == [b"0", b"2", b"0", b"2"]


async def restart(cluster: FakeCluster) -> None:
    await cluster.kill(1)
    await cluster.restart(1)
    cluster.move_coordinator("billing-1", 1)


async def end(producer: Producer, verb: str) -> None:
    await getattr(producer, verb)()


async def check_next(producer: Producer, cluster: FakeCluster, before: list[bytes], *, verb: str) -> None:
    async with producer.transaction() as txn:
        await txn.send("t", b"next", partition=0)

    assert committed(cluster) == [*(before if verb == "commit_transaction" else []), b"next"]


@on_both_ends
@pytest.mark.parametrize("is_told", [False, True], ids=["unnoticed", "told"])
@in_virtual_time
async def test_upgrade_within_a_transaction(verb: str, *, is_told: bool) -> None:
    """It continues as it began; the next one is V2, with an epoch of its own."""
    async with in_transaction(V1_OF_4, b"before") as (cluster, producer):
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
async def test_downgrade_noticed_within_a_transaction(verb: str, wait_s: float) -> None:
    """It ends as V1: EndTxn 5 would be refused, and the transactional id with it."""
    async with in_transaction(V2_RELEASE, b"before") as (cluster, producer):
        cluster.finalize_transaction_version(0)
        await restart(cluster)
        await asyncio.sleep(wait_s)
        await end(producer, verb)

        await check_next(producer, cluster, [b"before"], verb=verb)


@on_both_ends
@in_virtual_time
async def test_downgrade_unnoticed_within_a_transaction(verb: str) -> None:
    """Its end is refused, and waits for another coordinator."""
    async with in_transaction(V2_RELEASE, b"before", max_block_ms=5_000) as (cluster, producer):
        cluster.finalize_transaction_version(0)
        with pytest.raises(TransactionTimeoutError, match="CONCURRENT_TRANSACTIONS"):
            await end(producer, verb)
        await restart(cluster)
        await end(producer, verb)

        await check_next(producer, cluster, [b"before"], verb=verb)


@in_virtual_time
async def test_downgrade_unnoticed_between_transactions() -> None:
    """The first record is refused; the next transaction works once the id has another coordinator."""
    async with transacting(V2_RELEASE, max_block_ms=5_000) as (cluster, producer):
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
    """The group is added at the coordinator, as V1 requires."""
    async with in_transaction(V2_RELEASE, b"before", max_block_ms=5_000) as (cluster, producer):
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
async def test_partitions_after_a_downgrade_are_added() -> None:
    """The rest of the transaction is V1."""
    async with in_transaction(V2_RELEASE, b"before") as (cluster, producer):
        cluster.finalize_transaction_version(0)
        await restart(cluster)
        await asyncio.sleep(1)
        await producer.send("t", b"other", partition=1)
        await producer.send("t", b"same", partition=0)
        await producer.commit_transaction()

        assert committed(cluster) == [b"before", b"same", b"other"]


# Identities


@on_v1
@in_virtual_time
async def test_lost_renewal_fences_no_producer(release: Release) -> None:
    """`testBumpTransactionalEpochOnAbortableError`, and the copy of InitProducerId is answered as the first."""
    async with transacting(release, request_timeout_ms=1_000) as (cluster, producer):
        await producer.begin_transaction()
        cluster.faults.error(29, FIRST)
        with pytest.raises(TopicAuthorizationError):
            await producer.send("t", b"v", partition=0)
        cluster.faults.drop_connection(INIT, after_append=True)

        await producer.abort_transaction()

        await one_more(producer, cluster)
        assert asked(cluster).count("INIT_PRODUCER_ID") == 3


@pytest.mark.parametrize("where", [FIND, INIT], ids=["FindCoordinator", "InitProducerId"])
@in_virtual_time_on_every_release
async def test_throttled_start_waits_and_succeeds(release: Release, where: Where) -> None:
    """`testInitTransactionWhileThrottled`."""
    async with cluster_of(release) as cluster:
        cluster.faults.throttle(700, where)
        began = now()
        async with producer_of(cluster) as producer:
            await one_more(producer, cluster)

        assert 0.7 <= now() - began < 2


@on_old_releases
@in_virtual_time
async def test_fenced_producer_does_not_take_the_id_back(release: Release) -> None:
    """KIP-360: InitProducerId has no place for the identity there, so a look-up would fence the successor."""
    async with cluster_of(release) as cluster, producer_of(cluster) as older:  # noqa: PLR1702  # blocks within blocks are what it is about
        await begin(older, b"older")
        async with producer_of(cluster) as newer:
            with pytest.raises(TransactionAbortableError, match="INVALID_PRODUCER_EPOCH"):
                await older.commit_transaction()
            for call in (older.abort_transaction, older.begin_transaction):
                with pytest.raises(ProducerFencedError):
                    await call()

            async with newer.transaction() as txn:
                await txn.send("t", b"newer", partition=0)

        assert committed(cluster) == [b"newer"]
