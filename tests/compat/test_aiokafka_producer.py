"""A program written for aiokafka, with one import changed: what its own tests check holds here; its start and end."""

import asyncio
import copy
import gc
import json
import math
import pickle
import random
import time
from array import array
from collections.abc import Callable

import aiokafka
import pytest
from aiokafka import errors

from aioproducer import RecordMetadata, SerializationError, TopicPartition
from aioproducer.compat import AIOKafkaProducer
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.compat.aiokafka_programs import producer_of
from tests.fakes.wrong_servers import dead_port
from tests.produced import produce_requests, values

# The two steps


async def test_send_is_queued_and_its_future_is_delivered(producer: AIOKafkaProducer, one_broker: FakeCluster) -> None:
    future = await producer.send("orders", b"value", b"key", 1, 5_000, [("h", b"1")])
    metadata = await future

    assert isinstance(future, asyncio.Future)
    assert isinstance(metadata, aiokafka.structs.RecordMetadata)
    assert metadata == RecordMetadata("orders", 1, TopicPartition("orders", 1), 0, 5_000, 0, 0)
    (found,) = one_broker.records("orders", 1)
    assert (found.key, found.value, found.timestamp, list(found.headers)) == (b"key", b"value", 5_000, [("h", b"1")])


async def test_header_without_a_value_is_kept(producer: AIOKafkaProducer, one_broker: FakeCluster) -> None:
    headers = [("h", None), ("h", b""), ("h", b"1")]
    await (await producer.send("orders", b"1", partition=1, headers=headers))
    await producer.send_and_wait("orders", b"2", partition=1, headers=headers)
    batch = producer.create_batch()
    batch.append(timestamp=None, key=None, value=b"3", headers=headers)
    await (await producer.send_batch(batch, "orders", partition=1))

    assert [list(record.headers) for record in one_broker.records("orders", 1)] == [headers] * 3


async def test_flush_during_stop_returns_with_it(one_broker: FakeCluster) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=one_broker.bootstrap_servers)
    await producer.start()
    one_broker.faults.stall(Where(api=ApiKey.PRODUCE))
    future = await producer.send("orders", b"v")
    stopping = asyncio.ensure_future(producer.stop())
    await asyncio.sleep(0)
    flushing = asyncio.ensure_future(producer.flush())
    await asyncio.wait([flushing], timeout=0.1)
    was_pending = not flushing.done()
    one_broker.faults.clear()
    await asyncio.gather(stopping, flushing)

    assert was_pending
    assert future.done()
    assert values(one_broker, "orders") == [b"v"]


async def test_send_and_wait_is_delivered(producer: AIOKafkaProducer) -> None:
    before = time.time_ns() // 1_000_000
    metadata = await producer.send_and_wait("orders", b"value", partition=0)

    assert (metadata.offset, metadata.timestamp_type) == (0, 0)
    assert metadata.timestamp >= before


async def test_place_of_a_record_is_one_of_its_consumers(producer: AIOKafkaProducer, one_broker: FakeCluster) -> None:
    """Its consumer checks the type `aiokafka.TopicPartition`, and used to refuse that of a delivered record."""
    place = (await producer.send_and_wait("orders", b"1", partition=0)).topic_partition
    batch = producer.create_batch()
    batch.append(timestamp=None, key=None, value=b"2")
    by_batch = await (await producer.send_batch(batch, "orders", partition=0))

    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=one_broker.bootstrap_servers, group_id="readers")
    async with consumer:
        consumer.assign([place])
        await consumer.commit({place: 1})
        await consumer.seek_to_committed(by_batch.topic_partition)

        assert [record.value for record in (await consumer.getmany(place, timeout_ms=5_000))[place]] == [b"2"]


class Whole:
    def __init__(self, number: int) -> None:
        self._number = number

    def __index__(self) -> int:
        return self._number


async def test_numbers_may_be_of_other_kinds(one_broker: FakeCluster) -> None:
    """Aiokafka accepts integers of numpy, and drops the fraction of a time."""
    async with producer_of(one_broker, partitioner=lambda _key, every, _available: Whole(every[1])) as producer:
        given = await producer.send_and_wait("orders", b"1", partition=Whole(2), timestamp_ms=1_700_000_000_123.9)  # type: ignore[arg-type]
        chosen = await producer.send_and_wait("orders", b"1")
        with pytest.raises(TypeError, match="timestamp"):
            await producer.send("orders", b"1", timestamp_ms=math.nan)
        with pytest.raises(TypeError, match="partition"):
            await producer.send("orders", b"1", partition=True)

    assert (given.partition, given.timestamp, chosen.partition) == (2, 1_700_000_000_123, 1)


async def test_record_may_be_as_large_as_a_request(one_broker: FakeCluster) -> None:
    """`max_request_size` is the only limit; the buffer behind it was another, which aiokafka has no option for."""
    one_broker.create_topic("large", 1, configs={"max.message.bytes": "50000000"})
    async with producer_of(one_broker, max_request_size=50_000_000, enable_idempotence=True) as producer:
        metadata = await producer.send_and_wait("large", bytes(40_000_000))

    assert metadata.offset == 0


async def test_key_is_serialized_first(one_broker: FakeCluster) -> None:
    """Aiokafka has that order, and some serializers have state."""
    seen: list[object] = []

    def note(given: object) -> bytes:
        seen.append(given)
        return b"bytes"

    async with producer_of(one_broker, key_serializer=note, value_serializer=note) as producer:
        await producer.send_and_wait("orders", "value", key="key")

    assert seen == ["key", "value"]


async def test_futures_are_pending_until_flush(one_broker: FakeCluster) -> None:
    """`flush` waits for them, and does not wait out the linger."""
    async with producer_of(one_broker, linger_ms=60_000) as producer:
        futures = [await producer.send("orders", b"%d" % number) for number in range(3)]
        pending = [future.done() for future in futures]
        await producer.flush()

        assert pending == [False] * 3
        assert [future.done() for future in futures] == [True] * 3


async def test_done_callbacks_have_run_after_flush(producer: AIOKafkaProducer) -> None:
    """A program counts by them, of records and of batches."""
    ended: list[asyncio.Future[RecordMetadata]] = []
    for number in range(100):
        (await producer.send("orders", b"%d" % number)).add_done_callback(ended.append)
    for partition in range(3):
        batch = producer.create_batch()
        batch.append(timestamp=None, key=None, value=b"v")
        (await producer.send_batch(batch, "orders", partition=partition)).add_done_callback(ended.append)
    await producer.flush()

    assert len(ended) == 103


async def test_gather_keeps_the_order(producer: AIOKafkaProducer, one_broker: FakeCluster) -> None:
    """The loop that every aiokafka program has."""
    futures = [await producer.send("orders", b"%d" % number, partition=0) for number in range(1_000)]
    offsets = [metadata.offset for metadata in await asyncio.gather(*futures)]

    assert offsets == list(range(1_000))
    assert values(one_broker, "orders") == [b"%d" % number for number in range(1_000)]


async def test_future_without_acknowledgement_is_none(one_broker: FakeCluster) -> None:
    async with producer_of(one_broker, acks=0) as producer:
        first, second = await producer.send("orders", b"1"), await producer.send("orders", b"2")

        assert [await first, await second] == [None, None]


async def test_cancelled_future_recalls_nothing(producer: AIOKafkaProducer, one_broker: FakeCluster) -> None:
    future = await producer.send("orders", b"1", partition=0)
    future.cancel()
    await producer.flush()

    assert values(one_broker, "orders") == [b"1"]


async def test_flush_without_records_returns(one_broker: FakeCluster) -> None:
    producer = producer_of(one_broker, linger_ms=60_000)
    await producer.flush()
    await producer.start()
    future = await producer.send("orders", b"1")
    stopping = asyncio.create_task(producer.stop())
    await asyncio.sleep(0)
    await producer.flush()
    is_delivered = future.done()
    await stopping
    await producer.flush()

    assert is_delivered


# Arguments


async def test_neither_key_nor_value_is_refused(producer: AIOKafkaProducer) -> None:
    """A tombstone needs a key."""
    with pytest.raises(AssertionError, match="Need at least one: key or value"):
        await producer.send("orders")
    await producer.send_and_wait("orders", key=b"key")


async def test_text_is_a_type_error(producer: AIOKafkaProducer, one_broker: FakeCluster) -> None:
    with pytest.raises(TypeError, match="value"):
        await producer.send("orders", "hello, Kafka!", partition=0)
    await producer.flush()

    assert produce_requests(one_broker) == 0


class Number(array):  # type: ignore[type-arg]  # at run time it has no arguments in 3.11
    """As a number of numpy's: `bytes` of it would be that many zeros."""

    def __index__(self) -> int:
        return int(self[0])


@pytest.mark.parametrize("part", [array("f", [1, 2]), Number("B", [7]), array("B")], ids=repr)
async def test_bytes_of_any_buffer_are_sent(one_broker: FakeCluster, part: "array[float]") -> None:
    """Aiokafka takes them: a camera's frame is an array."""
    async with producer_of(one_broker) as producer, producer_of(one_broker, value_serializer=lambda _: part) as other:
        await producer.send_and_wait("orders", part, part, 0)
        await other.send_and_wait("orders", "frame", b"k", 0)
        batch = producer.create_batch()
        batch.append(timestamp=None, key=part, value=part)
        await (await producer.send_batch(batch, "orders", partition=0))

    found = [(record.key, record.value) for record in one_broker.records("orders", 0)]
    assert found == [(part.tobytes(), part.tobytes()), (b"k", part.tobytes()), (part.tobytes(), part.tobytes())]


@pytest.mark.parametrize("partition", [17, 3, -1])
async def test_partition_that_is_not_there_is_an_assertion_error(producer: AIOKafkaProducer, partition: int) -> None:
    """Aiokafka asserts it, also while the topic is not known yet."""
    for _ in range(2):
        with pytest.raises(AssertionError, match="partition"):
            await producer.send("orders", b"1", partition=partition)


async def test_serializers_are_called_for_none_too(one_broker: FakeCluster) -> None:
    """A value serializer may turn None into something else."""
    async with producer_of(
        one_broker,
        key_serializer=lambda key: str(key).upper().encode(),
        value_serializer=lambda value: json.dumps(value).encode(),
    ) as producer:
        await producer.send_and_wait("orders", None, key="key", partition=0)
        await producer.send_and_wait("orders", {"a": 1}, partition=0)

    assert [(r.key, r.value) for r in one_broker.records("orders", 0)] == [(b"KEY", b"null"), (b"NONE", b'{"a": 1}')]


async def test_error_of_a_serializer_is_raised_as_it_is(one_broker: FakeCluster) -> None:
    """Programs catch their own errors."""
    async with producer_of(one_broker, value_serializer=lambda value: json.dumps(value).encode()) as producer:
        with pytest.raises(TypeError, match="set is not JSON serializable") as raised:
            await producer.send("orders", {1})

    assert not isinstance(raised.value, SerializationError)


async def test_record_that_is_too_large_is_refused(one_broker: FakeCluster) -> None:
    async with producer_of(one_broker, max_request_size=1_000) as producer:
        with pytest.raises(errors.MessageSizeTooLargeError, match="max_request_size"):
            await producer.send("orders", bytes(2_000))


async def test_partitioner_has_aiokafkas_form(one_broker: FakeCluster) -> None:
    """It gets the serialized key, all partitions, and those with a leader."""
    seen: list[tuple[bytes | None, list[int], list[int]]] = []

    def last(key: bytes | None, every: list[int], available: list[int]) -> int:
        seen.append((key, every, available))
        return every[-1]

    async with producer_of(one_broker, partitioner=last, key_serializer=lambda key: b"<%s>" % key) as producer:
        metadata = await producer.send_and_wait("orders", b"1", key=b"k")

    assert metadata.partition == 2
    assert seen == [(b"<k>", [0, 1, 2], [0, 1, 2])]


async def test_error_of_a_partitioner_is_raised_as_it_is(one_broker: FakeCluster) -> None:
    """Aiokafka does not wrap it either."""

    def choose(_key: bytes | None, _every: list[int], _available: list[int]) -> int:
        raise KeyError("no home")

    async with producer_of(one_broker, partitioner=choose) as producer:
        with pytest.raises(KeyError, match="no home"):
            await producer.send("orders", b"1")


async def test_keys_go_where_aiokafka_sends_them(producer: AIOKafkaProducer) -> None:
    """A program that moves keeps its partitions."""
    keys = [random.Random(seed).randbytes(seed) for seed in range(1, 40)]
    theirs = [aiokafka.partitioner.DefaultPartitioner()(key, [0, 1, 2], [0, 1, 2]) for key in keys]

    ours = [(await producer.send_and_wait("orders", b"1", key=key)).partition for key in keys]

    assert ours == theirs


async def test_partitions_are_a_set(producer: AIOKafkaProducer) -> None:
    assert await producer.partitions_for("orders") == {0, 1, 2}


async def test_closed_producer_takes_nothing(one_broker: FakeCluster) -> None:
    producer = producer_of(one_broker)
    batch = producer.create_batch()
    await producer.start()
    await producer.stop()
    await producer.stop()

    assert producer._closed  # noqa: SLF001  # programs look at it
    with pytest.raises(errors.ProducerClosed):
        await producer.send("orders", b"1")
    with pytest.raises(errors.ProducerClosed):
        await producer.send_batch(batch, "orders", partition=0)


async def test_stop_delivers_what_was_queued(one_broker: FakeCluster) -> None:
    async def fail() -> None:
        async with producer_of(one_broker, linger_ms=60_000) as producer:
            await producer.send("orders", b"1", partition=0)
            raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        await fail()

    assert values(one_broker, "orders") == [b"1"]


async def test_brokers_that_are_down_are_a_connection_error() -> None:
    """Starting may be retried; until it succeeds, nothing is sent."""
    async with dead_port() as address:
        producer = AIOKafkaProducer(bootstrap_servers=address, request_timeout_ms=200)
        for _ in range(2):
            with pytest.raises(errors.KafkaConnectionError, match="127"):
                await producer.start()
        with pytest.raises(errors.IllegalStateError):
            await producer.send("orders", b"1")
        await producer.stop()


async def test_start_that_failed_may_succeed_later(one_broker: FakeCluster) -> None:
    """The loop around `start` that services have."""
    await one_broker.kill(1)
    producer = producer_of(one_broker, request_timeout_ms=200)
    with pytest.raises(errors.KafkaConnectionError):
        await producer.start()
    await one_broker.restart(1)
    await producer.start()

    metadata = await producer.send_and_wait("orders", b"1", partition=0)
    await producer.stop()

    assert metadata.offset == 0


async def test_dropped_unclosed_warns(one_broker: FakeCluster) -> None:
    """The warning begins like aiokafka's, and names the line of the program that created it."""

    async def drop() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=one_broker.bootstrap_servers)
        await producer.start()

    with pytest.warns(
        ResourceWarning, match=r"^Unclosed AIOKafkaProducer '.*', made at .*test_aiokafka_producer\.py:\d+,"
    ):
        await drop()
    await asyncio.sleep(0.05)  # what it leaves closes itself


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_copy_is_refused(copied: Callable[[object], object]) -> None:
    with pytest.raises(TypeError, match="an AIOKafkaProducer cannot be copied or pickled: make it in the process"):
        copied(AIOKafkaProducer())


async def test_stopped_stays_stopped(one_broker: FakeCluster) -> None:
    """A restarted producer would be one that no `stop` closes."""
    producer = producer_of(one_broker)
    await producer.start()
    await producer.stop()

    for _ in range(2):
        with pytest.raises(errors.ProducerClosed):
            await producer.start()
    with pytest.raises(errors.ProducerClosed):
        await producer.send("orders", b"1")


async def test_stop_from_elsewhere_closes_nothing_and_stays_possible(one_broker: FakeCluster) -> None:
    """On another event loop, stop and start are refused in aiokafka's class; then its own loop stops it."""
    producer = producer_of(one_broker)
    await producer.start()

    for call in (producer.stop, producer.start):
        with pytest.raises(errors.IllegalStateError, match="belongs to the event loop that started it"):
            await asyncio.to_thread(lambda call=call: asyncio.run(call()))
    await producer.send_and_wait("orders", b"1", partition=0)
    await producer.stop()

    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("aioproducer")] == []


async def test_stopped_while_it_starts_stays_stopped(one_broker: FakeCluster) -> None:
    """Its calls say that it is closed, not that it was never started."""
    producer = producer_of(one_broker)
    starting = asyncio.create_task(producer.start())
    await asyncio.sleep(0)
    await producer.stop()

    with pytest.raises(errors.ProducerClosed):
        await starting
    with pytest.raises(errors.ProducerClosed):
        await producer.send("orders", b"1")


async def test_one_cancelled_start_leaves_the_other_its_producer(one_broker: FakeCluster) -> None:
    """Two tasks start it, one of them is cancelled: what the other has started is used, and stopped."""
    producer = producer_of(one_broker)
    cancelled, started = (asyncio.create_task(producer.start()) for _ in range(2))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled, started])

    metadata = await producer.send_and_wait("orders", b"1", partition=0)
    await producer.stop()

    assert (cancelled.cancelled(), started.exception(), metadata.offset) == (True, None, 0)
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("aioproducer")] == []


async def test_dropped_after_a_second_start_names_its_maker(one_broker: FakeCluster) -> None:
    """The line that made it, not the one that started it again."""

    async def drop() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=one_broker.bootstrap_servers, request_timeout_ms=200)
        await one_broker.kill(1)
        with pytest.raises(errors.KafkaConnectionError):
            await producer.start()
        await one_broker.restart(1)
        await producer.start()
        del producer
        gc.collect()  # the error of the first start held on to it

    made_at = f"{__file__}:{drop.__code__.co_firstlineno + 1},"
    with pytest.warns(ResourceWarning) as caught:
        await drop()
    await asyncio.sleep(0.05)  # what it leaves closes itself

    assert made_at in str(caught[0].message)
