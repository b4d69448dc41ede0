"""Large batches are compressed in threads: records, order and memory are as without."""

import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from aioproducer import MessageTooLargeError, Producer
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.producing import producing

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
RECORDS = 3000
TOO_LARGE = 10


def values() -> list[bytes]:
    chance = random.Random(3)
    return [chance.randbytes(500) if number % 2 else b"%d " % number * 100 for number in range(RECORDS)]


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
async def test_large_batches_arrive_whole_and_in_order(codec: str) -> None:
    async with (
        FakeCluster(1, topics={"orders": 2}) as cluster,
        Producer(
            cluster.bootstrap_servers,
            compression_type=codec,  # type: ignore[arg-type]  # one of a few words
            batch_size=262_144,
            buffer_memory=1_048_576,
        ) as producer,
    ):
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
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(
            cluster.bootstrap_servers,
            compression_type=codec,  # type: ignore[arg-type]  # one of a few words
            batch_size=131_072,
            retry_backoff_ms=1,
        ) as producer,
    ):
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
    async with producing(FakeCluster(1, topics={"orders": 1}), compression_type="gzip") as (cluster, producer):
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
        async with (
            FakeCluster(1, topics={"orders": 1}) as cluster,
            Producer(
                cluster.bootstrap_servers,
                compression_type=codec,  # type: ignore[arg-type]  # one of a few words
                linger_ms=0,
            ) as producer,
        ):
            await producer.send("orders", value)
            sizes.append(producer.statistics().batch_bytes)
            assert cluster.records("orders", 0)[0].value == value

    assert sizes == [sizes[0]] * len(CODECS)


@pytest.mark.parametrize("size", [1_000, 100_000], ids=["on the loop", "in a thread"])
async def test_batch_whose_compression_fails_goes_as_it_is(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> bytes:
        raise MemoryError

    monkeypatch.setattr("aioproducer._sender.compressor.compress", fails)
    async with producing(FakeCluster(1, topics={"orders": 1}), compression_type="gzip") as (cluster, producer):
        async with asyncio.timeout(5):
            await producer.send("orders", bytes(size))
        assert [record.value for record in cluster.records("orders", 0)] == [bytes(size)]


async def test_size_of_a_record_that_is_too_large_is_that_on_the_wire() -> None:
    async with producing(FakeCluster(1, topics={"orders": 1}), compression_type="gzip") as (cluster, producer):
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
