"""Records are given as aiokafka decodes them, and are those that its own consumer gives."""

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import cast

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaTimeoutError
from opentelemetry.instrumentation.aiokafka import AIOKafkaInstrumentor

from aioproducer import Producer
from aioproducer.spark._consumer import ReadRecord, consumer_of, records_of
from aioproducer.spark._source_options import SourceOptions
from aioproducer.testing import FakeCluster

PLACE = TopicPartition("orders", 0)


@asynccontextmanager
async def filled() -> AsyncIterator[FakeCluster]:
    """A topic with batches of each codec, null and empty parts, headers, and transactions of which one is aborted."""
    async with FakeCluster(1, topics={"orders": 1}) as cluster:
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            async with Producer(cluster.bootstrap_servers, compression_type=codec, linger_ms=50) as producer:
                numbers = [b"%d" % number for number in range(20)]
                headers = [[("h", None), ("h", b"1")]] * 20
                await producer.send_many("orders", numbers, keys=[codec.encode()] * 20, record_headers=headers)
                producer.send("orders", None, key=b"")
        async with Producer(cluster.bootstrap_servers, transactional_id="t") as producer:
            for value in (b"kept", b"aborted", b"kept"):
                await producer.begin_transaction()
                await (await producer.send_many("orders", [value] * 3))
                await (producer.commit_transaction() if value == b"kept" else producer.abort_transaction())
        yield cluster


@asynccontextmanager
async def plain(options: SourceOptions) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=options.kafka["bootstrap.servers"],
        isolation_level=options.isolation,
        auto_offset_reset="none",
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def read(
    consumer: AIOKafkaConsumer, first: int, records: Callable[[Sequence[object]], Sequence[ReadRecord]]
) -> list[tuple[object, ...]]:
    consumer.assign([PLACE])
    end = (await consumer.end_offsets([PLACE]))[PLACE]
    consumer.seek(PLACE, first)
    found: list[ReadRecord] = []
    while await consumer.position(PLACE) < end:
        found += records((await consumer.getmany(PLACE, timeout_ms=100)).get(PLACE, ()))
    return [(each.offset, each.key, each.value, each.timestamp, each.timestamp_type, [*each.headers]) for each in found]


def as_given(records: Sequence[object]) -> Sequence[ReadRecord]:
    return cast("Sequence[ReadRecord]", records)


def options(cluster: FakeCluster, isolation: str, **more: str) -> SourceOptions:
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "orders", "isolation": isolation}
    return SourceOptions.parse({**given, **more}, is_stream=False)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("first", [0, 7, 21])
async def test_records_are_those_of_aiokafka(isolation: str, first: int) -> None:
    """Also from the middle of a batch."""
    async with filled() as cluster:
        chosen = options(cluster, isolation)
        async with plain(chosen) as consumer:
            expected = await read(consumer, first, as_given)
        async with consumer_of(chosen) as consumer:
            found = await read(consumer, first, records_of)

    assert found == expected
    assert {b"aborted" in row for row in found} == ({False} if isolation == "read_committed" else {False, True})


async def test_batches_are_taken_whole() -> None:
    """Else this aiokafka has lost what the reader is quick by."""
    async with filled() as cluster, consumer_of(options(cluster, "read_committed")) as consumer:
        consumer.assign([PLACE])
        consumer.seek(PLACE, 0)
        given = (await consumer.getmany(PLACE, timeout_ms=1000))[PLACE]

    assert not any(isinstance(each, ConsumerRecord) for each in given)
    assert len(records_of(given)) > len(given)


async def test_topic_that_is_asked_for_is_not_created() -> None:
    """One that was deleted would be there again: brokers create topics on first use."""
    patience = {"kafka.request.timeout.ms": "700", "kafka.retry.backoff.ms": "50"}
    async with FakeCluster(1) as cluster, consumer_of(options(cluster, "read_committed", **patience)) as consumer:
        gone = TopicPartition("gone", 0)
        consumer.assign([gone])
        with pytest.raises(KafkaTimeoutError):
            await consumer.end_offsets([gone])
        assert await consumer.topics() == set()


async def test_records_of_another_aiokafka_are_taken_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that keeps what it has fetched under other names."""
    monkeypatch.setattr("aioproducer.spark._consumer._Fetched.__setitem__", OrderedDict.__setitem__)
    async with filled() as cluster, consumer_of(options(cluster, "read_committed")) as consumer:
        found = await read(consumer, 0, records_of)

    assert len(found) == 5 * 21 + 6


async def test_agent_of_opentelemetry_reads_what_is_given() -> None:
    """It looks at the parts of each record that `getmany` returns."""
    instrumentor = AIOKafkaInstrumentor()
    instrumentor.instrument()
    try:
        async with filled() as cluster, consumer_of(options(cluster, "read_committed")) as consumer:
            found = await read(consumer, 0, records_of)
    finally:
        instrumentor.uninstrument()

    assert len(found) == 5 * 21 + 6
