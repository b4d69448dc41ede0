"""An ASGI server without a network: runs an application's lifespan, and gives a client for its requests."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import TypeAlias

import httpx
import uvicorn

Message: TypeAlias = MutableMapping[str, object]
App: TypeAlias = Callable[..., Awaitable[object]]  # type: ignore[explicit-any]  # each framework has types of its own


class StartFailedError(Exception):
    """The application has refused to start, with this message."""


def client_of(app: App) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")  # type: ignore[arg-type]


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


@asynccontextmanager
async def on_port(app: App) -> AsyncIterator[str]:
    """Serve an application by uvicorn, and yield its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", ws="none", log_config=None))
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await running
