"""Averages, maxima and rates of the last sample windows, as in Kafka."""

import asyncio
import math
from array import array

import pytest

from aioproducer import ConfigurationError, KafkaError, Metric, ProducerConfig
from aioproducer._producer.metric_groups import NODE, PRODUCER, TOPIC
from aioproducer._producer.metric_windows import MetricWindows
from aioproducer.testing import ApiKey, ErrorCode, FakeCluster, Where
from tests.fakes.producing import producing
from tests.fakes.virtual_loop import in_virtual_time

PRODUCE = Where(api=ApiKey.PRODUCE)


def value(metrics: list[Metric], name: str, group: str = PRODUCER) -> float:
    """Of a node or topic, the largest that is a number."""
    found = [float(metric.value) for metric in metrics if (metric.group, metric.name) == (group, name)]  # type: ignore[arg-type]
    return max((each for each in found if not math.isnan(each)), default=math.nan)


def windowed(metrics: list[Metric]) -> dict[str, float]:
    ends = ("-avg", "-max", "-rate", "-ratio")
    return {
        " ".join((each.group, each.name, *each.tags.values())): float(each.value)
        for each in metrics
        if each.name.endswith(ends) and isinstance(each.value, float | int)
    }


@in_virtual_time
async def test_average_and_maximum_are_nan_before_a_value() -> None:
    async with producing(FakeCluster(1, topics={"orders": 1})) as (_, producer):
        metrics = producer.metrics()

    assert math.isnan(value(metrics, "record-queue-time-avg"))
    assert math.isnan(value(metrics, "request-latency-max"))
    assert value(metrics, "record-send-rate") == 0


@in_virtual_time
async def test_stall_is_forgotten_after_the_sample_windows() -> None:
    """So an alert clears: the maximum since the start would show it without end."""
    async with producing(FakeCluster(1, topics={"orders": 1}), linger_ms=0) as (cluster, producer):
        await producer.send("orders", b"x")
        cluster.faults.delay(3.0, PRODUCE)
        await producer.send("orders", b"x")
        seen = []
        for _ in range(12):
            await producer.send("orders", b"x")
            seen.append(value(producer.metrics(), "request-latency-max"))
            await asyncio.sleep(6)

    assert seen[:9] == pytest.approx([3_000] * 9, abs=20)
    assert seen[-1] < 100


@in_virtual_time
async def test_every_metric_is_nan_or_zero_after_silence() -> None:
    async with producing(FakeCluster(1, topics={"orders": 1}), metadata_max_age_ms=600_000) as (_, producer):
        await producer.send("orders", b"x")
        await asyncio.sleep(62)
        metrics = producer.metrics()

    found = windowed(metrics)
    rates = {name for name in found if "-rate " in name and "compression" not in name}
    assert {name for name in rates if found[name]} == set()
    assert {name for name in found.keys() - rates if found[name] and not math.isnan(found[name])} == set()
    assert value(metrics, "record-send-total") == 1


@in_virtual_time
async def test_rates_are_per_second_of_the_window() -> None:
    async with producing(FakeCluster(1, topics={"orders": 1}), linger_ms=0) as (_, producer):
        for _ in range(60):
            await producer.send("orders", b"x" * 100)
        at_once = producer.metrics()
        for _ in range(300):
            await producer.send("orders", b"x" * 100)
            await asyncio.sleep(0.5)
        steady = producer.metrics()

    assert value(at_once, "record-send-rate") == pytest.approx(60 / 30, rel=0.05)  # as if a sample window were before
    for group in (PRODUCER, TOPIC):
        assert value(steady, "record-send-rate", group) == pytest.approx(2, rel=0.05)
    assert value(steady, "byte-rate", TOPIC) == pytest.approx(2 * 170, rel=0.05)
    assert value(steady, "request-rate") == pytest.approx(2, rel=0.05)
    assert value(steady, "response-rate", NODE) == pytest.approx(2, rel=0.05)


@in_virtual_time
async def test_latency_of_a_producer_is_that_of_its_nodes() -> None:
    """Of Produce requests, in both: other requests are faster or slower."""
    async with producing(FakeCluster(1, topics={"orders": 1}), linger_ms=0) as (cluster, producer):
        cluster.faults.delay(1.0, PRODUCE, times=2)
        for _ in range(4):
            await producer.send("orders", b"x")
        metrics = producer.metrics()

    for name in ("request-latency-avg", "request-latency-max"):
        assert value(metrics, name) == value(metrics, name, NODE)
    assert value(metrics, "request-latency-avg") == pytest.approx(500, rel=0.05)


@in_virtual_time
async def test_errors_and_retries_have_rates() -> None:
    cluster = FakeCluster(1, topics={"orders": 1})
    async with producing(cluster, retry_backoff_ms=10, metrics_num_samples=1, metrics_sample_window_ms=10_000) as (
        _,
        producer,
    ):
        await asyncio.sleep(20)
        cluster.faults.error(ErrorCode.NOT_LEADER_OR_FOLLOWER, PRODUCE)
        await producer.send("orders", b"x")
        cluster.faults.error(ErrorCode.INVALID_RECORD, PRODUCE)
        with pytest.raises(KafkaError):
            await producer.send("orders", b"x")
        now, before = producer.metrics(), producer.statistics()
        await asyncio.sleep(21)  # the window, and a sample window: an idle producer reads seldom
        later = producer.metrics()

    for group in (PRODUCER, TOPIC):
        for name in ("record-error-rate", "record-retry-rate"):
            assert value(now, name, group) == pytest.approx(0.1, rel=0.1)
            assert value(later, name, group) == 0
    assert before.records_failed == value(later, "record-error-total") == 1


@in_virtual_time
async def test_window_stays_as_it_was_when_the_producer_closed() -> None:
    async with producing(FakeCluster(1, topics={"orders": 1})) as (_, producer):
        await producer.send("orders", b"x")
    closed = windowed(producer.metrics())
    await asyncio.sleep(300)

    assert repr(windowed(producer.metrics())) == repr(closed)
    assert value(producer.metrics(), "record-send-rate") > 0


@pytest.mark.parametrize("option", ["metrics_num_samples", "metrics_sample_window_ms"])
def test_windows_have_kafkas_options(option: str) -> None:
    config = ProducerConfig.from_kafka_properties({"bootstrap.servers": "h:1", option.replace("_", "."): "5"})

    assert getattr(config, option) == 5
    with pytest.raises(ConfigurationError, match=option):
        ProducerConfig(bootstrap_servers="h:1", **{option: 0})  # type: ignore[arg-type]


@pytest.mark.parametrize("passed_s, elapsed_s", [(0, 30), (13, 43), (31, 31), (60, 60), (3_600, 60)])
def test_rate_is_divided_by_what_kafka_divides_by(passed_s: float, elapsed_s: float) -> None:
    """As its own producer does, with 100 records that were sent within 13 seconds: 2.3 per second."""
    sent = 0.0
    windows = MetricWindows(30, 2, read=lambda: {"": array("d", [sent])}, forget_recent=lambda: None)
    next_at = windows.mark(0.0)
    while next_at <= passed_s:
        sent = next_at
        next_at = windows.mark(next_at)

    sent = passed_s
    assert windows.until(passed_s).rate("", 0, sent) == pytest.approx(min(passed_s, 60) / elapsed_s)


def test_windows_keep_few_readings() -> None:
    """A loop may be late, so the time between them varies."""
    total = 0.0
    windows = MetricWindows(30, 2, read=lambda: {"": array("d", [total])}, forget_recent=lambda: None)
    now = 0.0
    for _ in range(1_000):
        now = windows.mark(now)
        total += 1
    late = windows.until(now + 1_000)

    assert len(vars(windows)["_marks"]) <= 32
    assert windows.until(now).rate("", 0, total) == pytest.approx(0.5, rel=0.05)  # one per reading, each two seconds
    assert late.rate("", 0, total) == pytest.approx(0, abs=0.02)
