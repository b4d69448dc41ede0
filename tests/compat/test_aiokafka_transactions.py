"""aiokafka's transactions: what its own tests check, and failures that only the stand-in has."""

import asyncio
from collections.abc import Awaitable, Callable

import aiokafka
import pytest
from aiokafka import errors
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from aioproducer import Producer
from aioproducer import TopicPartition as OwnTopicPartition
from aioproducer.compat import AIOKafkaProducer
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.compat.aiokafka_programs import OFFSETS, transactional
from tests.fakes.producing import background_tasks
from tests.fakes.transactional_cluster import Release, asked, cluster_of, committed, on_every_release
from tests.fakes.virtual_loop import in_virtual_time
from tests.produced import values

SECOND = Where(api=ApiKey.PRODUCE, topic="t", partition=1)
END_TXN = Where(api=ApiKey.END_TXN)
NOT_AUTHORIZED = 29

# What readers see


@on_every_release
@in_virtual_time
async def test_block_commits_or_aborts(release: Release) -> None:
    async with cluster_of(release) as cluster, transactional(cluster) as producer:
        async with producer.transaction():
            metadata = await producer.send_and_wait("t", b"a", partition=0)

        async def program() -> None:
            async with producer.transaction():
                await producer.send_and_wait("t", b"b", partition=0)
                raise LookupError("no such account")

        with pytest.raises(LookupError, match="no such account"):
            await program()
        async with producer.transaction():
            await producer.send("t", b"c", partition=0)

        assert metadata.offset == 0
        assert committed(cluster) == [b"a", b"c"]


@on_every_release
@in_virtual_time
async def test_verbs_commit_and_abort(release: Release) -> None:
    async with cluster_of(release) as cluster, transactional(cluster) as producer:
        await producer.begin_transaction()
        futures = [await producer.send("t", b"%d" % number, partition=0) for number in range(10)]
        await producer.commit_transaction()
        assert [future.result().offset for future in futures] == list(range(10))

        await producer.begin_transaction()
        await producer.send_and_wait("t", b"aborted", partition=0)
        await producer.abort_transaction()

        assert committed(cluster) == [b"%d" % number for number in range(10)]


@on_every_release
@in_virtual_time
async def test_empty_transactions_cost_no_request(release: Release) -> None:
    async with cluster_of(release) as cluster, transactional(cluster) as producer:
        await producer.begin_transaction()
        await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.abort_transaction()

        assert asked(cluster) == ["INIT_PRODUCER_ID"]


@on_every_release
@in_virtual_time
async def test_batches_made_by_hand_belong_to_the_transaction(release: Release) -> None:
    """The commit waits for several batches to one partition."""
    async with cluster_of(release) as cluster, transactional(cluster) as producer:
        await producer.begin_transaction()
        futures = []
        for value in (b"1", b"2"):
            batch = producer.create_batch()
            batch.append(timestamp=None, key=None, value=value)
            batch.append(timestamp=None, key=None, value=value * 2)
            futures.append(await producer.send_batch(batch, "t", partition=0))
        await producer.commit_transaction()

        assert [future.result().offset for future in futures] == [0, 2]
        assert committed(cluster) == [b"1", b"11", b"2", b"22"]


@on_every_release
@in_virtual_time
async def test_offsets_in_all_of_aiokafkas_forms_are_committed(release: Release) -> None:
    """A number, that and a text, aiokafka's own type; partitions of our metadata too."""
    offsets = {
        TopicPartition("t", 0): 5,
        TopicPartition("t", 1): (6, "six"),
        TopicPartition("u", 0): OffsetAndMetadata(7, "seven"),
        OwnTopicPartition("u", 1): 8,
    }
    async with cluster_of(release, topics={"t": 2, "u": 2}) as cluster, transactional(cluster) as producer:
        async with producer.transaction():
            await producer.send_offsets_to_transaction(offsets, "readers")
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({TopicPartition("t", 0): 50}, "readers")
        await producer.abort_transaction()
        async with Producer(cluster.bootstrap_servers) as asking:
            found = await asking.committed_offsets("readers", [OwnTopicPartition(*place) for place in offsets])

    assert list(found.values()) == [(5, ""), (6, "six"), (7, "seven"), (8, "")]


@on_every_release
@in_virtual_time
async def test_stop_aborts_what_is_open(release: Release) -> None:
    """A time-out would block consumers meanwhile; asyncio warns of no lost future."""
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with cluster_of(release) as cluster:
        async with transactional(cluster) as producer:
            await producer.begin_transaction()
            await producer.send("t", b"left", partition=0)
        async with transactional(cluster, transactional_id="other") as producer:
            await producer.begin_transaction()
            await producer.send("t", b"next", partition=0)
            await producer.commit_transaction()

        assert committed(cluster) == [b"next"]
    assert complaints == []


# What is refused


async def test_without_a_transactional_id_every_verb_is_refused(producer: AIOKafkaProducer) -> None:
    for refused in (
        producer.begin_transaction(),
        producer.commit_transaction(),
        producer.abort_transaction(),
        producer.send_offsets_to_transaction({}, "group"),
        producer.transaction().__aenter__(),
    ):
        with pytest.raises(errors.IllegalOperation, match="You need to configure transaction_id"):
            await refused


@in_virtual_time
async def test_records_and_offsets_outside_a_transaction_are_refused() -> None:
    async with FakeCluster(1, topics={"t": 1}) as cluster, transactional(cluster) as producer:
        batch = producer.create_batch()
        batch.append(timestamp=None, key=None, value=b"2")

        async def refused() -> None:
            with pytest.raises(errors.IllegalOperation):
                await producer.send("t", b"2", partition=0)
            with pytest.raises(errors.IllegalOperation):
                await producer.send_batch(batch, "t", partition=0)
            with pytest.raises(errors.IllegalOperation, match="Not in the middle of a transaction"):
                await producer.send_offsets_to_transaction({}, None)  # type: ignore[arg-type]

        await refused()
        await producer.begin_transaction()
        await producer.send("t", b"1", partition=0)
        committing = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(0)
        await refused()
        assert not committing.done()
        await committing
        await refused()

        async with producer.transaction():
            await producer.send_batch(batch, "t", partition=0)
        assert committed(cluster) == [b"1", b"2"]


@in_virtual_time
async def test_offsets_after_an_abort_are_refused() -> None:
    async with FakeCluster(1, topics={"t": 1}) as cluster, transactional(cluster) as producer:
        await producer.begin_transaction()
        await producer.abort_transaction()

        with pytest.raises(errors.IllegalOperation, match="Not in the middle of a transaction"):
            await producer.send_offsets_to_transaction(OFFSETS, "group")


Verb = Callable[[AIOKafkaProducer], Awaitable[object]]


@pytest.mark.parametrize("verb", [AIOKafkaProducer.commit_transaction, AIOKafkaProducer.abort_transaction])
@in_virtual_time
async def test_order_of_calls_is_asserted(verb: Verb) -> None:
    async with FakeCluster(1, topics={"t": 1}) as cluster, transactional(cluster) as producer:
        with pytest.raises(AssertionError, match="no transaction is open"):
            await verb(producer)
        await producer.begin_transaction()
        with pytest.raises(AssertionError, match="open already"):
            await producer.begin_transaction()
        with pytest.raises(AssertionError, match="open already"):
            await producer.transaction().__aenter__()
        await producer.send("t", b"1", partition=0)
        await producer.commit_transaction()

        assert committed(cluster) == [b"1"]


@pytest.mark.parametrize(
    "offsets,group,expected",
    [
        ({}, "group", ValueError),
        (None, "group", ValueError),
        ([(TopicPartition("t", 0), 1)], "group", ValueError),
        ({("t", 0): 1}, "group", TypeError),
        ({TopicPartition("t", 0): "x"}, "group", ValueError),
        ({TopicPartition("t", 0): (1, None)}, "group", TypeError),
        ({TopicPartition("t", 0): -1}, "group", ValueError),
        (OFFSETS, "", ValueError),
        (OFFSETS, None, ValueError),
        (OFFSETS, 5, ValueError),
    ],
)
@in_virtual_time
async def test_wrong_offsets_are_refused_and_the_transaction_goes_on(
    offsets: object, group: object, expected: type[Exception]
) -> None:
    async with FakeCluster(1, topics={"t": 1}) as cluster, transactional(cluster) as producer:
        async with producer.transaction():
            await producer.send("t", b"1", partition=0)
            with pytest.raises(expected):
                await producer.send_offsets_to_transaction(offsets, group)  # type: ignore[arg-type]

        assert committed(cluster) == [b"1"]


# Options


def test_transactional_id_brings_idempotence_and_acks_of_all() -> None:
    """No record outlives its transaction; braces of the name are braces, as in aiokafka."""
    config = AIOKafkaProducer(transactional_id="a{b}c", transaction_timeout_ms=50_000)._config  # noqa: SLF001  # what was made of the arguments
    short = AIOKafkaProducer(transactional_id="a", transaction_timeout_ms=5_000)._config  # noqa: SLF001  # as above

    assert (config.transactional_id, config.transaction_timeout_ms) == ("a{b}c", 50_000)
    assert (config.acks, config.enable_idempotence, config.delivery_timeout_ms) == (-1, True, 50_000)
    assert short.delivery_timeout_ms == short.request_timeout_ms


@pytest.mark.parametrize("acks", [0, 1])
def test_acks_that_are_not_all_are_refused(acks: int) -> None:
    with pytest.raises(ValueError, match="acks"):
        AIOKafkaProducer(transactional_id="t", acks=acks)  # type: ignore[arg-type]


# Real Kafka


@pytest.mark.kafka
@pytest.mark.slow
async def test_program_of_aiokafkas_manual_runs_on_real_kafka(broker_of_release: tuple[str, str], topic: str) -> None:
    """It consumes, processes and produces: aborted, then committed; a consumer sees only the committed records."""
    _, servers = broker_of_release
    place = TopicPartition(topic, 0)
    async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id=f"{topic}-id") as producer:

        async def program(value: bytes, offset: int) -> None:
            async with producer.transaction():
                await producer.send(topic, value, partition=0)
                await producer.send_offsets_to_transaction({place: offset}, f"{topic}-group")
                if value == b"wrong":
                    raise LookupError("no such account")

        with pytest.raises(LookupError):
            await program(b"wrong", 70)
        await program(b"right", 7)

    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=servers, group_id=f"{topic}-group", enable_auto_commit=False, isolation_level="read_committed"
    )
    consumer.assign([place])
    async with consumer, asyncio.timeout(30):
        assert await consumer.committed(place) == 7
        await consumer.seek_to_beginning(place)
        assert (await consumer.getone()).value == b"right"


async def test_records_of_others_are_not_touched(one_broker: FakeCluster) -> None:
    async with (
        AIOKafkaProducer(bootstrap_servers=one_broker.bootstrap_servers) as plain,
        transactional(one_broker) as producer,
        producer.transaction(),
    ):
        await producer.send_and_wait("orders", b"1", partition=0)
        await plain.send_and_wait("orders", b"2", partition=0)

    assert values(one_broker, "orders") == [b"1", b"2"]


# Failures that only the stand-in has; those of both are in `tests/journeys`


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


# Commits that take long, and those without a caller


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
