"""Statistics, metrics under Kafka's names, and the histograms and counters below them."""

import asyncio
import dataclasses
import threading
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer import (
    BlockingProducer,
    BufferTimeoutError,
    HistogramValue,
    KafkaError,
    Metric,
    MetricKind,
    Producer,
    ProducerOptions,
    RecordTooLargeError,
)
from aioproducer._native.measures import OTHER_TOPICS, TIMES, Histogram, LatencyHistogram, Measures
from aioproducer._network.context import MAX_NODE_ROWS, NodeCounters
from aioproducer._producer.metric_groups import NODE, OWN, PRODUCER, TOPIC
from aioproducer._producer.producer_metrics import MEANINGS, reason_not_read
from aioproducer.metrics import ProducerStatistics
from aioproducer.testing import ApiKey, ErrorCode, FakeCluster, Where
from docs.generate_metrics import names_of_kafka
from tests.fakes.producing import cluster_elsewhere, producing
from tests.fakes.virtual_loop import in_virtual_time


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


PRODUCE = Where(api=ApiKey.PRODUCE)


def value(metrics: Iterable[Metric], group: str, name: str, **tags: str) -> float:
    (found,) = (
        metric.value
        for metric in metrics
        if (metric.group, metric.name) == (group, name) and tags.items() <= metric.tags.items()
    )
    assert isinstance(found, float | int)
    return found


def histogram(metrics: Iterable[Metric], name: str) -> HistogramValue:
    (found,) = (metric.value for metric in metrics if metric.name == name)
    assert isinstance(found, HistogramValue)
    return found


async def test_every_name_of_kafka_is_read_or_has_a_reason(cluster: FakeCluster) -> None:
    """The names were printed by Kafka's own producer."""
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.send("orders", b"x")
        read = {(metric.group, metric.name) for metric in producer.metrics()}

    names = [(group, name) for group, name, _ in names_of_kafka()]
    assert len(names) == 98
    assert {name for name in names if reason_not_read(*name) is None} == read & set(names)
    assert {group for group, _ in read - set(names)} == {OWN}


def test_unknown_name_has_no_reason() -> None:
    assert reason_not_read(PRODUCER, "no-such-metric") is None


async def test_topic_and_node_are_counted(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, client_id="watched") as producer:
        for _ in range(3):
            await producer.send("orders", b"x" * 100)
        await producer.send("returns", b"y")
        metrics = producer.metrics()
        sent = producer.statistics().bytes_sent

    nodes = [metric for metric in metrics if (metric.group, metric.name) == (NODE, "outgoing-byte-total")]
    assert value(metrics, TOPIC, "record-send-total", topic="orders") == 3
    assert value(metrics, TOPIC, "record-send-total", topic="returns") == 1
    assert value(metrics, PRODUCER, "record-send-total") == 4
    assert value(metrics, TOPIC, "byte-total", topic="orders") > 300
    assert value(metrics, TOPIC, "compression-rate", topic="orders") == 1.0
    assert sum(float(node.value) for node in nodes if not isinstance(node.value, HistogramValue)) == sent
    assert {metric.tags["client-id"] for metric in metrics} == {"watched"}
    assert all(metric.kind is MetricKind.COUNTER for metric in metrics if metric.name.endswith("-total"))


async def test_histograms_count_batches_records_and_requests(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, compression_type="gzip", linger_ms=0) as producer:
        await producer.send("orders", b"x" * 1000)
        await producer.send("orders", b"y")
        await producer.flush()
        metrics = producer.metrics()

    sizes, ratios = histogram(metrics, "record-size-bytes"), histogram(metrics, "compression-ratio")
    assert (sizes.count, histogram(metrics, "batch-size-bytes").count, ratios.count) == (2, 2, 2)
    assert 1000 < sizes.largest < 1020
    assert sizes.counts[sizes.bounds.index(16)] == 1
    assert sizes.counts[sizes.bounds.index(1024)] == 1
    assert min(bound for bound, count in zip(ratios.bounds, ratios.counts, strict=False) if count) < 0.2
    assert histogram(metrics, "request-latency-seconds").count == 2
    assert histogram(metrics, "flush-time-seconds").count == 1
    assert histogram(metrics, "records-per-request").mean == 1.0


@in_virtual_time
async def test_retries_errors_and_throttling_are_counted() -> None:
    cluster = FakeCluster(1, topics={"orders": 1})
    async with producing(cluster, retry_backoff_ms=10, delivery_timeout_ms=40_000) as (_, producer):
        cluster.faults.error(ErrorCode.NOT_LEADER_OR_FOLLOWER, PRODUCE)
        await producer.send("orders", b"x")
        cluster.faults.error(ErrorCode.INVALID_RECORD, PRODUCE)
        with pytest.raises(KafkaError):
            await producer.send("orders", b"x")
        cluster.faults.throttle(700, PRODUCE)
        await producer.send("orders", b"x")
        metrics = producer.metrics()

    assert value(metrics, TOPIC, "record-retry-total", topic="orders") == 1
    assert value(metrics, TOPIC, "record-error-total", topic="orders") == 1
    assert value(metrics, PRODUCER, "record-error-total") == 1
    assert value(metrics, PRODUCER, "produce-throttle-time-max") == 700


async def test_record_that_a_call_refuses_is_no_error_here(cluster: FakeCluster) -> None:
    """Java counts it; MEANINGS and docs/how-to/observe.md say so."""
    async with Producer(cluster.bootstrap_servers, max_request_size=1_000) as producer:
        await producer.partitions_for("orders")
        with pytest.raises(RecordTooLargeError):
            producer.send("orders", b"x" * 2_000)
        metrics = producer.metrics()

    assert value(metrics, PRODUCER, "record-error-total") == 0
    assert "that a call refuses" in MEANINGS[PRODUCER, "record-error-total"]


@in_virtual_time
async def test_queue_time_lasts_from_the_call_to_the_request() -> None:
    async with producing(FakeCluster(1, topics={"orders": 1}), linger_ms=4_000) as (_, producer):
        await producer.partitions_for("orders")
        producer.send("orders", b"x")  # not awaited, or it would not linger
        await asyncio.sleep(5)
        metrics = producer.metrics()

    assert histogram(metrics, "record-queue-time-seconds").count == 1
    assert value(metrics, PRODUCER, "record-queue-time-avg") == pytest.approx(4_000, abs=20)
    assert value(metrics, PRODUCER, "record-queue-time-max") == pytest.approx(4_000, abs=20)


@in_virtual_time
async def test_waits_are_measured() -> None:
    cluster = FakeCluster(1, topics={"orders": 1})
    async with producing(cluster, buffer_memory=40_000, batch_size=16_384, linger_ms=0) as (_, producer):
        cluster.faults.delay(2.0, PRODUCE, times=None)
        deliveries = [await producer.enqueue("orders", b"x" * 10_000) for _ in range(5)]
        await asyncio.gather(*deliveries)
        metrics = producer.metrics()

    memory, metadata = (
        histogram(metrics, "bufferpool-wait-time-seconds"),
        histogram(metrics, "metadata-wait-time-seconds"),
    )
    assert memory.total >= 2.0
    assert metadata.count >= 1
    assert value(metrics, PRODUCER, "bufferpool-wait-time-ns-total") == memory.total * 1e9


async def test_transactions_are_timed(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, transactional_id="timed") as producer:
        async with producer.transaction() as transaction:
            await transaction.send("orders", b"x")
            await transaction.send_offsets({("orders", 0): 1}, "workers")
        await producer.begin_transaction()
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send("orders", b"y")
        await producer.prepare_transaction()
        await producer.abort_transaction()
        metrics = producer.metrics()

    names = {"init": 1, "begin": 3, "send-offsets": 1, "prepare": 1, "commit": 1, "abort": 2}
    assert {name: histogram(metrics, f"txn-{name}-time-seconds").count for name in names} == names
    assert value(metrics, PRODUCER, "txn-commit-time-ns-total") > 0
    prepared = histogram(metrics, "txn-prepare-time-seconds")
    assert value(metrics, PRODUCER, "txn-prepare-time-ns-total") == prepared.total * 1e9 > 0


async def test_metrics_are_there_before_the_start_and_after_the_close(cluster: FakeCluster) -> None:
    producer = Producer(cluster.bootstrap_servers)
    assert producer.metrics() == []
    async with producer:
        await producer.send("orders", b"x")

    assert value(producer.metrics(), TOPIC, "record-send-total", topic="orders") == 1


@pytest.mark.slow
async def test_other_threads_may_read_until_the_producer_is_closed(cluster: FakeCluster) -> None:
    is_over, errors, readings = threading.Event(), [], []
    producer = Producer(cluster.bootstrap_servers, linger_ms=0)

    def read() -> None:
        while not is_over.is_set():
            try:
                readings.append(len(producer.metrics()))
            except Exception as error:  # noqa: BLE001  # any is the defect looked for
                errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    async with producer:
        for number in range(300):
            await producer.enqueue(f"topic-{number % 20}", b"x")
    is_over.set()
    reader.join()

    assert errors == []
    assert len(readings) > 0


def test_blocking_producer_has_metrics() -> None:
    with cluster_elsewhere() as cluster, BlockingProducer(cluster.bootstrap_servers) as producer:
        producer.send("orders", b"x")

        assert value(producer.metrics(), TOPIC, "record-send-total", topic="orders") == 1


def test_topics_past_the_limit_share_a_row() -> None:
    measures = Measures(2)
    for topic in "abcd":
        measures.batch_sent(topic, 1, 100, 100, 0.0)
    measures.topics.of("e").errors += 1

    rows = {row.topic: (row.records, row.errors) for row in measures.topics.rows()}
    assert rows == {"a": (1, 0), "b": (1, 0), OTHER_TOPICS: (2, 1)}


def test_thousand_topics_have_rows_unless_said_otherwise() -> None:
    measures = Measures()
    for number in range(1_002):
        measures.batch_sent(f"t{number}", 1, 100, 100, 0.0)

    rows = measures.topics.rows()
    assert len(rows) == 1_001
    assert [row.records for row in rows if row.topic == OTHER_TOPICS] == [2]


def test_nodes_past_the_limit_share_a_row() -> None:
    nodes = NodeCounters()
    for node_id in range(MAX_NODE_ROWS + 2):
        nodes.of(node_id).requests += 1

    assert len(nodes.rows()) == MAX_NODE_ROWS + 1
    assert nodes.rows()[None].requests == 2
    assert nodes.total().requests == MAX_NODE_ROWS + 2


def counters(metrics: Iterable[Metric]) -> dict[tuple[str, ...], float]:
    return {
        (metric.group, metric.name, *metric.tags.values()): float(metric.value)  # type: ignore[arg-type]
        for metric in metrics
        if metric.kind is MetricKind.COUNTER
    }


@in_virtual_time
async def test_totals_never_fall_when_a_bootstrap_node_is_named() -> None:
    """The row of the address stays, as in Kafka: a rate of a total that falls is wrong."""
    async with FakeCluster(2, topics={"orders": 2}) as cluster, Producer(cluster.bootstrap_servers) as producer:
        highest: dict[tuple[str, ...], float] = {}
        for _ in range(20):
            producer.send("orders", b"x")
            await asyncio.sleep(0.05)
            now = counters(producer.metrics())
            assert all(now[key] >= count for key, count in highest.items())
            highest = now
        metrics = producer.metrics()
        statistics = producer.statistics()

    rows = {key[-1]: count for key, count in highest.items() if key[:2] == (NODE, "request-total")}
    assert {"node--1", "node--2", "node-1", "node-2"} == rows.keys()
    assert sum(rows.values()) == value(metrics, PRODUCER, "request-total") == statistics.requests_sent
    assert rows["node--1"] + rows["node--2"] > 0  # the first of the two to be asked is drawn


@given(st.floats(0, 1e6))
def test_histogram_puts_a_value_below_its_bound(number: float) -> None:
    measured = Histogram(TIMES)
    measured.record(number, 3)
    bounds, counts, total, largest = measured.read()
    place = counts.index(3)

    assert (sum(counts), total, largest) == (3, number * 3, number)
    assert place == len(bounds) or number <= bounds[place]
    assert place == 0 or number > bounds[place - 1]


def test_histogram_has_few_buckets() -> None:
    with pytest.raises(ValueError, match="at most 20 buckets, got 31"):
        Histogram(range(30))


def test_empty_histogram_has_a_mean() -> None:
    assert HistogramValue((1.0,), (0, 0), 0.0, 0.0).mean == 0.0
