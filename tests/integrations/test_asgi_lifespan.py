"""Producers that start and close with a web application, in each framework."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from fastapi import FastAPI
from litestar import Litestar, get
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from aioproducer import BlockingProducer, Producer
from aioproducer.integrations.asgi import lifespan
from aioproducer.testing import FakeCluster
from tests.fakes.asgi_server import App, StartFailedError, serving
from tests.produced import values

FRAMEWORKS = ["starlette", "fastapi", "litestar"]


def application(framework: str, *producers: Producer, wait: bool = True) -> App:
    """An application that sends b"tea" without waiting, at GET /."""

    async def send(_: Request) -> PlainTextResponse:
        producers[-1].send("orders", b"tea")
        return PlainTextResponse("accepted")

    @get("/")
    async def send_in_litestar() -> str:
        producers[-1].send("orders", b"tea")
        return "accepted"

    if framework == "starlette":
        return Starlette(lifespan=lifespan(*producers, wait=wait), routes=[Route("/", send)])
    if framework == "fastapi":
        return FastAPI(lifespan=lifespan(*producers, wait=wait), routes=[Route("/", send)])
    return Litestar([send_in_litestar], lifespan=[lifespan(*producers, wait=wait)])


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_lifespan_starts_and_delivers_what_was_accepted(cluster: FakeCluster, framework: str) -> None:
    producers = [Producer(cluster.bootstrap_servers, linger_ms=60_000) for _ in range(2)]
    async with serving(application(framework, *producers)) as client:
        answer = await client.get("/")
        states = [producer.explain().state for producer in producers]

    assert (answer.text, states) == ("accepted", ["running", "running"])
    assert values(cluster, "orders") == [b"tea"]
    assert [producer.explain().state for producer in producers] == ["closed", "closed"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_start_that_fails_ends_the_application_and_says_why(cluster: FakeCluster, framework: str) -> None:
    first = Producer(cluster.bootstrap_servers)
    second = Producer("127.0.0.1:1", max_block_ms=200)
    with pytest.raises(StartFailedError, match=r"no broker has answered within 0\.2 s.*127\.0\.0\.1:1"):
        async with serving(application(framework, first, second)):
            raise AssertionError

    assert first.explain().state == "closed"


async def test_application_that_does_not_wait_starts_without_brokers() -> None:
    producer = Producer("127.0.0.1:1")
    async with serving(application("starlette", producer, wait=False)):
        assert producer.explain().state == "running"


async def test_lifespan_of_the_user_runs_inside(cluster: FakeCluster) -> None:
    """Its producer is started before and closed after it, and what it yields is the application's state."""
    producer = Producer(cluster.bootstrap_servers)
    seen: list[str] = []

    @asynccontextmanager
    async def own(app: Starlette) -> AsyncIterator[Mapping[str, object]]:
        assert isinstance(app, Starlette)
        seen.append(producer.explain().state)
        yield {"pool": "a pool"}
        await producer.send("orders", b"the last")
        seen.append(producer.explain().state)

    async def pool(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.state.pool)

    app = Starlette(lifespan=lifespan(producer, then=own), routes=[Route("/", pool)])
    async with app.router.lifespan_context(app) as state:
        assert state == {"pool": "a pool"}

    assert seen == ["running", "running"]
    assert producer.explain().state == "closed"


async def test_error_of_the_users_lifespan_closes_the_producer(cluster: FakeCluster) -> None:
    producer = Producer(cluster.bootstrap_servers)

    @asynccontextmanager
    async def own(app: Starlette) -> AsyncIterator[None]:
        if "database" not in vars(app):
            raise LookupError("no database")
        yield

    with pytest.raises(StartFailedError, match="no database"):
        async with serving(Starlette(lifespan=lifespan(producer, then=own))):
            raise AssertionError

    assert producer.explain().state == "closed"


async def test_application_does_not_start_twice_with_one_producer(cluster: FakeCluster) -> None:
    app = application("starlette", Producer(cluster.bootstrap_servers))
    async with serving(app):
        pass

    with pytest.raises(StartFailedError, match="was closed; make a new one"):
        async with serving(app):
            raise AssertionError


@pytest.mark.parametrize(
    "producers,options,error",
    [
        ((), {}, "producers is empty: lifespan needs at least one Producer"),
        (("localhost:9092",), {}, r"producers\[0\] must be a Producer, not str"),
        ((Producer("localhost:9092"), Producer), {}, r"producers\[1\] must be a Producer, not type"),
        ((BlockingProducer("localhost:9092"),), {}, r"producers\[0\] must be a Producer, not BlockingProducer"),
        ((Producer("localhost:9092"),), {"wait": 5}, "wait must be True or False, not 5"),
        ((Producer("localhost:9092"),), {"then": "own"}, "then must be a lifespan, a function of .*, not str"),
    ],
)
def test_invalid_arguments_are_refused_at_once(
    producers: tuple[object, ...], options: Mapping[str, object], error: str
) -> None:
    with pytest.raises(TypeError, match=error):
        lifespan(*producers, **options)  # type: ignore[call-overload]
