"""The metrics of a running producer under Kafka's names, and what readiness probes and the inspector show.

Rates and sliding averages are left to metrics systems, which compute both from totals and histograms; names with `-avg`
and `-max` count from the start. Any thread may read the metrics: what changes meanwhile is copied in one step.

Source: SenderMetricsRegistry, KafkaProducerMetrics, Selector and AppInfoParser in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from aioproducer._native.measures import TIMES
from aioproducer._network.addresses import place_text
from aioproducer._network.context import NetworkCounters
from aioproducer._producer.metric_groups import APP, COUNT, NODE, OWN, PRODUCER, TOPIC
from aioproducer._version import VERSION
from aioproducer.metrics import HistogramValue, Metric, MetricKind, ProducerStatistics

if TYPE_CHECKING:
    from aioproducer._native.measures import Histogram, Measures, RecordSizes, TopicCounters
    from aioproducer._producer.producer_state import ProducerStateMachine
    from aioproducer._producer.runtime import ProducerRuntime
    from aioproducer._transactions.waiting import TransactionCounts
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


class Sources(NamedTuple):
    """The parts that the metrics of the whole producer read."""

    statistics: ProducerStatistics
    measures: Measures
    transactions: TransactionCounts


SourceT = TypeVar("SourceT")
Table: TypeAlias = Mapping[str, Callable[[SourceT], float]]


def _per(total: float, count: float) -> float:
    return total / count if count else 0.0


def _mean(histogram: Histogram | RecordSizes) -> float:
    return value_of(histogram).mean


def _largest(histogram: Histogram | RecordSizes) -> float:
    return histogram.read()[3]


# A name that ends in `-total` is a counter, every other one a gauge.

PRODUCER_TABLE: Final[Table[Sources]] = {
    "batch-size-avg": lambda of: _mean(of.measures.batch_size),
    "batch-size-max": lambda of: _largest(of.measures.batch_size),
    "batch-split-total": lambda of: of.statistics.batches_split,
    "buffer-available-bytes": lambda of: of.statistics.buffer_available_bytes,
    "buffer-exhausted-total": lambda of: of.statistics.buffer_exhausted,
    "buffer-total-bytes": lambda of: of.statistics.buffer_total_bytes,
    "bufferpool-wait-time-ns-total": lambda of: of.measures.memory_wait.total * _NS,
    "compression-rate-avg": lambda of: _mean(of.measures.compression_ratio),
    "connection-close-total": lambda of: of.statistics.connections_closed,
    "connection-count": lambda of: of.statistics.connections,
    "connection-creation-total": lambda of: of.statistics.connections_created,
    "failed-authentication-total": lambda of: of.statistics.authentication_failures,
    "failed-reauthentication-total": lambda of: of.statistics.reauthentication_failures,
    "flush-time-ns-total": lambda of: of.measures.flush_time.total * _NS,
    "incoming-byte-total": lambda of: of.statistics.bytes_received,
    "metadata-age": lambda of: of.statistics.metadata_age_s or 0.0,
    "metadata-wait-time-ns-total": lambda of: of.measures.metadata_wait.total * _NS,
    "outgoing-byte-total": lambda of: of.statistics.bytes_sent,
    "produce-throttle-time-avg": lambda of: _mean(of.measures.throttle_time) * _MS,
    "produce-throttle-time-max": lambda of: _largest(of.measures.throttle_time) * _MS,
    "reauthentication-latency-avg": lambda of: (
        _per(of.statistics.reauthentication_latency_total_s, of.statistics.reauthentications) * _MS
    ),
    "record-error-total": lambda of: of.statistics.records_failed,
    "record-queue-time-avg": lambda of: _mean(of.measures.queue_time) * _MS,
    "record-queue-time-max": lambda of: _largest(of.measures.queue_time) * _MS,
    "record-retry-total": lambda of: of.statistics.records_retried,
    "record-send-total": lambda of: sum(row.records for row in of.measures.topics.rows()),
    "record-size-avg": lambda of: _mean(of.measures.record_size),
    "record-size-max": lambda of: _largest(of.measures.record_size),
    "records-per-request-avg": lambda of: _mean(of.measures.records_per_request),
    "request-latency-avg": lambda of: _mean(of.measures.request_latency) * _MS,
    "request-latency-max": lambda of: _largest(of.measures.request_latency) * _MS,
    "request-size-avg": lambda of: _per(of.statistics.bytes_sent, of.statistics.requests_sent),
    "request-total": lambda of: of.statistics.requests_sent,
    "requests-in-flight": lambda of: of.statistics.requests_in_flight,
    "response-total": lambda of: of.statistics.responses_received,
    "successful-authentication-total": lambda of: of.statistics.authentications,
    "successful-reauthentication-total": lambda of: of.statistics.reauthentications,
    "txn-abort-time-ns-total": lambda of: of.transactions.abort_time.total * _NS,
    "txn-begin-time-ns-total": lambda of: of.transactions.begin_time.total * _NS,
    "txn-commit-time-ns-total": lambda of: of.transactions.commit_time.total * _NS,
    "txn-init-time-ns-total": lambda of: of.transactions.init_time.total * _NS,
    "txn-prepare-time-ns-total": lambda of: of.transactions.prepare_time.total * _NS,
    "txn-send-offsets-time-ns-total": lambda of: of.transactions.send_offsets_time.total * _NS,
    "waiting-threads": lambda of: of.statistics.records_waiting,
}

NODE_TABLE: Final[Table[NetworkCounters]] = {
    "incoming-byte-total": lambda of: of.bytes_in,
    "outgoing-byte-total": lambda of: of.bytes_out,
    "request-latency-avg": lambda of: _per(of.request_latency_s, of.responses) * _MS,
    "request-latency-max": lambda of: of.request_latency_max_s * _MS,
    "request-size-avg": lambda of: _per(of.bytes_out, of.requests),
    "request-total": lambda of: of.requests,
    "response-total": lambda of: of.responses,
}

TOPIC_TABLE: Final[Table[TopicCounters]] = {
    "byte-total": lambda of: of.bytes,
    "compression-rate": lambda of: _per(of.bytes, of.uncompressed),
    "record-error-total": lambda of: of.errors,
    "record-retry-total": lambda of: of.retries,
    "record-send-total": lambda of: of.records,
}

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

_RATE: Final = "a rate: the collector computes it from the total"
_MAX: Final = "only the average is known: requests are counted, not looked at"
_SELECTOR: Final = "only Java's selector has it: an event loop does not count its turns"
_LONGEST_RENEWAL: Final = "only the average is known: renewals of a session are summed"

NOT_READ: Final[tuple[tuple[str, str], ...]] = (
    ("bufferpool-wait-ratio", _RATE),
    ("io-", _SELECTOR),
    ("select-", _SELECTOR),
    ("network-io-", _SELECTOR),
    ("successful-authentication-no-reauth-total", "no such broker: those before 2.2 cannot renew a session"),
    ("reauthentication-latency-max", _LONGEST_RENEWAL),
    ("request-size-max", _MAX),
    ("commit-id", "only a build of Kafka has one"),
)
"""Beginnings of Kafka's names that are not read, and why; all that end in `-rate` are not, either."""

_INFO: Final = ("version", "start-time-ms")


def reason_not_read(group: str, name: str) -> str | None:
    """Return why a metric of Kafka's producer is not read; None if it is, or is unknown here."""
    tables = {PRODUCER: PRODUCER_TABLE, NODE: NODE_TABLE, TOPIC: TOPIC_TABLE, APP: _INFO, COUNT: ("count",)}
    if name in tables.get(group, ()):
        return None
    reason = next((why for beginning, why in NOT_READ if name.startswith(beginning)), None)
    return _RATE if reason is None and name.endswith("-rate") else reason


def value_of(histogram: Histogram | RecordSizes) -> HistogramValue:
    return HistogramValue(*histogram.read())


def read_metrics(running: ProducerRuntime) -> list[Metric]:
    """Return the current values of all metrics."""
    sources = Sources(running.statistics(), running.measures, running.transaction_counts)
    client = {"client-id": running.lifecycle.name}
    metrics = [*_rows(PRODUCER, PRODUCER_TABLE, client, sources), *_rows(OWN, OWN_TABLE, client, sources)]
    for name, histogram in HISTOGRAMS.items():
        metrics.append(Metric(name, OWN, client, value_of(histogram(sources)), MetricKind.HISTOGRAM))
    for node_id, counters in running.client.counters_by_node.rows().items():
        label = OTHER_NODES if node_id is None else f"node-{node_id}"
        metrics += _rows(NODE, NODE_TABLE, {**client, "node-id": label}, counters)
    for row in running.measures.topics.rows():
        metrics += _rows(TOPIC, TOPIC_TABLE, {**client, "topic": row.topic}, row)
    metrics += [
        Metric("version", APP, client, VERSION, MetricKind.INFO),
        Metric("start-time-ms", APP, client, running.started_at_ms, MetricKind.GAUGE),
    ]
    metrics.append(Metric("count", COUNT, client, len(metrics) + 1, MetricKind.GAUGE))
    return metrics


def _rows(  # noqa: PLR0917  # a place, and what is there
    group: str, table: Table[SourceT], tags: Mapping[str, str], source: SourceT
) -> Iterator[Metric]:
    for name, read in table.items():
        kind = MetricKind.COUNTER if name.endswith("-total") else MetricKind.GAUGE
        yield Metric(name, group, tags, read(source), kind)
