"""Brokers that do not speak what a producer needs: a clear error, at once."""

import asyncio

import pytest

from aioproducer import Producer
from aioproducer.errors import UnsupportedVersionError
from tests.fakes.scripted_broker import Heard, ScriptedBroker, metadata_body
from tests.fakes.virtual_cluster import ClusterLoop, in_virtual_time

PRODUCE, METADATA, API_VERSIONS = 0, 3, 18
TOPIC_ID = bytes(range(16))


def answer_metadata(broker: ScriptedBroker, heard: Heard) -> None:
    if heard.api_key == METADATA:
        broker.answer(heard, metadata_body([(1, "old", 9092)], [(0, "orders", TOPIC_ID, [(1, 0)])]))


def old_broker(*, produce: tuple[int, int]) -> str:
    """A broker that speaks these versions of Produce, and no InitProducerId; its address."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ClusterLoop)
    spoken = ((PRODUCE, *produce), (METADATA, 0, 13), (API_VERSIONS, 0, 4))
    loop.servers["old", 9092] = lambda: ScriptedBroker(answer_metadata, spoken=spoken)
    return "old:9092"


@pytest.mark.parametrize("produce, acks", [((0, 2), 1), ((3, 13), -1)], ids=["Produce", "producer ids"])
@in_virtual_time
async def test_broker_that_is_too_old_is_refused_at_once(produce: tuple[int, int], acks: int) -> None:
    producer = Producer(old_broker(produce=produce), acks=acks)
    loop = asyncio.get_running_loop()
    began = loop.time()

    with pytest.raises(UnsupportedVersionError, match=r"too old|does not"):
        await start_and_send(producer)
    await producer.close(0)

    assert loop.time() - began < 5


@in_virtual_time
async def test_brokers_that_are_all_too_old_are_each_asked_once() -> None:
    """Waiting does not help: the start does not go on until `max_block_ms`."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ClusterLoop)
    spoken = ((PRODUCE, 0, 2), (METADATA, 0, 13), (API_VERSIONS, 0, 4))
    for host in ("one", "two"):
        loop.servers[host, 9092] = lambda: ScriptedBroker(answer_metadata, spoken=spoken)
    producer = Producer("one:9092,two:9092")
    began = loop.time()

    with pytest.raises(UnsupportedVersionError, match=r"too old|does not"):
        await producer.start()
    await producer.close(0)

    assert loop.time() - began < 5


async def start_and_send(producer: Producer) -> None:
    await producer.start()
    await producer.send("orders", b"x")
