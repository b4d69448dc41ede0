"""aiokafka's transactions: what its own tests check, and what programs with its verbs rely on."""

import asyncio
from collections.abc import Awaitable, Callable

import aiokafka
import pytest
from aiokafka import errors
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from aioproducer import Producer
from aioproducer import TopicPartition as OwnTopicPartition
from aioproducer.compat import AIOKafkaProducer
from aioproducer.testing import FakeCluster
from tests.compat.transactional_programs import OFFSETS, transactional
from tests.fakes.transactional_cluster import Release, asked, cluster_of, committed, on_every_release
from tests.fakes.virtual_cluster import in_virtual_time
from tests.produced import values

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
