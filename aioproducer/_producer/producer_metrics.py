"""The metrics of a running producer under Kafka's names, and what readiness probes and the inspector show.

Names with `-avg`, `-max` and `-rate` are of the window of `metric_windows.py`. Any thread may read the metrics: what
changes meanwhile is copied in one step.

Source: SenderMetricsRegistry, KafkaProducerMetrics, Selector and AppInfoParser in Apache Kafka.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeAlias, TypeVar

from aioproducer._native.measures import TIMES, TopicCounters
from aioproducer._network.addresses import place_text
from aioproducer._network.context import NetworkCounters
from aioproducer._producer.metric_groups import APP, COUNT, NODE, OWN, PRODUCER, TOPIC
from aioproducer._producer.metric_windows import MetricWindows
from aioproducer._version import VERSION
from aioproducer.metrics import Health, HistogramValue, Metric, MetricKind, ProducerStatistics

if TYPE_CHECKING:
    from aioproducer._native.measures import Histogram, Measures, RecordSizes, Sample
    from aioproducer._producer.metric_windows import Key, Totals, Window
    from aioproducer._producer.producer_state import ProducerStateMachine
    from aioproducer._producer.runtime import ProducerRuntime
    from aioproducer._transactions.waiting import TransactionCounts
    from aioproducer.config import ProducerConfig
    from aioproducer.explanation import Explanation, Why


_NO_TIMES = HistogramValue(TIMES, (0,) * (len(TIMES) + 1), 0.0, 0.0)


class NodeView(NamedTuple):
    """A node that metadata names."""

    node_id: int
    place: str
    in_flight: int
    requests: int
    responses: int
    request_latency_s: float  # sum over `responses`
    blocked: Why | None  # None: it takes requests


class LiveView(NamedTuple):
    """A producer at one moment; nothing of it changes later."""

    state: str
    note: str  # why nothing can be sent in this state
    statistics: ProducerStatistics
    nodes: tuple[NodeView, ...]  # empty unless it runs
    queue_time: HistogramValue  # seconds from a record's call to its request
    request_latency: HistogramValue
    explanation: Explanation | None  # if it was asked for
    silence: str = ""  # why no broker answers; empty while one does, or none is asked

    @property
    def health(self) -> Health:
        reason = self.note or self._why_not_ready()
        return Health(not reason, reason)

    def _why_not_ready(self) -> str:
        error = self.statistics.metadata_error or ""
        if self.state != "running":
            return f"the producer is {self.state}{f': {error}' if error and self.state == 'starting' else ''}"
        if self.statistics.metadata_age_s is None:
            return f"no broker has answered yet{error and f': {error}'}"
        return self.silence


def live_view(
    running: ProducerRuntime | None, lifecycle: ProducerStateMachine, explanation: Explanation | None
) -> LiveView:
    state, note = lifecycle.state_and_note(is_started=running is not None)
    if running is None:
        statistics = ProducerStatistics(client_id=lifecycle.name)
        return LiveView(state, note, statistics, (), _NO_TIMES, _NO_TIMES, explanation)
    return LiveView(
        state,
        note,
        running.statistics(),
        () if note else _nodes(running),
        value_of(running.measures.queue_time),
        value_of(running.measures.request_latency),
        explanation,
        running.silence(),
    )


def _nodes(running: ProducerRuntime) -> tuple[NodeView, ...]:
    client = running.client
    rows, in_flight = client.counters_by_node.rows(), client.requests_in_flight()
    views, no_requests = [], NetworkCounters()
    for node_id, node in sorted(running.metadata.cluster.nodes.items()):
        counts = rows.get(node_id, no_requests)
        views.append(
            NodeView(
                node_id,
                place_text(node.host, node.port),
                in_flight.get(node_id, 0),
                counts.requests,
                counts.responses,
                counts.request_latency_s,
                client.blocked(node_id),
            )
        )
    return tuple(views)


# Kafka's metrics

OTHER_NODES: Final = "(other nodes)"
_NS: Final = 1e9
_MS: Final = 1e3
_CONVERT: Final = {"time": _MS, "latency": _MS}  # by a word of the name; sizes and counts stay


class Sources:
    """The parts that the metrics of the whole producer read."""

    def __init__(self, running: ProducerRuntime) -> None:
        self.running = running
        self.network = running.client.counters
        self.measures: Measures = running.measures
        self.transactions: TransactionCounts = running.transaction_counts

    @cached_property
    def statistics(self) -> ProducerStatistics:
        """Read only for a caller: it looks at each open batch."""
        return self.running.statistics()


SourceT = TypeVar("SourceT")
Table: TypeAlias = Mapping[str, Callable[[SourceT], float]]
Samples: TypeAlias = "Mapping[tuple[str, ...], Callable[[SourceT], Sample]]"


_NO_RATES: Final[Mapping[str, Callable[[object], float]]] = MappingProxyType({})


def _is_rated(name: str) -> bool:
    return name.endswith("-total") and not name.endswith("-ns-total")


def _rate_name(total: str) -> str:
    return f"{total.removesuffix('total')}rate"


class Scope(Generic[SourceT]):
    """The metrics of one group: those of the whole producer, of a node, or of a topic.

    Args:
        table: totals, each with its rate, and gauges. A name that ends in `-total` is a counter, every other one a
            gauge.
        samples: by the names of mean and maximum, or of the mean alone.
        rates: other rates, and the totals that they are of.
    """

    def __init__(
        self, group: str, table: Table[SourceT], samples: Samples[SourceT], *, rates: Table[SourceT] = _NO_RATES
    ) -> None:
        self.group = group
        self._table = table
        self._samples = samples
        self._rates = {_rate_name(name): read for name, read in table.items() if _is_rated(name)} | {**rates}
        self._places = {names: len(self._rates) + 3 * index for index, names in enumerate(samples)}

    @property
    def names(self) -> list[str]:
        """The names of all metrics, sorted."""
        return sorted([*self._table, *self._rates, *(name for names in self._samples for name in names)])

    def totals(self, source: SourceT) -> Totals:
        """Return what the window needs."""
        totals = array("d", [read(source) for read in self._rates.values()])
        for read in self._samples.values():
            totals.extend(read(source))
        return totals

    def metrics(  # noqa: PLR0917  # a place, and what is there
        self, tags: Mapping[str, str], source: SourceT, window: Window, key: Key
    ) -> Iterator[Metric]:
        """Yield the current values."""
        for name, read in self._table.items():
            kind = MetricKind.COUNTER if name.endswith("-total") else MetricKind.GAUGE
            yield Metric(name, self.group, tags, read(source), kind)
        for place, (name, read) in enumerate(self._rates.items()):
            yield Metric(name, self.group, tags, window.rate(key, place, read(source)), MetricKind.GAUGE)
        for names, sampled in self._samples.items():
            sample, place = sampled(source), self._places[names]
            unit = next((factor for word, factor in _CONVERT.items() if word in names[0]), 1.0)
            for name, read_window in zip(names, (window.mean, window.largest), strict=False):
                yield Metric(name, self.group, tags, unit * read_window(key, place, sample), MetricKind.GAUGE)


def _latency(of: NetworkCounters) -> Sample:
    return of.produce_latency_s, of.produce_responses, of.recent_produce_latency_s


def _size(of: NetworkCounters) -> Sample:
    return of.bytes_out, of.requests, of.recent_request_size


OF_PRODUCER: Final = Scope[Sources](
    PRODUCER,
    {
        "batch-split-total": lambda of: of.running.settlement.counts.batches_split,
        "buffer-available-bytes": lambda of: of.statistics.buffer_available_bytes,
        "buffer-exhausted-total": lambda of: of.running.wait_queues.exhausted,
        "buffer-total-bytes": lambda of: of.statistics.buffer_total_bytes,
        "bufferpool-wait-time-ns-total": lambda of: of.measures.memory_wait.total * _NS,
        "connection-close-total": lambda of: of.network.connections_closed,
        "connection-count": lambda of: of.network.connections_created - of.network.connections_closed,
        "connection-creation-total": lambda of: of.network.connections_created,
        "failed-authentication-total": lambda of: of.network.authentication_failures,
        "failed-reauthentication-total": lambda of: of.network.reauthentication_failures,
        "flush-time-ns-total": lambda of: of.measures.flush_time.total * _NS,
        "incoming-byte-total": lambda of: of.network.bytes_in,
        "metadata-age": lambda of: of.statistics.metadata_age_s or 0.0,
        "metadata-wait-time-ns-total": lambda of: of.measures.metadata_wait.total * _NS,
        "outgoing-byte-total": lambda of: of.network.bytes_out,
        "record-error-total": lambda of: of.running.completion.counts.records_failed,
        "record-retry-total": lambda of: of.running.settlement.counts.records_retried,
        "record-send-total": lambda of: sum(row.records for row in of.measures.topics.rows()),
        "request-total": lambda of: of.network.requests,
        "requests-in-flight": lambda of: of.statistics.requests_in_flight,
        "response-total": lambda of: of.network.responses,
        "successful-authentication-total": lambda of: of.network.authentications,
        "successful-reauthentication-total": lambda of: of.network.reauthentications,
        "txn-abort-time-ns-total": lambda of: of.transactions.abort_time.total * _NS,
        "txn-begin-time-ns-total": lambda of: of.transactions.begin_time.total * _NS,
        "txn-commit-time-ns-total": lambda of: of.transactions.commit_time.total * _NS,
        "txn-init-time-ns-total": lambda of: of.transactions.init_time.total * _NS,
        "txn-prepare-time-ns-total": lambda of: of.transactions.prepare_time.total * _NS,
        "txn-send-offsets-time-ns-total": lambda of: of.transactions.send_offsets_time.total * _NS,
        "waiting-threads": lambda of: of.statistics.records_waiting,
    },
    {
        ("batch-size-avg", "batch-size-max"): lambda of: of.measures.batch_size.sample(),
        ("compression-rate-avg",): lambda of: of.measures.compression_ratio.sample(),
        ("produce-throttle-time-avg", "produce-throttle-time-max"): lambda of: of.measures.throttle_time.sample(),
        ("reauthentication-latency-avg", "reauthentication-latency-max"): lambda of: (
            of.network.reauthentication_latency_s,
            of.network.reauthentications,
            of.network.recent_reauthentication_latency_s,
        ),
        ("record-queue-time-avg", "record-queue-time-max"): lambda of: of.measures.queue_time.sample(),
        ("record-size-avg", "record-size-max"): lambda of: of.measures.record_size.sample(),
        ("records-per-request-avg",): lambda of: of.measures.records_per_request.sample(),
        ("request-latency-avg", "request-latency-max"): lambda of: _latency(of.network),
        ("request-size-avg", "request-size-max"): lambda of: _size(of.network),
    },
    rates={"bufferpool-wait-ratio": lambda of: of.measures.memory_wait.total},
)

OF_NODE: Final = Scope[NetworkCounters](
    NODE,
    {
        "incoming-byte-total": lambda of: of.bytes_in,
        "outgoing-byte-total": lambda of: of.bytes_out,
        "request-total": lambda of: of.requests,
        "response-total": lambda of: of.responses,
    },
    {
        ("request-latency-avg", "request-latency-max"): _latency,
        ("request-size-avg", "request-size-max"): _size,
    },
)

OF_TOPIC: Final = Scope[TopicCounters](
    TOPIC,
    {
        "byte-total": lambda of: of.bytes,
        "record-error-total": lambda of: of.errors,
        "record-retry-total": lambda of: of.retries,
        "record-send-total": lambda of: of.records,
    },
    {("compression-rate",): lambda of: of.ratio_sample()},
)


def windows_of(running: ProducerRuntime, config: ProducerConfig) -> MetricWindows:
    """Return the windows of the metrics of a producer."""
    return MetricWindows(
        config.metrics_sample_window_ms / 1000,
        config.metrics_num_samples,
        read=partial(_totals_by_row, running),
        forget_recent=partial(_forget_recent, running),
    )


def _totals_by_row(running: ProducerRuntime) -> dict[Key, Totals]:
    """Return what the window needs of each row; nothing of it changes later."""
    totals: dict[Key, Totals] = {PRODUCER: OF_PRODUCER.totals(Sources(running))}
    for node_id, counters in running.client.counters_by_node.rows().items():
        totals[NODE, node_id] = OF_NODE.totals(counters)
    for row in running.measures.topics.rows():
        totals[TOPIC, row.topic] = OF_TOPIC.totals(row)
    return totals


def _forget_recent(running: ProducerRuntime) -> None:
    """Begin the next recent maxima of all samples."""
    measures = running.measures
    for histogram in (measures.batch_size, measures.throttle_time, measures.queue_time, measures.record_size):
        histogram.forget_recent()
    for counters in running.client.counters_by_node.rows().values():
        counters.forget_recent()


OWN_TABLE: Final[Table[Sources]] = {
    "record-acknowledged-total": lambda of: of.statistics.records_acknowledged,
    "record-filtered-total": lambda of: of.statistics.records_filtered,
    "records-pending": lambda of: of.statistics.records_pending,
    "batch-acknowledged-total": lambda of: of.statistics.batches_sent,
    "connection-failure-total": lambda of: of.statistics.connection_failures,
    "interceptor-failure-total": lambda of: of.statistics.interceptor_failures,
    "txn-commit-total": lambda of: of.statistics.transactions_committed,
    "txn-abort-total": lambda of: of.statistics.transactions_aborted,
}
"""Metrics that Kafka has no name for."""

HISTOGRAMS: Final[Mapping[str, Callable[[Sources], Histogram | RecordSizes]]] = {
    "batch-size-bytes": lambda of: of.measures.batch_size,
    "record-size-bytes": lambda of: of.measures.record_size,
    "records-per-request": lambda of: of.measures.records_per_request,
    "compression-ratio": lambda of: of.measures.compression_ratio,
    "record-queue-time-seconds": lambda of: of.measures.queue_time,
    "request-latency-seconds": lambda of: of.measures.request_latency,
    "produce-throttle-time-seconds": lambda of: of.measures.throttle_time,
    "bufferpool-wait-time-seconds": lambda of: of.measures.memory_wait,
    "metadata-wait-time-seconds": lambda of: of.measures.metadata_wait,
    "flush-time-seconds": lambda of: of.measures.flush_time,
    "txn-init-time-seconds": lambda of: of.transactions.init_time,
    "txn-begin-time-seconds": lambda of: of.transactions.begin_time,
    "txn-send-offsets-time-seconds": lambda of: of.transactions.send_offsets_time,
    "txn-prepare-time-seconds": lambda of: of.transactions.prepare_time,
    "txn-commit-time-seconds": lambda of: of.transactions.commit_time,
    "txn-abort-time-seconds": lambda of: of.transactions.abort_time,
}

_SELECTOR: Final = "only Java's selector has it: an event loop does not count its turns"

NOT_READ: Final[tuple[tuple[str, str], ...]] = (
    ("io-", _SELECTOR),
    ("select-", _SELECTOR),
    ("network-io-", _SELECTOR),
    ("successful-authentication-no-reauth-total", "no such broker: those before 2.2 cannot renew a session"),
    ("commit-id", "only a build of Kafka has one"),
)
"""Beginnings of Kafka's names that are not read, and why."""

_OF_ALL: Final = "of all records, as they are in batches; in Kafka, of the largest of each batch, by an upper bound"
_AS_IN_BATCH: Final = "as the record is in its batch; in Kafka, by an upper bound"
_WAITING: Final = "records that wait for memory, their topic or a serializer; in Kafka, threads that wait for memory"
_ACCEPTED: Final = (
    "of records in a batch, or that waited for memory or their topic; in Kafka, also those that a call refuses"
)

MEANINGS: Final[Mapping[tuple[str, str], str]] = {
    (PRODUCER, "record-error-rate"): _ACCEPTED,
    (PRODUCER, "record-error-total"): _ACCEPTED,
    (PRODUCER, "record-size-avg"): _OF_ALL,
    (PRODUCER, "record-size-max"): _AS_IN_BATCH,
    (PRODUCER, "waiting-threads"): _WAITING,
}
"""What is deliberately another value than Kafka's."""

_INFO: Final = ("version", "start-time-ms")


def reason_not_read(group: str, name: str) -> str | None:
    """Return why a metric of Kafka's producer is not read; None if it is, or is unknown here."""
    of_group = {each.group: each.names for each in (OF_PRODUCER, OF_NODE, OF_TOPIC)}
    if name in {**of_group, APP: _INFO, COUNT: ("count",)}.get(group, ()):
        return None
    return next((why for beginning, why in NOT_READ if name.startswith(beginning)), None)


def value_of(histogram: Histogram | RecordSizes) -> HistogramValue:
    return HistogramValue(*histogram.read())


def read_metrics(running: ProducerRuntime) -> list[Metric]:
    """Return the current values of all metrics."""
    sources, window = Sources(running), running.windows.until(running.loop.time())
    client = {"client-id": running.lifecycle.name}
    metrics = list(OF_PRODUCER.metrics(client, sources, window, PRODUCER))
    for name, read in OWN_TABLE.items():
        kind = MetricKind.COUNTER if name.endswith("-total") else MetricKind.GAUGE
        metrics.append(Metric(name, OWN, client, read(sources), kind))
    for name, histogram in HISTOGRAMS.items():
        metrics.append(Metric(name, OWN, client, value_of(histogram(sources)), MetricKind.HISTOGRAM))
    for node_id, counters in running.client.counters_by_node.rows().items():
        label = OTHER_NODES if node_id is None else f"node-{node_id}"
        metrics += OF_NODE.metrics({**client, "node-id": label}, counters, window, (NODE, node_id))
    for row in running.measures.topics.rows():
        metrics += OF_TOPIC.metrics({**client, "topic": row.topic}, row, window, (TOPIC, row.topic))
    metrics += [
        Metric("version", APP, client, VERSION, MetricKind.INFO),
        Metric("start-time-ms", APP, client, running.started_at_ms, MetricKind.GAUGE),
    ]
    metrics.append(Metric("count", COUNT, client, len(metrics) + 1, MetricKind.GAUGE))
    return metrics
