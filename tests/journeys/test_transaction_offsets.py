"""Offsets of groups: sent with a transaction, and asked for while brokers come, are busy, or are of another release.

Names like `testCommit` are of tests of Kafka's own producer.
"""

import asyncio

import pytest

from aioproducer import (
    ConsumerGroupMetadata,
    NoTransactionError,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
    TransactionAbortableError,
    TransactionTimeoutError,
    UnsupportedVersionError,
)
from aioproducer._protocol.transaction_messages import OffsetsResponse, decode_offset_fetch_response
from aioproducer._transactions import committed_offsets
from aioproducer.testing import ApiKey, FakeCluster, Where
from aioproducer.testing.fake_broker.coordinators import CoordinatorKind
from tests.fakes.producing import producing
from tests.fakes.transactional_cluster import (
    COMMIT_OFFSETS,
    Release,
    asked,
    committed,
    in_transaction,
    in_virtual_time_on_every_release,
    on_old_releases,
    one_more,
    producer_of,
    transacting,
)
from tests.fakes.virtual_loop import in_virtual_time, now

PLACE = TopicPartition("t", 0)
OFFSETS = {TopicPartition("t", 1): 5, TopicPartition("t", 0): 4}
UNSTABLE = 88


# Sent with a transaction


@in_virtual_time_on_every_release
async def test_offsets_alone_are_a_transaction(release: Release) -> None:
    group = ConsumerGroupMetadata("readers")
    async with transacting(release) as (cluster, producer):
        async with producer.transaction() as txn:
            await txn.send_offsets({TopicPartition("t", 0): OffsetAndMetadata(7, "seven"), ("t", 1): 3}, group)
            await txn.send_offsets({}, group)

        assert asked(cluster)[-2:] == ["TXN_OFFSET_COMMIT", "END_TXN"]


@in_virtual_time
async def test_records_go_on_where_offsets_leave_room() -> None:
    made = FakeCluster(1, topics={"t": 2})
    async with producing(made, transactional_id="tx", max_in_flight_requests_per_connection=1) as (cluster, producer):
        cluster.faults.delay(1, COMMIT_OFFSETS)
        async with producer.transaction() as txn:
            await txn.send("t", b"first")
            offsets = asyncio.ensure_future(txn.send_offsets(OFFSETS, "readers"))
            await asyncio.sleep(0.1)
            began = now()
            await txn.send("t", b"behind it")

            assert 0.8 < now() - began < 1.1
            await offsets


@pytest.mark.parametrize("code", [22, 25, 30, 82, 120])
@in_virtual_time_on_every_release
async def test_offsets_failing_behind_a_commit_fail_it(release: Release, code: int) -> None:
    """`testIllegalGenerationInTxnOffsetCommitByGroupMetadata` and others: they were not awaited yet."""
    async with in_transaction(release) as (cluster, producer):
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
@in_virtual_time_on_every_release
async def test_retriable_offset_holds_back_the_commit(release: Release, code: int) -> None:
    """`testHandlingOfUnknownTopicPartitionErrorOnTxnOffsetCommit` and others: all are committed."""
    async with in_transaction(release) as (cluster, producer):
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


@in_virtual_time_on_every_release
async def test_offsets_repeated_after_timeout_are_sent_once(release: Release) -> None:
    """The same call joins the running request, as the error says; other offsets of the group come after it."""
    async with transacting(release, max_block_ms=500) as (cluster, producer):
        await producer.begin_transaction()
        stalled = cluster.faults.stall(Where(api=ApiKey.TXN_OFFSET_COMMIT))
        for _ in range(3):
            with pytest.raises(TransactionTimeoutError):
                await producer.send_offsets({("t", 0): 7}, "g")
        cluster.faults.remove(stalled)
        await producer.send_offsets({("t", 0): 7}, "g")
        await producer.send_offsets({("t", 0): 8}, "g")
        await producer.commit_transaction()

        assert asked(cluster).count("TXN_OFFSET_COMMIT") == 2
        offsets = await producer.committed_offsets("g", [TopicPartition("t", 0)])
        assert offsets[TopicPartition("t", 0)] == (8, "")


@in_virtual_time_on_every_release
async def test_waiting_offsets_fail_at_abort(release: Release) -> None:
    """They do not wait for the response to the current request, which may time out."""
    async with transacting(release) as (cluster, producer):
        await producer.begin_transaction()
        cluster.faults.delay(20, Where(api=ApiKey.TXN_OFFSET_COMMIT))
        sending = asyncio.create_task(producer.send_offsets({("t", 0): 7}, "g"))
        await asyncio.sleep(1)
        began = now()
        aborting = asyncio.create_task(producer.abort_transaction())

        with pytest.raises(NoTransactionError, match="ended before its offsets"):
            await sending

        assert now() - began < 0.1
        await aborting


# To coordinators before Kafka 2.5, whose requests have no place for the member


@on_old_releases
@in_virtual_time
async def test_member_of_a_group_is_never_left_out(release: Release) -> None:
    """KIP-447: TxnOffsetCommit has no place for the member there: a replaced consumer's offsets got through."""
    async with in_transaction(release) as (cluster, producer):
        with pytest.raises(UnsupportedVersionError, match=r"older than Kafka 2\.5.*the group's id alone"):
            await producer.send_offsets({("t", 1): 5}, ConsumerGroupMetadata("readers", 7, "member-1"))
        with pytest.raises(UnsupportedVersionError):
            await producer.commit_transaction()

        assert "TXN_OFFSET_COMMIT" not in asked(cluster)
        assert committed(cluster) == []


@on_old_releases
@in_virtual_time
async def test_group_without_a_member_is_enough(release: Release) -> None:
    """A consumer with manually assigned partitions has no member id."""
    async with transacting(release) as (cluster, producer):
        async with producer.transaction() as txn:
            await txn.send("t", b"v", partition=0)
            await txn.send_offsets({("t", 1): 5}, "readers")

        assert committed(cluster) == [b"v"]


# Asked for


@in_virtual_time_on_every_release
async def test_committed_offset_zero_is_not_none(release: Release) -> None:
    """Also after a lost request."""
    places = [TopicPartition("t", 0), TopicPartition("t", 1)]
    async with transacting(release) as (cluster, producer):
        async with producer.transaction() as txn:
            await txn.send_offsets({places[0]: 0}, "readers")
        cluster.faults.drop_connection(Where(api=ApiKey.OFFSET_FETCH))

        found = await producer.committed_offsets("readers", places)

    assert [None if offset is None else offset.offset for offset in found.values()] == [0, None]


@in_virtual_time_on_every_release
async def test_committed_offsets_wait_for_open_transaction(release: Release) -> None:
    """A consumer would otherwise begin before offsets of an open transaction (KIP-447)."""
    async with transacting(release) as (_, producer):
        await producer.begin_transaction()
        await producer.send_offsets({("t", 0): 7}, "g")
        asking = asyncio.ensure_future(producer.committed_offsets("g", [TopicPartition("t", 0)]))
        await asyncio.sleep(1)
        assert not asking.done()
        await producer.commit_transaction()

        offsets = await asking
        assert offsets[TopicPartition("t", 0)] == (7, "")


@in_virtual_time
async def test_coordinator_that_metadata_has_not_named_yet() -> None:
    """The coordinator was away when the producer started; nothing has caused a metadata request since."""
    async with FakeCluster(3, topics={"t": 3}) as cluster:
        await cluster.kill(2)
        await asyncio.sleep(20)
        async with Producer(cluster.bootstrap_servers) as producer:
            await cluster.restart(2)
            await asyncio.sleep(5)
            cluster.move_coordinator("g", 2, kind=CoordinatorKind.GROUP)

            async with asyncio.timeout(10):
                assert await producer.committed_offsets("g", [PLACE]) == {PLACE: None}


@pytest.mark.parametrize("api", [ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_FETCH])
@in_virtual_time
async def test_pause_that_the_answer_asks_for(api: ApiKey) -> None:
    """A throttling broker reads nothing: a request sent meanwhile must not count as unanswered."""
    async with producing(FakeCluster(1, topics={"t": 1}), linger_ms=0, request_timeout_ms=5_000) as (cluster, producer):
        await producer.send("t", b"before")
        closed_before = producer.statistics().connections_closed
        cluster.faults.throttle(10_000, Where(api=api))
        await producer.committed_offsets("g", [PLACE])
        await producer.send("t", b"behind the pause")

        statistics = producer.statistics()
        assert (statistics.connections_closed - closed_before, statistics.records_retried) == (0, 0)


@pytest.mark.parametrize("api", [ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_FETCH])
@in_virtual_time
async def test_refused_version_is_negotiated_again(api: ApiKey) -> None:
    """Also by a broker that does not hang up: the old connection would go on using the old version."""
    async with producing(FakeCluster(1, topics={"t": 1})) as (cluster, producer):
        await producer.committed_offsets("g", [PLACE])
        connections_before = producer.statistics().connections_created
        cluster.faults.error(35, Where(api=api), times=1)

        assert await producer.committed_offsets("g", [PLACE]) == {PLACE: None}
        assert producer.statistics().connections_created > connections_before


@in_virtual_time
async def test_partition_that_the_answer_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing is not "nothing committed", or a consumer would read everything again: it is asked for again."""
    decoded = iter((lambda answer: answer._replace(offsets=[]), lambda answer: answer))

    def decode(payload: memoryview) -> OffsetsResponse:
        return next(decoded)(decode_offset_fetch_response(payload))

    async with FakeCluster(1, topics={"t": 1}) as cluster, producer_of(cluster) as producer:
        async with producer.transaction() as transaction:
            await transaction.send_offsets({PLACE: 1544}, "g")
        monkeypatch.setattr(committed_offsets, "decode_offset_fetch_response", decode)

        assert await producer.committed_offsets("g", [PLACE]) == {PLACE: OffsetAndMetadata(1544)}
        assert next(decoded, None) is None


@in_virtual_time
async def test_coordinator_that_stays_busy_is_asked_ever_more_slowly() -> None:
    """A transaction of the group that stays open for minutes must not cost ten requests a second."""
    async with producing(FakeCluster(1, topics={"t": 1})) as (cluster, producer):
        busy = cluster.faults.error(14, Where(api=ApiKey.OFFSET_FETCH), times=None)
        asking = asyncio.ensure_future(producer.committed_offsets("g", [PLACE]))
        await asyncio.sleep(20)
        cluster.faults.remove(busy)

        assert await asking == {PLACE: None}
        assert sum(each.api is ApiKey.OFFSET_FETCH for each in cluster.requests) < 40


@in_virtual_time
async def test_timeout_names_the_coordinators_answer() -> None:
    """An open transaction needs another remedy than a broker that is away."""
    async with producing(FakeCluster(1, topics={"t": 1}), max_block_ms=2000) as (cluster, producer):
        cluster.faults.error(UNSTABLE, Where(api=ApiKey.OFFSET_FETCH), times=None)
        with pytest.raises(TransactionTimeoutError, match="UNSTABLE_OFFSET_COMMIT") as late:
            await producer.committed_offsets("g", [PLACE])

    assert late.value.last_broker_error is not None


@on_old_releases
@in_virtual_time
async def test_unstable_offsets_are_not_asked_for_repeatedly(release: Release) -> None:
    """Such a coordinator never hides offsets of an open transaction: asking again would not help."""
    async with transacting(release) as (_, producer):
        before = now()
        with pytest.raises(UnsupportedVersionError, match=r"Kafka 2\.5 or newer is needed"):
            await producer.committed_offsets("readers", [TopicPartition("t", 0)])

        assert now() - before < 1
