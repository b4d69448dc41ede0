"""OpenTelemetry's instrumentation of aiokafka traces the stand-in, set up as the page says."""

from collections.abc import Iterator

import aiokafka
import pytest
from opentelemetry.instrumentation.aiokafka import AIOKafkaInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from aioproducer.compat import AIOKafkaProducer
from aioproducer.testing import FakeCluster


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch) -> Iterator[TracerProvider]:
    monkeypatch.setattr(aiokafka, "AIOKafkaProducer", aiokafka.AIOKafkaProducer)
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(spans))
    yield made
    AIOKafkaInstrumentor().uninstrument()
    made.shutdown()


async def send(cluster: FakeCluster) -> AIOKafkaProducer:
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="orders") as producer:
        await (await producer.send("orders", b"1", b"k", 0))
        await producer.send_and_wait("orders", b"2", partition=0, headers=[("h", b"1")])
    return producer


def check_traced(cluster: FakeCluster, spans: InMemorySpanExporter) -> None:
    found = spans.get_finished_spans()
    headers = [dict(record.headers) for record in cluster.records("orders", 0)]

    assert [span.name for span in found] == ["orders send"] * 2
    assert found[0].attributes is not None
    assert found[0].attributes["messaging.client.id"] == "orders"
    assert found[0].attributes["server.address"] == f'["{cluster.bootstrap_servers}"]'
    assert found[0].attributes["messaging.kafka.message.key"] == "k"
    for span, sent in zip(found, headers, strict=True):
        assert f"{span.context.span_id:016x}".encode() in sent["traceparent"]
    assert headers[1]["h"] == b"1"


async def test_assigned_before_instrumenting_is_traced(
    one_broker: FakeCluster, provider: TracerProvider, spans: InMemorySpanExporter
) -> None:
    """The order of a program that calls `instrument` itself."""
    aiokafka.AIOKafkaProducer = AIOKafkaProducer
    AIOKafkaInstrumentor().instrument(tracer_provider=provider)
    await send(one_broker)

    check_traced(one_broker, spans)


async def test_agent_traces_after_instrumenting_again(
    one_broker: FakeCluster, provider: TracerProvider, spans: InMemorySpanExporter
) -> None:
    """`opentelemetry-instrument` patches aiokafka before the program runs."""
    AIOKafkaInstrumentor().instrument(tracer_provider=provider)
    AIOKafkaInstrumentor().uninstrument()
    aiokafka.AIOKafkaProducer = AIOKafkaProducer
    AIOKafkaInstrumentor().instrument(tracer_provider=provider)
    await send(one_broker)

    check_traced(one_broker, spans)


async def test_import_alone_is_not_traced(
    one_broker: FakeCluster, provider: TracerProvider, spans: InMemorySpanExporter
) -> None:
    """The page says so: the instrumentation patches the class that `aiokafka.AIOKafkaProducer` names."""
    AIOKafkaInstrumentor().instrument(tracer_provider=provider)
    await send(one_broker)

    assert spans.get_finished_spans() == ()


async def test_uninstrumented_again_is_not_traced(
    one_broker: FakeCluster, provider: TracerProvider, spans: InMemorySpanExporter
) -> None:
    """The producer sends as before."""
    aiokafka.AIOKafkaProducer = AIOKafkaProducer
    AIOKafkaInstrumentor().instrument(tracer_provider=provider)
    AIOKafkaInstrumentor().uninstrument()
    await send(one_broker)

    assert spans.get_finished_spans() == ()
    assert len(one_broker.records("orders", 0)) == 2
