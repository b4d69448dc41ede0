"""A web service that answers after Kafka has acknowledged the record.

    pip install fastapi uvicorn  # and this library, see its README
    uvicorn --factory fastapi_service:create_app
    curl -X POST localhost:8000/orders/customer-7 -d '{"item": "tea"}'
    curl localhost:8000/health

One producer serves all requests, and batches their records. If the brokers are slower than the requests, the
producer's buffer fills; a request then waits at most `max_block_ms` for room, and is refused with 503 instead of piling
up here.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Unpack

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from aioproducer import BufferFullError, KafkaError, Producer, ProducerOptions, RecordTooLargeError

TOPIC = "orders"
MAX_BLOCK_MS = 500
"""Short: a client prefers an early 503 to Kafka's default of a minute."""


def create_app(bootstrap_servers: str | None = None, **options: Unpack[ProducerOptions]) -> FastAPI:
    """Make the application; the default address is in the environment variable BOOTSTRAP_SERVERS."""
    servers = bootstrap_servers or os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")
    options.setdefault("max_block_ms", MAX_BLOCK_MS)
    options.setdefault("client_id", "orders-service")
    producer = Producer(servers, **options)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await producer.start(wait=False)  # the service comes up even if the brokers are down; /health says so
        yield
        await producer.close()  # delivers accepted records before the process ends

    app = FastAPI(title="orders", lifespan=lifespan)

    @app.post("/orders/{customer}", status_code=201)
    async def place_order(customer: str, request: Request) -> dict[str, int]:
        """Answer when the brokers have acknowledged the order."""
        metadata = await producer.send(TOPIC, await request.body(), key=customer.encode())
        return {"partition": metadata.partition, "offset": metadata.offset}

    @app.get("/health")
    async def health(response: Response) -> dict[str, float]:
        """Report whether brokers answer, and how full the buffer is."""
        statistics = producer.statistics()
        # An idle producer closes its connections after connections_max_idle_ms; then the last metadata request shows
        # whether brokers answer.
        answered_last = statistics.metadata_age_s is not None and statistics.metadata_error is None
        if statistics.connections == 0 and not answered_last:
            response.status_code = 503
        used = statistics.buffer_total_bytes - statistics.buffer_available_bytes
        return {
            "connections": statistics.connections,
            "records_pending": statistics.records_pending,
            "buffer_used": round(used / max(1, statistics.buffer_total_bytes), 3),
        }

    app.add_exception_handler(RecordTooLargeError, _too_large)
    app.add_exception_handler(BufferFullError, _come_back_later)
    app.add_exception_handler(KafkaError, _not_delivered)
    return app


def _too_large(_: Request, error: Exception) -> JSONResponse:
    """The order is larger than a record may be."""
    return JSONResponse({"detail": str(error)}, status_code=413)


def _come_back_later(_: Request, __: Exception) -> JSONResponse:
    """Back-pressure: no room in the buffer within `max_block_ms`, and nothing was written."""
    return JSONResponse({"detail": "too busy, try again"}, status_code=503, headers={"Retry-After": "1"})


def _not_delivered(_: Request, error: Exception) -> JSONResponse:
    """The record failed; `outcome` says whether it may have been written."""
    outcome = getattr(error, "outcome", None)
    return JSONResponse({"detail": str(error), "outcome": outcome.name if outcome else None}, status_code=502)
