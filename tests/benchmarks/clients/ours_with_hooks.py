"""This producer with user code per record, on uvloop, and the same work done by the caller."""

import orjson

from aioproducer import Producer, ProducerInterceptor, ProducerRecord, StringSerializer
from tests.benchmarks.clients.ours import enqueuing, measure
from tests.benchmarks.job import KEY, TEXT_HEADERS, Job, Outcome

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
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record


class First:
    def partition(self, *_: object) -> int:
        return 0


def plain(job: Job) -> Outcome:
    return measure(enqueuing(job.value), job)


def partitioner(job: Job) -> Outcome:
    return measure(enqueuing(job.value), job, {"partitioner": First()})


def interceptor(job: Job) -> Outcome:
    return measure(enqueuing(job.value), job, {"interceptors": [Passing()]})


def text_by_caller(job: Job) -> Outcome:
    """Enqueue text that the caller encodes."""

    async def loop(producer: Producer, job: Job, records: int) -> None:
        topic, value = job.topic, job.value.decode()
        for _ in range(records):
            await producer.enqueue(topic, value.encode())

    return measure(loop, job)


def text_by_serializer(job: Job) -> Outcome:
    return measure(enqueuing(job.value.decode()), job, {"value_serializer": str.encode})


def text_by_typed_topic(job: Job) -> Outcome:
    """Enqueue text to a typed topic."""

    async def loop(producer: Producer, job: Job, records: int) -> None:
        topic, value = producer.topic(job.topic, value=str), job.value.decode()
        for _ in range(records):
            await topic.enqueue(value)

    return measure(loop, job)


def text_key_and_headers(job: Job) -> Outcome:
    """Enqueue text as key and value with serializers, and two headers that the caller encodes."""

    async def loop(producer: Producer, job: Job, records: int) -> None:
        topic, value = job.topic, job.value.decode()
        (first, trace), (second, source) = TEXT_HEADERS
        for _ in range(records):
            headers = [(first, trace.encode()), (second, source.encode())]
            await producer.enqueue(topic, value, key=KEY, headers=headers)

    return measure(loop, job, {"key_serializer": StringSerializer(), "value_serializer": StringSerializer()})


def json_by_caller(job: Job) -> Outcome:
    """Enqueue a dict that the caller encodes with orjson."""

    async def loop(producer: Producer, job: Job, records: int) -> None:
        topic = job.topic
        for _ in range(records):
            await producer.enqueue(topic, orjson.dumps(ORDER))

    return measure(loop, job)


def json_by_serializer(job: Job) -> Outcome:
    return measure(enqueuing(ORDER), job, {"value_serializer": orjson.dumps})
