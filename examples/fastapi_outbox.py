"""A web service whose events are part of its database transactions.

    pip install fastapi uvicorn 'sqlalchemy[asyncio]' aiosqlite  # and this library, see its README
    uvicorn --factory fastapi_outbox:create_app
    curl -X PUT localhost:8000/orders/1 --json '{"customer": "customer-7", "item": "tea"}'
    curl localhost:8000/relay  # whether events are sent, and what waits

DATABASE_URL=postgresql+asyncpg://user@host/name has it use PostgreSQL, with asyncpg in the place of aiosqlite.

An order and its event are committed by one transaction, so neither is ever without the other. A request needs no
broker.
Once the first has made the tables, start as many of these as you like: the relay of one sends, and those of the others
stand by.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Unpack

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy import String
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from aioproducer import JsonSerializer, ProducerOptions
from aioproducer.outbox import Outbox

TOPIC = "orders"


class Base(DeclarativeBase):
    """Holds the tables of the service, and those of the outbox."""


class Order(Base):
    """An order; its number comes from the client, who may ask twice."""

    __tablename__ = "orders"

    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    customer: Mapped[str] = mapped_column(String(80))
    item: Mapped[str] = mapped_column(String(80))


class NewOrder(BaseModel):
    """The body of a request."""

    customer: str
    item: str


outbox = Outbox(metadata=Base.metadata, key_serializer=str.encode, value_serializer=JsonSerializer())


def create_app(
    database_url: str | None = None, bootstrap_servers: str | None = None, **options: Unpack[ProducerOptions]
) -> FastAPI:
    """Make the application; both addresses default to the environment's DATABASE_URL and BOOTSTRAP_SERVERS."""
    url = database_url or os.environ.get("DATABASE_URL", "sqlite+aiosqlite:///orders.db")
    servers = bootstrap_servers or os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")
    engine = create_async_engine(url, pool_pre_ping=True)  # notices connections that a restart of the database closed
    new_session = async_sessionmaker(engine)
    relay = outbox.relay(engine, servers, **options)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)  # a service that lives for longer uses Alembic
        async with relay:  # waits for no broker
            yield
        await engine.dispose()

    app = FastAPI(title="orders", lifespan=lifespan)

    @app.put("/orders/{number}", status_code=201)
    async def place_order(number: int, order: NewOrder) -> dict[str, int]:
        """Answer when order and event are committed."""
        async with new_session() as session, session.begin():
            session.add(Order(number=number, customer=order.customer, item=order.item))
            await outbox.enqueue(session, TOPIC, {"number": number, "item": order.item}, key=order.customer)
        return {"number": number}

    @app.get("/relay")
    async def relay_health() -> JSONResponse:
        """Say whether events are sent: a reason for an alert, not for taking this replica out."""
        health = relay.health()
        return JSONResponse({"is_ready": health.is_ready, "relay": relay.explain()}, 200 if health.is_ready else 503)

    @app.exception_handler(IntegrityError)
    async def placed_already(_request: object, _error: Exception) -> JSONResponse:
        """The order exists, so the transaction was rolled back, with its event."""
        return JSONResponse({"detail": "there is an order with this number"}, status_code=409)

    return app
