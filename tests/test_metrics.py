"""The latency histogram and the statistics."""

import asyncio
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer import BufferTimeoutError, Producer, ProducerOptions
from aioproducer._native.measures import LatencyHistogram
from aioproducer.metrics import ProducerStatistics
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.producing import producing
from tests.fakes.virtual_cluster import in_virtual_time


def test_empty_histogram_has_no_quantiles() -> None:
    histogram = LatencyHistogram()

    assert (histogram.count, histogram.quantile_s(0.5)) == (0, None)


def test_histogram_counts_a_batch_at_once() -> None:
    histogram = LatencyHistogram()
    histogram.record(0.001, 99)
    histogram.record(1.0)

    assert histogram.count == 100
    assert histogram.quantile_s(0.5) == pytest.approx(0.001, rel=0.0625)
    assert histogram.quantile_s(0.99) == pytest.approx(0.001, rel=0.0625)
    assert histogram.quantile_s(1.0) == pytest.approx(1.0, rel=0.0625)


@given(st.floats(1e-6, 4000))
def test_histogram_is_at_most_a_sixteenth_off(latency_s: float) -> None:
    histogram = LatencyHistogram()
    histogram.record(latency_s)
    quantile = histogram.quantile_s(0.5)

    assert quantile is not None
    assert quantile == pytest.approx(latency_s, rel=0.0626)
    assert quantile <= latency_s


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=30), st.floats(0, 1), st.floats(0, 1))
def test_histogram_quantiles_grow(latencies: list[float], one: float, other: float) -> None:
    histogram = LatencyHistogram()
    for latency in latencies:
        histogram.record(latency)
    low, high = histogram.quantile_s(min(one, other)), histogram.quantile_s(max(one, other))

    assert low is not None
    assert high is not None
    assert 0 <= low <= high <= max(latencies)


def test_histogram_takes_a_negative_time_as_none() -> None:
    """A clock that does not advance must not break a delivery."""
    histogram = LatencyHistogram()
    histogram.record(-1.0)

    assert histogram.quantile_s(0.5) == 0.0


def test_statistics_are_frozen() -> None:
    statistics = ProducerStatistics(client_id="producer-1")

    with pytest.raises(dataclasses.FrozenInstanceError):
        statistics.records_sent = 1  # type: ignore[misc]


@in_virtual_time
async def test_statistics_show_requests_and_connections() -> None:
    """The fields have Kafka's meanings."""
    async with FakeCluster(1, topics={"orders": 1}) as cluster:
        where = Where(api=ApiKey.PRODUCE)
        async with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
            before = producer.statistics()
            cluster.faults.delay(2.0, where)
            await producer.send("orders", b"v")
            statistics = producer.statistics()

        assert statistics.responses_received == statistics.requests_sent > before.responses_received > 0
        assert 2.0 <= statistics.request_latency_total_s - before.request_latency_total_s < 2.1
        assert (statistics.connections_created, statistics.connection_failures) == (1, 0)


@in_virtual_time
async def test_latencies_are_those_of_records() -> None:
    """Records count, not batches: of three slow and two fast ones the third fastest is slow."""
    async with producing(FakeCluster(1, topics={"orders": 1}), linger_ms=5) as (cluster, producer):
        await producer.partitions_for("orders")
        cluster.faults.delay(2.0, Where(api=ApiKey.PRODUCE))
        await asyncio.gather(*(producer.send("orders", b"slow") for _ in range(3)))
        for _ in range(2):
            await producer.send("orders", b"fast")
        statistics = producer.statistics()

    assert statistics.batches_sent == 3
    assert statistics.delivery_latency_p50_s == pytest.approx(2.0, rel=0.1)


@in_virtual_time
async def test_refused_record_does_not_count_as_pending() -> None:
    options: ProducerOptions = {"buffer_memory": 32_768, "batch_size": 16_384, "max_block_ms": 100}
    async with producing(FakeCluster(1, topics={"orders": 1}), **options) as (cluster, producer):
        await producer.partitions_for("orders")
        stalled = cluster.faults.stall(Where(api=ApiKey.PRODUCE))
        sending = [asyncio.ensure_future(producer.enqueue("orders", bytes(6_000))) for _ in range(5)]
        await asyncio.wait(sending)
        statistics = producer.statistics()
        cluster.faults.remove(stalled)

    refused = [call.exception() for call in sending if call.exception() is not None]
    assert [type(error) for error in refused] == [BufferTimeoutError] * len(refused)
    assert 0 < len(refused) < len(sending) - 1
    assert (statistics.records_pending, statistics.records_failed) == (len(sending) - len(refused), len(refused))
