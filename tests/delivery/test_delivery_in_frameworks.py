"""Calls from web frameworks and anyio: handlers, background tasks, endpoints in threads, task groups."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
import httpx
import pytest
from fastapi import BackgroundTasks, FastAPI

from aioproducer import DeliveryTimeoutError, IllegalStateError, Outcome, Producer
from aioproducer.testing import FakeCluster
from tests.produced import values

NAMES_THE_WAY_OUT = r"(?s)send_threadsafe.*BlockingProducer"


def service(producer: Producer) -> FastAPI:
    """An application that sends in every way its users have tried."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with producer:
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/handler")
    async def handler() -> dict[str, int]:
        return {"offset": (await producer.send("orders", b"handler", partition=0)).offset}

    @app.post("/background")
    async def background(tasks: BackgroundTasks) -> None:
        tasks.add_task(producer.send, "orders", b"background", partition=0)

    @app.post("/background-and-wait")
    async def background_and_wait(tasks: BackgroundTasks) -> None:
        tasks.add_task(producer.send_and_wait, "orders", b"background", partition=0)

    @app.post("/thread")
    def thread() -> None:
        producer.send("orders", b"thread", partition=0)

    @app.post("/thread-with-future")
    def thread_with_future() -> dict[str, int]:
        return {"offset": producer.send_threadsafe("orders", b"future", partition=0).result(5).offset}

    return app


@pytest.fixture
async def client(one_broker: FakeCluster) -> AsyncIterator[httpx.AsyncClient]:
    app = service(Producer(one_broker.bootstrap_servers))
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://s") as caller:
        yield caller


async def test_handler_awaits(client: httpx.AsyncClient, one_broker: FakeCluster) -> None:
    answers = [await client.post("/handler") for _ in range(2)]

    assert [answer.json() for answer in answers] == [{"offset": 0}, {"offset": 1}]
    assert values(one_broker, "orders") == [b"handler"] * 2


@pytest.mark.parametrize("path", ["/background", "/background-and-wait"])
async def test_background_task_is_awaited_on_the_loop(
    client: httpx.AsyncClient, one_broker: FakeCluster, path: str
) -> None:
    """`send` says that it is a coroutine function, so Starlette runs it on the loop and not in a thread."""
    answer = await client.post(path)

    assert answer.status_code == 200
    assert values(one_broker, "orders") == [b"background"]


async def test_endpoint_in_a_thread_raises_with_the_alternative(
    client: httpx.AsyncClient, one_broker: FakeCluster
) -> None:
    with pytest.raises(IllegalStateError, match=NAMES_THE_WAY_OUT):
        await client.post("/thread")

    assert (await client.post("/handler")).json() == {"offset": 0}
    assert values(one_broker, "orders") == [b"handler"]


async def test_endpoint_in_a_thread_may_use_send_threadsafe(client: httpx.AsyncClient) -> None:
    assert (await client.post("/thread-with-future")).json() == {"offset": 0}


async def test_start_soon_takes_the_coroutine_function(producer: Producer, one_broker: FakeCluster) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(producer.send_and_wait, "orders", b"one")
        group.start_soon(producer.enqueue, "orders", b"two")
    await producer.flush()

    assert sorted(values(one_broker, "orders")) == [b"one", b"two"]


@pytest.mark.parametrize("verb", ["send", "send_nowait"])
async def test_verb_from_another_thread_is_refused(producer: Producer, one_broker: FakeCluster, verb: str) -> None:
    await producer.partitions_for("orders")

    with pytest.raises(IllegalStateError, match=NAMES_THE_WAY_OUT):
        await anyio.to_thread.run_sync(getattr(producer, verb), "orders", b"v")

    assert producer.statistics().records_sent == 0
    assert values(one_broker, "orders") == []


@pytest.mark.parametrize("verb", ["enqueue", "send_and_wait", "flush", "close", "start", "partitions_for"])
async def test_coroutine_on_another_threads_loop_is_refused(producer: Producer, verb: str) -> None:
    arguments = {"enqueue": ("orders", b"v"), "send_and_wait": ("orders", b"v"), "partitions_for": ("orders",)}

    def elsewhere() -> None:
        asyncio.run(getattr(producer, verb)(*arguments.get(verb, ())))

    with pytest.raises(IllegalStateError, match="BlockingProducer"):
        await anyio.to_thread.run_sync(elsewhere)

    assert (await producer.send("orders", b"v")).offset == 0


async def test_threads_that_wait_get_their_metadata(producer: Producer) -> None:
    found: list[int] = []

    def send() -> None:
        found.append(producer.send_threadsafe("orders", b"v", partition=0).result(5).offset)

    threads = [threading.Thread(target=send) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await anyio.to_thread.run_sync(thread.join)

    assert sorted(found) == list(range(10))


async def test_errors_of_send_threadsafe_come_by_its_future(producer: Producer) -> None:
    with pytest.raises(TypeError, match="partition"):
        await asyncio.wrap_future(producer.send_threadsafe("orders", b"v", partition=0.0))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="deadline must be a number of seconds"):
        await asyncio.wrap_future(producer.send_threadsafe("orders", b"v", deadline="1"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="deadline must be above 0"):
        await asyncio.wrap_future(producer.send_threadsafe("orders", b"v", deadline=0))
    await producer.close()

    with pytest.raises(IllegalStateError, match="closed"):
        producer.send_threadsafe("orders", b"v")
    with pytest.raises(IllegalStateError, match="not started"):
        Producer("h:9092").send_threadsafe("orders", b"v")


async def test_deadline_of_send_threadsafe_counts_from_its_call(producer: Producer) -> None:
    future = producer.send_threadsafe("orders", b"v", deadline=0.02)
    time.sleep(0.03)  # noqa: ASYNC251  # the event loop comes to the call only then

    with pytest.raises(DeliveryTimeoutError, match=r"deadline=0\.02 was over before the event loop came") as caught:
        await asyncio.wrap_future(future)
    assert caught.value.outcome is Outcome.NOT_WRITTEN
    assert (await asyncio.wrap_future(producer.send_threadsafe("orders", b"v", deadline=60))).offset == 0


async def test_send_threadsafe_takes_the_longest_deadline_of_the_topic(one_broker: FakeCluster) -> None:
    short = {"delivery_timeout_ms": 50, "request_timeout_ms": 40, "linger_ms": 0}
    async with Producer(one_broker.bootstrap_servers, **short) as producer:  # type: ignore[arg-type]
        producer.topic("orders", value=bytes, delivery_timeout_ms=60_000)
        future = producer.send_threadsafe("orders", b"v", deadline=0.1)
        time.sleep(0.15)  # noqa: ASYNC251  # as above

        with pytest.raises(DeliveryTimeoutError, match=r"deadline=0\.1 was over before the event loop came"):
            await asyncio.wrap_future(future)
