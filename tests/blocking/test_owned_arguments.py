"""Arguments that a caller reuses after a call has returned: the record is what it was at the call."""

import asyncio
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from aioproducer import BlockingProducer, Producer, ProducerClosedError
from aioproducer.testing import FakeCluster
from tests.fakes.cluster_elsewhere import ClusterElsewhere

TOTAL = 50
ResultT = TypeVar("ResultT")

WRITTEN = [b"%05d" % number for number in range(TOTAL)]


def written(cluster: ClusterElsewhere) -> object:
    return cluster.do(lambda fake: [(r.key, r.value, *dict(r.headers).values()) for r in fake.records("orders", 0)])


def reuse(send: Callable[[bytearray, memoryview, list[tuple[str, bytes | None]]], ResultT]) -> list[ResultT]:
    buffer, results = bytearray(5), []
    headers: list[tuple[str, bytes | None]] = [("n", None)]
    for number in range(TOTAL):
        buffer[:] = b"%05d" % number
        headers[0] = ("n", bytes(buffer))
        results.append(send(buffer, memoryview(buffer), headers))
    return results


@pytest.fixture(name="producer")
def fixture_producer(cluster: ClusterElsewhere) -> Iterator[BlockingProducer]:
    with BlockingProducer(cluster.bootstrap_servers) as producer:
        yield producer


def test_send_threadsafe_copies(cluster: ClusterElsewhere, producer: BlockingProducer) -> None:
    reuse(lambda value, key, headers: producer.send_threadsafe("orders", value, key=key, partition=0, headers=headers))
    producer.flush()

    assert written(cluster) == [(number, number, number) for number in WRITTEN]


def test_send_threadsafe_of_a_topic_copies(cluster: ClusterElsewhere, producer: BlockingProducer) -> None:
    topic = producer.topic("orders", value=bytes)
    reuse(
        lambda value, key, headers: topic.send_threadsafe(
            value,  # type: ignore[arg-type]
            key=key,  # type: ignore[arg-type]
            partition=0,
            headers=headers,
        )
    )
    producer.flush()

    assert written(cluster) == [(number, number, number) for number in WRITTEN]


def test_enqueue_copies_what_a_serializer_takes(cluster: ClusterElsewhere) -> None:
    types: set[type] = set()

    def serialize(value: bytearray) -> bytes:
        types.add(type(value))
        return bytes(value)

    with BlockingProducer(cluster.bootstrap_servers, value_serializer=serialize) as producer:
        reuse(lambda value, key, headers: producer.enqueue("orders", value, key=key, partition=0, headers=headers))
        producer.flush()

    assert written(cluster) == [(number, number, number) for number in WRITTEN]
    assert types == {bytearray}


async def test_send_threadsafe_of_an_asynchronous_producer_copies() -> None:
    async with FakeCluster(1, topics={"orders": 1}) as cluster, Producer(cluster.bootstrap_servers) as producer:
        futures = await asyncio.to_thread(
            reuse, lambda value, key, headers: producer.send_threadsafe("orders", value, key=key, headers=headers)
        )
        await asyncio.gather(*map(asyncio.wrap_future, futures))
        found = [(r.key, r.value, *dict(r.headers).values()) for r in cluster.records("orders", 0)]

    assert found == [(number, number, number) for number in WRITTEN]


def test_wrong_headers_are_an_error_of_the_future(producer: BlockingProducer) -> None:
    with pytest.raises(TypeError, match="headers"):
        producer.send_threadsafe("orders", b"", headers=["n"]).result()  # type: ignore[list-item]


def test_producer_closed_before_it_was_started_says_so(cluster: ClusterElsewhere) -> None:
    """Rather than ask for a start that it would refuse."""
    producer = BlockingProducer(cluster.bootstrap_servers)
    producer.close()

    with pytest.raises(ProducerClosedError, match="make a new one"):
        producer.enqueue("orders", b"late")
    with pytest.raises(ProducerClosedError, match="make a new one"):
        producer.partitions_for("orders")
