"""This producer with what production has around it, and the same work by the libraries alone: traces, metrics, Avro."""

import gc
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from time import process_time

import fastavro
import uvloop
from opentelemetry import propagate, trace
from opentelemetry.metrics import MeterProvider as AnyMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind
from prometheus_client import CollectorRegistry, generate_latest

from aioproducer import Producer, ProducerOptions, UndeliveredError
from aioproducer._accumulator.partition import Partition
from aioproducer.integrations.opentelemetry import OpenTelemetryInterceptor
from aioproducer.integrations.opentelemetry.interceptor import NAMES
from aioproducer.integrations.prometheus import ProducerCollector
from aioproducer.integrations.schema_registry import AvroSerializer, Schema, SchemaId
from tests.benchmarks.clients.ours import configuration, enqueuing, measure
from tests.benchmarks.job import Job, Outcome, Stopwatch

ORDER = {
    "id": 1234567,
    "customer": "customer-1234",
    "article": "a teapot of blue china",
    "quantity": 3,
    "price": 24.95,
    "tags": ["kitchen", "gift"],
}
AVRO = """{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"}, {"name": "customer", "type": "string"}, {"name": "article", "type": "string"},
    {"name": "quantity", "type": "int"}, {"name": "price", "type": "double"},
    {"name": "tags", "type": {"type": "array", "items": "string"}}]}"""


def plain(job: Job) -> Outcome:
    return measure(enqueuing(job.value), job)


def traced(job: Job) -> Outcome:
    """Enqueue bytes, each with a span and two metrics of OpenTelemetry's SDK."""
    interceptor = OpenTelemetryInterceptor(TracerProvider(), _meters())
    return measure(enqueuing(job.value), job, {"interceptors": [interceptor]})


def traces_alone(job: Job) -> Outcome:
    """Make the same spans, headers and metrics, with the calls of OpenTelemetry's API alone."""
    tracer, meter = TracerProvider().get_tracer("bench"), _meters().get_meter("bench")
    sent, duration = meter.create_counter(NAMES.sent_messages), meter.create_histogram(NAMES.duration)
    name, topic = f"send {job.topic}", job.topic
    begun = {
        NAMES.system: "kafka",
        NAMES.operation_name: "send",
        NAMES.operation_type: "send",
        NAMES.client_id: "bench",
        NAMES.destination: topic,
    }
    place: dict[str, str | int] = {NAMES.partition: "1", NAMES.server_address: "127.0.0.1", NAMES.server_port: 9092}
    measured: dict[str, str | int] = {**begun, **place}
    ended = {**place, NAMES.cluster_id: "cluster"}

    def loop(records: int) -> None:
        for offset in range(records):
            headers: dict[str, str] = {}
            span = tracer.start_span(name, kind=SpanKind.PRODUCER, attributes=begun)
            propagate.inject(headers, trace.set_span_in_context(span))
            span.set_attributes({**ended, NAMES.offset: offset})
            span.end()
            sent.add(1, measured)
            duration.record(0.005, measured)

    return _alone(job, loop)


def scraped(job: Job) -> Outcome:
    """Enqueue bytes while Prometheus scrapes each second."""
    return measure(enqueuing(job.value), job, beside=_scraping)


def avro(job: Job) -> Outcome:
    """Enqueue a dict with the serializer for Avro, whose schema id is known."""
    return measure(enqueuing(ORDER), job, {"value_serializer": AvroSerializer(AVRO, _OneId())})


def avro_alone(job: Job) -> Outcome:
    """Encode the same dict with fastavro."""
    schema = fastavro.parse_schema(json.loads(AVRO))

    def loop(records: int) -> None:
        for _ in range(records):
            out = BytesIO()
            fastavro.schemaless_writer(out, schema, ORDER)
            out.getvalue()

    return _alone(job, loop)


def explain(job: Job) -> Outcome:
    """Explain a batch in each partition, and pass over the same batches in Python, in turn."""
    options: ProducerOptions = {
        **configuration(job),
        "linger_ms": 1_000_000,
        "delivery_timeout_ms": 2_000_000,
        "buffer_memory": 512 * 1024 * 1024,
    }

    async def main() -> dict[str, float]:
        producer = await Producer(job.bootstrap_servers, **options).start()
        await producer.partitions_for(job.topic)
        for partition in range(job.partitions):
            await producer.enqueue(job.topic, job.value, partition=partition)
        running = producer._running  # noqa: SLF001  # whose batches are passed over
        assert running is not None, "it was started"
        gc.collect()
        explained, passed = [], []
        for _ in range(job.records):
            explained.append(_cpu_us(lambda: len(producer.explain().waiting)))
            passed.append(_cpu_us(lambda: len(_one_pass(running.accumulator.partitions.in_use()))))
        with suppress(UndeliveredError):
            await producer.close(0)
        return {"explain_us": min(explained), "pass_us": min(passed)}

    return Outcome(0, uvloop.run(main()))


def _one_pass(partitions: Iterable[Partition]) -> list[tuple[object, ...]]:
    return [
        (
            *partition.topic_partition,
            partition.leader,
            batch.count,
            batch.size,
            batch.attempts,
            batch.state,
            batch.called_at,
        )
        for partition in partitions
        for batch in (*partition.on_wire, *partition.queued, partition.open_batch)
        if batch is not None
    ]


def _cpu_us(work: Callable[[], int]) -> float:
    start_s = process_time()
    work()
    return (process_time() - start_s) * 1e6


class _OneId:
    async def schema_id(self, subject: str, schema: Schema | None, *, register: bool, normalize: bool) -> SchemaId:
        del subject, schema, register, normalize
        return SchemaId(7)

    async def schema(self, schema_id: int) -> Schema:
        del schema_id
        return Schema(AVRO, "AVRO")


def _meters() -> AnyMeterProvider:
    return MeterProvider([InMemoryMetricReader()])


@contextmanager
def _scraping(producer: Producer) -> Iterator[None]:
    registry, stop = CollectorRegistry(), threading.Event()
    ProducerCollector(producer, registry=registry)

    def scrape() -> None:
        while not stop.wait(1.0):
            generate_latest(registry)

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _alone(job: Job, loop: Callable[[int], None]) -> Outcome:
    loop(job.warmup_records)
    stopwatch = Stopwatch()
    loop(job.records)
    return Outcome(0, stopwatch.figures(job.records))
