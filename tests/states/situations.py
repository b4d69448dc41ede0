"""A producer in each of its states, on a virtual loop or, for another process and thread, beside one."""

import asyncio
import contextlib
import gc
import os
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Mapping
from types import MappingProxyType

from aioproducer import KafkaError, Producer
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.background_tasks import background_tasks
from tests.fakes.virtual_cluster import ClusterLoop
from tests.states.calls import CALLS, TOPIC, outcome

METADATA = Where(api=ApiKey.METADATA)
PRODUCE = Where(api=ApiKey.PRODUCE)


async def new(_cluster: FakeCluster, _producer: Producer) -> None:
    """Nothing was called."""


async def starting(cluster: FakeCluster, producer: Producer) -> None:
    cluster.faults.stall(METADATA)
    waiting = asyncio.create_task(producer.start())
    waiting.add_done_callback(_look)
    await asyncio.sleep(0.1)


async def running(_cluster: FakeCluster, producer: Producer) -> None:
    await producer.start()
    await producer.partitions_for(TOPIC)


async def failed(cluster: FakeCluster, producer: Producer) -> None:
    await running(cluster, producer)
    background_tasks()["sender"].cancel()
    await asyncio.sleep(0.1)


async def closing(cluster: FakeCluster, producer: Producer) -> None:
    await running(cluster, producer)
    cluster.faults.stall(PRODUCE)
    await producer.enqueue(TOPIC, b"v")
    waiting = asyncio.create_task(producer.close())
    waiting.add_done_callback(_look)
    await asyncio.sleep(0.1)


async def closed(cluster: FakeCluster, producer: Producer) -> None:
    await running(cluster, producer)
    await producer.close()


STATES: Mapping[str, Callable[[FakeCluster, Producer], "asyncio._CoroutineLike[None]"]] = MappingProxyType(
    {"new": new, "starting": starting, "running": running, "failed": failed, "closing": closing, "closed": closed}
)
"""States by their name in the producer's `repr`."""


def _look(task: "asyncio.Task[object]") -> None:
    if not task.cancelled():
        task.exception()


@contextlib.asynccontextmanager
async def producer_in(state: str) -> AsyncIterator[Producer]:
    async with FakeCluster(1, topics={TOPIC: 1}) as cluster:
        producer = Producer(cluster.bootstrap_servers, close_timeout_ms=60_000, max_block_ms=60_000)
        await STATES[state](cluster, producer)
        assert f" {state} " in repr(producer)
        yield producer
        with contextlib.suppress(KafkaError):
            await producer.close(0)


def on_the_loop(state: str, call: str) -> str:
    async def story() -> str:
        async with producer_in(state) as producer:
            return await outcome(producer, call)

    with asyncio.Runner(loop_factory=ClusterLoop) as runner:
        return runner.run(story())


def on_another_thread(call: str) -> str:
    """Make a call of a running producer from a thread with a loop of its own."""

    async def story() -> str:
        found: list[str] = []
        async with producer_in("running") as producer:
            thread = threading.Thread(target=lambda: found.append(asyncio.run(outcome(producer, call))))
            thread.start()
            thread.join()
            await asyncio.sleep(0.1)  # what it handed over to this loop
        return found[0]

    with asyncio.Runner(loop_factory=ClusterLoop) as runner:
        return runner.run(story())


def after_its_loop(call: str) -> str:
    """Make a call of a running producer whose loop has ended, on another loop."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # a producer cannot be closed after its loop
        with asyncio.Runner(loop_factory=ClusterLoop) as runner:
            producer = runner.run(_left_running())
        with asyncio.Runner(loop_factory=ClusterLoop) as runner:
            found = runner.run(outcome(producer, call))
        del producer
        gc.collect()
    return found


async def _left_running() -> Producer:
    cluster = FakeCluster(1, topics={TOPIC: 1})
    await cluster.start()
    producer = Producer(cluster.bootstrap_servers)
    await running(cluster, producer)
    return producer


def in_a_fork(call: str) -> str:
    """Make a call of a running producer in a child process, on the loop that came along."""

    async def story() -> str:
        async with producer_in("running") as producer:
            return _asked_in_child(lambda: _first_step(producer, call))

    with asyncio.Runner(loop_factory=ClusterLoop) as runner:
        return runner.run(story())


def _first_step(producer: Producer, call: str) -> str:
    # As far as a call gets without the loop, which is the parent's: all of them are refused before.
    try:
        given = CALLS[call](producer)
        if hasattr(given, "send"):
            given.send(None)
    except Exception as error:  # noqa: BLE001  # that is the question
        return type(error).__name__
    return "ok"


def _asked_in_child(ask: Callable[[], str]) -> str:
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 on: threads and fork
        child = os.fork()
    if child == 0:  # pragma: no cover  # counted in the parent
        try:
            os.write(writing, ask().encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        return answer.read().decode()
