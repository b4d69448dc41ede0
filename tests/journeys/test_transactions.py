"""Transactions that go well: what readers see of them, on both protocols, and what is asked for that."""

import asyncio

import pytest

from aioproducer import (
    BrokerError,
    ConsumerGroupMetadata,
    IllegalStateError,
    OffsetAndMetadata,
    ProducerFencedError,
    TopicPartition,
    TransactionAbortableError,
)
from aioproducer.testing import ApiKey, Where
from tests.fakes.transactional_cluster import (
    INIT,
    V1_RELEASE,
    V2_RELEASE,
    Release,
    asked,
    cluster_of,
    committed,
    on_every_release,
    producer_of,
)
from tests.fakes.virtual_cluster import in_virtual_time

END_TXN = Where(api=ApiKey.END_TXN)
PRODUCE = Where(api=ApiKey.PRODUCE)


@on_every_release
@in_virtual_time
async def test_records_of_a_transaction_become_visible_together(release: Release) -> None:
    """Not before the end, then all."""
    async with cluster_of(release) as cluster, producer_of(cluster) as producer:
        async with producer.transaction() as txn:
            for number in range(10):
                await txn.send("t", b"%d" % number, partition=number % 2)
            assert committed(cluster) == []

        assert sorted(committed(cluster)) == [b"%d" % number for number in range(10)]


@on_every_release
@in_virtual_time
async def test_records_of_an_aborted_transaction_never_become_visible(release: Release) -> None:
    """Those before and after it do; the exception of the body goes on."""
    async with cluster_of(release) as cluster, producer_of(cluster) as producer:  # noqa: PLR1702  # blocks within blocks are what it is about
        for name in (b"a", b"b", b"c"):
            try:
                async with producer.transaction() as txn:
                    await txn.send("t", name, partition=0)
                    await txn.enqueue("t", name * 2, partition=1)
                    if name == b"b":
                        raise LookupError("no such account")  # noqa: TRY301  # the body's own
            except LookupError as error:
                assert str(error) == "no such account"  # noqa: PT017  # what goes on is the body's own

        assert committed(cluster) == [b"a", b"c", b"aa", b"cc"]


@on_every_release
@in_virtual_time
async def test_verbs_of_java_do_the_same(release: Release) -> None:
    """Between begin and the end the producer's own verbs belong to the transaction."""
    async with cluster_of(release) as cluster, producer_of(cluster) as producer:
        await producer.init_transactions()
        await producer.partitions_for("t")
        for name in (b"a", b"b", b"c"):
            await producer.begin_transaction()
            producer.send("t", name, partition=0)
            producer.send_nowait("t", name * 2, partition=0)
            await producer.enqueue("t", name * 3, partition=0)
            await (producer.abort_transaction if name == b"b" else producer.commit_transaction)()

        assert committed(cluster) == [b"a", b"aa", b"aaa", b"c", b"cc", b"ccc"]


@on_every_release
@in_virtual_time
async def test_transaction_of_many_records_and_partitions_is_whole(release: Release) -> None:
    """Several batches of each partition are on their way at a time, in order."""
    async with cluster_of(release, 3, {"t": 7}) as cluster, producer_of(cluster, batch_size=500) as producer:  # noqa: PLR1702  # blocks within blocks are what it is about
        for round_ in range(3):
            async with producer.transaction() as txn:
                for number in range(1000):
                    await txn.enqueue("t", b"%d" % (round_ * 1000 + number), partition=number % 7)

        for partition in range(7):
            values = [int(record.value or b"") for record in cluster.committed_records("t", partition)]
            assert values == sorted(values)
        assert len(committed(cluster)) == 3000


@on_every_release
@in_virtual_time
async def test_bulk_and_typed_records_belong_to_the_transaction(release: Release) -> None:
    """`send_many`, and handles of topics."""
    async with cluster_of(release) as cluster, producer_of(cluster) as producer:
        async with producer.transaction() as txn:
            bulk = await txn.send_many("t", [b"a", b"b", b"c"], partition=0)
            await txn.topic("t", value=str).enqueue("d", partition=0)
            assert (await bulk).delivered == 3

        assert committed(cluster) == [b"a", b"b", b"c", b"d"]


@in_virtual_time
async def test_v2_asks_for_nothing_but_produce_and_the_end() -> None:
    """Partitions, groups and the next epoch come with them."""
    async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster) as producer:
        for _ in range(3):
            async with producer.transaction() as txn:
                await txn.send("t", b"v", partition=0)
                await txn.send_offsets({("t", 1): 5}, "readers")

        assert asked(cluster) == ["INIT_PRODUCER_ID", *["PRODUCE", "TXN_OFFSET_COMMIT", "END_TXN"] * 3]


@in_virtual_time
async def test_v1_names_partitions_and_groups_once_a_transaction() -> None:
    """And nothing of it twice."""
    async with cluster_of(V1_RELEASE) as cluster, producer_of(cluster) as producer:
        for _ in range(3):
            async with producer.transaction() as txn:
                await txn.send("t", b"v", partition=0)
                await txn.send("t", b"w", partition=0)
                await txn.send_offsets({("t", 1): 5}, "readers")

        of_one = ["ADD_PARTITIONS_TO_TXN", "PRODUCE", "PRODUCE", "ADD_OFFSETS_TO_TXN", "TXN_OFFSET_COMMIT", "END_TXN"]
        assert asked(cluster) == ["INIT_PRODUCER_ID", *of_one * 3]


@in_virtual_time
async def test_versions_of_requests_are_those_of_the_protocol() -> None:
    """Produce at most 11 under V1, at least 12 under V2: its version is what tells the broker (KIP-890)."""
    versions = {}
    for release in (V1_RELEASE, V2_RELEASE):
        async with cluster_of(release) as cluster, producer_of(cluster) as producer:
            async with producer.transaction() as txn:
                await txn.send("t", b"v", partition=0)
            seen = {request.api.name: request.version for request in cluster.requests}
            versions[release["profile"]] = (seen["PRODUCE"] >= 12, seen["END_TXN"] >= 5)

    assert versions == {"3.9.1": (False, False), "4.3.1": (True, True)}


@on_every_release
@in_virtual_time
async def test_transaction_without_records_asks_for_nothing(release: Release) -> None:
    """The coordinator never hears of it."""
    async with cluster_of(release) as cluster, producer_of(cluster) as producer:
        async with producer.transaction():
            pass

        assert asked(cluster) == ["INIT_PRODUCER_ID"]


@on_every_release
@in_virtual_time
async def test_offsets_alone_are_a_transaction(release: Release) -> None:
    """As one type and as another; the next reader goes on from there."""
    group = ConsumerGroupMetadata("readers")
    async with cluster_of(release) as cluster, producer_of(cluster) as producer:
        async with producer.transaction() as txn:
            await txn.send_offsets({TopicPartition("t", 0): OffsetAndMetadata(7, "seven"), ("t", 1): 3}, group)
            await txn.send_offsets({}, group)

        assert asked(cluster)[-2:] == ["TXN_OFFSET_COMMIT", "END_TXN"]


@on_every_release
@in_virtual_time
async def test_busy_coordinator_is_never_seen_by_the_user(release: Release) -> None:
    """The markers of each transaction take a while; the next one waits for them."""
    async with cluster_of(release, marker_delay_s=0.05) as cluster, producer_of(cluster) as producer:
        for number in range(5):
            async with producer.transaction() as txn:
                await txn.send("t", b"%d" % number, partition=0)
        await asyncio.sleep(1)

        assert committed(cluster) == [b"0", b"1", b"2", b"3", b"4"]


@on_every_release
@in_virtual_time
async def test_coordinator_that_moves_or_dies_is_found_again(release: Release) -> None:
    """Between transactions and in the middle of one (aiokafka #1145, #1151)."""
    async with cluster_of(release, 3) as cluster, producer_of(cluster, request_timeout_ms=2000) as producer:  # noqa: PLR1702  # blocks within blocks are what it is about
        for number in range(4):
            async with producer.transaction() as txn:
                await txn.send("t", b"%d" % number, partition=0)
                dying = cluster.coordinator_of("billing-1")
                if number == 1:
                    cluster.move_coordinator("billing-1", dying % 3 + 1)
                if number == 2:
                    await cluster.kill(dying)
                    await asyncio.sleep(1)

        await asyncio.sleep(1)
        assert sorted(committed(cluster)) == [b"0", b"1", b"2", b"3"]


@on_every_release
@in_virtual_time
async def test_two_producers_of_one_id_are_told_apart_loudly(release: Release) -> None:
    """The older one is fenced: every call says so, and nothing of it becomes visible."""
    async with cluster_of(release) as cluster:  # noqa: PLR1702  # blocks within blocks are what it is about
        older = await producer_of(cluster).start()
        await older.begin_transaction()
        await older.send("t", b"older", partition=0)
        async with producer_of(cluster) as newer:
            async with newer.transaction() as txn:
                await txn.send("t", b"newer", partition=0)
            with pytest.raises(ProducerFencedError, match="a newer producer has taken it over"):
                await older.commit_transaction()
            for call in (older.begin_transaction, older.commit_transaction, older.abort_transaction):
                with pytest.raises(ProducerFencedError):
                    await call()
            with pytest.raises(ProducerFencedError):
                await older.send("t", b"again", partition=0)
            await older.close()

        assert committed(cluster) == [b"newer"]


@in_virtual_time
async def test_v2_fenced_producer_learns_it_after_its_record_and_its_transaction() -> None:
    """The code of the record may as well mean that this transaction timed out; the next one tells."""
    async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster) as older, producer_of(cluster):
        await older.begin_transaction()
        with pytest.raises(BrokerError, match="INVALID_PRODUCER_EPOCH"):
            await older.send("t", b"older")
        with pytest.raises(TransactionAbortableError):
            await older.commit_transaction()
        with pytest.raises(ProducerFencedError):
            await older.abort_transaction()


@on_every_release
@in_virtual_time
async def test_restarted_producer_ends_what_the_one_before_left_open(release: Release) -> None:
    """At once, not after the transaction's time-out."""
    async with cluster_of(release) as cluster:
        killed = await producer_of(cluster, client_id="killed").start()
        await killed.begin_transaction()
        await killed.send("t", b"lost", partition=0)
        async with producer_of(cluster) as producer:
            async with producer.transaction() as txn:
                await txn.send("t", b"kept", partition=0)
            assert asyncio.get_running_loop().time() < 1100
            assert committed(cluster) == [b"kept"]
        with pytest.raises(ProducerFencedError):
            await killed.commit_transaction()
        await killed.close(0)


@on_every_release
@in_virtual_time
async def test_close_aborts_an_open_transaction_on_the_broker(release: Release) -> None:
    """Readers need not wait for its time-out."""
    async with cluster_of(release) as cluster:
        producer = await producer_of(cluster).start()
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)

        await producer.close()

        assert asked(cluster)[-1] == "END_TXN"
        assert committed(cluster) == []
        assert cluster.last_stable_offset("t", 0) == cluster.end_offset("t", 0)


@in_virtual_time
async def test_close_waits_for_the_new_identity_where_that_ends_the_transaction() -> None:
    """The abort was refused, and InitProducerId does it: without, readers would wait for the time-out after all."""
    async with cluster_of(V2_RELEASE) as cluster:
        producer = await producer_of(cluster).start()
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        cluster.faults.error(47, END_TXN)
        cluster.faults.delay(1.0, INIT)

        await producer.close()

        assert asked(cluster)[-1] == "INIT_PRODUCER_ID"
        assert cluster.last_stable_offset("t", 0) == cluster.end_offset("t", 0)


@on_every_release
@in_virtual_time
async def test_close_keeps_its_time_and_then_fails_what_waits(release: Release) -> None:
    """The coordinator answers nothing: pending calls end with the producer (KAFKA-16217)."""
    async with cluster_of(release) as cluster:
        producer = await producer_of(cluster).start()
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        cluster.faults.stall(END_TXN)
        committing = asyncio.ensure_future(producer.commit_transaction())
        await asyncio.sleep(0.1)
        began = asyncio.get_running_loop().time()

        await producer.close(2.0)

        assert asyncio.get_running_loop().time() - began == pytest.approx(2.0, abs=0.1)
        with pytest.raises(IllegalStateError, match="was closed"):
            await committing
