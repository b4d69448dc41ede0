"""An ASGI server without a network: runs an application's lifespan, and gives a client for its requests."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import TypeAlias

import httpx

Message: TypeAlias = MutableMapping[str, object]
App: TypeAlias = Callable[..., Awaitable[object]]


class StartFailedError(Exception):
    """The application has refused to start, with this message."""


def client_of(app: App) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service")  # type: ignore[arg-type]


@asynccontextmanager
async def serving(app: App) -> AsyncIterator[httpx.AsyncClient]:
    """Start an application as uvicorn does, and shut it down after the block.

    Raises:
        StartFailedError: it does not start, or does not shut down.
    """
    requests: asyncio.Queue[Message] = asyncio.Queue()
    answers: asyncio.Queue[Message] = asyncio.Queue()
    scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
    running = asyncio.ensure_future(app(scope, requests.get, answers.put))

    async def ask(event: str) -> None:
        await requests.put({"type": f"lifespan.{event}"})
        answer = await answers.get()
        if answer["type"] != f"lifespan.{event}.complete":
            await asyncio.wait([running])
            running.exception()
            raise StartFailedError(answer.get("message"))

    await ask("startup")
    async with client_of(app) as client:
        yield client
    await ask("shutdown")
    await running
