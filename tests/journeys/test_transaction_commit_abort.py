"""Commit and abort: what readers see, what is requested for it, and ends that are refused or lost.

Names like `testCommit` are of tests of Kafka's own producer.
"""

import asyncio

import pytest

from aioproducer import (
    BrokerError,
    Outcome,
    ProducerClosedError,
    ProducerFencedError,
    TopicPartition,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionalIdAuthorizationError,
)
from aioproducer.testing import ApiKey, Where
from tests.fakes.transaction_faces import OURS, Face, on_both_faces
from tests.fakes.transactional_cluster import (
    ADD_PARTITIONS,
    END_TXN,
    FIRST,
    INIT,
    V1_RELEASE,
    V2_RELEASE,
    Release,
    asked,
    begin,
    cluster_of,
    committed,
    in_transaction,
    in_virtual_time_on_every_release,
    on_v1,
    one_more,
    producer_of,
    transacting,
)
from tests.fakes.virtual_loop import in_virtual_time, now

MESSAGE_TOO_LARGE = 10
OFFSETS = {TopicPartition("t", 1): 5, TopicPartition("t", 0): 4}


@in_virtual_time_on_every_release
async def test_records_become_visible_together(release: Release) -> None:
    async with transacting(release) as (cluster, producer):
        async with producer.transaction() as txn:
            for number in range(10):
                await txn.send("t", b"%d" % number, partition=number % 2)
            assert committed(cluster) == []

        assert sorted(committed(cluster)) == [b"%d" % number for number in range(10)]


@in_virtual_time_on_every_release
async def test_aborted_records_never_become_visible(release: Release) -> None:
    async with transacting(release) as (cluster, producer):  # noqa: PLR1702  # blocks within blocks are what it is about
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


@in_virtual_time_on_every_release
async def test_java_methods_do_the_same(release: Release) -> None:
    async with transacting(release) as (cluster, producer):
        await producer.init_transactions()
        await producer.partitions_for("t")
        for name in (b"a", b"b", b"c"):
            await producer.begin_transaction()
            producer.send("t", name, partition=0)
            producer.send_nowait("t", name * 2, partition=0)
            await producer.enqueue("t", name * 3, partition=0)
            await (producer.abort_transaction if name == b"b" else producer.commit_transaction)()

        assert committed(cluster) == [b"a", b"aa", b"aaa", b"c", b"cc", b"ccc"]


@in_virtual_time_on_every_release
async def test_large_transaction_is_whole(release: Release) -> None:
    async with cluster_of(release, 3, {"t": 7}) as cluster, producer_of(cluster, batch_size=500) as producer:  # noqa: PLR1702  # blocks within blocks are what it is about
        for round_ in range(3):
            async with producer.transaction() as txn:
                for number in range(1000):
                    await txn.enqueue("t", b"%d" % (round_ * 1000 + number), partition=number % 7)

        for partition in range(7):
            values = [int(record.value or b"") for record in cluster.committed_records("t", partition)]
            assert values == sorted(values)
        assert len(committed(cluster)) == 3000


@in_virtual_time_on_every_release
async def test_bulk_and_typed_records_join_the_transaction(release: Release) -> None:
    async with transacting(release) as (cluster, producer):
        async with producer.transaction() as txn:
            bulk = await txn.send_many("t", [b"a", b"b", b"c"], partition=0)
            await txn.topic("t", value=str).enqueue("d", partition=0)
            assert (await bulk).delivered == 3

        assert committed(cluster) == [b"a", b"b", b"c", b"d"]


@in_virtual_time
async def test_v2_sends_only_produce_and_end() -> None:
    """They add partitions and groups, and return the next epoch."""
    async with transacting(V2_RELEASE) as (cluster, producer):
        for _ in range(3):
            async with producer.transaction() as txn:
                await txn.send("t", b"v", partition=0)
                await txn.send_offsets({("t", 1): 5}, "readers")

        assert asked(cluster) == ["INIT_PRODUCER_ID", *["PRODUCE", "TXN_OFFSET_COMMIT", "END_TXN"] * 3]


@in_virtual_time
async def test_v1_adds_partitions_and_groups_once() -> None:
    async with transacting(V1_RELEASE) as (cluster, producer):
        for _ in range(3):
            async with producer.transaction() as txn:
                await txn.send("t", b"v", partition=0)
                await txn.send("t", b"w", partition=0)
                await txn.send_offsets({("t", 1): 5}, "readers")

        of_one = ["ADD_PARTITIONS_TO_TXN", "PRODUCE", "PRODUCE", "ADD_OFFSETS_TO_TXN", "TXN_OFFSET_COMMIT", "END_TXN"]
        assert asked(cluster) == ["INIT_PRODUCER_ID", *of_one * 3]


@in_virtual_time
async def test_requests_have_versions_of_the_protocol() -> None:
    """Produce up to 11 under V1, from 12 on under V2: its version tells the broker which (KIP-890)."""
    versions = {}
    for release in (V1_RELEASE, V2_RELEASE):
        async with transacting(release) as (cluster, producer):
            async with producer.transaction() as txn:
                await txn.send("t", b"v", partition=0)
            seen = {request.api.name: request.version for request in cluster.requests}
            versions[release["profile"]] = (seen["PRODUCE"] >= 12, seen["END_TXN"] >= 5)

    assert versions == {"3.9.1": (False, False), "4.4.0": (True, True)}


@in_virtual_time_on_every_release
async def test_empty_transaction_sends_nothing(release: Release) -> None:
    """The coordinator never learns of it."""
    async with transacting(release) as (cluster, producer):
        async with producer.transaction():
            pass

        assert asked(cluster) == ["INIT_PRODUCER_ID"]


@in_virtual_time_on_every_release
async def test_busy_coordinator_is_hidden(release: Release) -> None:
    """The next transaction waits for the markers of the previous one."""
    async with cluster_of(release, marker_delay_s=0.05) as cluster, producer_of(cluster) as producer:
        for number in range(5):
            async with producer.transaction() as txn:
                await txn.send("t", b"%d" % number, partition=0)
        await asyncio.sleep(1)

        assert committed(cluster) == [b"0", b"1", b"2", b"3", b"4"]


@in_virtual_time_on_every_release
async def test_moved_or_dead_coordinator_is_found_again(release: Release) -> None:
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


@on_both_faces
@in_virtual_time_on_every_release
async def test_older_of_two_producers_is_fenced(release: Release, face: Face) -> None:
    async with cluster_of(release) as cluster:  # noqa: PLR1702  # blocks within blocks are what it is about
        older = face.make(cluster)
        await older.start()
        await older.begin_transaction()
        await (await face.send(older, b"older"))
        async with face.make(cluster) as newer:
            await face.one_more(newer, cluster)
            for call in (older.commit_transaction, older.begin_transaction, older.abort_transaction):
                with pytest.raises(face.fenced, match="a newer producer has taken it over"):
                    await call()
            with pytest.raises(face.fenced):
                await face.send(older, b"again")
            await (older.close() if face is OURS else older.stop())

        assert committed(cluster) == [b"next", b"next"]


@in_virtual_time
async def test_v2_fenced_producer_fails_at_next_transaction() -> None:
    """The record's code may also mean that this transaction timed out; the next one tells."""
    async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster) as older, producer_of(cluster):
        await older.begin_transaction()
        with pytest.raises(BrokerError, match="INVALID_PRODUCER_EPOCH"):
            await older.send("t", b"older")
        with pytest.raises(TransactionAbortableError):
            await older.commit_transaction()
        with pytest.raises(ProducerFencedError):
            await older.abort_transaction()


@in_virtual_time_on_every_release
async def test_restart_ends_the_open_transaction(release: Release) -> None:
    async with cluster_of(release) as cluster:
        killed = await begin(await producer_of(cluster, client_id="killed").start(), b"lost")
        async with producer_of(cluster) as producer:
            async with producer.transaction() as txn:
                await txn.send("t", b"kept", partition=0)
            assert now() < 1100
            assert committed(cluster) == [b"kept"]
        with pytest.raises(ProducerFencedError):
            await killed.commit_transaction()
        await killed.close(0)


@in_virtual_time_on_every_release
async def test_close_aborts_the_open_transaction(release: Release) -> None:
    """Readers need not wait for its time-out."""
    async with in_transaction(release) as (cluster, producer):
        await producer.close()

        assert asked(cluster)[-1] == "END_TXN"
        assert committed(cluster) == []
        assert cluster.last_stable_offset("t", 0) == cluster.end_offset("t", 0)


@in_virtual_time
async def test_close_waits_for_identity_that_ends_it() -> None:
    """The abort was refused, and InitProducerId ends the transaction instead."""
    async with in_transaction(V2_RELEASE) as (cluster, producer):
        cluster.faults.error(47, END_TXN)
        cluster.faults.delay(1.0, INIT)

        await producer.close()

        assert asked(cluster)[-1] == "INIT_PRODUCER_ID"
        assert cluster.last_stable_offset("t", 0) == cluster.end_offset("t", 0)


@pytest.mark.parametrize("seconds", [0, 2])
@in_virtual_time_on_every_release
async def test_close_times_out_and_fails_waiting_calls(release: Release, seconds: int) -> None:
    """The coordinator does not respond; pending calls end with the producer (KAFKA-16217).

    `testForceShutdownWithIncompleteTransaction`.
    """
    async with in_transaction(release) as (cluster, producer):
        cluster.faults.stall(END_TXN)
        committing = asyncio.ensure_future(producer.commit_transaction())
        await asyncio.sleep(0.1)
        began = now()

        await producer.close(seconds)

        assert now() - began == pytest.approx(seconds, abs=0.1)
        with pytest.raises(ProducerClosedError, match="was closed"):
            await committing
        assert committed(cluster) == []


@pytest.mark.parametrize("code", [-1, 14, 15, 16, 51])
@in_virtual_time_on_every_release
async def test_end_is_retried_until_done(release: Release, code: int) -> None:
    async with transacting(release) as (cluster, producer):
        cluster.faults.error(code, END_TXN, times=3)
        async with producer.transaction() as txn:
            await txn.send("t", b"v", partition=0)

        assert committed(cluster) == [b"v"]
        assert asked(cluster).count("END_TXN") == 4


@pytest.mark.parametrize("code", [90, 53])
@in_virtual_time_on_every_release
async def test_refused_commit_raises(release: Release, code: int) -> None:
    """Librdkafka before 1.6 did not report that it had been fenced."""
    async with in_transaction(release) as (cluster, producer):
        cluster.faults.error(code, END_TXN)

        kind = ProducerFencedError if code == 90 else TransactionalIdAuthorizationError
        with pytest.raises(kind):
            await producer.commit_transaction()
        with pytest.raises(kind):
            await producer.begin_transaction()


@pytest.mark.parametrize("is_lost", [True, False])
@in_virtual_time_on_every_release
async def test_lost_commit_before_successor_stays_unknown(release: Release, *, is_lost: bool) -> None:
    """It was committed, but "not written" was reported, and the user sent everything again."""
    async with cluster_of(release) as cluster:
        loser = await begin(await producer_of(cluster, request_timeout_ms=3000).start())
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
async def test_v2_fenced_commit_after_timeout_is_abortable() -> None:
    """Kafka after 4.4 responds that way (KAFKA-20785), although no producer was fenced."""
    async with in_transaction(V2_RELEASE, transaction_timeout_ms=1000) as (cluster, producer):
        await asyncio.sleep(60)
        cluster.faults.error(90, END_TXN)

        with pytest.raises(TransactionAbortableError, match="timed out"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        await one_more(producer, cluster)


@in_virtual_time
async def test_v2_abort_mistaken_for_a_copy_ends() -> None:
    """A coordinator that was shutting down answered PRODUCER_FENCED, and the producer failed."""
    async with in_transaction(V2_RELEASE) as (cluster, producer):
        cluster.faults.error(90, END_TXN)
        await producer.abort_transaction()
        await one_more(producer, cluster)


@pytest.mark.parametrize("code", [47, 90])
@in_virtual_time
async def test_v2_outdated_producer_asks_no_new_identity(code: int) -> None:
    """A leader has seen a newer epoch, so InitProducerId would fence the successor."""
    async with in_transaction(V2_RELEASE) as (cluster, producer):
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
async def test_failed_add_keeps_other_partitions(release: Release) -> None:
    """A failure once removed them, so commit skipped EndTxn and succeeded (franz-go)."""
    async with in_transaction(release) as (cluster, producer):
        cluster.faults.error(29, ADD_PARTITIONS)
        producer.send("t", b"w", partition=1)

        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()

        assert asked(cluster)[-1] == "END_TXN"
        await one_more(producer, cluster)


@on_v1
@in_virtual_time
async def test_adding_a_partition_stops_no_other(release: Release) -> None:
    async with cluster_of(release, 2) as cluster, producer_of(cluster) as producer:
        cluster.move_leader("t", 0, 1)
        cluster.move_coordinator("billing-1", 2)
        async with producer.transaction() as txn:
            await txn.send("t", b"a", partition=0)
            adding = cluster.faults.delay(5.0, ADD_PARTITIONS)
            slow = txn.send("t", b"c", partition=1)
            began = now()
            await txn.send("t", b"b", partition=0)
            assert (adding.hits, slow.done()) == (1, False)
            assert now() - began < 5
            await slow

        assert committed(cluster) == [b"a", b"b", b"c"]


@in_virtual_time
async def test_record_of_failed_transaction_names_the_cause() -> None:
    """Also if its caller aborts in the same turn in which another record fails."""
    async with transacting(V2_RELEASE) as (cluster, producer):
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


@in_virtual_time_on_every_release
async def test_commit_ends_the_linger_of_its_records(release: Release) -> None:
    """`testRecordsFlushedImmediatelyOnTransactionCompletion`."""
    async with transacting(release, linger_ms=2_000) as (cluster, producer):
        for _ in range(2):
            began = now()
            await producer.begin_transaction()
            delivery = producer.send("t", b"v", partition=0)
            await asyncio.sleep(1)
            assert not delivery.done()
            await producer.commit_transaction()

            assert now() - began < 1.5
        assert committed(cluster) == [b"v", b"v"]


@pytest.mark.parametrize("skip", [0, 1, 3])
@pytest.mark.parametrize("times", [1, 2])
@in_virtual_time_on_every_release
async def test_split_batch_keeps_its_order(release: Release, *, times: int, skip: int) -> None:
    """`testTransactionalSplitBatchAndSend`, with batches on the wire and in the queue behind it."""
    async with transacting(release, batch_size=16_000, linger_ms=5) as (cluster, producer):
        expected = []
        for verb in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
            await begin(producer, b"first")
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
