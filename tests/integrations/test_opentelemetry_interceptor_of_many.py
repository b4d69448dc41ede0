"""Which records the span of a `send_many` has: its own, and none that the user's code sends meanwhile."""

import asyncio
import dataclasses
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Unpack

import pyarrow as pa
import pytest

from aioproducer import (
    BulkDelivery,
    Delivery,
    Producer,
    ProducerInterceptor,
    ProducerRecord,
    RecordFields,
)
from aioproducer.integrations.opentelemetry.interceptor import NAMES
from aioproducer.testing import FakeCluster
from tests.integrations.opentelemetry_tracing import Tracing, recorded, traceparent

tracing = pytest.fixture(recorded, name="tracing")

VALUES = (b"0", b"1", b"2")


@pytest.fixture
async def topics(one_broker: FakeCluster) -> FakeCluster:
    """A broker with the topic that the user's own code sends to as well."""
    one_broker.create_topic("audit", 1)
    return one_broker


def counts(tracing: Tracing) -> list[tuple[str, object]]:
    """Name of each span, and the number of its records: None for a span of one record."""
    spans = [(span.name, dict(span.attributes or {}).get(NAMES.batch_count)) for span in tracing.spans]
    return sorted(spans, key=str)


def check_contexts(cluster: FakeCluster, tracing: Tracing) -> None:
    """Each span has as many records with its context as it says."""
    found = Counter(
        header
        for topic, partitions in (("orders", 3), ("audit", 1))
        for partition in range(partitions)
        for record in cluster.records(topic, partition)
        for _, header in record.headers
    )
    said = {traceparent(span): dict(span.attributes or {}).get(NAMES.batch_count, 1) for span in tracing.spans}
    assert found == said


Source = Callable[[Producer, str], Iterator[bytes] | AsyncIterator[bytes]]


def sending(producer: Producer, topic: str) -> Iterator[bytes]:
    for value in VALUES:
        producer.send(topic, b"read " + value)
        yield value


async def awaiting(producer: Producer, topic: str) -> AsyncIterator[bytes]:
    for value in VALUES:
        await producer.send(topic, b"read " + value)
        yield value


async def enqueuing(producer: Producer, topic: str) -> AsyncIterator[bytes]:
    for value in VALUES:
        await producer.topic(topic, value=bytes).enqueue(value)  # the very object that the call sends
        yield value


async def with_tasks(producer: Producer, topic: str) -> AsyncIterator[bytes]:
    """Each task runs while the next value is awaited."""
    async with asyncio.TaskGroup() as tasks:
        for value in VALUES:
            tasks.create_task(producer.send_and_wait(topic, b"read " + value))
            yield value
            await asyncio.sleep(0)


def by_send_many(producer: Producer, source: Source, topic: str) -> Awaitable[BulkDelivery]:
    return producer.send_many("orders", source(producer, topic))


def by_typed_topic(producer: Producer, source: Source, topic: str) -> Awaitable[BulkDelivery]:
    return producer.topic("orders", value=bytes).send_many(source(producer, topic))


def by_keys(producer: Producer, source: Source, topic: str) -> Awaitable[BulkDelivery]:
    async def values() -> AsyncIterator[bytes]:
        for value in VALUES:
            yield value

    return producer.send_many("orders", values(), keys=source(producer, topic))


READERS = [
    partial(call, source=source)
    for call in (by_send_many, by_typed_topic, by_keys)
    for source in (sending, awaiting, enqueuing, with_tasks)
]


@pytest.mark.parametrize("topic", ["audit", "orders"])
@pytest.mark.parametrize("read", READERS, ids=lambda read: f"{read.func.__name__}-{read.keywords['source'].__name__}")
async def test_records_that_the_source_sends_have_spans_of_their_own(
    topics: FakeCluster, tracing: Tracing, *, read: partial[Awaitable[BulkDelivery]], topic: str
) -> None:
    async with Producer(topics.bootstrap_servers, interceptors=[tracing.interceptor()]) as producer:
        await producer.partitions_for(topic)
        with tracing.tracers.get_tracer("test").start_as_current_span("request") as request:
            await (await read(producer, topic=topic))
        await producer.flush()

    *sent, whole = sorted(tracing.spans, key=lambda span: span.name == "request")
    assert {span.parent and span.parent.span_id for span in sent} == {request.get_span_context().span_id}
    assert counts(tracing) == sorted([(f"send {topic}", None)] * 3 + [("send orders", 3), ("request", None)], key=str)
    assert whole.name == "request"


async def test_every_record_has_the_context_of_its_span(topics: FakeCluster, tracing: Tracing) -> None:
    async with Producer(topics.bootstrap_servers, interceptors=[tracing.interceptor()]) as producer:
        await producer.partitions_for("audit")
        for topic in ("audit", "orders"):
            for source in (sending, awaiting, enqueuing, with_tasks):
                await (await producer.send_many("orders", source(producer, topic)))
        await producer.flush()

    check_contexts(topics, tracing)


async def test_source_that_sends_many_itself_has_two_spans(topics: FakeCluster, tracing: Tracing) -> None:
    async def source(producer: Producer) -> AsyncIterator[bytes]:
        yield b"0"
        await (await producer.send_many("orders", [b"a", b"b", b"c"]))
        yield b"1"

    async with Producer(topics.bootstrap_servers, interceptors=[tracing.interceptor()]) as producer:
        await (await producer.send_many("orders", source(producer)))

    assert counts(tracing) == [("send orders", 2), ("send orders", 3)]
    check_contexts(topics, tracing)


async def test_record_batch_reader_that_sends_is_not_counted(topics: FakeCluster, tracing: Tracing) -> None:
    schema = pa.schema([("value", pa.binary())])

    def batches(producer: Producer) -> Iterator[pa.RecordBatch]:
        for value in VALUES:
            producer.send("orders", b"read " + value)
            yield pa.record_batch([[value]], schema=schema)

    async with Producer(topics.bootstrap_servers, interceptors=[tracing.interceptor()]) as producer:
        reader = pa.RecordBatchReader.from_batches(schema, batches(producer))
        await (await producer.send_arrow("orders", reader))
        await producer.flush()

    assert counts(tracing) == [("send orders", 3), *[("send orders", None)] * 3]
    check_contexts(topics, tracing)


# The user's code around a record of the call


class Auditing(ProducerInterceptor):
    """Sends a record before each that is not of its own topic."""

    producer: Producer

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        if record.topic != "audit":
            self.producer.send("audit", b"seen")
        return record


@pytest.mark.parametrize("is_first", [True, False])
async def test_interceptor_that_sends_takes_no_place_of_the_call(
    topics: FakeCluster, tracing: Tracing, *, is_first: bool
) -> None:
    auditing = Auditing()
    interceptors = [auditing, tracing.interceptor()] if is_first else [tracing.interceptor(), auditing]
    async with Producer(topics.bootstrap_servers, interceptors=interceptors) as producer:
        auditing.producer = producer
        await producer.partitions_for("audit")
        await (await producer.send_many("orders", VALUES))
        await producer.flush()

    assert counts(tracing) == [("send audit", None)] * 3 + [("send orders", 3)]
    check_contexts(topics, tracing)


class AuditingProducer(Producer):
    """Its overridden method sends a record before and after each one."""

    async def enqueue(self, topic: str, value: object = None, **fields: Unpack[RecordFields[object]]) -> Delivery:
        await super().enqueue("audit", b"before")
        accepted = await super().enqueue(topic, value, **fields)
        await super().enqueue("orders", b"after", partition=0)
        return accepted


async def test_overridden_enqueue_that_sends_takes_no_place(topics: FakeCluster, tracing: Tracing) -> None:
    async with AuditingProducer(topics.bootstrap_servers, interceptors=[tracing.interceptor()]) as producer:
        await (await producer.send_many("orders", VALUES))
        await producer.flush()

    assert counts(tracing) == sorted(
        [("send audit", None)] * 3 + [("send orders", None)] * 3 + [("send orders", 3)], key=str
    )
    check_contexts(topics, tracing)


class LateProducer(Producer):
    """Its overridden method lets other tasks run first, and enqueues in a task of its own."""

    async def enqueue(self, topic: str, value: object = None, **fields: Unpack[RecordFields[object]]) -> Delivery:
        await asyncio.sleep(0)
        return await asyncio.create_task(self.enqueue_now(topic, value, fields))

    async def enqueue_now(self, topic: str, value: object, fields: RecordFields[object]) -> Delivery:
        return await super().enqueue(topic, value, **fields)


async def test_task_of_the_source_takes_no_place_while_enqueue_waits(topics: FakeCluster, tracing: Tracing) -> None:
    async with LateProducer(topics.bootstrap_servers, interceptors=[tracing.interceptor()]) as producer:

        async def send() -> None:
            await producer.send("orders", b"task", partition=0)

        async def source() -> AsyncIterator[bytes]:
            async with asyncio.TaskGroup() as tasks:
                for value in VALUES:
                    tasks.create_task(send())
                    yield value

        await (await producer.send_many("orders", source(), partition=1))

    assert counts(tracing) == [("send orders", 3), *[("send orders", None)] * 3]
    contexts = {header for record in topics.records("orders", 1) for header in record.headers}
    assert len(contexts) == 1
    check_contexts(topics, tracing)


async def test_serializer_that_sends_takes_no_place_of_the_call(topics: FakeCluster, tracing: Tracing) -> None:
    def serialize(value: object) -> bytes:
        if value != "audit":
            producer.send("orders", "audit")
        return str(value).encode()

    async with Producer(
        topics.bootstrap_servers, interceptors=[tracing.interceptor()], value_serializer=serialize
    ) as producer:
        await (await producer.send_many("orders", ["0", "1", "2"]))
        await producer.flush()

    assert counts(tracing) == [("send orders", 3), *[("send orders", None)] * 3]
    check_contexts(topics, tracing)


class Renaming(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return dataclasses.replace(record, topic="audit")


async def test_record_with_a_changed_topic_stays_in_the_call(topics: FakeCluster, tracing: Tracing) -> None:
    async with Producer(topics.bootstrap_servers, interceptors=[Renaming(), tracing.interceptor()]) as producer:
        await (await producer.send_many("orders", [*VALUES, None], keys=[None, b"k", b"k", b"k"]))

    assert counts(tracing) == [("send orders", 4)]
    check_contexts(topics, tracing)


class Drops(ProducerInterceptor):
    """Drops each record but its own, which a task sends later."""

    def __init__(self) -> None:
        self.producer: Producer | None = None
        self.tasks: list[asyncio.Task[object]] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        if record.value == b"dropped":
            return record
        assert self.producer is not None
        self.tasks.append(asyncio.create_task(self.producer.send_and_wait("orders", b"dropped")))
        return None


async def test_task_of_a_dropped_record_does_not_take_its_place(topics: FakeCluster, tracing: Tracing) -> None:
    drops = Drops()

    async def source() -> AsyncIterator[bytes]:
        yield b"0"
        await asyncio.gather(*drops.tasks)

    async with Producer(topics.bootstrap_servers, interceptors=[drops, tracing.interceptor()]) as producer:
        drops.producer = producer
        await (await producer.send_many("orders", source()))

    assert counts(tracing) == [("send orders", 0), ("send orders", None)]
