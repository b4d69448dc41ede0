"""Batches made by hand: `create_batch` and `send_batch`."""

import json
from contextlib import nullcontext

import pytest
from aiokafka import errors

from aioproducer.compat import AIOKafkaProducer
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.compat.aiokafka_programs import producer_of
from tests.produced import produce_requests, values

PRODUCE = Where(api=ApiKey.PRODUCE)
NOT_AUTHORIZED = 29


def values_of(cluster: FakeCluster, partition: int) -> list[bytes | None]:
    return [record.value for record in cluster.records("orders", partition)]


async def test_batch_for_a_partition_that_is_not_there_is_refused(producer: AIOKafkaProducer) -> None:
    with pytest.raises(AssertionError, match=r"Unrecognized partition: partition must be 0\.\.2, got 3"):
        await producer.send_batch(producer.create_batch(), "orders", partition=3)


async def test_batch_is_filled_and_sent(producer: AIOKafkaProducer, one_broker: FakeCluster) -> None:
    before = await producer.send_and_wait("orders", b"before", partition=0)
    batch = producer.create_batch()
    number = 0
    while (appended := batch.append(key=b"k", value=b"%d" % number, timestamp=number)) is not None:
        assert (appended.offset, appended.timestamp) == (number, number)
        number += 1

    metadata = await (await producer.send_batch(batch, "orders", partition=0))

    assert (batch.record_count(), batch.closed(), number > 500, batch.size() <= 16_384) == (number, True, True, True)
    assert (metadata.topic, metadata.partition, metadata.offset) == ("orders", 0, before.offset + 1)
    assert values(one_broker, "orders") == [b"before", *(b"%d" % one for one in range(number))]


async def test_batch_takes_one_record_of_any_size(one_broker: FakeCluster) -> None:
    """A record that large is refused beside others."""
    async with producer_of(one_broker, max_batch_size=1_000) as producer:
        alone, full = producer.create_batch(), producer.create_batch()

        assert alone.append(key=None, value=bytes(2_000), timestamp=None) is not None
        assert full.append(key=None, value=b"short", timestamp=None) is not None
        assert full.append(key=None, value=bytes(2_000), timestamp=None) is None
        assert full.append(key=None, value=b"short", timestamp=None) is None
        metadata = await (await producer.send_batch(alone, "orders", partition=0))
        assert metadata.offset == 0


async def test_batch_runs_the_serializers(one_broker: FakeCluster) -> None:
    async with producer_of(one_broker, value_serializer=lambda value: json.dumps(value).encode()) as producer:
        batch = producer.create_batch()
        batch.append(key=b"k", value={"a": 1}, timestamp=None, headers=[("h", b"1")])
        await (await producer.send_batch(batch, "orders", partition=0))

    (found,) = one_broker.records("orders", 0)
    assert (found.key, found.value, list(found.headers)) == (b"k", b'{"a": 1}', [("h", b"1")])


async def test_empty_batch_is_none(producer: AIOKafkaProducer, one_broker: FakeCluster) -> None:
    future = await producer.send_batch(producer.create_batch(), "orders", partition=0)

    assert await future is None
    assert produce_requests(one_broker) == 0


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_batch_without_a_partition_gets_one(
    producer: AIOKafkaProducer, one_broker: FakeCluster, count: int
) -> None:
    batch = producer.create_batch()
    for number in range(count):
        batch.append(timestamp=None, key=b"%d" % number, value=b"%d" % number)
    metadata = await (await producer.send_batch(batch, "orders", partition=None))

    found = [values_of(one_broker, number) for number in range(3)]
    assert [one for one in found if one] == ([[b"%d" % number for number in range(count)]] if count else [])
    assert metadata is None if count == 0 else found[metadata.partition]


async def test_batches_without_a_partition_go_to_each(producer: AIOKafkaProducer) -> None:
    """Aiokafka draws one per batch; 60 batches reach all three except once in 10**10 runs."""
    seen = set()
    for _ in range(60):
        batch = producer.create_batch()
        batch.append(timestamp=None, key=None, value=b"1")
        seen.add((await (await producer.send_batch(batch, "orders", partition=None))).partition)

    assert seen == {0, 1, 2}


async def test_batch_without_a_partition_asks_the_partitioner() -> None:
    """It is called without a key, with all partitions and those that have a leader."""
    seen: list[tuple[bytes | None, list[int], list[int]]] = []

    def choose(key: bytes | None, every: list[int], available: list[int]) -> int:
        seen.append((key, every, available))
        return available[0]

    async with FakeCluster(2, topics={"t": 2}, replication_factor=1) as cluster:
        await cluster.kill(cluster.leader_of("t", 0))
        async with producer_of(cluster, partitioner=choose, request_timeout_ms=5_000) as producer:
            batch = producer.create_batch()
            batch.append(timestamp=None, key=b"k", value=b"1")
            by_batch = await (await producer.send_batch(batch, "t", partition=None))
            alone = await producer.send_and_wait("t", b"2", key=b"k")

    assert (by_batch.partition, alone.partition) == (1, 1)
    assert seen == [(None, [0, 1], [1]), (b"k", [0, 1], [1])]


async def test_batch_that_fails_raises_aiokafkas_error(producer: AIOKafkaProducer, one_broker: FakeCluster) -> None:
    one_broker.faults.error(NOT_AUTHORIZED, PRODUCE, times=None)
    batch = producer.create_batch()
    for _ in range(3):
        batch.append(key=None, value=b"1", timestamp=None)

    future = await producer.send_batch(batch, "orders", partition=0)
    with pytest.raises(errors.TopicAuthorizationFailedError):
        await future


async def test_batch_keeps_what_it_was_given(producer: AIOKafkaProducer, one_broker: FakeCluster) -> None:
    batch = producer.create_batch()
    buffer = bytearray(b"first")
    batch.append(timestamp=None, key=None, value=buffer)
    buffer[:] = b"other"
    batch.append(timestamp=None, key=None, value=memoryview(buffer))

    await (await producer.send_batch(batch, "orders", partition=0))

    assert [record.value for record in one_broker.records("orders", 0)] == [b"first", b"other"]


async def test_batch_refuses_a_time_below_zero_at_once(producer: AIOKafkaProducer, one_broker: FakeCluster) -> None:
    """Otherwise `send_batch` would refuse it after earlier records were sent."""
    batch = producer.create_batch()
    batch.append(timestamp=1, key=None, value=b"1")
    with pytest.raises(ValueError, match="timestamp"):
        batch.append(timestamp=-1, key=None, value=b"2")
    batch.append(timestamp=2, key=None, value=b"3")

    await (await producer.send_batch(batch, "orders", partition=0))

    assert values(one_broker, "orders") == [b"1", b"3"]


async def test_object_of_another_type_is_refused_as_batch(producer: AIOKafkaProducer) -> None:
    with pytest.raises(TypeError, match=r"^batch must be one of `create_batch`, not dict"):
        await producer.send_batch({}, "orders", partition=0)  # type: ignore[arg-type]


async def test_batch_with_a_record_that_is_too_large_is_refused_whole(one_broker: FakeCluster) -> None:
    """Sending it again without that record then writes no record twice."""
    async with producer_of(one_broker, max_batch_size=100_000, max_request_size=10_000) as producer:
        batch = producer.create_batch()
        batch.append(timestamp=None, key=None, value=b"1")
        batch.append(timestamp=None, key=None, value=bytes(10_000))
        with pytest.raises(errors.MessageSizeTooLargeError, match="max_request_size=10000"):
            await producer.send_batch(batch, "orders", partition=0)
        await producer.flush()

    assert values(one_broker, "orders") == []


async def test_batch_keeps_times_and_takes_nothing_once_sent(
    producer: AIOKafkaProducer, one_broker: FakeCluster
) -> None:
    batch = producer.create_batch()
    for timestamp in (7, 5):
        batch.append(timestamp=timestamp, key=None, value=b"1")
    await (await producer.send_batch(batch, "orders", partition=0))

    assert [record.timestamp for record in one_broker.records("orders", 0)] == [7, 5]
    assert batch.closed()
    assert batch.append(timestamp=9, key=None, value=b"late") is None
    assert batch.record_count() == 2


@pytest.mark.parametrize(
    "key,value,headers",
    [(b"k", bytes(10_000), []), (None, bytes(200), [("h", None), ("name", bytes(300))]), (bytes(20_000), None, [])],
)
async def test_batch_is_refused_whole_at_the_byte(
    one_broker: FakeCluster, *, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    """Its check and the producer's agree: with one byte less, the records before the large one are not sent either."""
    probe = producer_of(one_broker, max_batch_size=100_000).create_batch()
    probe.append(timestamp=None, key=key, value=value, headers=headers)
    for limit, expected in ((probe.largest() - 1, 0), (probe.largest(), 2)):
        async with producer_of(one_broker, max_batch_size=100_000, max_request_size=limit) as producer:
            batch = producer.create_batch()
            batch.append(timestamp=None, key=None, value=b"small")
            batch.append(timestamp=None, key=key, value=value, headers=headers)
            with nullcontext() if expected else pytest.raises(errors.MessageSizeTooLargeError, match="of the batch"):
                await (await producer.send_batch(batch, "orders", partition=0))

        assert len(one_broker.records("orders", 0)) == expected
