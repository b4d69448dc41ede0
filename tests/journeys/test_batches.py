"""Batches: their linger, their compression, and those that are too large or hold records that brokers refuse."""

import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from aioproducer import KafkaError, MessageTooLargeError, Outcome, Producer
from aioproducer._accumulator import open_batches
from aioproducer.errors import InvalidRecordError
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.producing import producing
from tests.fakes.virtual_loop import in_virtual_time

SOON_S = 10  # less than the tenth of `delivery_timeout_ms` after which a batch is closed, however long its linger


def note_time(left: asyncio.Future[float], *_: object) -> None:
    left.set_result(left.get_loop().time())


@in_virtual_time
async def test_lone_records_leave_after_their_linger_each_time() -> None:
    """The timer of an earlier batch of the partition does not count for them."""
    loop = asyncio.get_running_loop()
    took: list[float] = []
    async with producing(linger_ms=40) as (_, producer):
        await producer.partitions_for("orders")
        for number in range(4):
            left: asyncio.Future[float] = loop.create_future()
            began = loop.time()
            producer.send("orders", b"%d" % number, partition=0, on_delivery=partial(note_time, left))
            took.append(await left - began)

    assert all(0.039 < seconds < 0.05 for seconds in took), took


async def test_records_of_one_turn_leave_in_one_batch_although_awaited(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, linger_ms=60_000) as producer:
        await producer.partitions_for("orders")
        sent = asyncio.gather(*(producer.send("orders", b"x", partition=0) for _ in range(100)))
        await asyncio.wait_for(sent, SOON_S)

        assert producer.statistics().batches_sent == 1


@in_virtual_time
async def test_partitions_with_a_trickle_each_share_their_requests() -> None:
    made = FakeCluster(2, topics={"orders": 100}, replication_factor=1)
    async with producing(made, linger_ms=50) as (cluster, producer):
        await producer.partitions_for("orders")
        for number in range(1_000):
            await producer.enqueue("orders", b"x", partition=number * 37 % 100)
            await asyncio.sleep(0.001)
        await producer.flush()
        requests = sum(request.api is ApiKey.PRODUCE for request in cluster.requests)

        assert producer.statistics().batches_sent > 900
        assert requests <= 2 * (1_000 // 50 + 1)


# Compression


CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
RECORDS = 3000
TOO_LARGE = 10


def values() -> list[bytes]:
    chance = random.Random(3)
    return [chance.randbytes(500) if number % 2 else b"%d " % number * 100 for number in range(RECORDS)]


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
async def test_large_batches_arrive_whole_and_in_order(codec: str) -> None:
    async with producing(
        FakeCluster(1, topics={"orders": 2}),
        compression_type=codec,  # type: ignore[arg-type]  # one of a few words
        batch_size=262_144,
        buffer_memory=1_048_576,
    ) as (cluster, producer):
        for number, value in enumerate(values()):
            await producer.enqueue("orders", value, partition=number % 2)
        await producer.flush()
        statistics = producer.statistics()

        for partition in (0, 1):
            logged = [record.value for record in cluster.records("orders", partition)]
            assert logged == values()[partition::2]
        assert statistics.buffer_available_bytes == statistics.buffer_total_bytes


async def test_waiting_batches_are_compressed_when_a_thread_is_free() -> None:
    async with producing(
        FakeCluster(1, topics={"orders": 5}), compression_type="gzip", batch_size=131_072, linger_ms=60_000
    ) as (_, producer):
        await producer.partitions_for("orders")
        for number in range(5):
            producer.send("orders", b"%d" % number * 100_000, partition=number)

        await asyncio.wait_for(producer.flush(), 10)

        assert producer.statistics().batch_bytes < 100_000


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["gzip", "zstd"])
async def test_compressed_batches_are_resent_byte_for_byte(codec: str) -> None:
    async with producing(
        compression_type=codec,  # type: ignore[arg-type]  # one of a few words
        batch_size=131_072,
        retry_backoff_ms=1,
    ) as (cluster, producer):
        await producer.send("orders", b"first")
        where = Where(api=ApiKey.PRODUCE)
        for skip in (0, 2, 4):
            cluster.faults.drop_connection(where, after_append=True, skip=skip)
            cluster.faults.error(19, where, skip=skip + 1)
        for value in values():
            await producer.enqueue("orders", value)
        await producer.flush()

        assert [record.value for record in cluster.records("orders", 0)] == [b"first", *values()]


async def test_threads_of_the_application_are_not_waited_for() -> None:
    """The application may keep all threads of the loop busy; the producer's own end with the producer."""
    is_over = threading.Event()
    of_others = compressor_threads()  # of an earlier test, on a busy machine
    async with producing(compression_type="gzip") as (cluster, producer):
        await producer.send("orders", b"connected: names are looked up in the threads of the loop")
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        busy = asyncio.get_running_loop().run_in_executor(None, is_over.wait)
        try:
            await asyncio.wait([producer.send("orders", bytes(200_000))], timeout=10)
            ours = [thread for thread in compressor_threads() if thread not in of_others]
            offset = cluster.end_offset("orders", 0)
        finally:
            is_over.set()
            await busy
    for thread in ours:
        thread.join(60)

    assert (len(ours), offset) == (1, 2)
    assert not any(thread.is_alive() for thread in ours)


def compressor_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("aioproducer-compressor")]


async def test_batches_in_threads_at_the_close_do_no_harm() -> None:
    async with FakeCluster(1, topics={"orders": 8}) as cluster:
        producer = Producer(cluster.bootstrap_servers, compression_type="gzip", batch_size=1_048_576, linger_ms=60_000)
        await producer.start()
        await producer.partitions_for("orders")
        deliveries = [producer.send("orders", value, partition=number % 8) for number, value in enumerate(values())]
        for delivery in deliveries:
            delivery.add_done_callback(lambda _: None)
        flushing = asyncio.ensure_future(producer.flush())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await producer.close(0)
        await asyncio.wait([flushing])
        flushing.exception()

        assert all(delivery.done() for delivery in deliveries)
        for thread in compressor_threads():
            await asyncio.to_thread(thread.join, 60)
        await asyncio.sleep(0.01)
        statistics = producer.statistics()
        assert statistics.buffer_available_bytes == statistics.buffer_total_bytes


async def test_batch_that_compression_makes_larger_is_sent_as_it_is() -> None:
    value = random.Random(5).randbytes(2_000)
    sizes = []
    for codec in CODECS:
        async with producing(
            compression_type=codec,  # type: ignore[arg-type]  # one of a few words
            linger_ms=0,
        ) as (cluster, producer):
            await producer.send("orders", value)
            sizes.append(producer.statistics().batch_bytes)
            assert cluster.records("orders", 0)[0].value == value

    assert sizes == [sizes[0]] * len(CODECS)


@pytest.mark.parametrize("size", [1_000, 100_000], ids=["on the loop", "in a thread"])
async def test_batch_whose_compression_fails_goes_as_it_is(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> bytes:
        raise MemoryError

    monkeypatch.setattr("aioproducer._sender.compressor.compress", fails)
    async with producing(compression_type="gzip") as (cluster, producer):
        async with asyncio.timeout(5):
            await producer.send("orders", bytes(size))
        assert [record.value for record in cluster.records("orders", 0)] == [bytes(size)]


async def test_size_of_a_record_that_is_too_large_is_that_on_the_wire() -> None:
    async with producing(compression_type="gzip") as (cluster, producer):
        cluster.faults.error(TOO_LARGE, Where(api=ApiKey.PRODUCE), times=None)
        with pytest.raises(MessageTooLargeError) as raised:
            await producer.send("orders", bytes(50_000))

    assert raised.value.size_bytes is not None
    assert raised.value.size_bytes < 10_000


async def test_two_compressed_batches_take_the_place_of_many(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, compression_type="zstd", batch_size=262_144) as producer:
        for _ in range(2000):
            await producer.enqueue("orders", b"x" * 1000, partition=0)
        await producer.flush()

        assert producer.statistics().batch_bytes < 100_000


# Batches that are too large, and records that are refused: the others go through, in order


PRODUCE = Where(api=ApiKey.PRODUCE)


def small_topic(cluster: FakeCluster) -> None:
    cluster.create_topic("orders", 1, configs={"max.message.bytes": "2000"})


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("in_flight", [1, 5])
@in_virtual_time
async def test_batch_that_is_too_large_is_split_until_it_fits(codec: str, in_flight: int) -> None:
    """KIP-126: the records keep their order."""
    async with producing(
        FakeCluster(1, auto_create_topics=False),
        linger_ms=10_000,
        compression_type=codec,  # type: ignore[arg-type]  # one of a few words
        max_in_flight_requests_per_connection=in_flight,
    ) as (cluster, producer):
        small_topic(cluster)
        await producer.partitions_for("orders")
        values = [bytes((number * 7 + step * step) % 251 for step in range(150)) for number in range(120)]
        deliveries = [producer.send("orders", value) for value in values]
        await producer.flush()

        assert [delivery.result().offset for delivery in deliveries] == list(range(120))
        assert [record.value for record in cluster.records("orders", 0)] == values
        assert producer.statistics().batches_split > 0


@in_virtual_time
async def test_record_too_large_for_its_topic_fails_alone() -> None:
    """The record fits compressed: the error gives the uncompressed size, which is what is limited.

    Regression in aiokafka: the partition never delivered again.
    """
    configs = {"max.message.bytes": "2000", "compression.type": "uncompressed"}
    made = FakeCluster(1, auto_create_topics=False)
    async with producing(made, linger_ms=10_000, compression_type="gzip") as (cluster, producer):
        cluster.create_topic("orders", 1, configs=configs)
        await producer.partitions_for("orders")
        values = [b"x" * 300] * 20 + [b"y" * 5000] + [b"z" * 300] * 20
        results = await asyncio.gather(*(producer.send("orders", value) for value in values), return_exceptions=True)

        (failed,) = (each for each in results if isinstance(each, KafkaError))
        assert results.index(failed) == 20
        assert (type(failed), failed.outcome) == (MessageTooLargeError, Outcome.NOT_WRITTEN)
        assert "bytes (5070 uncompressed) and 1 record" in str(failed)
        assert [record.value for record in cluster.records("orders", 0)] == values[:20] + values[21:]
        assert (await producer.send("orders", b"after")).offset == 40


@in_virtual_time
async def test_later_batches_fit_at_once() -> None:
    async with producing(FakeCluster(1, auto_create_topics=False), linger_ms=10_000) as (cluster, producer):
        small_topic(cluster)
        await producer.partitions_for("orders")
        before = 0
        for _ in range(2):
            before = producer.statistics().batches_split
            for _ in range(100):
                producer.send("orders", b"x" * 100)
            await producer.flush()

        assert producer.statistics().batches_split == before


@in_virtual_time
async def test_parts_of_a_compressed_batch_are_compressed() -> None:
    """Each half must be half as large on the wire, not many times as large."""
    async with producing(linger_ms=10_000, compression_type="gzip") as (cluster, producer):
        await producer.partitions_for("orders")
        cluster.faults.error(10, PRODUCE)
        for number in range(400):
            producer.send("orders", b"%d " % number * 30)
        await producer.flush()
        statistics = producer.statistics()

        assert (statistics.batches_split, statistics.batches_sent) == (1, 2)
        assert statistics.batch_bytes < 12_000
        assert cluster.end_offset("orders", 0) == 400
        assert statistics.buffer_available_bytes == statistics.buffer_total_bytes


@in_virtual_time
async def test_batches_grow_again_after_a_passing_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """`max.message.bytes` of the topic may be raised, or records may compress better."""
    monkeypatch.setattr(open_batches, "BATCHES_BEFORE_GROWTH", 10)
    async with producing(linger_ms=10_000, batch_size=8_000) as (cluster, producer):
        await producer.partitions_for("orders")
        cluster.faults.error(10, PRODUCE, times=3)
        counts = []
        for _ in range(400):
            before = producer.statistics().batches_sent
            for _ in range(70):
                producer.send("orders", b"x" * 100)
            await producer.flush()
            counts.append(producer.statistics().batches_sent - before)

        assert (counts[1] > 2, counts[-1]) == (True, 1)


@in_virtual_time
async def test_records_behind_a_too_large_one_wait_for_it_alone() -> None:
    """Batches in flight behind it are refused as out of order; their pauses must not add up."""
    async with producing(
        FakeCluster(1, auto_create_topics=False), linger_ms=0, delivery_timeout_ms=2_000, request_timeout_ms=1_000
    ) as (cluster, producer):
        small_topic(cluster)
        cluster.faults.delay(0.02, PRODUCE, times=None)
        await producer.send("orders", b"first")
        deliveries = []
        for number in range(2_000):
            deliveries.append(producer.send("orders", b"x" * 3_000 if number % 20 == 0 else b"%04d" % number))
            await asyncio.sleep(0.002)
        results = await asyncio.gather(*deliveries, return_exceptions=True)

        failed = [number for number, each in enumerate(results) if isinstance(each, BaseException)]
        assert failed == list(range(0, 2_000, 20))
        assert producer.statistics().records_retried > 1_000


@pytest.mark.parametrize("code", [32, 87])
@in_virtual_time
async def test_refused_records_fail_alone(code: int) -> None:
    """KIP-467: the broker names the refused records."""
    async with producing(linger_ms=10_000) as (cluster, producer):
        await producer.partitions_for("orders")
        cluster.faults.record_errors({0: "no key", 3: None, 9: "no key"}, PRODUCE, code=code)
        deliveries = [producer.send("orders", b"%d" % number) for number in range(10)]
        results = await asyncio.gather(*deliveries, return_exceptions=True)

        refused = {index: each for index, each in enumerate(results) if isinstance(each, InvalidRecordError)}
        assert {index: error.code for index, error in refused.items()} == {0: code, 3: code, 9: code}
        assert "no key" in str(refused[0])
        assert [record.value for record in cluster.records("orders", 0)] == [b"1", b"2", b"4", b"5", b"6", b"7", b"8"]
        assert (await producer.send("orders", b"after")).offset == 7


@in_virtual_time
async def test_memory_of_split_and_refused_batches_comes_back() -> None:
    """Parts share a chunk, which is free when the last of them has ended."""
    async with producing(linger_ms=10_000, buffer_memory=262_144) as (cluster, producer):
        await producer.partitions_for("orders")
        for round_ in range(20):
            cluster.faults.error(10, PRODUCE, times=3)
            cluster.faults.record_errors({1: None}, PRODUCE)
            for _ in range(50):
                producer.send("orders", b"x" * 500, on_delivery=lambda *_: None)
            await producer.flush()
            statistics = producer.statistics()
            assert statistics.buffer_available_bytes == statistics.buffer_total_bytes, round_
