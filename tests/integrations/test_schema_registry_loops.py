"""One registry for serializers of several event loops, whose connections end with their loop."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from aioproducer import BlockingProducer
from aioproducer.integrations.schema_registry import AvroSerializer, ConfluentRegistry
from aioproducer.testing import FakeCluster
from tests.fakes.schema_registry import FakeSchemaRegistry
from tests.integrations.test_schema_registry import AVRO, ORDER
from tests.produced import values

TOPICS = ("a", "b", "c", "d")


@pytest.fixture(name="registry")
async def fixture_registry() -> AsyncIterator[FakeSchemaRegistry]:
    async with FakeSchemaRegistry() as registry:
        yield registry


async def test_serializer_works_in_one_loop_after_another(registry: FakeSchemaRegistry) -> None:
    """As with one `asyncio.run` for each job; no connection is left open, of which Python would warn."""
    serializer: AvroSerializer[object] = AvroSerializer(AVRO, ConfluentRegistry(registry.url))
    for topic in TOPICS:
        await asyncio.to_thread(asyncio.run, serializer.prepare(topic))
    gc.collect()

    assert list(registry.subjects) == [f"{topic}-value" for topic in TOPICS]


@pytest.mark.parametrize("closes", [False, True])
async def test_serializer_works_in_two_loops_by_turns(registry: FakeSchemaRegistry, *, closes: bool) -> None:
    """A `close` is of the loop's own connections: the other loop's go on."""
    serializer: AvroSerializer[object] = AvroSerializer(AVRO, registry.url)

    def by_turns() -> None:
        with asyncio.Runner() as first, asyncio.Runner() as second:
            for topic, runner in zip(TOPICS, (first, second, first, second), strict=True):
                runner.run(serializer.prepare(topic))
                if closes and runner is first:
                    first.run(serializer.close())

    await asyncio.to_thread(by_turns)
    gc.collect()

    assert list(registry.subjects) == [f"{topic}-value" for topic in TOPICS]


async def test_serializer_works_in_many_threads_at_once(registry: FakeSchemaRegistry) -> None:
    """All ask for the same topics, and each waits for the answers in its own loop."""
    serializer: AvroSerializer[object] = AvroSerializer(AVRO, registry.url)
    begin = threading.Barrier(8, timeout=10)

    def prepare() -> None:
        begin.wait()
        asyncio.run(serializer.prepare(*TOPICS))

    with ThreadPoolExecutor(8) as threads:
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(threads, prepare) for _ in range(8)))
    gc.collect()

    assert set(registry.subjects) == {f"{topic}-value" for topic in TOPICS}


async def test_blocking_producers_share_a_serializer(one_broker: FakeCluster, registry: FakeSchemaRegistry) -> None:
    one_broker.create_topic("other", partitions=1)
    serializer: AvroSerializer[object] = AvroSerializer(AVRO, registry.url)

    def send() -> None:
        with BlockingProducer(one_broker.bootstrap_servers, value_serializer=serializer) as second:
            with BlockingProducer(one_broker.bootstrap_servers, value_serializer=serializer) as first:
                first.send("orders", ORDER)
                second.send("other", ORDER)
            second.send("orders", ORDER)

    await asyncio.to_thread(send)

    assert len(values(one_broker, "orders")) == 2
    assert len(values(one_broker, "other")) == 1
