"""Type checkers see what `aioproducer.integrations.asgi` gives to frameworks. Checked, never run."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import assert_type

from fastapi import FastAPI, Request
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from aioproducer import BlockingProducer, Producer
from aioproducer.integrations.asgi import deadline, inspector, lifespan, readiness

producer = Producer("localhost:9092")
blocking = BlockingProducer("localhost:9092")


@asynccontextmanager
async def with_state(app: FastAPI) -> AsyncIterator[Mapping[str, object]]:
    yield {"title": app.title}


routes = [Route("/ready", readiness(producer, blocking)), Mount("/producer", inspector(producer, blocking))]
FastAPI(lifespan=lifespan(producer), routes=routes)
FastAPI(lifespan=lifespan(producer, wait=False, then=with_state))
Starlette(lifespan=lifespan(producer))
assert_type(lifespan(producer), Callable[[object], AbstractAsyncContextManager[None]])

lifespan(blocking)  # type: ignore[call-overload]
lifespan(producer, wait="no")  # type: ignore[call-overload]
readiness("localhost:9092")  # type: ignore[arg-type]


def handler(request: Request) -> None:
    assert_type(deadline(request), float | None)
    assert_type(deadline(request.scope, at_most=5, headers=["x-budget-ms"]), float | None)
    deadline(request, at_most="5")  # type: ignore[arg-type]
