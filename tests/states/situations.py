"""A producer in each of its states, every public call of it, and the outcomes that the page about states promises."""

import asyncio
import contextlib
import gc
import os
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Mapping
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

from aioproducer import KafkaError, Producer
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.producing import background_tasks
from tests.fakes.virtual_loop import ClusterLoop

TOPIC = "t"
PATIENCE_S = 1.0  # virtual; what takes longer, waits

CALLS: Mapping[str, Callable[[Producer], object]] = MappingProxyType(
    {
        "start()": lambda producer: producer.start(),
        "start(wait=False)": lambda producer: producer.start(wait=False),
        "send": lambda producer: producer.send(TOPIC, b"v"),
        "send_and_wait": lambda producer: producer.send_and_wait(TOPIC, b"v"),
        "enqueue": lambda producer: producer.enqueue(TOPIC, b"v"),
        "send_nowait": lambda producer: producer.send_nowait(TOPIC, b"v"),
        "send_many": lambda producer: producer.send_many(TOPIC, [b"v"]),
        "send_threadsafe": lambda producer: producer.send_threadsafe(TOPIC, b"v"),
        "topic(...).send": lambda producer: producer.topic(TOPIC, value=bytes).send(b"v"),
        "partitions_for": lambda producer: producer.partitions_for(TOPIC),
        "flush()": lambda producer: producer.flush(),
        "purge()": lambda producer: producer.purge(),
        "close()": lambda producer: producer.close(),
        "close(0)": lambda producer: producer.close(0),
        "statistics()": lambda producer: producer.statistics(),
        "metrics()": lambda producer: producer.metrics(),
        "explain()": lambda producer: producer.explain(),
        "health()": lambda producer: producer.health(),
        "repr()": repr,
        "config": lambda producer: producer.config,
    }
)
"""Calls by their name on the page about states. The result of `send` is not awaited here."""

ACCEPTED_WHEN_RETURNED = {"send", "send_nowait", "send_threadsafe", "topic(...).send"}


async def outcome(producer: Producer, name: str) -> str:
    """Make a call: "ok", "waits" (it is cancelled then), or the name of the error's class."""
    return await outcome_of(CALLS[name], producer, is_accepted_when_returned=name in ACCEPTED_WHEN_RETURNED)


async def outcome_of(
    call: Callable[[Producer], object], producer: Producer, *, is_accepted_when_returned: bool = False
) -> str:
    try:
        given = call(producer)
        if is_accepted_when_returned or not hasattr(given, "__await__"):
            return "ok"
        async with asyncio.timeout(PATIENCE_S) as patience:
            await given  # type: ignore[misc]  # asked above
    except TimeoutError as error:
        return "waits" if patience.expired() else type(error).__name__
    except Exception as error:  # noqa: BLE001  # that is the question
        return type(error).__name__
    return "ok"


# The tables of the page about states, as data: what the tests hold the producer to

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "states.md"


WITH_AN_ID = "## With a transactional id"


def cells() -> dict[tuple[str, str], str]:
    """(where the producer is, call) -> "ok", "waits", or the name of an error."""
    return _cells_in(PAGE.read_text("utf-8").partition(WITH_AN_ID)[0])


def transactional_cells() -> dict[tuple[str, str], str]:
    """The same of a producer with a transactional id."""
    return _cells_in(PAGE.read_text("utf-8").partition(WITH_AN_ID)[2])


def _cells_in(text: str) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    places: list[str] = []
    lines = text.splitlines()
    for line, following in pairwise([*lines, ""]):
        if following.startswith("| ---"):
            places = _columns(line)[1:]
        elif line.startswith("| `"):
            call, *outcomes = _columns(line)
            found.update(zip(((place, call) for place in places), outcomes, strict=True))
    return found


def _columns(line: str) -> list[str]:
    return [column.strip().strip("`") for column in line.strip().strip("|").split("|")]


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
