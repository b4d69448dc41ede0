"""`inspector`: a page that shows what producers do and what their records wait for, refreshed each second."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from aioproducer.errors import KafkaError
from aioproducer.integrations.asgi._answers import (
    Answer,
    App,
    GetApp,
    Scope,
    check_producers,
    json_answer,
    look_at,
)
from aioproducer.integrations.asgi._inspected import documents_of

if TYPE_CHECKING:
    from aioproducer._producer.live_view import LiveView
    from aioproducer._producer.producer import Producer
    from aioproducer.blocking import BlockingProducer

_KEPT_S: Final = 0.5  # many open pages cost as much as one
_HTML: Final = b"text/html; charset=utf-8"
_POLICY: Final = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Inspector(GetApp):
    """The application: the page, and with the query `?state` what it shows, as JSON.

    Args:
        producers: read at each request; may grow.
        hosts: names that the header `Host` may have, against DNS rebinding; None leaves that to the server.
    """

    def __init__(
        self, producers: Sequence[Producer | BlockingProducer], *, hosts: frozenset[str] | None = None
    ) -> None:
        self._producers = producers
        self._hosts = hosts
        self._lock = asyncio.Lock()
        self._kept: tuple[float, Answer] | None = None

    async def _answer(self, scope: Scope) -> Answer:
        if self._hosts is not None and _host_of(scope) not in self._hosts:
            return Answer(403, f"ask for one of the hosts {', '.join(sorted(self._hosts))}\n".encode())
        return await self._state() if scope.get("query_string") == b"state" else _page()

    async def _state(self) -> Answer:
        async with self._lock:
            now = time.monotonic()
            if self._kept is None or now - self._kept[0] >= _KEPT_S:
                views = await asyncio.gather(*map(_view_of, self._producers))
                # On a thread: with thousands of partitions this would hold up the records.
                self._kept = now, await asyncio.to_thread(_state_answer, now, views)
            return self._kept[1]


def inspector(*producers: Producer | BlockingProducer) -> App:
    """Return an ASGI application to mount: a page with throughput, latency, buffer, nodes, and what records wait for.

    `Mount("/producer", inspector(producer))` is a route of Starlette and FastAPI. The page is whole in itself and loads
    nothing from elsewhere. It shows names of topics, brokers and errors, but no keys, values, headers or options: mount
    it where only your team can look. It costs nothing until a page is open; then one `explain()` per second and
    producer, however many pages are open.

    Args:
        *producers: started or not, of either kind; a `Producer` must run on the event loop that serves the page.

    Raises:
        TypeError: not a producer; names its place.
    """
    check_producers(producers)
    return Inspector(producers)


async def _view_of(producer: Producer | BlockingProducer) -> LiveView | KafkaError:
    try:
        return await look_at(producer, explained=True)
    except KafkaError as error:
        return error


def _state_answer(now: float, views: Sequence[LiveView | KafkaError]) -> Answer:
    return json_answer(200, {"at": now, "producers": documents_of(views)})


def _page() -> Answer:
    nonce = secrets.token_urlsafe(16)
    headers = (
        (b"content-security-policy", _POLICY.format(nonce=nonce).encode()),
        (b"referrer-policy", b"no-referrer"),
    )
    return Answer(200, _html().replace("NONCE", nonce).encode(), _HTML, headers)


@cache
def _html() -> str:
    return files(__package__ or "").joinpath("inspector.html").read_text("utf-8")


def _host_of(scope: Scope) -> str:
    """Return the name in the header `Host`, without its port."""
    headers = scope["headers"]
    assert isinstance(headers, Sequence)
    hosts: Mapping[bytes, bytes] = dict(headers)
    host = hosts.get(b"host", b"").decode("latin-1").lower()
    return host if host.endswith("]") else host.rpartition(":")[0] or host
