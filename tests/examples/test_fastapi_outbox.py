"""The service with an outbox, on SQLite and PostgreSQL and the embedded cluster."""

import asyncio
import importlib.util
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

import httpx
import pytest

from aioproducer.testing import FakeCluster
from tests.outbox.postgres import Postgres, missing_for_postgres

FILE = Path(__file__).parent.parent.parent / "examples" / "fastapi_outbox.py"
NOWHERE = "127.0.0.1:1"
TEA = {"customer": "customer-7", "item": "tea"}

pytestmark = [pytest.mark.slow, pytest.mark.timing]


@pytest.fixture
async def kafka() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(nodes=1, topics={"orders": 1}) as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite+aiosqlite:///{tmp_path / 'orders.db'}"
        return
    if missing := missing_for_postgres():
        pytest.skip(missing)
    server = Postgres()
    yield server.url("asyncpg")
    server.stop()


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fastapi_outbox", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@asynccontextmanager
async def served(example: ModuleType, database_url: str, bootstrap_servers: str) -> AsyncIterator[httpx.AsyncClient]:
    app = example.create_app(database_url, bootstrap_servers)
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://a") as client:
        yield client


def events(kafka: FakeCluster) -> list[object]:
    return [json.loads(record.value or b"") for record in kafka.records("orders", 0)]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # of a cluster that has no event for it
            await asyncio.sleep(0.01)


async def test_event_is_sent_when_its_order_is_committed(
    example: ModuleType, database_url: str, kafka: FakeCluster
) -> None:
    async with served(example, database_url, kafka.bootstrap_servers) as client:
        placed = await client.put("/orders/1", json=TEA)
        again = await client.put("/orders/1", json=TEA)
        later = await client.put("/orders/2", json=TEA)
        await until(lambda: len(events(kafka)) >= 2)
        relay = await client.get("/relay")

    assert (placed.status_code, again.status_code, later.status_code) == (201, 409, 201)
    assert events(kafka) == [{"number": 1, "item": "tea"}, {"number": 2, "item": "tea"}]
    assert kafka.records("orders", 0)[0].key == b"customer-7"
    assert (relay.status_code, relay.json()["is_ready"]) == (200, True)


async def test_orders_are_taken_while_brokers_are_away(example: ModuleType, tmp_path: Path, kafka: FakeCluster) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path / 'orders.db'}"
    async with served(example, url, NOWHERE) as client:
        placed = await client.put("/orders/1", json=TEA)
    async with served(example, url, kafka.bootstrap_servers):
        await until(lambda: len(events(kafka)) == 1)

    assert placed.status_code == 201
    assert events(kafka) == [{"number": 1, "item": "tea"}]
