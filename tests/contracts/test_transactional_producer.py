"""Whole transactions of the producer on every release, embedded and real, read by a consumer that is not ours."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from aiokafka import AIOKafkaConsumer

from aioproducer import (
    ConsumerGroupMetadata,
    KafkaError,
    OffsetAndMetadata,
    PreparedTransaction,
    Producer,
    ProducerFencedError,
    TopicPartition,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionError,
)
from tests.contracts.raw_client import RawClient

BEFORE_V2 = {"3.9.1", "4.3.1-tv0"}


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


@pytest.mark.kafka
async def test_commits_are_seen_and_aborts_are_not(broker_of_release: tuple[str, str]) -> None:
    _, servers = broker_of_release
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
async def test_producer_goes_on_after_a_record_that_failed(broker_of_release: tuple[str, str]) -> None:
    _, servers = broker_of_release
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
async def test_older_producer_of_an_id_is_fenced(broker_of_release: tuple[str, str]) -> None:
    _, servers = broker_of_release
    topic = new_name()
    async with taken_over(servers, topic) as (older, newer):
        async with newer.transaction() as txn:
            await txn.send(topic, b"newer", partition=0)
        with pytest.raises(ProducerFencedError):
            await older.commit_transaction()

    assert await committed(servers, topic) == [b"newer"]


@pytest.mark.kafka
async def test_fenced_producer_does_not_abort_its_successor(broker_of_release: tuple[str, str]) -> None:
    _, servers = broker_of_release
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
async def test_abort_fails_what_is_not_answered(broker_of_release: tuple[str, str]) -> None:
    _, servers = broker_of_release
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
async def test_topic_made_again_between_transactions_is_no_trouble(broker_of_release: tuple[str, str]) -> None:
    """The next transaction notices by its first record, or not at all; no record is lost or duplicated."""
    _, servers = broker_of_release
    topic = new_name()
    async with Producer(servers, transactional_id=new_name(), linger_ms=0) as producer:
        async with producer.transaction() as txn:
            await txn.send(topic, b"gone", partition=0)
        await make_again(servers, topic)
        for number in range(3):
            await commit_soon(producer, topic, b"%d" % number)

    assert await committed(servers, topic) == [b"0", b"1", b"2"]


@pytest.mark.kafka
async def test_transaction_fails_when_its_topic_is_recreated(broker_of_release: tuple[str, str]) -> None:
    """Its records in the old topic are gone; the next transaction that metadata does not interrupt is complete."""
    _, servers = broker_of_release
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
async def test_idle_fenced_block_does_not_abort_its_successor(
    broker_of_release: tuple[str, str],
    is_with_offsets: bool,  # noqa: FBT001
) -> None:
    """It was idle, so no leader has refused a record of it; its body then raises, or commits offsets."""
    _, servers = broker_of_release
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
    broker_of_release: tuple[str, str],
    has_id: bool,  # noqa: FBT001
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
async def test_its_own_producer_completes_a_prepared_transaction(broker_of_release: tuple[str, str]) -> None:
    _, servers = broker_of_release
    topic = new_name()
    async with Producer(servers, transactional_id=new_name()) as producer:
        for number in range(4):
            await producer.begin_transaction()
            await producer.enqueue(topic, b"%d" % number, partition=0)
            prepared = await producer.prepare_transaction()
            await producer.complete_transaction(prepared, commit=number % 2 == 0)

    assert await committed(servers, topic) == [b"0", b"2"]
