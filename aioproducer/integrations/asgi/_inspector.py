"""`inspector`: a page that shows what producers do and what their records wait for, refreshed each second.

Its state is JSON without payload and configuration, of a limited number of rows.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from heapq import nlargest
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from aioproducer.errors import KafkaError
from aioproducer.explanation import WaitReason
from aioproducer.integrations.asgi._relays import document_of_relay, is_relay
from aioproducer.integrations.asgi._responses import (
    App,
    GetApp,
    Response,
    Scope,
    check_producers,
    json_response,
    on_its_loop,
)

if TYPE_CHECKING:
    from aioproducer._producer.producer import Producer
    from aioproducer._producer.producer_metrics import LiveView, NodeView
    from aioproducer.blocking import BlockingProducer
    from aioproducer.explanation import Waiting, WaitingCall
    from aioproducer.outbox import Relay

PARTITIONS: Final = 50
REASONS: Final = 8
CALLS: Final = 20
NODES: Final = 100

LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "[::1]")  # also at the near end of an SSH tunnel
ANY_HOST: Final = "*"

_KEPT_S: Final = 0.5  # many open pages cost as much as one
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_HTML: Final = b"text/html; charset=utf-8"
_POLICY: Final = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Inspector(GetApp):
    """The application: the page, and with the query `?state` what it shows, as JSON.

    Args:
        producers: read at each request; may grow.
        hosts: names that the header `Host` may have, against DNS rebinding.
    """

    def __init__(
        self, producers: Sequence[Producer | BlockingProducer | Relay], *, hosts: Iterable[str] = LOCAL_HOSTS
    ) -> None:
        self._producers = producers
        self._hosts = _checked(hosts)
        self._lock = asyncio.Lock()
        self._kept: tuple[float, Response] | None = None

    async def _respond(self, scope: Scope) -> Response:
        if ANY_HOST not in self._hosts and _host_of(scope) not in self._hosts:
            text = (
                f"this page is served under {', '.join(sorted(self._hosts))}: for others, inspector(..., hosts=[...])"
            )
            return Response(403, f"{text}\n".encode())
        return await self._state() if scope.get("query_string") == b"state" else _page()

    async def _state(self) -> Response:
        async with self._lock:
            now = time.monotonic()
            if self._kept is None or now - self._kept[0] >= _KEPT_S:
                views = await asyncio.gather(*map(_view_of, self._producers))
                # On a thread: with thousands of partitions this would hold up the records.
                self._kept = now, await asyncio.to_thread(_state_response, now, views)
            return self._kept[1]


def inspector(*producers: Producer | BlockingProducer | Relay, hosts: Iterable[str] = LOCAL_HOSTS) -> App:
    """Return an ASGI application to mount: throughput, latency, buffer, nodes, and what records and calls wait for.

    `Mount("/producer", inspector(producer))` is a route of Starlette and FastAPI. The page is whole in itself and loads
    nothing from elsewhere. It shows names of topics, brokers and errors, but no keys, values, headers or options: mount
    it where only your team can look. It costs nothing until a page is open; then one `explain()` per second and
    producer, however many pages are open.

    Args:
        *producers: started or not, of either kind; a `Producer` must run on the event loop that serves the page. Also
            relays of an outbox: what each does, and how many rows wait.
        hosts: names under which the page is served, as the header `Host` has them, without the port. Any other is
            answered with 403, so that no page of another site reads this one in a browser (DNS rebinding). By default
            only this machine: give the name under which your team reaches it. `["*"]` leaves the check to the proxy or
            middleware in front.

    Raises:
        TypeError: neither a producer nor a relay, with its place; or not a list of names.
        ValueError: no name of a host.
    """
    check_producers(producers)
    return Inspector(producers, hosts=hosts)


def _checked(hosts: Iterable[str]) -> frozenset[str]:
    names = list(hosts) if isinstance(hosts, Iterable) and not isinstance(hosts, str | bytes) else None
    if names is None or not all(isinstance(each, str) for each in names):
        raise TypeError('hosts must be a list of names, as hosts=["inspector.example"]')
    for name in names:
        if name != ANY_HOST and (not name or name != _without_port(name) or not _NAME.fullmatch(name)):
            text = f"hosts: {name!r} is no name of a host; give it without scheme, port and path, or as [::1]"
            raise ValueError(text)
    return frozenset(name.lower() for name in names)


async def _view_of(producer: Producer | BlockingProducer | Relay) -> LiveView | KafkaError | dict[str, object]:
    if is_relay(producer):
        return document_of_relay(producer)
    try:
        return await on_its_loop(producer, partial(producer._view, explained=True))
    except KafkaError as error:
        return error


def _state_response(now: float, views: Sequence[LiveView | KafkaError | dict[str, object]]) -> Response:
    return json_response(200, {"at": now, "producers": [*map(_shown, views)]})


def _shown(view: LiveView | KafkaError | dict[str, object]) -> dict[str, object]:
    if isinstance(view, dict):
        return view
    return _unseen(view) if isinstance(view, KafkaError) else document_of(view)


def _page() -> Response:
    nonce = secrets.token_urlsafe(16)
    headers = (
        (b"content-security-policy", _POLICY.format(nonce=nonce).encode()),
        (b"referrer-policy", b"no-referrer"),
    )
    return Response(200, _html().replace("NONCE", nonce).encode(), _HTML, headers)


@cache
def _html() -> str:
    return files(__package__ or "").joinpath("inspector.html").read_text("utf-8")


def _host_of(scope: Scope) -> str:
    """Return the name in the header `Host`, without its port."""
    headers = scope["headers"]
    assert isinstance(headers, Sequence)
    hosts: Mapping[bytes, bytes] = dict(headers)
    return _without_port(hosts.get(b"host", b"").decode("latin-1").lower())


def _without_port(host: str) -> str:
    return host if host.endswith("]") else host.rpartition(":")[0] or host


# State of a producer


@dataclass(slots=True)
class _Group:
    """Batches and records with something in common, and the oldest of them."""

    oldest: Waiting
    batches: int = 0
    records: int = 0
    size: int = 0

    def add(self, waiting: Waiting) -> None:
        self.batches += 1
        self.records += waiting.records
        self.size += waiting.size
        if waiting.age_s > self.oldest.age_s:
            self.oldest = waiting


def document_of(view: LiveView) -> dict[str, object]:
    """Return the state for the page, which computes rates from the totals of two answers."""
    statistics = view.statistics
    explained = view.explanation
    waiting, calls = (explained.waiting, explained.calls) if explained is not None else ((), ())
    by_reason: dict[object, _Group] = {}
    by_partition: dict[object, _Group] = {}
    for each in waiting:
        by_reason.setdefault((each.reason, each.node_id, each.detail), _Group(each)).add(each)
        by_partition.setdefault((each.topic, each.partition), _Group(each)).add(each)
    by_words = _merged(by_reason.values())
    reasons = nlargest(REASONS, by_words.items(), key=lambda item: item[1].records)
    worst = nlargest(PARTITIONS, by_partition.values(), key=lambda group: group.oldest.age_s)
    return {
        "client_id": statistics.client_id,
        "state": view.state,
        "note": explained.note if explained is not None else view.note,
        "acknowledged": statistics.records_acknowledged,
        "bytes": statistics.batch_bytes,
        "requests": statistics.requests_sent,
        "failed": statistics.records_failed,
        "retried": statistics.records_retried,
        "refused": statistics.buffer_exhausted,
        "buffer_total": statistics.buffer_total_bytes,
        "buffer_used": statistics.buffer_total_bytes - statistics.buffer_available_bytes,
        "waiting_records": statistics.records_pending + statistics.records_waiting,
        "bounds_s": view.request_latency.bounds,
        "request_latency": view.request_latency.counts,
        "queue_time": view.queue_time.counts,
        "metadata_error": statistics.metadata_error,
        "nodes": [_node(node) for node in view.nodes[:NODES]],
        "nodes_left": max(len(view.nodes) - NODES, 0),
        "reasons": [
            {"words": words, "records": group.records, "oldest_s": group.oldest.age_s} for words, group in reasons
        ],
        "reasons_left": len(by_words) - len(reasons),
        "calls": [_call(call) for call in calls[:CALLS]],
        "calls_left": max(len(calls) - CALLS, 0),
        "partitions": [_partition(group) for group in worst],
        "partitions_left": len(by_partition) - len(worst),
    }


def _unseen(error: KafkaError) -> dict[str, object]:
    """Return what the page shows of a producer that cannot be read."""
    return {"client_id": "", "state": "unknown", "note": str(error)}


def _node(node: NodeView) -> dict[str, object]:
    why = node.blocked
    state = "connected"
    if why is not None and why.reason is WaitReason.THROTTLED:
        state = "throttled"
    elif why is not None and why.reason is WaitReason.CONNECTING:
        state = "idle" if why.since is None else "down"
    return {
        "id": node.node_id,
        "place": node.place,
        "state": state,
        "detail": why.detail if why is not None and state in {"throttled", "down"} else "",
        "in_flight": node.in_flight,
        "requests": node.requests,
        "responses": node.responses,
        "latency_s": node.request_latency_s,
    }


def _call(call: WaitingCall) -> dict[str, object]:
    return {
        "name": call.subject,
        "request": call.request,
        "nodes": call.node_ids,
        "reason": call.reason.value,
        "words": call.words,
        "age_s": call.age_s,
        "since_s": call.since_s,
        "until_s": call.until_s,
        "deadline_s": call.deadline_s,
    }


def _merged(groups: Iterable[_Group]) -> dict[str, _Group]:
    """Return the groups by their words, which not all reasons, nodes and details tell apart."""
    merged: dict[str, _Group] = {}
    for group in groups:
        words = _words(group.oldest)
        known = merged.setdefault(words, group)
        if known is not group:
            known.records += group.records
            known.oldest = max(known.oldest, group.oldest, key=lambda each: each.age_s)
    return merged


def _partition(group: _Group) -> dict[str, object]:
    oldest = group.oldest
    return {
        "topic": oldest.topic,
        "partition": oldest.partition,
        "node": oldest.node_id,
        "reason": oldest.reason.value,
        "words": _words(oldest),
        "batches": group.batches,
        "records": group.records,
        "size": group.size,
        "attempts": oldest.attempts,
        "age_s": oldest.age_s,
        "until_s": oldest.until_s,
        "deadline_s": oldest.deadline_s,
    }


def _words(waiting: Waiting) -> str:
    """Return the reason without the partition, which errors begin with: the same for all partitions."""
    return waiting.words.replace(f"{waiting.topic}-{waiting.partition}: ", "", 1)
