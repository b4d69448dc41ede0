"""Spans of records, with the SDK of OpenTelemetry."""

import asyncio
import dataclasses
from collections.abc import Sequence

import aiokafka
import pyarrow as pa
import pytest
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.metrics import Counter
from opentelemetry.propagators.textmap import CarrierT, Setter, TextMapPropagator, default_setter
from opentelemetry.sdk.metrics.export import HistogramDataPoint, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, StatusCode, format_trace_id
from opentelemetry.util.types import AttributeValue
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aioproducer import (
    BlockingProducer,
    BrokerError,
    KafkaError,
    MetadataTimeoutError,
    Producer,
    ProducerInterceptor,
    ProducerRecord,
    RecordFilteredError,
    RecordMetadata,
    RecordTooLargeError,
    TopicPartition,
    WatchedRecord,
)
from aioproducer.integrations.opentelemetry import OpenTelemetryInterceptor
from aioproducer.integrations.opentelemetry.interceptor import DURATIONS_S, NAMES, SCHEMA_URL
from aioproducer.testing import ApiKey, ErrorCode, FakeCluster, Where
from tests.fakes.asgi_server import client_of
from tests.fakes.producing import cluster_elsewhere
from tests.integrations.opentelemetry_tracing import Tracing, recorded, traceparent

tracing = pytest.fixture(recorded, name="tracing")


async def test_record_has_a_span_and_its_context(one_broker: FakeCluster, tracing: Tracing) -> None:
    interceptor = tracing.interceptor()
    async with Producer(one_broker.bootstrap_servers, client_id="web", interceptors=[interceptor]) as producer:
        with tracing.tracers.get_tracer("test").start_as_current_span("request"):
            metadata = await producer.send("orders", b"x", partition=1, key=b"secret", headers=[("a", b"b")])
        host, _, port = one_broker.bootstrap_servers.rpartition(":")

    sent, request = tracing.spans
    assert (sent.name, sent.kind, sent.parent) == ("send orders", SpanKind.PRODUCER, request.context)
    assert dict(sent.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "1",
        "messaging.client.id": "web",
        "messaging.kafka.offset": metadata.offset,
        "messaging.kafka.cluster.id": "aioproducer-fake-cluster",
        "server.address": host,
        "server.port": int(port),
    }
    assert one_broker.records("orders", 1)[0].headers == (("a", b"b"), ("traceparent", traceparent(sent)))


@pytest.mark.parametrize("given", [b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", b"\xff nonsense"])
async def test_header_of_the_caller_stays(one_broker: FakeCluster, tracing: Tracing, given: bytes) -> None:
    async with Producer(one_broker.bootstrap_servers, interceptors=[tracing.interceptor()]) as producer:
        for _ in range(2):
            await producer.send("orders", b"x", partition=0, headers=[("traceparent", given)])

    assert [record.headers for record in one_broker.records("orders", 0)] == [(("traceparent", given),)] * 2
    assert [span.name for span in tracing.spans] == ["send orders"] * 2
    links = [format_trace_id(link.context.trace_id) for span in tracing.spans for link in span.links]
    assert links == ([] if given.startswith(b"\xff") else ["0af7651916cd43dd8448eb211c80319c"] * 2)


async def test_tombstone_and_key_if_asked(one_broker: FakeCluster, tracing: Tracing) -> None:
    async with Producer(one_broker.bootstrap_servers, interceptors=[tracing.interceptor(with_keys=True)]) as producer:
        for key in (b"customer-7", b"\xff", None):
            await producer.send("orders", None, key=key)

    attributes = [dict(span.attributes or {}) for span in tracing.spans]
    assert [each.get(NAMES.key) for each in attributes] == ["customer-7", None, None]
    assert all(each[NAMES.tombstone] for each in attributes)


async def test_errors_of_brokers_and_of_the_call_end_the_span(one_broker: FakeCluster, tracing: Tracing) -> None:
    async with Producer(one_broker.bootstrap_servers, interceptors=[tracing.interceptor()]) as producer:
        one_broker.faults.error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, Where(api=ApiKey.PRODUCE))
        with pytest.raises(BrokerError):
            await producer.send("orders", b"x")
        with pytest.raises(RecordTooLargeError):
            producer.send("orders", b"x" * 2_000_000)

    assert [span.status.status_code for span in tracing.spans] == [StatusCode.ERROR] * 2
    kinds = [dict(span.attributes or {})[NAMES.error_type] for span in tracing.spans]
    assert kinds == ["TOPIC_AUTHORIZATION_FAILED", "RecordTooLargeError"]
    durations = [attributes.get(NAMES.error_type) for attributes, _ in tracing.points(NAMES.duration)]
    assert set(durations) == set(kinds)
    sent = [attributes.get(NAMES.error_type) for attributes, _ in tracing.points(NAMES.sent_messages)]
    assert sent == ["TOPIC_AUTHORIZATION_FAILED"]


async def test_many_records_have_one_span(one_broker: FakeCluster, tracing: Tracing) -> None:
    table = pa.table({"value": pa.array([b"x", b"y"])})
    async with Producer(one_broker.bootstrap_servers, interceptors=[tracing.interceptor()]) as producer:
        await (await producer.send_many("orders", [b"a", b"b", b"c"], partition=0))
        await (await producer.send_arrow("orders", table))
        await (await producer.topic("orders", value=bytes).send_many([b"d"]))

    assert [span.name for span in tracing.spans] == ["send orders"] * 3
    assert [dict(span.attributes or {})[NAMES.batch_count] for span in tracing.spans] == [3, 2, 1]
    first = {record.headers for record in one_broker.records("orders", 0)[:3]}
    assert first == {(("traceparent", traceparent(tracing.spans[0])),)}
    assert sum(point.count for _, point in tracing.points(NAMES.duration) if isinstance(point, HistogramDataPoint)) == 3


async def test_records_of_many_have_spans_of_their_own_if_asked(one_broker: FakeCluster, tracing: Tracing) -> None:
    options = {"with_create_spans": True}
    async with Producer(one_broker.bootstrap_servers, interceptors=[tracing.interceptor(**options)]) as producer:
        one_broker.faults.error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, Where(api=ApiKey.PRODUCE))
        result = await (await producer.send_many("orders", [b"a", b"b"], partition=0))

    *created, sent = tracing.spans
    assert result.failed == 2
    assert [span.name for span in created] == ["create orders"] * 2
    assert [link.context for link in sent.links] == [span.context for span in created]
    assert [span.kind for span in tracing.spans] == [SpanKind.PRODUCER, SpanKind.PRODUCER, SpanKind.CLIENT]
    assert sent.status.description == "2 of 2 records failed"


async def test_duration_of_many_has_the_type_of_their_error(one_broker: FakeCluster, tracing: Tracing) -> None:
    async with Producer(one_broker.bootstrap_servers, interceptors=[tracing.interceptor()]) as producer:
        await (await producer.send_many("orders", [b"a", b"b"], partition=0))
        one_broker.faults.error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, Where(api=ApiKey.PRODUCE))
        await (await producer.send_many("orders", [b"c", b"d"], partition=0))

    errors = {attributes.get(NAMES.error_type) for attributes, _ in tracing.points(NAMES.duration)}
    assert errors == {None, "TOPIC_AUTHORIZATION_FAILED"}
    assert dict(tracing.spans[1].attributes or {})[NAMES.error_type] == "TOPIC_AUTHORIZATION_FAILED"


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"tracer_provider": 5}, "tracer_provider must be a TracerProvider or None, not int"),
        ({"tracer_provider": TracerProvider}, "tracer_provider must be a TracerProvider or None, not ABCMeta|type"),
        ({"meter_provider": "otlp"}, "meter_provider must be a MeterProvider or None, not str"),
        ({"with_keys": "no"}, "with_keys must be a bool, not str"),
        ({"with_create_spans": None}, "with_create_spans must be a bool, not NoneType"),
    ],
)
def test_invalid_argument_is_named(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        OpenTelemetryInterceptor(**wrong)  # type: ignore[arg-type]


async def test_metrics_have_the_names_and_buckets_of_the_conventions(one_broker: FakeCluster, tracing: Tracing) -> None:
    async with Producer(one_broker.bootstrap_servers, client_id="m", interceptors=[tracing.interceptor()]) as producer:
        await producer.send("orders", b"x", partition=0)

    ((attributes, point),) = tracing.points(NAMES.duration)
    assert isinstance(point, HistogramDataPoint)
    assert (point.count, tuple(point.explicit_bounds)) == (1, DURATIONS_S)
    assert attributes.keys() >= {NAMES.system, NAMES.destination, NAMES.client_id, NAMES.partition, NAMES.server_port}
    assert len(tracing.points(NAMES.sent_messages)) == 1


def counted(tracing: Tracing) -> float:
    points = [point for _, point in tracing.points(NAMES.sent_messages)]
    return sum(point.value for point in points if isinstance(point, NumberDataPoint))


async def test_counter_has_every_record_of_many_batches(one_broker: FakeCluster, tracing: Tracing) -> None:
    """The records of a batch are added at once, in the next turn of the loop."""
    async with Producer(one_broker.bootstrap_servers, interceptors=[tracing.interceptor()], batch_size=500) as producer:
        for number in range(200):
            await producer.enqueue("orders", b"x", partition=number % 2)
        await producer.flush()
        await asyncio.sleep(0)
        at_once = counted(tracing)
        await producer.send("orders", b"x")

    assert (at_once, counted(tracing)) == (200, 201)


def ended(interceptor: OpenTelemetryInterceptor, partition: int = 0) -> None:
    """Pass a record through the interceptor, and deliver it."""
    watched = interceptor.on_send(ProducerRecord("orders", b"x"))
    assert isinstance(watched, WatchedRecord)
    place = TopicPartition("orders", partition)
    watched.on_end(place, RecordMetadata(*place, place, 7, 0, 0, -1), None)


def test_counter_needs_no_event_loop(tracing: Tracing) -> None:
    """As in a test that calls the interceptor itself."""
    ended(tracing.interceptor())

    assert counted(tracing) == 1


async def test_counter_that_raises_once_has_all_other_partitions(tracing: Tracing) -> None:
    interceptor = tracing.interceptor()
    failing = FailingOnce(vars(interceptor)["_sent"])
    vars(interceptor)["_sent"] = failing
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))

    for _ in range(2):
        for partition in range(3):
            ended(interceptor, partition)
        await asyncio.sleep(0)

    assert counted(tracing) == 5
    assert told == [failing.error]


class FailingOnce:
    """A counter whose first call raises."""

    def __init__(self, counter: Counter) -> None:
        self.error = RuntimeError("exporter")
        self._counter = counter
        self._calls = 0

    def add(self, amount: int, attributes: dict[str, AttributeValue]) -> None:
        self._calls += 1
        if self._calls == 1:
            raise self.error
        self._counter.add(amount, attributes)


class AddsHeader(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return dataclasses.replace(record, headers=(*record.headers, ("added", b"1")))


class DropsHeaders(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return dataclasses.replace(record, headers=())


@pytest.mark.parametrize("other", [AddsHeader(), DropsHeaders()])
async def test_interceptors_behind_it_change_headers(
    one_broker: FakeCluster, tracing: Tracing, other: ProducerInterceptor
) -> None:
    """Even one that removes the context: the span is not found by it."""
    interceptor = tracing.interceptor()
    async with Producer(one_broker.bootstrap_servers, interceptors=[interceptor, other]) as producer:
        await producer.send("orders", b"x")

        assert [span.name for span in tracing.spans] == ["send orders"]


async def test_without_an_sdk_records_go_as_before(one_broker: FakeCluster) -> None:
    interceptor = OpenTelemetryInterceptor(trace.NoOpTracerProvider())
    async with Producer(one_broker.bootstrap_servers, interceptors=[interceptor]) as producer:
        await producer.send("orders", b"x", partition=0)
        await (await producer.send_many("orders", [b"y"], partition=0))

    assert [record.headers for record in one_broker.records("orders", 0)] == [(), ()]


async def test_trace_from_a_request_to_aiokafkas_consumer(one_broker: FakeCluster, tracing: Tracing) -> None:
    """A handler of HTTP sends; the consumer goes on with the context in the headers."""
    tracer = tracing.tracers.get_tracer("test")
    async with Producer(one_broker.bootstrap_servers, interceptors=[tracing.interceptor()]) as producer:

        async def place_order(request: Request) -> Response:
            context = propagate.extract(request.headers)
            with tracer.start_as_current_span("POST /orders", context, kind=SpanKind.SERVER):
                await producer.send("orders", await request.body())
            return Response(status_code=201)

        async with client_of(Starlette(routes=[Route("/orders", place_order, methods=["POST"])])) as client:
            with tracer.start_as_current_span("POST", kind=SpanKind.CLIENT):
                headers: dict[str, str] = {}
                propagate.inject(headers)
                answer = await client.post("/orders", content=b"x", headers=headers)
    assert answer.status_code == 201
    consumer = aiokafka.AIOKafkaConsumer(
        "orders", bootstrap_servers=one_broker.bootstrap_servers, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        record = await consumer.getone()
    finally:
        await consumer.stop()
    carrier = {name: value.decode() for name, value in record.headers}
    with tracer.start_as_current_span("process orders", propagate.extract(carrier), kind=SpanKind.CONSUMER):
        pass

    assert tracing.tree() == ["POST", "  POST /orders", "    send orders", "      process orders"]


OWN = [("traceparent", b"00-11111111111111111111111111111111-2222222222222222-01")]


def links_of(span: ReadableSpan) -> list[str]:
    return [format_trace_id(link.context.trace_id)[:4] for link in span.links]


@pytest.mark.parametrize("with_create_spans", [False, True])
async def test_context_of_the_caller_gets_a_link(
    one_broker: FakeCluster, tracing: Tracing, *, with_create_spans: bool
) -> None:
    """No span has created it: "send" is CLIENT, and there is no "create"."""
    interceptor = tracing.interceptor(with_create_spans=with_create_spans)
    table = pa.table(
        {"value": [b"4"], "headers": [OWN]}, schema=pa.schema([("value", pa.binary()), ("headers", HEADERS)])
    )
    async with Producer(one_broker.bootstrap_servers, interceptors=[interceptor]) as producer:
        await producer.send("orders", b"1", partition=0, headers=OWN)
        await (await producer.send_many("orders", [b"2", b"3"], partition=0, record_headers=[OWN, OWN]))
        await (await producer.send_arrow("orders", table))

    assert [span.name for span in tracing.spans] == ["send orders"] * 3
    assert [span.kind for span in tracing.spans] == [SpanKind.CLIENT] * 3
    assert [links_of(span) for span in tracing.spans] == [["1111"], ["1111", "1111"], ["1111"]]
    assert {record.headers for record in one_broker.records("orders", 0)[:3]} == {tuple(OWN)}


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.mark.parametrize("own_first", [True, False])
async def test_some_records_of_many_have_a_context(
    one_broker: FakeCluster, tracing: Tracing, *, own_first: bool
) -> None:
    """The others have that of "send", which is PRODUCER then, and links to the caller's."""
    headers = [OWN, None] if own_first else [None, OWN]
    async with Producer(one_broker.bootstrap_servers, interceptors=[tracing.interceptor()]) as producer:
        await (await producer.send_many("orders", [b"a", b"b"], partition=0, record_headers=headers))

    (sent,) = tracing.spans
    assert (sent.kind, links_of(sent)) == (SpanKind.PRODUCER, ["1111"])
    sent_headers = [record.headers for record in one_broker.records("orders", 0)]
    assert sorted(sent_headers) == sorted([tuple(OWN), (("traceparent", traceparent(sent)),)])


async def test_baggage_of_the_caller_is_no_context(one_broker: FakeCluster, tracing: Tracing) -> None:
    async with Producer(one_broker.bootstrap_servers, interceptors=[tracing.interceptor()]) as producer:
        await producer.send("orders", b"x", partition=0, headers=[("baggage", b"a=1")])

    (sent,) = tracing.spans
    assert (sent.kind, list(sent.links)) == (SpanKind.PRODUCER, [])
    assert ("traceparent", traceparent(sent)) in one_broker.records("orders", 0)[0].headers


async def test_suppressed_records_leave_no_trace(one_broker: FakeCluster, tracing: Tracing) -> None:
    async with Producer(one_broker.bootstrap_servers, interceptors=[tracing.interceptor()]) as producer:
        with suppress_instrumentation():
            await producer.send("orders", b"x", partition=0)
            await (await producer.send_many("orders", [b"y"], partition=0))
            with pytest.raises(RecordTooLargeError):
                producer.send("orders", b"x" * 2_000_000)

    assert [record.headers for record in one_broker.records("orders", 0)] == [(), ()]
    assert tracing.spans == ()
    assert tracing.points(NAMES.sent_messages) == tracing.points(NAMES.duration) == []


@pytest.mark.slow
def test_spans_exported_through_a_traced_producer_end(tracing: Tracing) -> None:
    """The SDK exports with its own suppression set, which the call of a thread takes to the event loop."""
    with cluster_elsewhere() as cluster:
        producer = BlockingProducer(cluster.bootstrap_servers, interceptors=[tracing.interceptor()])

        class ToKafka(SpanExporter):
            exported = 0

            def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
                self.exported += len(spans)
                for span in spans:
                    producer.send("orders", span.to_json().encode())
                return SpanExportResult.SUCCESS

        exporter = ToKafka()
        processor = BatchSpanProcessor(exporter)
        tracing.tracers.add_span_processor(processor)
        with producer:
            with tracing.tracers.get_tracer("app").start_as_current_span("the only one"):
                pass
            for _ in range(3):
                processor.force_flush()

        stored = cluster.values()

    assert exporter.exported == len(stored) == 1


class Injects(TextMapPropagator):
    """Injects one header, or none."""

    def __init__(self, value: str | None) -> None:
        self._value = value

    @property
    def fields(self) -> set[str]:
        return {"sampled"}

    def inject(
        self,
        carrier: CarrierT,
        context: Context | None = None,  # noqa: ARG002  # of the interface
        setter: Setter[CarrierT] = default_setter,
    ) -> None:
        if self._value is not None:
            setter.set(carrier, "sampled", self._value)

    def extract(self, carrier: object, context: Context | None = None, getter: object = None) -> Context:  # noqa: ARG002
        return context or Context()


@pytest.mark.parametrize("value", ["", "1", "10", None])
async def test_spans_end_whatever_the_propagator_injects(
    one_broker: FakeCluster, tracing: Tracing, value: str | None
) -> None:
    """A record is not found again by its headers."""
    before = propagate.get_global_textmap()
    propagate.set_global_textmap(Injects(value))
    try:
        async with Producer(
            one_broker.bootstrap_servers, linger_ms=50, interceptors=[tracing.interceptor()]
        ) as producer:
            for number in range(6):
                await producer.enqueue("orders", b"%d" % number)
            await (await producer.send_many("orders", [b"a", b"b"]))
    finally:
        propagate.set_global_textmap(before)

    assert [span.name for span in tracing.spans] == ["send orders"] * 7
    assert counted(tracing) == 8


async def test_one_interceptor_in_two_producers_mixes_nothing(one_broker: FakeCluster, tracing: Tracing) -> None:
    interceptor = tracing.interceptor()
    async with (
        Producer(one_broker.bootstrap_servers, client_id="a", interceptors=[interceptor]) as first,
        Producer(one_broker.bootstrap_servers, client_id="b", interceptors=[interceptor]) as second,
    ):
        for producer in (first, second, first):
            await producer.send("orders", b"x")
        await (await first.send_many("orders", [b"y"]))
        failures = [producer.statistics().interceptor_failures for producer in (first, second)]

    assert [dict(span.attributes or {})[NAMES.client_id] for span in tracing.spans] == ["a", "b", "a", "a"]
    assert failures == [0, 0]


async def test_two_interceptors_of_a_producer_have_their_own_spans(one_broker: FakeCluster, tracing: Tracing) -> None:
    other = Tracing()
    interceptors = [tracing.interceptor(), other.interceptor()]
    async with Producer(one_broker.bootstrap_servers, interceptors=interceptors) as producer:
        await producer.send("orders", b"x")
        await (await producer.send_many("orders", [b"y", b"z"]))
    other.tracers.shutdown()

    for each in (tracing, other):
        assert [dict(span.attributes or {}).get(NAMES.batch_count) for span in each.spans] == [None, 2]
    other.meters.shutdown()


async def test_record_that_a_later_interceptor_drops_has_a_span(one_broker: FakeCluster, tracing: Tracing) -> None:
    class Drops(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> None:  # noqa: ARG002  # it looks at none
            return None

    async with Producer(one_broker.bootstrap_servers, interceptors=[tracing.interceptor(), Drops()]) as producer:
        with pytest.raises(RecordFilteredError):
            await producer.send("orders", b"x")

    (sent,) = tracing.spans
    assert dict(sent.attributes or {})[NAMES.error_type] == "RecordFilteredError"
    assert tracing.points(NAMES.sent_messages) == []


async def test_record_that_was_never_sent_is_not_counted(one_broker: FakeCluster, tracing: Tracing) -> None:
    """The conventions forbid it: too large, of an unknown topic, or purged before it left."""
    interceptors = [tracing.interceptor()]
    async with Producer(
        one_broker.bootstrap_servers, interceptors=interceptors, max_block_ms=50, linger_ms=60_000
    ) as producer:
        one_broker.faults.error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Where(api=ApiKey.METADATA), times=None)
        with pytest.raises(MetadataTimeoutError):
            await producer.send("unknown", b"x")
        one_broker.faults.clear()
        purged = await producer.enqueue("orders", b"x")
        producer.purge()
        with pytest.raises(KafkaError):
            await purged

    assert tracing.points(NAMES.sent_messages) == []
    assert len(tracing.spans) == len(tracing.points(NAMES.duration)) == 2


async def test_scope_has_the_url_of_the_conventions(one_broker: FakeCluster, tracing: Tracing) -> None:
    async with Producer(one_broker.bootstrap_servers, interceptors=[tracing.interceptor()]) as producer:
        await producer.send("orders", b"x")

    assert SCHEMA_URL == "https://opentelemetry.io/schemas/1.44.0"
    assert [span.instrumentation_scope.schema_url for span in tracing.spans if span.instrumentation_scope] == [
        SCHEMA_URL
    ]
    assert tracing.meter_schemas() == {SCHEMA_URL}


async def test_duration_is_that_of_the_span(one_broker: FakeCluster, tracing: Tracing) -> None:
    async with Producer(one_broker.bootstrap_servers, interceptors=[tracing.interceptor()]) as producer:
        await (await producer.send_many("orders", [b"x", b"y"]))

    (sent,), ((_, point),) = tracing.spans, tracing.points(NAMES.duration)
    assert isinstance(point, HistogramDataPoint)
    assert point.sum == pytest.approx(((sent.end_time or 0) - (sent.start_time or 0)) / 1e9, abs=1e-6)


async def test_span_of_many_has_what_all_records_share(one_broker: FakeCluster, tracing: Tracing) -> None:
    async with Producer(one_broker.bootstrap_servers, interceptors=[tracing.interceptor(with_keys=True)]) as producer:
        await (await producer.send_many("orders", [None, None], keys=["k", "k"], partition=1))
        await (await producer.send_many("orders", [None, b"x"], keys=["k", "l"], record_headers=[OWN, OWN]))

    one, mixed = (dict(span.attributes or {}) for span in tracing.spans)
    assert (one[NAMES.tombstone], one[NAMES.key], one[NAMES.partition]) == (True, "k", "1")
    assert {NAMES.tombstone, NAMES.key}.isdisjoint(mixed)
    assert [dict(link.attributes or {}) for link in tracing.spans[1].links] == [
        {NAMES.tombstone: True, NAMES.key: "k"},
        {NAMES.key: "l"},
    ]
