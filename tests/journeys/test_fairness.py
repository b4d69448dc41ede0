"""One broker or one partition in trouble must not slow the others: the same load with and without it, compared.

A hundred partitions on three brokers, one copy each. Every partition has a caller of its own, who gives records at a
steady rate as long as `enqueue` takes them. The small buffer is full of the troubled records after some seconds.
"""

import asyncio
import contextlib
import functools
from collections.abc import Callable
from random import Random

import pytest

from aioproducer import KafkaError, Producer, RecordMetadata, UndeliveredError
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.virtual_loop import ClusterLoop, now

PARTITIONS = 100
SECONDS = 60
RATE = 1
GROUPS = 25
VALUE = b"x" * 2_000
BUFFERS = {"a buffer with room": 33_554_432, "a buffer that fills up": 98_304}
NOT_ENOUGH_REPLICAS = 19
STUCK = 0
PRODUCE = Where(api=ApiKey.PRODUCE)

Trouble = Callable[[FakeCluster], None]


class Load:
    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.acknowledged = [0] * PARTITIONS
        self._counting = [functools.partial(self._count, number) for number in range(PARTITIONS)]

    def _count(self, partition: int, metadata: RecordMetadata | None, _error: KafkaError | None) -> None:
        self.acknowledged[partition] += metadata is not None

    async def run(self) -> None:
        callers = [asyncio.create_task(self._call(number)) for number in range(PARTITIONS)]
        await asyncio.sleep(SECONDS)
        for caller in callers:
            caller.cancel()
        await asyncio.wait(callers)

    async def _call(self, partition: int) -> None:
        await asyncio.sleep(partition % GROUPS / GROUPS / RATE)
        while True:
            with contextlib.suppress(KafkaError):
                await self._producer.enqueue(
                    "orders", VALUE, partition=partition, on_delivery=self._counting[partition]
                )
            await asyncio.sleep(1 / RATE)


async def minute(trouble: Trouble, *, buffer_memory: int, nodes: int) -> list[int]:
    """Return the acknowledged records of each partition."""
    async with FakeCluster(nodes, topics={"orders": PARTITIONS}, replication_factor=1) as cluster:
        cluster.faults.delay(0.01, PRODUCE, times=None)
        producer = Producer(cluster.bootstrap_servers, buffer_memory=buffer_memory)
        await producer._use_sources(random=Random(1), wall_clock=lambda: 1_700_000_000_000).start()
        await asyncio.gather(*(producer.send("orders", b"", partition=number) for number in range(PARTITIONS)))
        trouble(cluster)
        load = Load(producer)
        await load.run()
        cluster.faults.clear()
        with contextlib.suppress(UndeliveredError):
            await producer.close(0)
        return load.acknowledged


@functools.cache
def acknowledged(trouble: Trouble, buffer_memory: int, nodes: int) -> tuple[int, ...]:
    with asyncio.Runner(loop_factory=ClusterLoop) as runner:
        return tuple(runner.run(minute(trouble, buffer_memory=buffer_memory, nodes=nodes)))


def none(_: FakeCluster) -> None:
    """All is well."""


def stalled_broker(cluster: FakeCluster) -> None:
    """The broker of a third of the partitions keeps its connections open and answers nothing."""
    cluster.faults.stall(Where(node_id=cluster.leader_of("orders", STUCK)))


def leaderless_partition(cluster: FakeCluster) -> None:
    topic = cluster.model.topics.named("orders")
    assert topic is not None
    partition = topic.partition(STUCK)
    assert partition is not None
    partition.lose_leader(now())


def backing_off_partition(cluster: FakeCluster) -> None:
    """One partition is refused, each time with an answer that says to try again."""
    where = Where(api=ApiKey.PRODUCE, topic="orders", partition=STUCK)
    cluster.faults.error(NOT_ENOUGH_REPLICAS, where, times=None)


def share_of(trouble: Trouble, buffer: str, *, nodes: int = 3) -> float:
    """Return the share of the worst unaffected partition, compared with the same minute without trouble."""
    size = BUFFERS[buffer]
    with asyncio.Runner(loop_factory=ClusterLoop) as runner:
        in_trouble = runner.run(partitions_in(trouble, nodes))
    with_trouble, without = acknowledged(trouble, size, nodes), acknowledged(none, size, nodes)
    return min(with_trouble[each] / without[each] for each in range(PARTITIONS) if each not in in_trouble)


async def partitions_in(trouble: Trouble, nodes: int) -> set[int]:
    if trouble is not stalled_broker:
        return {STUCK}
    async with FakeCluster(nodes, topics={"orders": PARTITIONS}, replication_factor=1) as cluster:
        stalled = cluster.leader_of("orders", STUCK)
        return {each for each in range(PARTITIONS) if cluster.leader_of("orders", each) == stalled}


@pytest.mark.slow
def test_others_go_on_while_a_broker_is_stalled() -> None:
    assert share_of(stalled_broker, "a buffer with room") >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("trouble", [stalled_broker, leaderless_partition, backing_off_partition])
def test_partitions_go_on_while_stuck_records_fill_the_buffer(trouble: Trouble) -> None:
    """The other partitions keep a part of the memory, and reach at least 95 %."""
    assert share_of(trouble, "a buffer that fills up") >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("trouble", [leaderless_partition, backing_off_partition])
def test_others_go_on_where_all_have_the_same_broker(trouble: Trouble) -> None:
    assert share_of(trouble, "a buffer that fills up", nodes=1) >= 0.95
