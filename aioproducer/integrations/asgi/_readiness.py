"""`readiness`: whether producers can send, for load balancers and Kubernetes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioproducer.errors import KafkaError
from aioproducer.integrations.asgi._relays import is_relay, readiness_of
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
    from aioproducer.blocking import BlockingProducer
    from aioproducer.outbox import Relay


class _Readiness(GetApp):
    def __init__(self, producers: tuple[Producer | BlockingProducer | Relay, ...]) -> None:
        self._producers = producers

    async def _respond(self, scope: Scope) -> Response:
        del scope
        rows = await asyncio.gather(*map(_row_of, self._producers))
        ready = all(row["ready"] for row in rows)
        return json_response(200 if ready else 503, {"ready": ready, "producers": rows})


def readiness(*producers: Producer | BlockingProducer | Relay) -> App:
    """Return an ASGI application that answers 200 while all producers can send, else 503, each with its reason as JSON.

    `Route("/ready", readiness(producer))` is a route of Starlette and FastAPI. Ready is a producer that runs and whose
    brokers answered last, also while its buffer is full: a request then waits or is refused by itself. Silence counts
    after `request_timeout_ms`. It names brokers and errors, but nothing secret and nothing of records. It waits
    for no broker; a producer that has nothing to send asks one for a small answer, at most four times per second.

    A `BlockingProducer` that was not started is started, in this process, as by its first call. A `Relay` of an
    outbox is ready while it sends rows or stands by.

    Raises:
        TypeError: neither a producer nor a relay; names its place.
    """
    check_producers(producers)
    return _Readiness(producers)


async def _row_of(producer: Producer | BlockingProducer | Relay) -> dict[str, object]:
    if is_relay(producer):
        return readiness_of(producer)
    try:
        view = await on_its_loop(producer, producer._probe)
    except (KafkaError, OSError, RuntimeError) as error:  # the latter: no more files or threads are allowed
        return {"ready": False, "reason": str(error)}
    statistics, health = view.statistics, view.health
    return {
        "client_id": statistics.client_id,
        "ready": health.is_ready,
        "reason": health.reason,
        "state": view.state,
        "brokers": len(view.nodes),
        "connections": statistics.connections,
        "records_pending": statistics.records_pending + statistics.records_waiting,
        "last_error": statistics.metadata_error,
    }
