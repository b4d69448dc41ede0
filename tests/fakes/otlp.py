"""Pushed metrics, decoded with OpenTelemetry's own classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, HistogramDataPoint, MetricsData


class Point(NamedTuple):
    """A value of a metric with its attributes."""

    value: float
    attributes: dict[str, str]
    is_delta: bool | None = None  # None: a gauge
    started_ns: int = 0
    at_ns: int = 0


class Push(NamedTuple):
    points: dict[str, list[Point]]
    histograms: dict[str, HistogramDataPoint]
    resource: dict[str, str]
    is_last: bool

    def value(self, name: str, **attributes: str) -> float:
        (found,) = (each for each in self.points[name] if attributes.items() <= each.attributes.items())
        return found.value

    @property
    def names(self) -> set[str]:
        return {*self.points, *self.histograms}


def decoded(data: bytes, *, is_last: bool = False) -> Push:
    payload = MetricsData.FromString(data)
    (of_producer,) = payload.resource_metrics
    (scope,) = of_producer.scope_metrics
    push = Push({}, {}, _attributes(of_producer.resource.attributes), is_last)
    for metric in scope.metrics:
        assert metric.name not in push.names, "one metric a name"
        kind = metric.WhichOneof("data")
        if kind == "histogram":
            (push.histograms[metric.name],) = metric.histogram.data_points
            continue
        points = metric.sum.data_points if kind == "sum" else metric.gauge.data_points
        is_delta = (
            metric.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
            if kind == "sum"
            else None
        )
        push.points[metric.name] = [
            Point(
                each.as_double, _attributes(each.attributes), is_delta, each.start_time_unix_nano, each.time_unix_nano
            )
            for each in points
        ]
    return push


def _attributes(pairs: Sequence[KeyValue]) -> dict[str, str]:
    return {pair.key: pair.value.string_value for pair in pairs}
