"""An interceptor that traces each record: a span `send {topic}`, whose context travels in the record's headers.

Names and rules are those of the semantic conventions for messaging with Kafka, 1.44, which are in development:
docs/how-to/observe.md goes through them one by one. Only the API of OpenTelemetry is used; without an SDK nothing is
recorded, and records go as before.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from opentelemetry import metrics, propagate, trace
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, Context, get_current
from opentelemetry.propagators.textmap import Setter
from opentelemetry.trace import Link, SpanKind, StatusCode

from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._version import VERSION
from aioproducer.errors import BrokerError, KafkaError
from aioproducer.interceptors import ProducerInterceptor, entered_for
from aioproducer.records import WatchedRecord, with_headers

if TYPE_CHECKING:
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
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
DURATIONS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""The buckets that the conventions advise."""

_PARENT: Final = "traceparent"
_MAX_KNOWN: Final = 10_000  # topics, and partitions, whose attributes are kept
_SUPPRESSED_BY_HAND: Final = "suppress_instrumentation"  # the SDK's exporters set the other key alone


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


class _Began:
    """When an operation began, so that its span and its duration agree."""

    __slots__ = ("_at", "ns")

    def __init__(self) -> None:
        self.ns = time.time_ns()
        self._at = time.perf_counter_ns()

    def passed_ns(self) -> int:
        return time.perf_counter_ns() - self._at


class _Bulk:
    """One `send_many` or `send_arrow`: its span ends with the last of its records."""

    __slots__ = (
        *("began", "contents", "context", "error_type", "failed", "injected", "is_given", "left", "links", "on_end"),
        *("places", "records", "span", "topic"),
    )

    def __init__(self, owner: OpenTelemetryInterceptor, topic: str, context: Context) -> None:
        self.topic = topic
        self.context = context  # of the call
        self.on_end = partial(owner._end_in, self)  # noqa: SLF001  # its own records end there
        self.injected: Headers | None = None  # by which all records get the context of the span
        self.began = _Began()
        self.span: Span | None = None  # begins when its kind is known
        self.links: list[Link] = []  # until then
        self.records = self.left = self.failed = 0
        self.contents: _Attributes = {}  # that all records have
        self.places: set[TopicPartition] = set()  # at most two
        self.error_type = ""  # of the last record that failed
        self.is_given = False  # the call has returned: no more records follow

    def add(self, contents: _Attributes) -> None:
        if not self.records:
            self.contents = contents
        elif self.contents and self.contents != contents:
            self.contents = dict(self.contents.items() & contents.items())
        self.records += 1
        self.left += 1

    def link(self, link: Link) -> None:
        if self.span is None:
            self.links.append(link)
        else:
            self.span.add_link(link.context, link.attributes)


class _Carrier(Setter[list[tuple[str, bytes]]]):
    def set(self, carrier: list[tuple[str, bytes]], key: str, value: str) -> None:
        carrier.append((key, value.encode()))


_CARRIER: Final = _Carrier()


class OpenTelemetryInterceptor(ProducerInterceptor):
    """Traces records: `Producer(..., interceptors=[OpenTelemetryInterceptor()])`.

    A record's span begins with its call, as a child of the current one, and ends with its acknowledgement or error. The
    context goes into its headers by the global propagator (W3C `traceparent` and baggage unless set otherwise), except
    where the caller has put a context there: that one stays, and the span links to it. One `send_many` or `send_arrow`
    has one span. Nothing is recorded within OpenTelemetry's `suppress_instrumentation()`.

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
        self._tracer = trace.get_tracer("aioproducer", VERSION, tracer_provider, SCHEMA_URL)
        meter = metrics.get_meter("aioproducer", VERSION, meter_provider, SCHEMA_URL)
        self._sent = meter.create_counter(
            NAMES.sent_messages, "{message}", "Number of messages producer attempted to send to the broker."
        )
        self._duration = meter.create_histogram(
            NAMES.duration,
            "s",
            "Duration of messaging operation initiated by a producer or consumer client.",
            explicit_bucket_boundaries_advisory=DURATIONS_S,
        )
        self._with_keys = with_keys
        self._with_create_spans = with_create_spans
        self._know_nothing()

    def _know_nothing(self) -> None:
        """Begin with no producer."""
        self._send: _Attributes = {NAMES.system: "kafka", NAMES.operation_name: "send", NAMES.operation_type: "send"}
        self._cluster: Callable[[], Cluster] | None = None
        self._seen: Cluster | None = None
        self._topics: dict[str, _Topic] = {}
        self._places: dict[tuple[str, int], _Place] = {}
        self._uncounted: list[_Place] = []  # with records that the counter does not have yet

    # Called by the producer

    def for_producer(self) -> Self:
        """Return a copy, which has the producer's name and cluster."""
        own = copy.copy(self)
        own._know_nothing()  # noqa: SLF001  # of a copy of this object
        return own

    def on_start(self, client_id: str, cluster: Callable[[], Cluster]) -> None:
        """Take the producer's name, and the view of its cluster."""
        self._send = {**self._send, NAMES.client_id: client_id}
        self._topics.clear()
        self._cluster = cluster

    def on_send(self, record: ProducerRecord) -> ProducerRecord | WatchedRecord:
        """Begin the record's span, and put its context into the headers."""
        current = get_current()  # looked up once: each call of the API would do so again
        if _is_suppressed(current):
            return record
        given = _context_in(record.headers) if record.headers else None
        bulk = entered_for(record, self)
        if isinstance(bulk, _Bulk):
            return WatchedRecord(self._take_in(bulk, record, given), bulk.on_end)
        began = _Began()
        span = self._begin(record, given, current=current, began=began)
        watched = record if given is not None else _with(record, _injected(span, current))
        return WatchedRecord(watched, partial(self._end, span, began))

    @contextmanager
    def around_many(self, topic: str) -> Iterator[object]:
        """Enclose the records of one `send_many` or `send_arrow` in one span."""
        current = get_current()
        if _is_suppressed(current):
            yield None
            return
        bulk = _Bulk(self, topic, current)
        try:
            yield bulk
        finally:
            bulk.is_given = True
            self._end_if_over(bulk)

    def close(self) -> None:
        """Count what the counter does not have yet."""
        self._add_delivered()

    # The end of a record

    def _end(  # noqa: PLR0917  # what it began with, and how it ended
        self, span: Span, began: _Began, where: TopicPartition, metadata: RecordMetadata | None, error: Exception | None
    ) -> None:
        place, passed_ns = self._place_of(*where), began.passed_ns()
        measured = place.measured
        ended: _Attributes = dict(place.traced)
        if metadata is not None and metadata.offset >= 0:  # not known with acks=0
            ended[NAMES.offset] = metadata.offset
        if error is None:
            self._count_delivered(place)
        else:
            ended[NAMES.error_type] = kind = _type_of(error)
            measured = self._count_failed(place, kind, error)
            span.set_status(StatusCode.ERROR, str(error))
        self._duration.record(passed_ns / 1e9, measured)
        span.set_attributes(ended)
        span.end(began.ns + passed_ns)

    def _end_in(  # as `_end`
        self, bulk: _Bulk, where: TopicPartition, _metadata: RecordMetadata | None, error: Exception | None
    ) -> None:
        place = self._place_of(*where)
        if where not in bulk.places and len(bulk.places) <= 1:
            bulk.places.add(where)
        if error is None:
            self._count_delivered(place)
        else:
            bulk.failed += 1
            bulk.error_type = _type_of(error)
            self._count_failed(place, bulk.error_type, error)
        bulk.left -= 1
        self._end_if_over(bulk)

    def _end_if_over(self, bulk: _Bulk) -> None:
        if not bulk.is_given or bulk.left:
            return
        span = self._send_span(bulk, SpanKind.CLIENT)
        ended: _Attributes = {**bulk.contents, NAMES.batch_count: bulk.records}
        measured = self._topic(bulk.topic).attributes
        if len(bulk.places) == 1:
            place = self._place_of(*next(iter(bulk.places)))
            measured, ended = place.measured, {**place.traced, **ended}
        if bulk.failed:
            ended[NAMES.error_type] = bulk.error_type
            measured = {**measured, NAMES.error_type: bulk.error_type}
            span.set_status(StatusCode.ERROR, f"{bulk.failed} of {bulk.records} records failed")
        passed_ns = bulk.began.passed_ns()
        self._duration.record(passed_ns / 1e9, measured)
        span.set_attributes(ended)
        span.end(bulk.began.ns + passed_ns)

    # The counter: one call for the records of a batch, since each call costs a third of a span

    def _count_failed(self, place: _Place, kind: str, error: Exception) -> _Attributes:
        """Count a record that failed, unless it was never sent; return the attributes of what failed."""
        measured = {**place.measured, NAMES.error_type: kind}
        if isinstance(error, KafkaError) and error.attempts:
            self._sent.add(1, measured)
        return measured

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

    def _begin(self, record: ProducerRecord, given: list[Link] | None, *, current: Context, began: _Began) -> Span:
        topic = self._topic(record.topic)
        attributes = topic.attributes
        if record.partition is not None or record.value is None or self._with_keys:
            attributes = {**attributes, **self._where(record), **self._contents(record)}
        kind = SpanKind.PRODUCER if given is None else SpanKind.CLIENT
        return self._tracer.start_span(topic.name, current, kind, attributes, given, began.ns)

    def _take_in(self, bulk: _Bulk, record: ProducerRecord, given: list[Link] | None) -> ProducerRecord:
        """Count a record of a bulk, and give it the context of the bulk's span, or of one of its own."""
        contents = self._contents(record)
        bulk.add(contents)
        if given is not None:
            for link in given:
                bulk.link(Link(link.context, contents))
            return record
        if not self._with_create_spans:
            if bulk.injected is None:
                bulk.injected = _injected(self._send_span(bulk, SpanKind.PRODUCER), bulk.context)
            return _with(record, bulk.injected)
        span = self._create_span(record, bulk.context, contents)
        bulk.link(Link(span.get_span_context(), contents))
        span.end()
        return _with(record, _injected(span, bulk.context))

    def _send_span(self, bulk: _Bulk, kind: SpanKind) -> Span:
        """Return the span of a bulk, which begins with a kind: PRODUCER if a record gets its context."""
        if bulk.span is None:
            topic, began_ns = self._topic(bulk.topic), bulk.began.ns
            bulk.span = self._tracer.start_span(topic.name, bulk.context, kind, topic.attributes, bulk.links, began_ns)
        return bulk.span

    def _create_span(self, record: ProducerRecord, current: Context, contents: _Attributes) -> Span:
        attributes: _Attributes = {NAMES.system: "kafka", NAMES.destination: record.topic, **contents}
        attributes |= {NAMES.operation_name: "create", NAMES.operation_type: "create", **self._where(record)}
        attributes.pop(NAMES.cluster_id, None)  # only "send" spans have it
        return self._tracer.start_span(f"create {record.topic}", current, SpanKind.PRODUCER, attributes)

    def _where(self, record: ProducerRecord) -> _Attributes:
        """Return what is known of the place before a partition is chosen."""
        return {} if record.partition is None else self._place_of(record.topic, record.partition).traced

    def _contents(self, record: ProducerRecord) -> _Attributes:
        contents: _Attributes = {NAMES.tombstone: True} if record.value is None else {}
        if self._with_keys and (text := _text_of(record.key)) is not None:
            contents[NAMES.key] = text
        return contents

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


def _is_suppressed(context: Context) -> bool:
    return bool(context.get(_SUPPRESS_INSTRUMENTATION_KEY) or context.get(_SUPPRESSED_BY_HAND))


def _type_of(error: Exception) -> str:
    code = ErrorCode.of(error.code) if isinstance(error, BrokerError) else None
    return type(error).__qualname__ if code is None else code.name


def _context_in(headers: Headers) -> list[Link] | None:
    """Return a link to the context that the caller has put into the headers: an empty list if it is invalid.

    Returns:
        None if there is none.
    """
    fields = propagate.get_global_textmap().fields
    carrier = {name: value.decode("latin-1") for name, value in headers if value is not None and name in fields}
    if not carrier:
        return None
    found = trace.get_current_span(propagate.extract(carrier, Context())).get_span_context()
    if found.is_valid:
        return [Link(found)]
    return [] if _PARENT in carrier else None


def _injected(span: Span, current: Context) -> Headers:
    """Return the headers with a span's context; empty without an SDK, or with a propagator that injects nothing."""
    added: list[tuple[str, bytes]] = []
    propagate.inject(added, trace.set_span_in_context(span, current), _CARRIER)
    return tuple(added)


def _with(record: ProducerRecord, added: Headers) -> ProducerRecord:
    return with_headers(record, (*record.headers, *added)) if added else record


def _text_of(key: object) -> str | None:
    if isinstance(key, str):
        return key
    if isinstance(key, bytes):
        try:
            return key.decode()
        except UnicodeDecodeError:
            return None
    return None
