"""This producer with user code per record, on uvloop, and the same work done by the caller."""

from collections.abc import Awaitable, Callable

import orjson
import uvloop

from aioproducer import Producer, ProducerInterceptor, ProducerOptions, ProducerRecord, StringSerializer
from aioproducer.cluster import Cluster
from tests.benchmarks.clients.ours import configuration
from tests.benchmarks.job import KEY, TEXT_HEADERS, Job, Outcome, Stopwatch, as_text

Loop = Callable[[Producer, Job, int], Awaitable[None]]
"""Enqueues this number of records."""

ORDER: dict[str, object] = {
    "id": 1234567,
    "customer": "customer-1234",
    "article": "a teapot of blue china",
    "quantity": 3,
    "price": 24.95,
    "currency": "EUR",
    "paid": True,
    "discount": None,
    "address": "12 Long Lane, Anytown",
    "tags": ["kitchen", "gift"],
}


class Passing(ProducerInterceptor):
    """Returns every record."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record."""
        return record


class First:
    """A partitioner that chooses partition 0."""

    def partition(  # Kafka's signature
        self,
        topic: str,
        key: object,
        key_bytes: bytes | None,
        value: object,
        value_bytes: bytes | None,
        cluster: Cluster,
    ) -> int:
        """Return 0."""
        del topic, key, key_bytes, value, value_bytes, cluster
        return 0


def plain(job: Job) -> Outcome:
    """Enqueue bytes without hooks."""
    return _run(_enqueue_bytes, job)


def partitioner(job: Job) -> Outcome:
    """Enqueue bytes with a partitioner in Python."""
    return _run(_enqueue_bytes, job, {"partitioner": First()})


def interceptor(job: Job) -> Outcome:
    """Enqueue bytes with an interceptor that returns its record."""
    return _run(_enqueue_bytes, job, {"interceptors": [Passing()]})


def text_by_caller(job: Job) -> Outcome:
    """Enqueue text that the caller encodes."""

    async def loop(producer: Producer, job: Job, records: int) -> None:
        topic, value = job.topic, job.value.decode()
        for _ in range(records):
            await producer.enqueue(topic, value.encode())

    return _run(loop, job)


def text_by_serializer(job: Job) -> Outcome:
    """Enqueue text with `str.encode` as the serializer."""

    async def loop(producer: Producer, job: Job, records: int) -> None:
        topic, value = job.topic, job.value.decode()
        for _ in range(records):
            await producer.enqueue(topic, value)

    return _run(loop, job, {"value_serializer": str.encode})


def text_by_typed_topic(job: Job) -> Outcome:
    """Enqueue text to a typed topic."""

    async def loop(producer: Producer, job: Job, records: int) -> None:
        topic, value = producer.topic(job.topic, value=str), job.value.decode()
        for _ in range(records):
            await topic.enqueue(value)

    return _run(loop, job)


def text_key_and_headers(job: Job) -> Outcome:
    """Enqueue text as key and value with serializers, and two headers that the caller encodes."""

    async def loop(producer: Producer, job: Job, records: int) -> None:
        topic, value = job.topic, job.value.decode()
        (first, trace), (second, source) = TEXT_HEADERS
        for _ in range(records):
            headers = [(first, trace.encode()), (second, source.encode())]
            await producer.enqueue(topic, value, key=KEY, headers=headers)

    return _run(loop, job, {"key_serializer": StringSerializer(), "value_serializer": StringSerializer()})


def json_by_caller(job: Job) -> Outcome:
    """Enqueue a dict that the caller encodes with orjson."""

    async def loop(producer: Producer, job: Job, records: int) -> None:
        topic = job.topic
        for _ in range(records):
            await producer.enqueue(topic, orjson.dumps(ORDER))

    return _run(loop, job)


def json_by_serializer(job: Job) -> Outcome:
    """Enqueue a dict with orjson as the serializer."""

    async def loop(producer: Producer, job: Job, records: int) -> None:
        topic = job.topic
        for _ in range(records):
            await producer.enqueue(topic, ORDER)

    return _run(loop, job, {"value_serializer": orjson.dumps})


async def _enqueue_bytes(producer: Producer, job: Job, records: int) -> None:
    topic, value = job.topic, job.value
    for _ in range(records):
        await producer.enqueue(topic, value)


def _run(loop: Loop, job: Job, hooks: ProducerOptions | None = None) -> Outcome:
    """Start a producer on uvloop, warm it up, and let it enqueue and flush."""
    options: ProducerOptions = {**configuration(job), **(hooks or {})}

    async def main() -> dict[str, float]:
        async with Producer(job.bootstrap_servers, **options) as producer:
            await loop(producer, job, job.warmup_records)
            await producer.flush()
            stopwatch = Stopwatch()
            await loop(producer, job, job.records)
            await producer.flush()
            return stopwatch.figures(job.records)

    return Outcome(job.warmup_records + job.records, uvloop.run(main()), as_text(dict(configuration(job))))
