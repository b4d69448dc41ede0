"""Databases of the tests' own, with the tables of an outbox."""

from collections.abc import AsyncIterator, Iterator
from functools import cache
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from aioproducer.outbox import Outbox
from tests.outbox.mariadb import MariaDb, missing_for_mariadb
from tests.outbox.postgres import Postgres, missing_for_postgres

SERVERS = {
    "sqlite": (None, str),
    "asyncpg": (Postgres, missing_for_postgres),
    "psycopg": (Postgres, missing_for_postgres),
    "asyncmy": (MariaDb, missing_for_mariadb),
}
"""By driver: the server, and why it cannot be started."""


@pytest.fixture
def outbox() -> Outbox:
    return Outbox()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "outbox.db"


@pytest.fixture
async def engine(database: Path, outbox: Outbox) -> AsyncIterator[AsyncEngine]:
    made = create_async_engine(f"sqlite+aiosqlite:///{database}")
    await outbox.create(made)
    yield made
    await made.dispose()


@pytest.fixture(scope="package")
def server_of() -> Iterator[object]:
    """Starts each server once, when a test first needs it."""
    running: list[Postgres | MariaDb] = []

    @cache
    def started(kind: type[Postgres | MariaDb]) -> Postgres | MariaDb:
        running.append(kind())
        return running[-1]

    yield started
    for server in running:
        server.stop()


@pytest.fixture(params=[*SERVERS])
async def any_engine(  # noqa: PLR0917  # fixtures
    request: pytest.FixtureRequest, database: Path, outbox: Outbox, server_of: object
) -> AsyncIterator[AsyncEngine]:
    """Each kind of database, by each of its drivers."""
    kind, missing = SERVERS[request.param]
    if reason := missing():
        pytest.skip(reason)
    url = f"sqlite+aiosqlite:///{database}" if kind is None else server_of(kind).url(request.param)  # type: ignore[operator]
    made = create_async_engine(url)
    async with made.begin() as connection:
        await connection.run_sync(outbox.metadata.drop_all)
    await outbox.create(made)
    yield made
    await made.dispose()
