"""Batches that are too large, and records that are refused: the others go through, in order."""

import asyncio

import pytest

from aioproducer import KafkaError, Outcome, Producer
from aioproducer._accumulator import batch_size_limits
from aioproducer.errors import InvalidRecordError, MessageTooLargeError
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.producing import producing
from tests.fakes.virtual_cluster import in_virtual_time

PRODUCE = Where(api=ApiKey.PRODUCE)


def small_topic(cluster: FakeCluster) -> None:
    cluster.create_topic("orders", 1, configs={"max.message.bytes": "2000"})


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("in_flight", [1, 5])
@in_virtual_time
async def test_batch_that_is_too_large_is_split_until_it_fits(codec: str, in_flight: int) -> None:
    """KIP-126: the records keep their order."""
    async with (
        FakeCluster(1, auto_create_topics=False) as cluster,
        Producer(
            cluster.bootstrap_servers,
            linger_ms=10_000,
            compression_type=codec,  # type: ignore[arg-type]  # one of a few words
            max_in_flight_requests_per_connection=in_flight,
        ) as producer,
    ):
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
    """The record fits compressed: the error gives the uncompressed size, which is what is limited."""
    configs = {"max.message.bytes": "2000", "compression.type": "uncompressed"}
    async with (
        FakeCluster(1, auto_create_topics=False) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=10_000, compression_type="gzip") as producer,
    ):
        cluster.create_topic("orders", 1, configs=configs)
        await producer.partitions_for("orders")
        values = [b"x" * 300] * 20 + [b"y" * 5000] + [b"z" * 300] * 20
        results = await asyncio.gather(*(producer.send("orders", value) for value in values), return_exceptions=True)

        (failed,) = (each for each in results if isinstance(each, KafkaError))
        assert results.index(failed) == 20
        assert (type(failed), failed.outcome) == (MessageTooLargeError, Outcome.NOT_WRITTEN)
        assert "bytes (5070 uncompressed) and 1 record" in str(failed)
        assert [record.value for record in cluster.records("orders", 0)] == values[:20] + values[21:]


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
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=10_000, compression_type="gzip") as producer,
    ):
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
    monkeypatch.setattr(batch_size_limits, "BATCHES_BEFORE_GROWTH", 10)
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=10_000, batch_size=8_000) as producer,
    ):
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
async def test_too_large_record_fails_without_its_neighbours() -> None:
    """Regression in aiokafka: the partition never delivered again."""
    async with producing(FakeCluster(1, auto_create_topics=False), linger_ms=10_000) as (cluster, producer):
        small_topic(cluster)
        await producer.partitions_for("orders")
        values = [b"a" * 100, b"b" * 100, b"c" * 5000, b"d" * 100, b"e" * 100]
        deliveries = [producer.send("orders", value) for value in values]
        results = await asyncio.gather(*deliveries, return_exceptions=True)
        after = await producer.send("orders", b"f")

        error = results[2]
        assert isinstance(error, MessageTooLargeError)
        assert error.outcome is Outcome.NOT_WRITTEN
        assert [record.value for record in cluster.records("orders", 0)] == [*values[:2], *values[3:], b"f"]
        assert after.offset == 4


@in_virtual_time
async def test_records_behind_a_too_large_one_wait_for_it_alone() -> None:
    """Batches in flight behind it are refused as out of order; their pauses must not add up."""
    async with (
        FakeCluster(1, auto_create_topics=False) as cluster,
        Producer(
            cluster.bootstrap_servers, linger_ms=0, delivery_timeout_ms=2_000, request_timeout_ms=1_000
        ) as producer,
    ):
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
    async with producing(FakeCluster(1, topics={"orders": 1}), linger_ms=10_000) as (cluster, producer):
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
async def test_refusal_within_a_pipeline_keeps_the_order() -> None:
    """Later batches in flight get an out-of-order error and are sent again."""
    async with producing(FakeCluster(1, topics={"orders": 1}), linger_ms=0, batch_size=0) as (cluster, producer):
        await producer.send("orders", b"first")
        cluster.faults.error(29, PRODUCE, skip=2)
        deliveries = [producer.send("orders", b"%d" % number) for number in range(20)]
        results = await asyncio.gather(*deliveries, return_exceptions=True)

        failed = [index for index, each in enumerate(results) if isinstance(each, KafkaError)]
        assert failed == [2]
        expected = [b"first", *(b"%d" % number for number in range(20) if number != 2)]
        assert [record.value for record in cluster.records("orders", 0)] == expected


@in_virtual_time
async def test_memory_of_split_and_refused_batches_comes_back() -> None:
    """Parts share a chunk, which is free when the last of them has ended."""
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=10_000, buffer_memory=262_144) as producer,
    ):
        await producer.partitions_for("orders")
        for round_ in range(20):
            cluster.faults.error(10, PRODUCE, times=3)
            cluster.faults.record_errors({1: None}, PRODUCE)
            for _ in range(50):
                producer.send("orders", b"x" * 500, on_delivery=lambda *_: None)
            await producer.flush()
            statistics = producer.statistics()
            assert statistics.buffer_available_bytes == statistics.buffer_total_bytes, round_
