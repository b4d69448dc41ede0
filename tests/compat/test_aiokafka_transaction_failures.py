"""Failures of transactions that only the aiokafka stand-in has; those of both are in `tests/journeys`."""

import asyncio

import pytest
from aiokafka import errors

from aioproducer.compat import AIOKafkaProducer
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.compat.transactional_programs import OFFSETS, transactional
from tests.fakes.background_tasks import background_tasks
from tests.fakes.transactional_cluster import Release, cluster_of, committed, on_every_release
from tests.fakes.virtual_cluster import in_virtual_time

SECOND = Where(api=ApiKey.PRODUCE, topic="t", partition=1)
END_TXN = Where(api=ApiKey.END_TXN)
NOT_AUTHORIZED = 29


async def next_one_works(producer: AIOKafkaProducer, cluster: FakeCluster) -> None:
    """The same producer's next transaction is all that is seen."""
    async with producer.transaction():
        await producer.send("t", b"next", partition=0)
        await producer.send("t", b"next", partition=1)
    assert committed(cluster) == [b"next", b"next"]


# A fenced producer whose id has expired


async def do_again(producer: AIOKafkaProducer) -> None:
    async with producer.transaction():
        await producer.send_and_wait("t", b"again", partition=0)


@on_every_release
@in_virtual_time
async def test_producer_forgotten_by_brokers_fails_for_good(release: Release) -> None:
    """As in aiokafka, but also at each later call, and for records whose leader asks the coordinator."""
    async with cluster_of(release, transactional_id_expiration_s=60) as cluster, transactional(cluster) as old:
        async with transactional(cluster) as new:
            await next_one_works(new, cluster)
        await asyncio.sleep(61)

        for _ in range(3):
            with pytest.raises((errors.InvalidProducerIdMapping, errors.ProducerFenced)) as refused:
                await do_again(old)

        assert refused.type is errors.InvalidProducerIdMapping
        assert committed(cluster) == [b"next", b"next"]


# A record or offset that fails


@on_every_release
@in_virtual_time
async def test_refused_offsets_raise_aiokafkas_error(release: Release) -> None:
    async with cluster_of(release) as cluster, transactional(cluster) as producer:
        cluster.faults.error(30, Where(api=ApiKey.TXN_OFFSET_COMMIT))
        await producer.begin_transaction()
        await producer.send("t", b"a", partition=0)
        with pytest.raises(errors.GroupAuthorizationFailedError):
            await producer.send_offsets_to_transaction(OFFSETS, "readers")
        with pytest.raises(errors.GroupAuthorizationFailedError):
            await producer.commit_transaction()
        await producer.abort_transaction()

        await next_one_works(producer, cluster)


@in_virtual_time
async def test_aborted_record_fails_without_complaint() -> None:
    """Asyncio does not log futures that a program dropped with their transaction."""
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with FakeCluster(1, topics={"t": 2}) as cluster, transactional(cluster, linger_ms=60_000) as producer:
        batch = producer.create_batch()
        batch.append(timestamp=None, key=None, value=b"b")
        await producer.begin_transaction()
        future = await producer.send("t", b"a", partition=0)
        await producer.send_batch(batch, "t", partition=0)
        await producer.send("t", b"c", partition=0)
        await producer.abort_transaction()

        with pytest.raises(errors.KafkaError, match="was aborted before the record was acknowledged"):
            await future
        await next_one_works(producer, cluster)
    assert complaints == []


@pytest.mark.parametrize("is_cancelled", [True, False])
@in_virtual_time
async def test_partly_accepted_batch_is_not_committed(*, is_cancelled: bool) -> None:
    """Its caller gave up or timed out for lack of room; aiokafka accepts a whole batch or nothing."""
    async with (
        FakeCluster(1, topics={"t": 2}) as cluster,
        transactional(cluster, request_timeout_ms=1_000, max_batch_size=40_000_000) as producer,
    ):
        batch = producer.create_batch()
        for _ in range(40):
            batch.append(timestamp=None, key=None, value=bytes(1_000_000))
        stalled = cluster.faults.stall(Where(api=ApiKey.PRODUCE))
        await producer.begin_transaction()
        sending = asyncio.create_task(producer.send_batch(batch, "t", partition=0))
        if is_cancelled:
            await asyncio.sleep(0.5)
            sending.cancel()
        await asyncio.wait([sending])
        cluster.faults.remove(stalled)

        assert sending.cancelled() if is_cancelled else type(sending.exception()) is errors.KafkaTimeoutError
        with pytest.raises(errors.KafkaError, match="not taken to its end"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        await next_one_works(producer, cluster)


# Commits that take long, and those that nobody waits for


@on_every_release
@in_virtual_time
async def test_commit_has_no_time_limit(release: Release) -> None:
    async with cluster_of(release) as cluster, transactional(cluster, request_timeout_ms=500) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"a", partition=0)
        stalled = cluster.faults.stall(END_TXN)
        committing = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(20)
        assert not committing.done()
        cluster.faults.remove(stalled)
        await committing

        assert committed(cluster) == [b"a"]


@on_every_release
@in_virtual_time
async def test_block_cancelled_in_a_failing_commit(release: Release) -> None:
    """The next block raises the error once; the one after it works."""
    async with cluster_of(release) as cluster, transactional(cluster) as producer:
        cluster.faults.error(NOT_AUTHORIZED, SECOND)
        block = producer.transaction()
        await block.__aenter__()
        await producer.send("t", b"a", partition=1)
        leaving = asyncio.create_task(block.__aexit__(None, None, None))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait([leaving])

        assert leaving.cancelled()
        with pytest.raises(errors.TopicAuthorizationFailedError):
            await producer.transaction().__aenter__()
        await next_one_works(producer, cluster)


@in_virtual_time
async def test_begin_cancelled_at_once_begins_nothing() -> None:
    """The next one would be refused otherwise."""
    async with FakeCluster(1, topics={"t": 2}) as cluster, transactional(cluster) as producer:
        beginning = asyncio.create_task(producer.begin_transaction())
        await asyncio.sleep(0)
        beginning.cancel()
        await asyncio.wait([beginning])

        assert beginning.cancelled()
        await next_one_works(producer, cluster)


@on_every_release
@in_virtual_time
async def test_cancelled_block_aborts(release: Release) -> None:
    """Also if the coordinator does not respond: soon, and in the background."""
    async with cluster_of(release) as cluster, transactional(cluster) as producer:
        stalled = cluster.faults.stall(END_TXN)

        async def program() -> None:
            async with producer.transaction():
                await producer.send_and_wait("t", b"a", partition=0)
                await asyncio.sleep(3600)

        running = asyncio.create_task(program())
        await asyncio.sleep(1)
        running.cancel()
        done, _ = await asyncio.wait([running], timeout=10)
        cluster.faults.remove(stalled)

        assert done
        assert running.cancelled()
        await next_one_works(producer, cluster)


# Errors after which nothing helps


@on_every_release
@in_virtual_time
async def test_record_of_a_fenced_producer_is_fenced(release: Release) -> None:
    async with cluster_of(release) as cluster:
        older = transactional(cluster)
        await older.start()
        async with transactional(cluster) as newer:
            await older.begin_transaction()
            with pytest.raises(errors.ProducerFenced):
                await older.send_and_wait("t", b"old", partition=0)
            await next_one_works(newer, cluster)
        await older.stop()


@on_every_release
@in_virtual_time
async def test_exception_of_the_body_outranks_fencing(release: Release) -> None:
    async with cluster_of(release) as cluster:
        older, newer = transactional(cluster), transactional(cluster)
        await older.start()
        block = older.transaction()
        await block.__aenter__()
        await older.send_and_wait("t", b"old", partition=0)
        await newer.start()
        error = LookupError("of the body")
        assert not await block.__aexit__(LookupError, error, None)  # type: ignore[func-returns-value]  # so it goes on
        await newer.stop()
        await older.stop()

        assert any("not aborted: ProducerFenced" in note for note in error.__notes__)


@pytest.mark.parametrize(
    "code,expected", [(53, errors.TransactionalIdAuthorizationFailed), (50, errors.InvalidTransactionTimeout)]
)
@in_virtual_time
async def test_refused_id_fails_the_start(code: int, expected: type[Exception]) -> None:
    async with FakeCluster(1, topics={"t": 2}) as cluster:
        cluster.faults.error(code, Where(api=ApiKey.INIT_PRODUCER_ID))
        producer = transactional(cluster)
        with pytest.raises(expected):
            await producer.start()
        await producer.start()
        await next_one_works(producer, cluster)
        await producer.stop()


@in_virtual_time
async def test_unreachable_coordinator_fails_the_start() -> None:
    """After `request_timeout_ms`; aiokafka waits forever."""
    async with FakeCluster(1, topics={"t": 2}) as cluster:
        stalled = cluster.faults.stall(Where(api=ApiKey.INIT_PRODUCER_ID))
        producer = transactional(cluster, request_timeout_ms=1_000)
        with pytest.raises(errors.KafkaTimeoutError, match="billing-1"):
            await producer.start()
        cluster.faults.remove(stalled)
        await producer.start()
        await next_one_works(producer, cluster)
        await producer.stop()


@in_virtual_time
async def test_dead_background_task_fails_transactions() -> None:
    """As a failure, not as an illegal order of calls."""
    async with FakeCluster(1, topics={"t": 2}) as cluster:
        producer = transactional(cluster)
        await producer.start()
        await producer.begin_transaction()
        background_tasks()["sender"].cancel()
        await asyncio.sleep(0.1)
        for refused in (producer.commit_transaction(), producer.abort_transaction(), producer.begin_transaction()):
            with pytest.raises(errors.KafkaError, match="sender task"):
                await refused
        await producer.stop()
