"""LISTEN on PostgreSQL: a commit in any process wakes the relay.

The trigger of the table notifies the channel that has the table's name; tables of this name in other schemas share it,
and cost the relay a look.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection

from aioproducer.outbox._calls import CLOSE_S

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine


async def listen(engine: AsyncEngine, channel: str, wake: Callable[[], object]) -> None:
    """Call `wake` once this listens, and at each notification, until the connection is lost.

    Never ends where the database does not notify.
    """
    if engine.dialect.name != "postgresql" or engine.dialect.driver not in _LISTENERS:
        await asyncio.Event().wait()
    async with _own_connection(engine) as driver:
        await _LISTENERS[engine.dialect.driver](driver, channel, wake)


@asynccontextmanager
async def _own_connection(engine: AsyncEngine) -> AsyncIterator[Any]:
    """Return a connection of the driver, outside the pool, of which this would always keep one."""
    connection = await engine.connect()
    driver: Any = None
    try:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        driver = (await connection.get_raw_connection()).driver_connection
        await connection.run_sync(Connection.detach)
        yield driver
    finally:
        with suppress(Exception):  # it may be lost
            async with asyncio.timeout(CLOSE_S):  # `wait_for` of Python 3.11 loses a cancellation beside an error
                await _close(connection, driver)


async def _close(connection: AsyncConnection, driver: Any) -> None:
    try:
        await connection.close()  # fails where the server is gone
    finally:
        if driver is not None:  # SQLAlchemy leaves a detached one of psycopg open
            await driver.close()


async def _by_asyncpg(driver: Any, channel: str, wake: Callable[[], object]) -> None:  # of asyncpg
    ended = asyncio.Event()
    driver.add_termination_listener(lambda _connection: ended.set())
    await driver.add_listener(channel, lambda *_notification: wake())
    wake()
    await ended.wait()


async def _by_psycopg(driver: Any, channel: str, wake: Callable[[], object]) -> None:  # of psycopg
    await driver.execute(f'LISTEN "{channel}"')
    wake()
    async for _notification in driver.notifies():
        wake()


_LISTENERS: Final = {"asyncpg": _by_asyncpg, "psycopg": _by_psycopg}
