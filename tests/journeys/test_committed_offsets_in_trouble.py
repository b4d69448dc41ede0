"""Asking how far a group has come while brokers come, are busy, or are exchanged for older ones."""

import asyncio

import pytest

from aioproducer import OffsetAndMetadata, Producer, TopicPartition, TransactionTimeoutError
from aioproducer._protocol.offset_messages import OffsetsResponse, decode_offset_fetch_response
from aioproducer._transactions import committed_offsets
from aioproducer.testing import ApiKey, FakeCluster, Where
from aioproducer.testing.fake_broker.transactions.coordinators import CoordinatorKind
from tests.fakes.producing import producing
from tests.fakes.transactional_cluster import producer_of
from tests.fakes.virtual_cluster import in_virtual_time

PLACE = TopicPartition("t", 0)
UNSTABLE = 88


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
    async with FakeCluster(1, topics={"t": 1}) as cluster, Producer(cluster.bootstrap_servers) as producer:
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
    async with FakeCluster(1, topics={"t": 1}) as cluster, Producer(cluster.bootstrap_servers) as producer:
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
