"""The results of `Producer.statistics()` and `Producer.metrics()`.

Nothing is computed per record: components count per batch, request or response, and gauges are read on demand.

Source: org.apache.kafka.clients.producer.internals.{SenderMetricsRegistry,BufferPool},
org.apache.kafka.common.network.Selector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerStatistics:
    """The result of `Producer.statistics()`: an immutable snapshot. Totals count from the producer's start."""

    client_id: str
    """The producer's name: `client_id` of its configuration, or the generated one."""

    records_sent: int = 0
    """Records accepted into a batch. Kafka: record-send-total, which counts at the request."""

    records_acknowledged: int = 0
    """Records that the broker acknowledged, or with `acks=0`, whose bytes have left."""

    records_failed: int = 0
    """Records that failed, in a batch or while they waited for memory or their topic.

    Not those that a call refuses. Kafka: record-error-total, which counts them too.
    """

    records_retried: int = 0
    """Records of batches that were sent again. Kafka: record-retry-total."""

    records_filtered: int = 0
    """Records dropped by an interceptor."""

    records_pending: int = 0
    """Records in a batch, neither acknowledged nor failed."""

    records_waiting: int = 0
    """Records that wait for an asynchronous serializer, metadata or memory. Kafka: waiting-threads."""

    waiting_bytes: int = 0
    """The most bytes that the waiting records can take in batches; 0 for a record that is not serialized yet."""

    batches_sent: int = 0
    """Batches acknowledged."""

    batches_split: int = 0
    """Batches that a broker refused as too large, and that were divided and sent again. Kafka: batch-split-total."""

    batch_bytes: int = 0
    """Bytes of acknowledged batches, compressed as they were sent."""

    buffer_total_bytes: int = 0
    """`buffer_memory`. Kafka: buffer-total-bytes."""

    buffer_available_bytes: int = 0
    """Free plus unallocated. Kafka: buffer-available-bytes."""

    buffer_free_bytes: int = 0
    """Bytes of chunks kept for reuse."""

    buffer_unallocated_bytes: int = 0
    """Bytes neither in use nor in chunks."""

    buffer_exhausted: int = 0
    """Records dropped because the buffer was full: refused at once, or after waiting `max_block_ms` for memory.

    Kafka: buffer-exhausted-total.
    """

    requests_sent: int = 0
    """Requests handed to a connection, of all kinds. Kafka: request-total."""

    responses_received: int = 0
    """Responses read from brokers, to requests of all kinds. Kafka: response-total."""

    request_latency_total_s: float = 0.0
    """Seconds from handing a request to a connection until its response, summed over `responses_received`.

    Unlike Kafka's request-latency-avg, with requests of all kinds.
    """

    requests_in_flight: int = 0
    """Requests without a response yet, of all kinds and to all brokers. Kafka: requests-in-flight."""

    requests_in_flight_by_node: Mapping[int, int] = field(default_factory=dict)
    """Requests without a response yet, of all kinds, by node id."""

    bytes_sent: int = 0
    """Bytes written to all brokers. Kafka: outgoing-byte-total."""

    bytes_received: int = 0
    """Bytes read from all brokers. Kafka: incoming-byte-total."""

    connections: int = 0
    """Open connections. Kafka: connection-count."""

    connections_created: int = 0
    """Connections that were opened since the start. Kafka: connection-creation-total."""

    connections_closed: int = 0
    """Connections that were closed since the start, by either side. Kafka: connection-close-total."""

    connection_failures: int = 0
    """Failed attempts to connect."""

    authentications: int = 0
    """Connections that were authenticated. Kafka: successful-authentication-total."""

    authentication_failures: int = 0
    """Connections whose authentication failed. Kafka: failed-authentication-total."""

    reauthentications: int = 0
    """Sessions that were renewed on an open connection. Kafka: successful-reauthentication-total."""

    reauthentication_failures: int = 0
    """Renewals that failed. Kafka: failed-reauthentication-total."""

    reauthentication_latency_total_s: float = 0.0
    """Seconds that renewals took, summed over `reauthentications`.

    Kafka: reauthentication-latency-avg, which is their quotient over the last minute.
    """

    metadata_age_s: float | None = None
    """Seconds since the last metadata response, `None` before the first. Kafka: metadata-age."""

    metadata_error: str | None = None
    """Error of the last request for metadata, `None` if it succeeded."""

    interceptor_failures: int = 0
    """Number of exceptions that interceptors raised."""

    transactions_committed: int = 0
    """Transactions that the broker has committed."""

    transactions_aborted: int = 0
    """Aborted transactions, including failed ones."""

    commit_total_s: float = 0.0
    """Seconds from the call to the broker's response, summed over `transactions_committed`.

    Kafka: txn-commit-time-ns-total.
    """

    abort_total_s: float = 0.0
    """As `commit_total_s`, of aborts. Kafka: txn-abort-time-ns-total."""

    delivery_latency_p50_s: float | None = None
    """Half of the acknowledged records took no longer, from the call of their batch's oldest record to its response.

    `None` before the first.
    """

    delivery_latency_p99_s: float | None = None
    """99 of 100 acknowledged records took no longer."""


class Health(NamedTuple):
    """The result of `Producer.health()`: whether records can be sent now."""

    is_ready: bool
    """Whether the producer runs and its brokers answered last; also while its buffer is full."""

    reason: str
    """Why not; empty if it is ready. Names brokers and errors, nothing secret."""


class MetricKind(Enum):
    """How the value of a metric changes, and so what a collector makes of it."""

    COUNTER = "counter"
    """Only grows, from the producer's start: rates are computed from two readings."""

    GAUGE = "gauge"
    """The current value; Kafka's averages, maxima and rates are of the last minute."""

    HISTOGRAM = "histogram"
    """A `HistogramValue`."""

    INFO = "info"
    """Text that does not change."""


@dataclass(frozen=True, slots=True)
class HistogramValue:
    """Counts of values in buckets, since the start of the producer."""

    bounds: tuple[float, ...]
    """Upper bounds of the buckets, each included, ascending."""

    counts: tuple[int, ...]
    """Values in each bucket; one more than `bounds`, for all that are larger."""

    total: float
    """Sum of the values."""

    largest: float
    """The largest value; 0.0 before the first."""

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """Average of the values; 0.0 before the first."""
        count = self.count
        return self.total / count if count else 0.0


MetricValue: TypeAlias = float | str | HistogramValue


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of `Producer.metrics()`."""

    name: str
    """Kafka's name, such as `record-send-total`, or one of our own in its style."""

    group: str
    """Kafka's group: `producer-metrics`, `producer-node-metrics`, `producer-topic-metrics`, `kafka-metrics-count`,
    `app-info`; or `aioproducer-metrics`, for what Kafka does not have."""

    tags: Mapping[str, str]
    """`client-id`, and `node-id` or `topic`."""

    value: MetricValue
    """A number in Kafka's unit (see the name's last part), a text, or a histogram."""

    kind: MetricKind
    """The kind of value."""
