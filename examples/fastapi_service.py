"""A web service that answers after Kafka has acknowledged the record.

    pip install fastapi uvicorn  # and this library, see its README
    uvicorn --factory fastapi_service:create_app
    curl -X POST localhost:8000/orders/customer-7 -d '{"item": "tea"}'
    curl localhost:8000/ready
    open http://localhost:8000/producer  # what the producer does, and what its records wait for

One producer serves all requests, and batches their records. If the brokers are slower than the requests, the
producer's buffer fills; a request then waits at most `max_block_ms` for room, and is refused with 503 instead of piling
up here.
"""

import os
from typing import Unpack

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.routing import Mount, Route

from aioproducer import (
    BufferFullError,
    DeliveryTimeoutError,
    KafkaError,
    Outcome,
    Producer,
    ProducerOptions,
    RecordTooLargeError,
)
from aioproducer.integrations.asgi import InvalidDeadlineError, deadline, inspector, lifespan, readiness

TOPIC = "orders"
MAX_BLOCK_MS = 500
"""Short: a client prefers an early 503 to Kafka's default of a minute."""
LONGEST_S = 10
"""For requests whose proxy gives no time, or more."""


def create_app(bootstrap_servers: str | None = None, **options: Unpack[ProducerOptions]) -> FastAPI:
    """Make the application; the default address is in the environment variable BOOTSTRAP_SERVERS."""
    servers = bootstrap_servers or os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")
    options.setdefault("max_block_ms", MAX_BLOCK_MS)
    options.setdefault("client_id", "orders-service")
    producer = Producer(servers, **options)

    app = FastAPI(
        title="orders",
        lifespan=lifespan(producer, wait=False),  # the service comes up even if the brokers are down; /ready says so
        routes=[
            Route("/ready", readiness(producer)),
            Mount("/producer", inspector(producer)),  # not for the internet: put it behind what protects your others
        ],
    )

    @app.post("/orders/{customer}", status_code=201)
    async def place_order(customer: str, request: Request) -> dict[str, int]:
        """Answer when the brokers have acknowledged the order."""
        deadline(request)  # the time counts from the first call on
        body = await request.body()
        left = deadline(request, at_most=LONGEST_S)
        metadata = await producer.send(TOPIC, body, key=customer.encode(), deadline=left)
        return {"partition": metadata.partition, "offset": metadata.offset}

    app.add_exception_handler(InvalidDeadlineError, _bad_request)
    app.add_exception_handler(TimeoutError, _too_late)
    app.add_exception_handler(DeliveryTimeoutError, _too_late)
    app.add_exception_handler(RecordTooLargeError, _too_large)
    app.add_exception_handler(BufferFullError, _come_back_later)
    app.add_exception_handler(KafkaError, _not_delivered)
    return app


def _bad_request(_: Request, error: Exception) -> JSONResponse:
    """The header with the time for the request is invalid."""
    return JSONResponse({"detail": str(error)}, status_code=400)


def _too_late(_: Request, error: Exception) -> JSONResponse:
    """The time for the request is over; `outcome` says whether the order may still be written."""
    outcome = getattr(error, "outcome", Outcome.NOT_WRITTEN)
    return JSONResponse({"detail": str(error), "outcome": outcome.name}, status_code=504)


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
