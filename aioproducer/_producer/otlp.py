"""Encodes metrics as `MetricsData` of OpenTelemetry's protocol, with the names that Kafka's brokers expect.

`producer-node-metrics` and `request-latency-avg` become `org.apache.kafka.producer.node.request.latency.avg`. Metrics
that Kafka's producer does not have begin with `aioproducer.`; only these may be histograms. Rates, averages and maxima
are gauges with the values of `Producer.metrics()`.

Source: KIP-714; TelemetryMetricNamingConvention, SinglePointMetric and KafkaMetricsCollector in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric as OtlpMetric

from aioproducer._producer.metric_groups import OWN
from aioproducer.metrics import HistogramValue, MetricKind

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
    from opentelemetry.proto.common.v1.common_pb2 import KeyValue
    from opentelemetry.proto.metrics.v1.metrics_pb2 import ScopeMetrics

    from aioproducer.metrics import Metric

    _Attributes: TypeAlias = RepeatedCompositeFieldContainer[KeyValue]

ALL: Final = "*"  # instead of a prefix: all metrics

_CLIENT_ID: Final = "client-id"  # brokers know it from the request
Key: TypeAlias = tuple[str, tuple[str, ...]]


class Reading(NamedTuple):
    """The value of a counter or a histogram, and when it was read."""

    at_ns: int  # since 1970
    value: float | HistogramValue


Readings: TypeAlias = Mapping[Key, Reading]


class Encoded(NamedTuple):
    data: bytes
    readings: Readings  # of this time, for the differences of the next


class MetricsEncoder:
    """Encodes the metrics of one producer, whose counters began at `started_ns` since 1970."""

    def __init__(self, started_ns: int, resource: Mapping[str, str]) -> None:
        self._started_ns = started_ns
        self._resource = resource

    def encode(
        self, metrics: Iterable[Metric], now_ns: int, *, prefixes: tuple[str, ...], is_delta: bool, before: Readings
    ) -> Encoded:
        """Encode the metrics whose names begin with one of the prefixes.

        Counters and histograms are since the readings `before`, or else since the start.
        """
        wanted = ("",) if prefixes == (ALL,) else prefixes
        payload = MetricsData()
        of_producer = payload.resource_metrics.add()
        _add_attributes(of_producer.resource.attributes, self._resource)
        points = _Points(of_producer.scope_metrics.add(), now_ns, is_delta=is_delta)
        readings: dict[Key, Reading] = {}
        for metric in metrics:
            if metric.kind is MetricKind.INFO or isinstance(metric.value, str):
                continue
            name = telemetry_name(metric.group, metric.name)
            is_wanted = name.startswith(wanted)
            if metric.kind is MetricKind.GAUGE:
                if is_wanted and not isinstance(metric.value, HistogramValue):
                    points.gauge(name, metric.tags, metric.value)
                continue
            key = name, tuple(metric.tags.values())
            last = before.get(key) or Reading(self._started_ns, 0.0)
            readings[key] = Reading(now_ns, metric.value)
            if is_wanted:
                points.total(name, metric, last if is_delta else Reading(self._started_ns, 0.0))
        return Encoded(payload.SerializeToString(), readings)


class _Points:
    """Adds data points to the metric of their name."""

    def __init__(self, scope: ScopeMetrics, now_ns: int, *, is_delta: bool) -> None:
        self._scope = scope
        self._now_ns = now_ns
        self._temporality = (
            AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
            if is_delta
            else AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
        )
        self._metrics: dict[str, OtlpMetric] = {}

    def gauge(self, name: str, tags: Mapping[str, str], value: float) -> None:
        point = self._metric(name).gauge.data_points.add(time_unix_nano=self._now_ns, as_double=value)
        _add_attributes(point.attributes, tags)

    def total(self, name: str, metric: Metric, last: Reading) -> None:
        """Add a counter or a histogram, without what `last` has counted."""
        if isinstance(metric.value, HistogramValue):
            attributes = self._add_histogram(name, metric.value, last)
        else:
            attributes = self._add_sum(name, float(metric.value), last)
        _add_attributes(attributes, metric.tags)

    def _add_sum(self, name: str, value: float, last: Reading) -> _Attributes:
        before = 0.0 if isinstance(last.value, HistogramValue) else last.value
        total = self._metric(name).sum
        total.is_monotonic = True
        total.aggregation_temporality = self._temporality
        point = total.data_points.add(
            start_time_unix_nano=last.at_ns, time_unix_nano=self._now_ns, as_double=value - before
        )
        return point.attributes

    def _add_histogram(self, name: str, value: HistogramValue, last: Reading) -> _Attributes:
        counts, total = value.counts, value.total
        if isinstance(last.value, HistogramValue):
            counts = tuple(now - then for now, then in zip(counts, last.value.counts, strict=True))
            total -= last.value.total
        histogram = self._metric(name).histogram
        histogram.aggregation_temporality = self._temporality
        point = histogram.data_points.add(
            start_time_unix_nano=last.at_ns,
            time_unix_nano=self._now_ns,
            count=sum(counts),
            sum=total,
            bucket_counts=counts,
            explicit_bounds=value.bounds,
        )
        return point.attributes

    def _metric(self, name: str) -> OtlpMetric:
        found = self._metrics.get(name)
        if found is None:
            found = self._metrics[name] = self._scope.metrics.add(name=name)
        return found


@cache
def telemetry_name(group: str, name: str) -> str:
    """Return the name of a metric for brokers."""
    dotted = name.replace("-", ".")
    if group == OWN:
        return f"aioproducer.{dotted}"
    return f"org.apache.kafka.{group.replace('-', '.').replace('.metrics', '')}.{dotted}"


def _add_attributes(attributes: _Attributes, tags: Mapping[str, str]) -> None:
    for tag, text in tags.items():
        if tag != _CLIENT_ID:
            attributes.add(key=tag.replace("-", "_")).value.string_value = text
