"""aiokafka's transactions when something goes wrong: its errors, and none of its half transactions."""

import asyncio

import pytest
from aiokafka import errors

from aioproducer import ProducerFencedError, RecordMetadata, TransactionAbortableError
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
    """A transaction of what another producer has committed."""
    async with producer.transaction():
        await producer.send_and_wait("t", b"again", partition=0)


@on_every_release
@in_virtual_time
async def test_producer_that_brokers_have_forgotten_fails_for_good(release: Release) -> None:
    """It fails as aiokafka's, but also for records whose leader asks the coordinator, and at each later call."""
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
@pytest.mark.parametrize(
    "code,expected",
    [
        (NOT_AUTHORIZED, errors.TopicAuthorizationFailedError),
        (45, errors.OutOfOrderSequenceNumber),
        (10, errors.MessageSizeTooLargeError),
    ],
)
@in_virtual_time
async def test_record_that_failed_unseen_is_not_committed_around(
    release: Release, code: int, expected: type[Exception]
) -> None:
    """Aiokafka commits the others; here the block raises the record's error, is aborted, and the next one works."""
    async with cluster_of(release) as cluster, transactional(cluster) as producer:
        cluster.faults.error(code, SECOND)
        futures: list[asyncio.Future[RecordMetadata]] = []

        async def program() -> None:
            async with producer.transaction():
                futures.extend([await producer.send("t", b"%d" % number, partition=number) for number in range(2)])

        with pytest.raises(expected) as raised:
            await program()

        assert isinstance(raised.value.__cause__, TransactionAbortableError)
        assert isinstance(futures[1].exception(), expected)
        assert committed(cluster) == []
        await next_one_works(producer, cluster)


@on_every_release
@in_virtual_time
async def test_failed_transaction_is_aborted_by_its_verb(release: Release) -> None:
    """Until the abort, commit and send raise the reason each time."""
    async with cluster_of(release) as cluster, transactional(cluster) as producer:
        cluster.faults.error(NOT_AUTHORIZED, SECOND)
        await producer.begin_transaction()
        with pytest.raises(errors.TopicAuthorizationFailedError):
            await producer.send_and_wait("t", b"b", partition=1)
        with pytest.raises(errors.TopicAuthorizationFailedError):
            await producer.send("t", b"a", partition=0)
        with pytest.raises(errors.TopicAuthorizationFailedError):
            await producer.send_offsets_to_transaction(OFFSETS, "readers")
        for _ in range(2):
            with pytest.raises(errors.TopicAuthorizationFailedError):
                await producer.commit_transaction()
        await producer.abort_transaction()

        await next_one_works(producer, cluster)


@on_every_release
@in_virtual_time
async def test_refused_offsets_are_aiokafkas_error(release: Release) -> None:
    """The transaction can only be aborted."""
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
async def test_future_of_an_aborted_record_is_not_logged() -> None:
    """Asyncio does not warn of futures that a program dropped with their transaction."""
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
async def test_batch_that_was_taken_in_part_is_not_committed(*, is_cancelled: bool) -> None:
    """No room for all of it: its caller gave up, or the time was over; aiokafka takes all of a batch or nothing."""
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


# Commits that take long, and cancelled commits


@on_every_release
@in_virtual_time
async def test_commit_is_waited_for_as_long_as_it_takes(release: Release) -> None:
    """As in aiokafka, no outcome is left unknown."""
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
@pytest.mark.parametrize("is_joined", [False, True], ids=["begun again", "joined"])
@in_virtual_time
async def test_commit_that_was_cancelled_goes_on(release: Release, is_joined: bool) -> None:  # noqa: FBT001
    """The next transaction waits for it, and so does another commit; aiokafka asserts from then on."""
    async with cluster_of(release) as cluster, transactional(cluster) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"a", partition=0)
        committing = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(0)
        committing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await committing
        if is_joined:
            await producer.commit_transaction()
        async with producer.transaction():
            await producer.send("t", b"b", partition=0)

        assert committed(cluster) == [b"a", b"b"]


@on_every_release
@in_virtual_time
async def test_block_cancelled_in_a_failing_commit_stops_nothing(release: Release) -> None:
    """The next block raises the failure, once; the one after it works."""
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
async def test_begin_that_was_cancelled_at_once_has_begun_nothing() -> None:
    """Otherwise the next begin would be refused."""
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
    """If the coordinator is out of reach, the abort happens in the background."""
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
async def test_older_producer_is_fenced(release: Release) -> None:
    """Every method raises aiokafka's class; its open transaction is aborted."""
    async with cluster_of(release) as cluster:
        older = transactional(cluster)
        await older.start()
        await older.begin_transaction()
        await older.send_and_wait("t", b"old", partition=0)
        async with transactional(cluster) as newer:
            with pytest.raises(errors.ProducerFenced) as raised:
                await older.commit_transaction()
            with pytest.raises(errors.ProducerFenced):
                await older.abort_transaction()
            with pytest.raises(errors.ProducerFenced):
                await older.transaction().__aenter__()
            await next_one_works(newer, cluster)
        await older.stop()

        assert isinstance(raised.value.__cause__, ProducerFencedError)


@on_every_release
@pytest.mark.parametrize("code", [47, 90])
@in_virtual_time
async def test_epoch_that_is_too_old_is_fenced_whoever_says_so(release: Release, code: int) -> None:
    """A partition's leader does before the coordinator, under V2."""
    async with cluster_of(release) as cluster, transactional(cluster) as producer:
        cluster.faults.error(code, SECOND)
        await producer.begin_transaction()
        with pytest.raises(errors.ProducerFenced):
            await producer.send_and_wait("t", b"a", partition=1)
        with pytest.raises(errors.ProducerFenced):
            await producer.commit_transaction()


@on_every_release
@in_virtual_time
async def test_record_of_a_fenced_producer_is_fenced(release: Release) -> None:
    """This includes the first record that it sends afterwards."""
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
async def test_exception_of_the_body_outlives_a_fenced_producer(release: Release) -> None:
    """A note of the exception says that the abort failed."""
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
async def test_id_that_is_refused_fails_the_start(code: int, expected: type[Exception]) -> None:
    """The start may be retried."""
    async with FakeCluster(1, topics={"t": 2}) as cluster:
        cluster.faults.error(code, Where(api=ApiKey.INIT_PRODUCER_ID))
        producer = transactional(cluster)
        with pytest.raises(expected):
            await producer.start()
        await producer.start()
        await next_one_works(producer, cluster)
        await producer.stop()


@in_virtual_time
async def test_coordinator_out_of_reach_fails_the_start() -> None:
    """It fails after `request_timeout_ms`; aiokafka waits forever."""
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
async def test_dead_background_task_fails_transactions_too() -> None:
    """The error is a failure, not a wrong order of calls."""
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
