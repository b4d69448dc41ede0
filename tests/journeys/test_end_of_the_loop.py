"""`asyncio.run` cancels every task at its end: producers of other tasks still deliver, or say what they could not."""

import asyncio
import gc
import warnings
from collections.abc import Awaitable, Callable

import anyio
import pytest

from aioproducer import BackgroundTaskDiedError, Producer
from aioproducer.testing import ApiKey, FakeCluster, Where
from aioproducer.testing.fake_cluster import AnyFakeCluster
from tests.fakes.logs import LogCapture
from tests.fakes.producing import background_tasks

PRODUCE = Where(api=ApiKey.PRODUCE)
API_VERSIONS = Where(api=ApiKey.API_VERSIONS)
RECORDS = 20
CLOSE_MS = 2_000
KEPT: list[object] = []  # beyond the end of the loop

Program = Callable[[str], Awaitable[None]]


async def closes(servers: str) -> None:
    """End while a worker is within the `async with` of its producer."""

    async def work() -> None:
        async with Producer(servers, linger_ms=3_000, close_timeout_ms=CLOSE_MS) as producer:
            for _ in range(RECORDS):
                await producer.enqueue("orders", b"v")
            filled.set()
            await asyncio.sleep(60)

    filled = asyncio.Event()
    KEPT.append(asyncio.create_task(work()))
    await filled.wait()


async def never_closes(servers: str) -> None:
    producer = await Producer(servers, linger_ms=3_000).start()
    KEPT.append(producer)
    for _ in range(RECORDS):
        await producer.enqueue("orders", b"v")


async def leaves_a_cancelled_scope(servers: str) -> None:
    """Anyio cancels each wait within the scope, the one for the close too."""
    with anyio.CancelScope() as scope:
        async with Producer(servers, linger_ms=3_000, close_timeout_ms=CLOSE_MS) as producer:
            for _ in range(RECORDS):
                await producer.enqueue("orders", b"v")
            scope.cancel()
            await anyio.sleep(60)


async def gives_up_its_start(servers: str) -> None:
    with anyio.move_on_after(0):
        await Producer(servers).start()


@pytest.mark.parametrize("program", [closes, never_closes, leaves_a_cancelled_scope])
def test_records_are_delivered_when_the_loop_ends(program: Program) -> None:
    with FakeCluster.in_thread(1, topics={"orders": 1}) as cluster, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of the one that is never closed
        asyncio.run(program(cluster.bootstrap_servers))
        KEPT.clear()
        gc.collect()

        assert len(cluster.records("orders", 0)) == RECORDS


@pytest.mark.parametrize("program", [closes, leaves_a_cancelled_scope, gives_up_its_start])
def test_what_is_closed_as_the_loop_ends_is_not_warned_of(program: Program, capsys: pytest.CaptureFixture[str]) -> None:
    with FakeCluster.in_thread(1, topics={"orders": 1}) as cluster, warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(program(cluster.bootstrap_servers))
        KEPT.clear()
        gc.collect()

    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "program, how",
    [
        (closes, "was closed because of CancelledError: "),
        (never_closes, "was dropped without close()"),
    ],
)
def test_what_cannot_be_delivered_as_the_loop_ends_is_told(
    program: Program, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    in_thread = FakeCluster.in_thread(1, topics={"orders": 1})
    with in_thread as cluster, warnings.catch_warnings(), LogCapture() as log:
        warnings.simplefilter("ignore", ResourceWarning)
        cluster.faults.stall(PRODUCE)
        asyncio.run(program(cluster.bootstrap_servers))
        KEPT.clear()
        gc.collect()

    told = capsys.readouterr().err
    assert told.startswith(f"aioproducer: {RECORDS} records were not delivered: producer 'producer-")
    assert how in told
    assert log.naming("undelivered_at_end") or log.naming("producer_not_closed")


def test_note_of_an_exception_that_is_shown_is_not_told_twice(capsys: pytest.CaptureFixture[str]) -> None:
    async def fail(cluster: FakeCluster) -> None:
        async with Producer(cluster.bootstrap_servers, close_timeout_ms=100) as producer:
            cluster.faults.stall(PRODUCE)
            producer.send("orders", b"v")
            raise LookupError("of the user")

    async def story() -> None:
        async with FakeCluster(1, topics={"orders": 1}) as cluster:
            await fail(cluster)

    with pytest.raises(LookupError) as caught:
        asyncio.run(story())

    assert "not delivered" in caught.value.__notes__[0]
    assert capsys.readouterr().err == ""


async def test_cancelled_tasks_end_a_producer_after_its_exit_flush(one_broker: FakeCluster) -> None:
    async with Producer(one_broker.bootstrap_servers, exit_flush_timeout_ms=50) as producer:
        await producer.send("orders", b"v")
        one_broker.faults.stall(PRODUCE)
        pending = producer.send("orders", b"v")

        for task in background_tasks().values():
            task.cancel()

        with pytest.raises(BackgroundTaskDiedError, match="was cancelled from outside"):
            await pending
        with pytest.raises(BackgroundTaskDiedError):
            producer.send("orders", b"later")


def test_record_of_a_task_that_cleans_up_is_delivered() -> None:
    async def work(servers: str, ready: asyncio.Event) -> None:
        async with Producer(servers) as producer:
            await producer.send("orders", b"v")
            ready.set()
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.05)
                producer.send("orders", b"last")

    async def program(servers: str) -> None:
        ready = asyncio.Event()
        KEPT.append(asyncio.create_task(work(servers, ready)))
        await ready.wait()

    with FakeCluster.in_thread(1, topics={"orders": 1}) as cluster:
        asyncio.run(program(cluster.bootstrap_servers))

        assert [record.value for record in cluster.records("orders", 0)] == [b"v", b"last"]


def test_connection_begun_as_the_loop_ends_is_made_again() -> None:
    async def program(cluster: AnyFakeCluster) -> None:
        producer = await Producer(cluster.bootstrap_servers, exit_flush_timeout_ms=20_000).start()
        KEPT.append(producer)
        await producer.partitions_for("orders")
        cluster.faults.delay(0.2, API_VERSIONS, times=None)
        for partition in range(3):
            producer.send("orders", b"v", partition=partition)
        while "connect" not in background_tasks():  # noqa: ASYNC110  # it has no other sign
            await asyncio.sleep(0)

    with FakeCluster.in_thread(3, topics={"orders": 3}) as cluster, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        asyncio.run(program(cluster))
        KEPT.clear()
        gc.collect()

        assert [len(cluster.records("orders", partition)) for partition in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("state", ["starting", "running", "closing"])
def test_tasks_that_are_cancelled_again_end(state: str) -> None:
    """The shutdown code of an application cancels all tasks before `asyncio.run` does."""

    async def program(cluster: AnyFakeCluster) -> None:
        producer = Producer(cluster.bootstrap_servers, exit_flush_timeout_ms=60_000, linger_ms=0)
        KEPT.append(producer)
        if state == "starting":
            cluster.faults.stall(Where(api=ApiKey.METADATA))
            KEPT.append(asyncio.create_task(producer.start()))
        else:
            await producer.start()
            cluster.faults.stall(PRODUCE)
            producer.send("orders", b"v")
        if state == "closing":
            KEPT.append(asyncio.create_task(producer.close()))
        await asyncio.sleep(0.05)
        for _ in range(3):
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(0.05)

    with FakeCluster.in_thread(1, topics={"orders": 1}) as cluster, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        asyncio.run(program(cluster))
        KEPT.clear()
        gc.collect()
