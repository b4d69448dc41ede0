"""The promises of a producer hold on the embedded cluster and on real Kafka alike."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random

import aiokafka
import pytest
from aiokafka import AIOKafkaConsumer

from aioproducer import (
    ConsumerGroupMetadata,
    KafkaError,
    OffsetAndMetadata,
    Outcome,
    PreparedTransaction,
    Producer,
    ProducerFencedError,
    TopicPartition,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionError,
)
from aioproducer.errors import InvalidRecordError, MessageTooLargeError
from tests.contracts.clients import RawClient

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
READ_TIMEOUT_S = 20


async def read(broker: str, topic: str, count: int, *, partition: int = 0) -> "list[aiokafka.ConsumerRecord]":
    place = aiokafka.TopicPartition(topic, partition)
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=broker, auto_offset_reset="earliest")
    consumer.assign([place])
    await consumer.start()
    try:
        found: list[aiokafka.ConsumerRecord] = []
        async with asyncio.timeout(READ_TIMEOUT_S):
            while len(found) < count:
                found += (await consumer.getmany(place, timeout_ms=1000)).get(place, [])
    finally:
        await consumer.stop()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
async def test_records_arrive_whole(broker: str, topic: str, codec: str) -> None:
    given: list[dict[str, object]] = [
        {"value": b"v", "key": b"k", "headers": [("a", b"1"), ("a", None), ("é", b"")], "timestamp": 1_700_000_000_000},
        {"value": None, "key": b"tombstone", "timestamp": 1_700_000_000_007},
        {"value": b"", "key": None, "timestamp": 1_700_000_000_003},
        {"value": b"long " * 1000, "key": b"", "timestamp": 1_700_000_000_005},
    ]
    async with Producer(broker, compression_type=codec) as producer:  # type: ignore[arg-type]  # one of a few words
        sent = await asyncio.gather(*(producer.send(topic, partition=0, **each) for each in given))  # type: ignore[arg-type]  # as above

    found = await read(broker, topic, len(given))
    for metadata, record, each in zip(sent, found, given, strict=True):
        assert (record.key, record.value, record.timestamp) == (each["key"], each["value"], each["timestamp"])
        assert list(record.headers) == (each.get("headers") or [])
        assert (metadata.offset, metadata.timestamp, metadata.timestamp_type) == (record.offset, record.timestamp, 0)


@pytest.mark.slow
@pytest.mark.parametrize("acks", [-1, 1, 0])
async def test_thousands_of_records_keep_their_order(broker: str, topic: str, acks: int) -> None:
    async with Producer(
        broker
    ) as producer:  # with acks=0, records are lost that come before the broker leads the topic
        await producer.send(topic, b"first", partition=0)
    async with Producer(broker, acks=acks, batch_size=500) as producer:  # type: ignore[arg-type]  # one of three
        for number in range(5000):
            await producer.enqueue(topic, b"%d" % number, partition=0)
        await producer.flush()
        await asyncio.sleep(0.05)

    _, *found = await read(broker, topic, 5001)
    assert [record.value for record in found] == [b"%d" % number for number in range(5000)]


async def test_topic_made_on_first_use_just_works(broker: str, topic: str) -> None:
    async with Producer(broker) as producer:
        metadata = await producer.send(topic, b"x", partition=0)

    assert (metadata.topic, metadata.partition, metadata.offset) == (topic, 0, 0)


async def test_log_append_time_is_the_brokers(broker: str, client: RawClient, topic: str) -> None:
    await client.create_topic(topic, {"message.timestamp.type": "LogAppendTime"})
    async with Producer(broker) as producer:
        metadata = await producer.send(topic, b"x", timestamp=5)

    [record] = await read(broker, topic, 1)
    assert (metadata.timestamp, metadata.timestamp_type) == (record.timestamp, 1)
    assert metadata.timestamp > 1_600_000_000_000


@pytest.mark.parametrize("codec, kept", [("none", "producer"), ("lz4", "producer"), ("lz4", "uncompressed")])
async def test_batch_larger_than_the_topic_allows_is_split(  # noqa: PLR0917  # fixtures
    broker: str, client: RawClient, topic: str, codec: str, kept: str
) -> None:
    """The size as sent or as kept may be too large. Records arrive in order; one too large alone fails (KIP-126)."""
    await client.create_topic(topic, {"max.message.bytes": "2000", "compression.type": kept})
    values = [bytes((number * 7 + step * step) % 251 for step in range(150)) for number in range(100)]
    too_large = Random(5).randbytes(6000)  # nothing makes it smaller
    async with Producer(broker, compression_type=codec, linger_ms=10_000) as producer:  # type: ignore[arg-type]  # one of a few
        await producer.partitions_for(topic)
        deliveries = [producer.send(topic, value) for value in (*values[:50], too_large, *values[50:])]
        results = await asyncio.gather(*deliveries, return_exceptions=True)
        after = await producer.send(topic, b"after")

    failed = {index: each for index, each in enumerate(results) if isinstance(each, KafkaError)}
    assert {index: (type(each), each.outcome) for index, each in failed.items()} == {
        50: (MessageTooLargeError, Outcome.NOT_WRITTEN)
    }
    assert [record.value for record in await read(broker, topic, 101)] == [*values, b"after"]
    assert after.offset == 100


@pytest.mark.parametrize("codec", ["none", "gzip"])
async def test_refused_records_fail_alone(  # noqa: PLR0917  # fixtures
    broker: str, client: RawClient, topic: str, codec: str
) -> None:
    """A compacted topic wants keys: the broker names those without (KIP-467)."""
    await client.create_topic(topic, {"cleanup.policy": "compact"})
    async with Producer(broker, compression_type=codec, linger_ms=10_000) as producer:  # type: ignore[arg-type]  # one of a few
        await producer.partitions_for(topic)
        deliveries = [
            producer.send(topic, b"%d" % number, key=None if number in {3, 7} else b"k%d" % number)
            for number in range(10)
        ]
        results = await asyncio.gather(*deliveries, return_exceptions=True)
        after = await producer.send(topic, b"after", key=b"k")

    refused = [index for index, each in enumerate(results) if isinstance(each, InvalidRecordError)]
    assert refused == [3, 7]
    kept = [b"%d" % number for number in range(10) if number not in refused]
    assert [record.value for record in await read(broker, topic, 9)] == [*kept, b"after"]
    assert after.offset == 8


@pytest.mark.parametrize("keeps", ["CreateTime", "LogAppendTime"])
async def test_producer_goes_on_after_its_topic_was_made_again(  # noqa: PLR0917  # fixtures
    broker: str, client: RawClient, topic: str, keeps: str
) -> None:
    """Every record is delivered, the first too, to which the new log gives the offset that the old one had given."""
    settings = {"message.timestamp.type": keeps}
    await client.create_topic(topic, settings)
    async with Producer(broker, linger_ms=0) as producer:
        for number in range(3):
            await producer.send(topic, b"old %d" % number)
        await client.delete_topic(topic)
        await client.create_topic(topic, settings)
        offsets = [(await producer.send(topic, b"new %d" % number)).offset for number in range(6)]

    assert offsets == [*range(6)]
    assert [record.value for record in await read(broker, topic, 6)] == [b"new %d" % number for number in range(6)]


async def test_two_producers_share_a_partition(broker: str, topic: str) -> None:
    async with Producer(broker, batch_size=200) as first, Producer(broker, batch_size=200) as second:
        for number in range(300):
            first.send(topic, b"a%d" % number, partition=0)
            second.send(topic, b"b%d" % number, partition=0)
            await asyncio.sleep(0)

    written = [record.value for record in await read(broker, topic, 600)]
    for name in (b"a", b"b"):
        assert [value for value in written if value[:1] == name] == [name + b"%d" % number for number in range(300)]


async def test_error_of_a_topic_that_may_not_be_written_comes_at_once(broker: str) -> None:
    """An invalid name is refused before anything is sent; an internal topic by the broker, in time."""
    async with Producer(broker, max_block_ms=5_000, delivery_timeout_ms=5_000, request_timeout_ms=2_000) as producer:
        with suppress(KafkaError):
            async with asyncio.timeout(8):
                await producer.send("__consumer_offsets", b"x", partition=0)

        with pytest.raises(ValueError, match="topic"):
            producer.send("no spaces", b"x")


# Whole transactions on every release, read by a consumer that is not ours


BEFORE_V2 = {"3.9.1", "4.4.0-tv0"}


async def committed(servers: str, topic: str) -> list[bytes]:
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest", group_id=None
    )
    # The end of all records: that of the committed ones moves with the marker, which a commit does not wait for.
    async with AIOKafkaConsumer(topic, bootstrap_servers=servers, group_id=None) as other:
        ends = await other.end_offsets(list(other.assignment()))
    await consumer.start()
    values: list[bytes] = []
    try:
        while not all([await consumer.position(partition) >= end for partition, end in ends.items()]):
            for records in (await consumer.getmany(timeout_ms=200)).values():
                values += [record.value for record in records]
    finally:
        await consumer.stop()
    return values


def new_name() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def servers(broker_of_release: tuple[str, str]) -> str:
    return broker_of_release[1]


@pytest.mark.kafka
async def test_commits_are_seen_and_aborts_are_not(servers: str) -> None:
    topic = new_name()
    async with Producer(servers, transactional_id=new_name(), batch_size=2000) as producer:
        for round_ in range(4):
            await producer.begin_transaction()
            for number in range(200):
                await producer.enqueue(topic, b"%d-%d" % (round_, number))
            await (producer.abort_transaction if round_ % 2 else producer.commit_transaction)()

    expected = {b"%d-%d" % (round_, number) for round_ in (0, 2) for number in range(200)}
    found = await committed(servers, topic)
    assert (len(found), set(found)) == (400, expected)


@pytest.mark.kafka
async def test_producer_goes_on_after_a_record_that_failed(servers: str) -> None:
    topic = new_name()
    async with Producer(servers, transactional_id=new_name(), max_request_size=3_000_000, batch_size=100) as producer:  # noqa: PLR1702  # one block in another
        for round_ in range(3):
            async with producer.transaction() as txn:
                await txn.send(topic, b"%d" % round_, partition=0)
            with pytest.raises(TransactionAbortableError):  # noqa: PT012  # its end raises
                async with producer.transaction() as txn:
                    await txn.send(topic, b"never", partition=0)
                    await txn.enqueue(topic, bytes(2_000_000), partition=0)
                    await txn.enqueue(topic, b"never", partition=0)

    assert await committed(servers, topic) == [b"0", b"1", b"2"]


def offsets_of(topic: str) -> tuple[dict[TopicPartition, OffsetAndMetadata], ConsumerGroupMetadata]:
    return {TopicPartition(topic, 0): OffsetAndMetadata(1)}, ConsumerGroupMetadata(f"readers-of-{topic}")


@asynccontextmanager
async def taken_over(servers: str, topic: str) -> AsyncIterator[tuple[Producer, Producer]]:
    """A producer with a record and offsets in its transaction, and the one that has taken its transactional id over."""
    name = new_name()
    older = await Producer(servers, transactional_id=name, linger_ms=0).start()
    await older.begin_transaction()
    await older.send(topic, b"older", partition=0)
    await older.send_offsets(*offsets_of(topic))
    async with Producer(servers, transactional_id=name, linger_ms=0) as newer:
        yield older, newer
        await older.close()


@pytest.mark.kafka
async def test_older_producer_of_an_id_is_fenced(servers: str) -> None:
    topic = new_name()
    async with taken_over(servers, topic) as (older, newer):
        async with newer.transaction() as txn:
            await txn.send(topic, b"newer", partition=0)
        with pytest.raises(ProducerFencedError):
            await older.commit_transaction()

    assert await committed(servers, topic) == [b"newer"]


@pytest.mark.kafka
async def test_fenced_producer_does_not_abort_its_successor(servers: str) -> None:
    topic = new_name()
    async with taken_over(servers, topic) as (older, newer):
        await newer.begin_transaction()
        await newer.send(topic, b"newer", partition=0)
        with pytest.raises(KafkaError):
            await older.send(topic, b"too late", partition=0)
        with pytest.raises(ProducerFencedError):
            await older.abort_transaction()
        await newer.send(topic, b"whole", partition=0)
        await newer.commit_transaction()

    assert await committed(servers, topic) == [b"newer", b"whole"]


@pytest.mark.kafka
async def test_timed_out_transaction_ends_as_its_version_allows(broker_of_release: tuple[str, str]) -> None:
    """With V2 it can be aborted, and the producer continues. With V1 the identity is lost, and the error says why."""
    release, servers = broker_of_release
    topic = new_name()
    producer = await Producer(servers, transactional_id=new_name(), transaction_timeout_ms=1000).start()
    await producer.begin_transaction()
    await producer.send(topic, b"late", partition=0)
    await asyncio.sleep(4)
    with pytest.raises(KafkaError):
        await producer.commit_transaction()
    if release in BEFORE_V2:
        with pytest.raises(ProducerFencedError, match="or the transaction timed out"):
            await producer.abort_transaction()
    else:
        await producer.abort_transaction()
        async with producer.transaction() as txn:
            await txn.send(topic, b"next", partition=0)
    await producer.close()

    assert await committed(servers, topic) == ([] if release in BEFORE_V2 else [b"next"])


@pytest.mark.kafka
async def test_abort_fails_what_is_not_answered(servers: str) -> None:
    topic = new_name()
    async with Producer(servers, transactional_id=new_name(), linger_ms=5000) as producer:
        await producer.begin_transaction()
        await producer.partitions_for(topic)
        waiting = producer.send(topic, b"waiting", partition=0)
        await producer.abort_transaction()
        with pytest.raises(TransactionAbortedError):
            await waiting
        async with producer.transaction() as txn:
            await txn.enqueue(topic, b"next", partition=0)

    assert await committed(servers, topic) == [b"next"]


async def make_again(servers: str, topic: str) -> None:
    client = await RawClient.connect(servers)
    try:
        await client.delete_topic(topic)
        await client.create_topic(topic)
    finally:
        await client.close()


async def commit_soon(producer: Producer, topic: str, value: bytes) -> None:
    """Commit one record; a transaction that metadata interrupts is aborted, and the next attempt follows.

    Without topic ids in Produce it is unknown whether a record in flight is in the old log, which is gone.
    """
    for _ in range(5):
        with suppress(TransactionAbortableError, TransactionAbortedError):
            async with producer.transaction() as txn:
                await txn.send(topic, value, partition=0)
            return
    pytest.fail("no transaction could be committed to a topic that is there")


@pytest.mark.kafka
async def test_topic_made_again_between_transactions_is_no_trouble(servers: str) -> None:
    """The next transaction notices by its first record, or not at all; no record is lost or duplicated."""
    topic = new_name()
    async with Producer(servers, transactional_id=new_name(), linger_ms=0) as producer:
        async with producer.transaction() as txn:
            await txn.send(topic, b"gone", partition=0)
        await make_again(servers, topic)
        for number in range(3):
            await commit_soon(producer, topic, b"%d" % number)

    assert await committed(servers, topic) == [b"0", b"1", b"2"]


@pytest.mark.kafka
async def test_transaction_fails_when_its_topic_is_recreated(servers: str) -> None:
    """Its records in the old topic are gone; the next transaction that metadata does not interrupt is complete."""
    topic = new_name()
    async with Producer(servers, transactional_id=new_name(), linger_ms=0) as producer:
        await producer.begin_transaction()
        await producer.send(topic, b"gone", partition=0)
        await make_again(servers, topic)
        with suppress(KafkaError):  # metadata may have told by now, and else the leader does
            await producer.send(topic, b"never", partition=0)
        with pytest.raises(TransactionAbortableError, match="made again"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        await commit_soon(producer, topic, b"next")

    assert await committed(servers, topic) == [b"next"]


@pytest.mark.kafka
@pytest.mark.parametrize("is_with_offsets", [False, True], ids=["records", "offsets"])
async def test_idle_fenced_block_does_not_abort_its_successor(servers: str, *, is_with_offsets: bool) -> None:
    """It was idle, so no leader has refused a record of it; its body then raises, or commits offsets."""
    topic = new_name()
    async with taken_over(servers, topic) as (older, newer):
        await newer.begin_transaction()
        await newer.send(topic, b"newer", partition=0)
        await newer.send_offsets(*offsets_of(topic))
        if is_with_offsets:
            with pytest.raises(KafkaError):
                await older.send_offsets(*offsets_of(topic))
        with pytest.raises(ProducerFencedError):
            await older.abort_transaction()
        await newer.send(topic, b"whole", partition=0)
        await newer.commit_transaction()

    assert await committed(servers, topic) == [b"newer", b"whole"]


@pytest.mark.kafka
@pytest.mark.parametrize("has_id", [False, True])
async def test_prepared_transaction_is_completed_by_another_producer(
    broker_of_release: tuple[str, str], *, has_id: bool
) -> None:
    """Its own is closed, and calling again changes nothing."""
    release, servers = broker_of_release
    topic, prepared = new_name(), list[PreparedTransaction]()
    async with Producer(servers) as producer:
        await producer.partitions_for(topic)
    for value in (b"committed", b"aborted", b"fenced"):
        async with Producer(servers, transactional_id=new_name()) as producer:
            await producer.begin_transaction()
            await producer.send(topic, value)
            prepared.append(await producer.prepare_transaction())
    assert {each.version for each in prepared} == {1 if release in BEFORE_V2 else 2}
    async with Producer(servers, transactional_id=prepared[2].transactional_id):
        pass

    async with Producer(servers, transactional_id=new_name() if has_id else None) as other:
        for each, commit in zip(prepared[:2], (True, False), strict=True):
            await other.complete_transaction(each, commit=commit)
            await other.complete_transaction(each, commit=commit)
            with pytest.raises(TransactionError):
                await other.complete_transaction(each, commit=not commit)
        with pytest.raises(ProducerFencedError):
            await other.complete_transaction(prepared[2])

    assert await committed(servers, topic) == [b"committed"]


@pytest.mark.kafka
async def test_its_own_producer_completes_a_prepared_transaction(servers: str) -> None:
    topic = new_name()
    async with Producer(servers, transactional_id=new_name()) as producer:
        for number in range(4):
            await producer.begin_transaction()
            await producer.enqueue(topic, b"%d" % number, partition=0)
            prepared = await producer.prepare_transaction()
            await producer.complete_transaction(prepared, commit=number % 2 == 0)

    assert await committed(servers, topic) == [b"0", b"2"]
