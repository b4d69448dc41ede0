"""The promises of a producer hold on the embedded cluster and on real Kafka alike."""

import asyncio
from contextlib import suppress
from random import Random

import aiokafka
import pytest

from aioproducer import KafkaError, Outcome, Producer
from aioproducer.errors import InvalidRecordError, MessageTooLargeError
from tests.contracts.raw_client import RawClient

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
READ_TIMEOUT_S = 20


async def read(broker: str, topic: str, count: int, *, partition: int = 0) -> "list[aiokafka.ConsumerRecord]":
    place = aiokafka.TopicPartition(topic, partition)
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=broker, auto_offset_reset="earliest")
    consumer.assign([place])
    await consumer.start()
    try:
        found: list[aiokafka.ConsumerRecord] = []
        async with asyncio.timeout(READ_TIMEOUT_S):
            while len(found) < count:
                found += (await consumer.getmany(place, timeout_ms=1000)).get(place, [])
    finally:
        await consumer.stop()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
async def test_records_arrive_whole(broker: str, topic: str, codec: str) -> None:
    given: list[dict[str, object]] = [
        {"value": b"v", "key": b"k", "headers": [("a", b"1"), ("a", None), ("é", b"")], "timestamp": 1_700_000_000_000},
        {"value": None, "key": b"tombstone", "timestamp": 1_700_000_000_007},
        {"value": b"", "key": None, "timestamp": 1_700_000_000_003},
        {"value": b"long " * 1000, "key": b"", "timestamp": 1_700_000_000_005},
    ]
    async with Producer(broker, compression_type=codec) as producer:  # type: ignore[arg-type]  # one of a few words
        sent = await asyncio.gather(*(producer.send(topic, partition=0, **each) for each in given))  # type: ignore[arg-type]  # as above

    found = await read(broker, topic, len(given))
    for metadata, record, each in zip(sent, found, given, strict=True):
        assert (record.key, record.value, record.timestamp) == (each["key"], each["value"], each["timestamp"])
        assert list(record.headers) == (each.get("headers") or [])
        assert (metadata.offset, metadata.timestamp, metadata.timestamp_type) == (record.offset, record.timestamp, 0)


@pytest.mark.slow
@pytest.mark.parametrize("acks", [-1, 1, 0])
async def test_thousands_of_records_keep_their_order(broker: str, topic: str, acks: int) -> None:
    async with Producer(broker, acks=acks, batch_size=500) as producer:  # type: ignore[arg-type]  # one of three
        for number in range(5000):
            await producer.enqueue(topic, b"%d" % number, partition=0)
        await producer.flush()
        await asyncio.sleep(0.05)

    assert [record.value for record in await read(broker, topic, 5000)] == [b"%d" % number for number in range(5000)]


async def test_topic_made_on_first_use_just_works(broker: str, topic: str) -> None:
    async with Producer(broker) as producer:
        metadata = await producer.send(topic, b"x", partition=0)

    assert (metadata.topic, metadata.partition, metadata.offset) == (topic, 0, 0)


async def test_log_append_time_is_the_brokers(broker: str, client: RawClient, topic: str) -> None:
    await client.create_topic(topic, {"message.timestamp.type": "LogAppendTime"})
    async with Producer(broker) as producer:
        metadata = await producer.send(topic, b"x", timestamp=5)

    [record] = await read(broker, topic, 1)
    assert (metadata.timestamp, metadata.timestamp_type) == (record.timestamp, 1)
    assert metadata.timestamp > 1_600_000_000_000


@pytest.mark.parametrize("codec, kept", [("none", "producer"), ("lz4", "producer"), ("lz4", "uncompressed")])
async def test_batch_larger_than_the_topic_allows_is_split(  # noqa: PLR0917  # fixtures
    broker: str, client: RawClient, topic: str, codec: str, kept: str
) -> None:
    """The size as sent or as kept may be too large. Records arrive in order; one too large alone fails (KIP-126)."""
    await client.create_topic(topic, {"max.message.bytes": "2000", "compression.type": kept})
    values = [bytes((number * 7 + step * step) % 251 for step in range(150)) for number in range(100)]
    too_large = Random(5).randbytes(6000)  # nothing makes it smaller
    async with Producer(broker, compression_type=codec, linger_ms=10_000) as producer:  # type: ignore[arg-type]  # one of a few
        await producer.partitions_for(topic)
        deliveries = [producer.send(topic, value) for value in (*values[:50], too_large, *values[50:])]
        results = await asyncio.gather(*deliveries, return_exceptions=True)
        after = await producer.send(topic, b"after")

    failed = {index: each for index, each in enumerate(results) if isinstance(each, KafkaError)}
    assert {index: (type(each), each.outcome) for index, each in failed.items()} == {
        50: (MessageTooLargeError, Outcome.NOT_WRITTEN)
    }
    assert [record.value for record in await read(broker, topic, 101)] == [*values, b"after"]
    assert after.offset == 100


@pytest.mark.parametrize("codec", ["none", "gzip"])
async def test_refused_records_fail_alone(  # noqa: PLR0917  # fixtures
    broker: str, client: RawClient, topic: str, codec: str
) -> None:
    """A compacted topic wants keys: the broker names those without (KIP-467)."""
    await client.create_topic(topic, {"cleanup.policy": "compact"})
    async with Producer(broker, compression_type=codec, linger_ms=10_000) as producer:  # type: ignore[arg-type]  # one of a few
        await producer.partitions_for(topic)
        deliveries = [
            producer.send(topic, b"%d" % number, key=None if number in {3, 7} else b"k%d" % number)
            for number in range(10)
        ]
        results = await asyncio.gather(*deliveries, return_exceptions=True)
        after = await producer.send(topic, b"after", key=b"k")

    refused = [index for index, each in enumerate(results) if isinstance(each, InvalidRecordError)]
    assert refused == [3, 7]
    kept = [b"%d" % number for number in range(10) if number not in refused]
    assert [record.value for record in await read(broker, topic, 9)] == [*kept, b"after"]
    assert after.offset == 8


@pytest.mark.parametrize("keeps", ["CreateTime", "LogAppendTime"])
async def test_producer_goes_on_after_its_topic_was_made_again(  # noqa: PLR0917  # fixtures
    broker: str, client: RawClient, topic: str, keeps: str
) -> None:
    """Every record is delivered, the first too, to which the new log gives the offset that the old one had given."""
    settings = {"message.timestamp.type": keeps}
    await client.create_topic(topic, settings)
    async with Producer(broker, linger_ms=0) as producer:
        for number in range(3):
            await producer.send(topic, b"old %d" % number)
        await client.delete_topic(topic)
        await client.create_topic(topic, settings)
        offsets = [(await producer.send(topic, b"new %d" % number)).offset for number in range(6)]

    assert offsets == [*range(6)]
    assert [record.value for record in await read(broker, topic, 6)] == [b"new %d" % number for number in range(6)]


async def test_two_producers_share_a_partition(broker: str, topic: str) -> None:
    async with Producer(broker, batch_size=200) as first, Producer(broker, batch_size=200) as second:
        for number in range(300):
            first.send(topic, b"a%d" % number, partition=0)
            second.send(topic, b"b%d" % number, partition=0)
            await asyncio.sleep(0)

    written = [record.value for record in await read(broker, topic, 600)]
    for name in (b"a", b"b"):
        assert [value for value in written if value[:1] == name] == [name + b"%d" % number for number in range(300)]


async def test_error_of_a_topic_that_may_not_be_written_comes_at_once(broker: str) -> None:
    """An invalid name is refused before anything is sent; an internal topic by the broker, in time."""
    async with Producer(broker, max_block_ms=5_000, delivery_timeout_ms=5_000, request_timeout_ms=2_000) as producer:
        with suppress(KafkaError):
            async with asyncio.timeout(8):
                await producer.send("__consumer_offsets", b"x", partition=0)

        with pytest.raises(ValueError, match="topic"):
            producer.send("no spaces", b"x")
