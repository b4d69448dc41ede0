"""Metrics for Prometheus: `ProducerCollector(producer)` once, and every scrape reads the producers as they are then.

Nothing runs between scrapes. docs/how-to/observe.md has a dashboard, and says what to do
with several processes: a custom collector does not work in the multi-process mode of prometheus_client.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from itertools import accumulate, count
from typing import TYPE_CHECKING, Final, Protocol, cast

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.core import (
    Metric as Family,
)
from prometheus_client.registry import REGISTRY

from aioproducer._producer.metric_groups import APP, NODE, OWN, PRODUCER, TOPIC
from aioproducer._producer.producer_metrics import HISTOGRAMS, OF_NODE, OF_PRODUCER, OF_TOPIC, OWN_TABLE
from aioproducer.metrics import HistogramValue, MetricKind

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.registry import Collector

    from aioproducer.metrics import Metric, MetricValue

_PREFIXES: Final = {
    PRODUCER: "kafka_producer_",
    OWN: "kafka_producer_",
    NODE: "kafka_producer_node_",
    TOPIC: "kafka_producer_topic_",
    APP: "kafka_producer_",
}
_LABELS: Final = {NODE: ("client-id", "node-id"), TOPIC: ("client-id", "topic")}
_OF_CLIENT: Final = ("client-id",)


class HasMetrics(Protocol):
    """A producer of either kind, or a relay of an outbox."""

    def metrics(self) -> list[Metric]:
        """Return the current metrics; any thread may call it."""
        ...


class ProducerCollector:
    """Reads producers at each scrape, under names such as `kafka_producer_record_send_total{client_id="..."}`.

    One for all producers of a registry: a second one in the same registry is refused. Producers are not kept alive; one
    that is closed shows its last values until it is gone, or removed. Two with one `client_id` get the labels `id` and
    `id-2`, or the next number that no other has. Each keeps its label, which is free again after a scrape without it.

    Args:
        *producers: `Producer`, `BlockingProducer`, or `Relay` of an outbox; started or not.
        registry: registers there; None leaves it to the caller.

    Raises:
        ModuleNotFoundError: the extra `prometheus` is not installed; raised by the import.
        TypeError: not a producer; names its place. Or not a registry.
        ValueError: from the registry, if it has a collector of these names.
    """

    def __init__(self, *producers: HasMetrics, registry: CollectorRegistry | None = REGISTRY) -> None:
        self._lock = threading.Lock()
        self._producers: list[_Known] = []
        self._shown: set[str | None] = set()  # labels of the last scrape
        for number, producer in enumerate(producers):
            self._add(producer, f"producers[{number}]")
        if registry is not None:
            if not callable(getattr(registry, "register", None)):
                raise TypeError(f"registry must be a CollectorRegistry or None, not {type(registry).__name__}")
            registry.register(cast("Collector", self))  # by its methods: checkers of types cannot see such a base class

    def add(self, producer: HasMetrics) -> None:
        """Read one more producer; a second call does nothing.

        Raises:
            TypeError: not a producer.
        """
        self._add(producer, "producer")

    def remove(self, producer: HasMetrics) -> None:
        """Read a producer no more; one that is not read is ignored."""
        with self._lock:
            self._producers = [known for known in self._producers if known.producer() not in {None, producer}]

    def describe(self) -> list[Family]:
        """Return the names without values, so that a registry finds two collectors of the same."""
        names = [(scope.group, name) for scope in (OF_PRODUCER, OF_NODE, OF_TOPIC) for name in scope.names]
        names += [(OWN, name) for name in OWN_TABLE]
        families = [_family(group, name, _kind_of(name)) for group, name in names]
        families += [_family(OWN, name, MetricKind.HISTOGRAM) for name in HISTOGRAMS]
        return [
            *families,
            _family(APP, "version", MetricKind.INFO),
            _family(APP, "start-time-ms", MetricKind.GAUGE),
        ]

    def collect(self) -> list[Family]:
        """Return the metrics of all producers; prometheus_client calls it at each scrape, on any thread."""
        families: dict[str, Family] = {}
        for client_id, metric in self._read():
            if metric.group in _PREFIXES:
                name = f"{_PREFIXES[metric.group]}{metric.name}"
                if name not in families:
                    families[name] = _family(metric.group, metric.name, metric.kind)
                tags = {**metric.tags, "client-id": client_id}
                labels = [tags[label] for label in _LABELS.get(metric.group, _OF_CLIENT)]
                _add_value(families[name], labels, metric.value)
        return list(families.values())

    def _add(self, producer: HasMetrics, argument: str) -> None:
        if isinstance(producer, type) or not callable(getattr(producer, "metrics", None)):
            text = f"{argument} must be a Producer or a BlockingProducer, not {type(producer).__name__}"
            raise TypeError(text)
        with self._lock:
            self._producers = [known for known in self._producers if known.producer() is not None]
            if all(known.producer() is not producer for known in self._producers):
                self._producers.append(_Known(weakref.ref(producer)))

    def _read(self) -> Iterator[tuple[str, Metric]]:
        """Yield all metrics, each with the label of its producer."""
        with self._lock:
            producers = [(known, known.producer()) for known in self._producers]
        read = [(known, producer.metrics()) for known, producer in producers if producer is not None]
        started = [(known, metrics) for known, metrics in read if metrics]
        with self._lock:
            self._label([(known, metrics[0].tags["client-id"]) for known, metrics in started if known.label is None])
            self._shown = {known.label for known, _ in started}
        for known, metrics in started:
            yield from ((known.label or "", metric) for metric in metrics)

    def _label(self, new: list[tuple[_Known, str]]) -> None:
        """Give labels to producers: the name of each, or the next number that no other has."""
        # Those of the last scrape are taken, too: else a server would take two producers for one series without a gap.
        taken = {known.label for known in self._producers} | self._shown
        for is_own in (True, False):  # a number is not to be the name of another
            for known, name in new:
                if known.label is None and (name not in taken or not is_own):
                    known.label = _free(name, taken)
                    taken.add(known.label)


class _Known:
    """A producer that is read."""

    def __init__(self, producer: weakref.ref[HasMetrics]) -> None:
        self.producer = producer
        self.label: str | None = None  # from its first scrape on: a producer has no name before it has started


def _free(name: str, taken: set[str | None]) -> str:
    """Return the name, or the name with the first number that makes it free."""
    if name not in taken:
        return name
    return next(label for number in count(2) if (label := f"{name}-{number}") not in taken)


def _kind_of(name: str) -> MetricKind:
    return MetricKind.COUNTER if name.endswith("-total") else MetricKind.GAUGE


def _family(group: str, name: str, kind: MetricKind) -> Family:
    full = f"{_PREFIXES[group]}{name}".replace("-", "_")
    labels = [label.replace("-", "_") for label in _LABELS.get(group, _OF_CLIENT)]
    text = f"Kafka's {name} of {group}." if group != OWN else f"{name} of aioproducer."
    match kind:
        case MetricKind.COUNTER:
            return CounterMetricFamily(full, text, labels=labels)
        case MetricKind.HISTOGRAM:
            return HistogramMetricFamily(full, text, labels=labels)
        case MetricKind.INFO:
            return InfoMetricFamily("kafka_producer", "Version of aioproducer.", labels=labels)
        case _:
            return GaugeMetricFamily(full, text, labels=labels)


def _add_value(family: Family, labels: Sequence[str], value: MetricValue) -> None:
    if isinstance(family, HistogramMetricFamily) and isinstance(value, HistogramValue):
        bounds = [*map(repr, value.bounds), "+Inf"]
        family.add_metric(labels, list(zip(bounds, accumulate(value.counts), strict=True)), value.total)
    elif isinstance(family, InfoMetricFamily):
        family.add_metric(labels, {"version": str(value)})
    elif isinstance(family, CounterMetricFamily | GaugeMetricFamily) and isinstance(value, float | int):
        family.add_metric(labels, value)
