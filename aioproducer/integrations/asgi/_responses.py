"""The ASGI applications of this package: answers to GET and HEAD, and refusals of everything else."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from aioproducer._producer.producer import Producer
from aioproducer.integrations.asgi._relays import is_relay

if TYPE_CHECKING:
    from aioproducer._producer.producer_metrics import LiveView
    from aioproducer.blocking import BlockingProducer

Scope: TypeAlias = Mapping[str, object]
Message: TypeAlias = MutableMapping[str, object]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_JSON: Final = b"application/json"
_TEXT: Final = b"text/plain; charset=utf-8"


class Response(NamedTuple):
    """A response."""

    status: int
    body: bytes
    kind: bytes = _TEXT
    headers: tuple[tuple[bytes, bytes], ...] = ()


def json_response(status: int, document: object) -> Response:
    return Response(status, json.dumps(document, separators=(",", ":")).encode(), _JSON)


class GetApp(ABC):
    """An ASGI application; mount it, or give it to a route."""

    @abstractmethod
    async def _respond(self, scope: Scope) -> Response:
        """Answer a GET."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request.

        Raises:
            RuntimeError: not a request; servers take it as an application without a lifespan.
        """
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})
            return
        if scope["type"] != "http":
            text = f"this application answers requests, not {scope['type']}"
            raise RuntimeError(text)
        if scope["method"] in {"GET", "HEAD"}:
            response = await self._respond(scope)
        else:
            response = Response(405, b"only GET is allowed\n", headers=((b"allow", b"GET, HEAD"),))
        headers = [
            (b"content-type", response.kind),
            (b"content-length", str(len(response.body)).encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
            *response.headers,
        ]
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else response.body})


def check_producers(producers: tuple[object, ...]) -> None:
    if not producers:
        raise TypeError("producers is empty: at least one Producer, BlockingProducer or Relay is needed")
    for number, producer in enumerate(producers):
        if isinstance(producer, type) or not (hasattr(producer, "_view") or is_relay(producer)):
            text = (
                f"producers[{number}] must be a Producer, a BlockingProducer or a Relay, not {type(producer).__name__}"
            )
            raise TypeError(text)


async def on_its_loop(producer: Producer | BlockingProducer, read: Callable[[], LiveView]) -> LiveView:
    """Call a method of a producer of either kind that reads it, without blocking this event loop.

    Raises:
        KafkaError: the thread of a `BlockingProducer` does not answer.
    """
    return read() if isinstance(producer, Producer) else await asyncio.to_thread(read)
