"""Metrics in OpenTelemetry's protocol: names, differences, and what is left out."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer import HistogramValue, Metric, MetricKind, Producer
from aioproducer._producer.metric_groups import NODE, OWN, PRODUCER, TOPIC
from aioproducer._producer.otlp import MetricsEncoder, Readings, telemetry_name
from aioproducer._producer.producer_metrics import reason_not_read
from aioproducer.testing import FakeCluster
from tests.fakes.otlp import Push, decoded

JAVA_PUSHES = Path(__file__).parents[1] / "protocol" / "golden" / "java_pushes.json"
SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
CLIENT = {"client-id": "c"}
SENT = "org.apache.kafka.producer.record.send.total"


def counter(value: float, name: str = "record-send-total", group: str = PRODUCER, **tags: str) -> Metric:
    named = {name.replace("_", "-"): text for name, text in tags.items()}
    return Metric(name, group, {**CLIENT, **named}, value, MetricKind.COUNTER)


def encode(
    metrics: list[Metric],
    *,
    at_s: float = 10,
    prefixes: tuple[str, ...] = ("*",),
    is_delta: bool = True,
    before: Readings | None = None,
    resource: Mapping[str, str] | None = None,
) -> tuple[Push, Readings]:
    encoder = MetricsEncoder(START, resource or {})
    encoded = encoder.encode(
        metrics, START + round(at_s * SECOND), prefixes=prefixes, is_delta=is_delta, before=before or {}
    )
    return decoded(encoded.data), encoded.readings


@pytest.mark.parametrize(
    "group, name, expected",
    [
        (PRODUCER, "record-queue-time-avg", "org.apache.kafka.producer.record.queue.time.avg"),
        (NODE, "request-latency-max", "org.apache.kafka.producer.node.request.latency.max"),
        (TOPIC, "byte-total", "org.apache.kafka.producer.topic.byte.total"),
        ("app-info", "start-time-ms", "org.apache.kafka.app.info.start.time.ms"),
        ("kafka-metrics-count", "count", "org.apache.kafka.kafka.count.count"),
        (OWN, "records-pending", "aioproducer.records.pending"),
    ],
)
def test_name_is_the_one_of_kafkas_clients(group: str, name: str, expected: str) -> None:
    assert telemetry_name(group, name) == expected


def test_first_difference_counts_from_the_start() -> None:
    first, readings = encode([counter(5)], at_s=10)
    second, _ = encode([counter(12)], at_s=13, before=readings)

    (one,), (two,) = first.points[SENT], second.points[SENT]
    assert (one.value, one.started_ns, one.at_ns) == (5, START, START + 10 * SECOND)
    assert (two.value, two.started_ns, two.at_ns) == (7, START + 10 * SECOND, START + 13 * SECOND)
    assert one.is_delta
    assert two.is_delta


def test_cumulative_counters_count_from_the_start() -> None:
    _, readings = encode([counter(5)])
    push, _ = encode([counter(12)], is_delta=False, before=readings)

    (point,) = push.points[SENT]
    assert (point.value, point.started_ns, point.is_delta) == (12, START, False)


def test_difference_after_cumulative_pushes_repeats_nothing() -> None:
    """The broker may ask for another kind at any time."""
    _, readings = encode([counter(5)], is_delta=False)
    push, _ = encode([counter(12)], before=readings)

    assert push.value(SENT) == 7


def test_counter_of_a_new_topic_begins_at_the_start() -> None:
    _, readings = encode([counter(5, group=TOPIC, topic="a")])
    push, _ = encode([counter(6, group=TOPIC, topic="a"), counter(2, group=TOPIC, topic="b")], before=readings)

    name = "org.apache.kafka.producer.topic.record.send.total"
    assert (push.value(name, topic="a"), push.value(name, topic="b")) == (1, 2)


def test_attributes_and_resource_are_those_of_kafkas_clients() -> None:
    gauge = Metric("request-latency-avg", NODE, {**CLIENT, "node-id": "node-1"}, 2.5, MetricKind.GAUGE)
    push, _ = encode([gauge], resource={"transactional_id": "billing"})

    (point,) = push.points["org.apache.kafka.producer.node.request.latency.avg"]
    assert (point.attributes, point.value, point.is_delta) == ({"node_id": "node-1"}, 2.5, None)
    assert push.resource == {"transactional_id": "billing"}


def test_histograms_are_differences_too() -> None:
    def metric(counts: tuple[int, ...], total: float) -> Metric:
        value = HistogramValue((1.0, 2.0), counts, total, 9.0)
        return Metric("batch-size-bytes", OWN, CLIENT, value, MetricKind.HISTOGRAM)

    _, readings = encode([metric((1, 2, 3), 20.0)])
    push, _ = encode([metric((1, 4, 4), 31.0)], before=readings)

    point = push.histograms["aioproducer.batch.size.bytes"]
    assert list(point.bucket_counts) == [0, 2, 1]
    assert (point.count, point.sum, list(point.explicit_bounds)) == (3, 11.0, [1.0, 2.0])


@pytest.mark.parametrize(
    "prefixes, expected",
    [
        (("*",), {SENT, "aioproducer.records"}),
        (("",), {SENT, "aioproducer.records"}),
        (("org.apache.kafka.producer.record",), {SENT}),
        (("aioproducer.",), {"aioproducer.records"}),
        (("aio", "org"), {SENT, "aioproducer.records"}),
        (("*", "aio"), {"aioproducer.records"}),
        (("record",), set()),
        ((), set()),
    ],
)
def test_prefixes_choose(prefixes: tuple[str, ...], expected: set[str]) -> None:
    """As in Kafka's client, a star among others is no prefix of any name."""
    push, _ = encode([counter(1), counter(1, "records", OWN)], prefixes=prefixes)

    assert push.names == expected


async def test_metrics_are_those_that_kafkas_own_producer_pushes(cluster: FakeCluster) -> None:
    """Names, kinds and attributes, as a broker has received them; `tests.contracts.metrics_receiver` asks one."""
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.send("orders", b"v")
        push, _ = encode(producer.metrics())
    ours = {
        name: ["gauge" if points[0].is_delta is None else "sum", *sorted(points[0].attributes)]
        for name, points in push.points.items()
        if not name.startswith("aioproducer.")
    }
    javas = json.loads(JAVA_PUSHES.read_text("utf-8"))

    assert {name: javas.get(name) for name in ours} == ours
    left_out = {
        name.removeprefix("org.apache.kafka.producer.").removeprefix("node.") for name in javas.keys() - ours.keys()
    }
    assert all(reason_not_read(PRODUCER, name.replace(".", "-")) for name in left_out)
    assert not any(name.endswith(".rate") and not name.startswith(("io.", "select.", "network.")) for name in left_out)


@pytest.mark.parametrize("is_delta", [True, False])
async def test_push_has_the_values_of_metrics(cluster: FakeCluster, *, is_delta: bool) -> None:
    """Rates, averages and maxima as gauges, whatever temporality the broker wants for counters."""
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.send("orders", b"v")
        metrics = producer.metrics()
        push, _ = encode(metrics, is_delta=is_delta)

    for metric in metrics:
        if metric.kind is MetricKind.GAUGE and isinstance(metric.value, float | int):
            points = push.points[telemetry_name(metric.group, metric.name)]
            tags = {tag.replace("-", "_"): text for tag, text in metric.tags.items() if tag != "client-id"}
            (point,) = (point for point in points if point.attributes == tags)
            assert (point.is_delta, repr(point.value)) == (None, repr(float(metric.value)))


def test_texts_are_left_out() -> None:
    push, readings = encode([Metric("version", "app-info", CLIENT, "1.0", MetricKind.INFO)])

    assert (push.names, readings) == (set(), {})


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=20))
def test_differences_add_up_to_the_counter(growth: list[int]) -> None:
    readings: Readings = {}
    total, pushed = 0, 0.0
    for at_s, more in enumerate(growth, start=1):
        total += more
        push, readings = encode([counter(total)], at_s=at_s, before=readings)
        pushed += push.value(SENT)

    assert pushed == total
