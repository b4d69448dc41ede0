"""An interceptor that traces each record: a span `send {topic}`, whose context travels in the record's headers.

The names are those of the semantic conventions for messaging with Kafka, 1.44, which are in development: they stand in
one table, `NAMES`. Only the API of OpenTelemetry is used; without an SDK nothing is recorded, and records go as before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, NamedTuple

from opentelemetry import metrics, propagate, trace
from opentelemetry.context import get_current
from opentelemetry.propagators.textmap import Setter
from opentelemetry.trace import Link, SpanKind, StatusCode

from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._version import VERSION
from aioproducer.errors import BrokerError
from aioproducer.interceptors import ProducerInterceptor
from aioproducer.records import with_headers

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider
    from opentelemetry.util.types import AttributeValue

    from aioproducer.cluster import Cluster
    from aioproducer.records import Headers, ProducerRecord, RecordMetadata, TopicPartition

    _Attributes = dict[str, AttributeValue]


class Names(NamedTuple):
    """The names of the conventions."""

    system: str = "messaging.system"
    operation_name: str = "messaging.operation.name"
    operation_type: str = "messaging.operation.type"
    destination: str = "messaging.destination.name"
    partition: str = "messaging.destination.partition.id"
    client_id: str = "messaging.client.id"
    batch_count: str = "messaging.batch.message_count"
    key: str = "messaging.kafka.message.key"
    tombstone: str = "messaging.kafka.message.tombstone"
    offset: str = "messaging.kafka.offset"
    cluster_id: str = "messaging.kafka.cluster.id"
    server_address: str = "server.address"
    server_port: str = "server.port"
    error_type: str = "error.type"
    sent_messages: str = "messaging.client.sent.messages"
    duration: str = "messaging.client.operation.duration"


NAMES: Final = Names()
DURATIONS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""The buckets that the conventions advise."""

_OFFSET: Final = NAMES.offset
_PARENT: Final = "traceparent"
_MAX_KNOWN: Final = 10_000  # topics, and partitions, whose attributes are kept


class _Topic:
    """Name and attributes of all spans of a topic."""

    __slots__ = ("attributes", "name")

    def __init__(self, send: _Attributes, topic: str) -> None:
        self.name = f"send {topic}"
        self.attributes: _Attributes = {**send, NAMES.destination: topic}


class _Place:
    """Attributes of all records of a partition: of their spans, and of the metrics."""

    __slots__ = ("delivered", "measured", "traced")

    def __init__(self, topic: _Topic, cluster: Cluster | None, where: tuple[str, int]) -> None:
        self.delivered = 0  # records that the counter does not have yet
        traced: _Attributes = {NAMES.partition: str(where[1])} if where[1] >= 0 else {}
        leader = None if cluster is None else cluster.leader_of(*where)
        if cluster is not None and leader is not None:
            node = cluster.nodes[leader]
            traced |= {NAMES.server_address: node.host, NAMES.server_port: node.port}
        self.measured: _Attributes = {**topic.attributes, **traced}
        if cluster is not None and cluster.cluster_id is not None:
            traced[NAMES.cluster_id] = cluster.cluster_id
        self.traced = traced


class _Open(NamedTuple):
    """A record that has not ended."""

    span: Span
    bulk: _Bulk | None
    mark: object  # the value of a header; kept, so that no other object gets its id
    began_at: float


class _Bulk:
    """One `send_many` or `send_arrow`: its span ends with the last of its records."""

    __slots__ = ("began_at", "error_type", "failed", "is_given", "left", "records", "span", "topic")

    def __init__(self, span: Span, topic: str) -> None:
        self.span = span
        self.topic = topic
        self.began_at = time.perf_counter()
        self.records = self.left = self.failed = 0
        self.error_type = ""  # of the last record that failed
        self.is_given = False  # the call has returned: no more records follow


class _Carrier(Setter[list[tuple[str, bytes]]]):
    def set(self, carrier: list[tuple[str, bytes]], key: str, value: str) -> None:
        carrier.append((key, value.encode()))


_CARRIER: Final = _Carrier()
_BULK: Final[ContextVar[_Bulk | None]] = ContextVar("aioproducer_bulk", default=None)


class OpenTelemetryInterceptor(ProducerInterceptor):
    """Traces the records of one producer: `Producer(..., interceptors=[OpenTelemetryInterceptor()])`.

    A record's span begins with its call, as a child of the current one, and ends with its acknowledgement or error. The
    context goes into its headers by the global propagator (W3C `traceparent` and baggage unless set otherwise), except
    where the caller has put a `traceparent`: that one stays, and the span links to it. One `send_many` or `send_arrow`
    has one span. Put it last: an interceptor behind it must not remove its headers.

    Args:
        tracer_provider: None is the global one.
        meter_provider: None is the global one.
        with_keys: put keys that are text or UTF-8 into spans; they may be personal data.
        with_create_spans: give each record of a `send_many` a span "create {topic}" of its own, and its context.

    Raises:
        ModuleNotFoundError: the extra `otel` is not installed; raised by the import.
        TypeError: an argument of another type.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        with_keys: bool = False,
        with_create_spans: bool = False,
    ) -> None:
        _check_provider("tracer_provider", tracer_provider, "get_tracer")
        _check_provider("meter_provider", meter_provider, "get_meter")
        for name, value in (("with_keys", with_keys), ("with_create_spans", with_create_spans)):
            if not isinstance(value, bool):
                raise TypeError(f"{name} must be a bool, not {type(value).__name__}")
        self._tracer = trace.get_tracer("aioproducer", VERSION, tracer_provider)
        meter = metrics.get_meter("aioproducer", VERSION, meter_provider)
        self._sent = meter.create_counter(NAMES.sent_messages, "{message}", "Messages that were sent.")
        self._duration = meter.create_histogram(
            NAMES.duration, "s", "Duration of sending.", explicit_bucket_boundaries_advisory=DURATIONS_S
        )
        self._with_keys = with_keys
        self._with_create_spans = with_create_spans
        self._open: dict[int, _Open] = {}
        self._base: _Attributes = {NAMES.system: "kafka"}
        self._send: _Attributes = {**self._base, NAMES.operation_name: "send", NAMES.operation_type: "send"}
        self._cluster: Callable[[], Cluster] | None = None
        self._seen: Cluster | None = None
        self._topics: dict[str, _Topic] = {}
        self._places: dict[tuple[str, int], _Place] = {}
        self._uncounted: list[_Place] = []  # with records that the counter does not have yet

    # Called by the producer

    def on_start(self, client_id: str, cluster: Callable[[], Cluster]) -> None:
        """Take the producer's name, and the view of its cluster."""
        self._base = {**self._base, NAMES.client_id: client_id}
        self._send = {**self._send, NAMES.client_id: client_id}
        self._topics.clear()
        self._cluster = cluster

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Begin the record's span, and put its context into the headers."""
        bulk, current = _BULK.get(), get_current()  # looked up once: each call of the API would do so again
        given = _parent_in(record.headers) if record.headers else None
        span = self._begin(record, given, current) if bulk is None else self._begin_in(bulk, record)
        if given is not None:
            mark, headers = _own_copy(record.headers, given)
        else:
            added: list[tuple[str, bytes]] = []
            propagate.inject(added, trace.set_span_in_context(span, current), _CARRIER)
            if not added:  # no SDK
                return record if bulk is None else self._untraced(bulk, record)
            mark, headers = added[0][1], (*record.headers, *added)
        self._open[id(mark)] = _Open(span, bulk, mark, time.perf_counter())
        return with_headers(record, headers)

    @contextmanager
    def around_many(self, topic: str) -> Iterator[None]:
        """Enclose the records of one `send_many` or `send_arrow` in one span."""
        known = self._topic(topic)
        span = self._tracer.start_span(known.name, kind=SpanKind.PRODUCER, attributes=known.attributes)
        bulk = _Bulk(span, topic)
        token = _BULK.set(bulk)
        try:
            yield
        finally:
            _BULK.reset(token)
            bulk.is_given = True
            self._end_if_over(bulk)

    def on_acknowledgement(self, metadata: RecordMetadata, headers: Headers) -> None:
        """End the record's span with its place in the log."""
        ended = self._take(headers)
        place = self._place_of(metadata.topic, metadata.partition)
        self._count_delivered(place)
        if ended is None:
            return
        span, bulk, _, began_at = ended
        if bulk is not None:
            bulk.left -= 1
            self._end_if_over(bulk)
            return
        self._duration.record(time.perf_counter() - began_at, place.measured)
        span.set_attributes({**place.traced, _OFFSET: metadata.offset})
        span.end()

    def on_error(self, topic_partition: TopicPartition, error: Exception, headers: Headers) -> None:
        """End the record's span with its error."""
        ended, kind = self._take(headers), _type_of(error)
        place = self._place_of(*topic_partition)
        measured = {**place.measured, NAMES.error_type: kind}
        self._sent.add(1, measured)
        if ended is None:
            return
        if ended.bulk is None:
            self._duration.record(time.perf_counter() - ended.began_at, measured)
        else:
            ended.bulk.left -= 1
            ended.bulk.failed += 1
            ended.bulk.error_type = kind
            ended.bulk.span.set_attribute(NAMES.error_type, kind)
            self._end_if_over(ended.bulk)
            return
        ended.span.set_attributes({**place.traced, NAMES.error_type: kind})
        ended.span.set_status(StatusCode.ERROR, str(error))
        ended.span.end()

    def close(self) -> None:
        """End the spans of records whose headers another interceptor has removed."""
        try:
            self._add_delivered()
        finally:
            left, self._open = self._open, {}
            for each in left.values():
                if each.span.is_recording():  # that of a bulk ends once
                    each.span.end()

    # The counter: one call for the records of a batch, since each call costs a third of a span

    def _count_delivered(self, place: _Place) -> None:
        place.delivered += 1
        if place.delivered > 1:
            return
        self._uncounted.append(place)
        if len(self._uncounted) > 1:
            return
        try:
            asyncio.get_running_loop().call_soon(self._add_delivered)
        except RuntimeError:  # no loop: a test calls the interceptor
            self._add_delivered()

    def _add_delivered(self) -> None:
        uncounted, self._uncounted = self._uncounted, []
        failed: Exception | None = None
        for place in uncounted:
            delivered, place.delivered = place.delivered, 0
            try:
                self._sent.add(delivered, place.measured)
            except Exception as error:  # noqa: BLE001  # of the application's meter: the other places count all the same
                failed = error
        if failed is not None:
            raise failed

    # Spans

    def _begin(self, record: ProducerRecord, given: bytes | None, current: Context) -> Span:
        topic = self._topic(record.topic)
        attributes = topic.attributes
        if record.partition is not None or record.value is None or self._with_keys:
            attributes = dict(attributes)
            if record.partition is not None:
                attributes[NAMES.partition] = str(record.partition)
            self._add_contents(attributes, record)
        links = None if given is None else _links_to(given)
        return self._tracer.start_span(topic.name, current, SpanKind.PRODUCER, attributes, links)

    def _begin_in(self, bulk: _Bulk, record: ProducerRecord) -> Span:
        """Count a record of a bulk; its span is that of the bulk, or one of its own that ends at once."""
        bulk.records += 1
        bulk.left += 1
        if not self._with_create_spans:
            return bulk.span
        attributes = {**self._base, NAMES.destination: record.topic}
        attributes |= {NAMES.operation_name: "create", NAMES.operation_type: "create"}
        self._add_contents(attributes, record)
        span = self._tracer.start_span(f"create {record.topic}", kind=SpanKind.PRODUCER, attributes=attributes)
        bulk.span.add_link(span.get_span_context())
        span.end()
        return span

    def _untraced(self, bulk: _Bulk, record: ProducerRecord) -> ProducerRecord:
        bulk.left -= 1
        return record

    def _add_contents(self, attributes: _Attributes, record: ProducerRecord) -> None:
        if record.value is None:
            attributes[NAMES.tombstone] = True
        if self._with_keys and (text := _text_of(record.key)) is not None:
            attributes[NAMES.key] = text

    def _end_if_over(self, bulk: _Bulk) -> None:
        if not bulk.is_given or bulk.left:
            return
        bulk.span.set_attribute(NAMES.batch_count, bulk.records)
        measured = self._topic(bulk.topic).attributes
        if bulk.failed:
            bulk.span.set_status(StatusCode.ERROR, f"{bulk.failed} of {bulk.records} records failed")
            measured = {**measured, NAMES.error_type: bulk.error_type}
        self._duration.record(time.perf_counter() - bulk.began_at, measured)
        bulk.span.end()

    def _take(self, headers: Headers) -> _Open | None:
        for _, value in reversed(headers):
            found = self._open.pop(id(value), None)
            if found is not None:
                return found
        return None

    # What is the same for many records

    def _topic(self, name: str) -> _Topic:
        found = self._topics.get(name)
        if found is None:
            if len(self._topics) >= _MAX_KNOWN:
                self._topics.clear()
            found = self._topics[name] = _Topic(self._send, name)
        return found

    def _place_of(self, topic: str, partition: int) -> _Place:
        cluster = self._cluster() if self._cluster is not None else None
        if cluster is not self._seen or len(self._places) >= _MAX_KNOWN:
            self._seen = cluster
            self._places.clear()
        found = self._places.get((topic, partition))
        if found is None:
            where = topic, partition
            found = self._places[where] = _Place(self._topic(topic), cluster, where)
        return found


def _check_provider(name: str, provider: object, method: str) -> None:
    if provider is not None and (isinstance(provider, type) or not callable(getattr(provider, method, None))):
        kind = "TracerProvider" if name == "tracer_provider" else "MeterProvider"
        raise TypeError(f"{name} must be a {kind} or None, not {type(provider).__name__}")


def _parent_in(headers: Headers) -> bytes | None:
    return next((value for name, value in headers if name == _PARENT), None)


def _type_of(error: Exception) -> str:
    code = ErrorCode.of(error.code) if isinstance(error, BrokerError) else None
    return type(error).__qualname__ if code is None else code.name


def _own_copy(headers: Headers, given: bytes) -> tuple[bytes, Headers]:
    """Return the caller's `traceparent` as an object of its own, by which the record is found again."""
    mark = bytes(bytearray(given))
    return mark, tuple((name, mark if value is given and name == _PARENT else value) for name, value in headers)


def _links_to(given: bytes) -> list[Link]:
    """Return a link to the context of a caller's `traceparent`; none if it is invalid."""
    context = propagate.extract({_PARENT: given.decode("latin-1")})
    found = trace.get_current_span(context).get_span_context()
    return [Link(found)] if found.is_valid else []


def _text_of(key: object) -> str | None:
    if isinstance(key, str):
        return key
    if isinstance(key, bytes):
        try:
            return key.decode()
        except UnicodeDecodeError:
            return None
    return None
