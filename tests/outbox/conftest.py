"""A database of the test's own, with the tables of an outbox."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from aioproducer.outbox import Outbox


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
