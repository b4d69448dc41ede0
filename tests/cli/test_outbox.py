"""`aioproducer outbox`, on SQLite and the embedded cluster."""

import json
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from aioproducer.outbox import Outbox
from aioproducer.testing import FakeCluster
from tests.cli.commands import ended, refused, run, started
from tests.outbox.test_relay import rows_left, until

pytestmark = pytest.mark.slow


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite+aiosqlite:///{tmp_path / 'outbox.db'}"


async def write(url: str, *topics: str) -> None:
    engine, outbox = create_async_engine(url), Outbox()
    async with AsyncSession(engine) as session, session.begin():
        for topic in topics:
            await outbox.enqueue(session, topic, b"v", key=b"k")
    await engine.dispose()


async def test_outbox_is_created_relayed_and_looked_after(url: str, tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text("max.block.ms=2000\n", "utf-8")
    created = await run("outbox", "create", url)
    await write(url, "missing", "orders")
    async with FakeCluster(nodes=1, topics={"orders": 1}, auto_create_topics=False) as cluster:
        options = ["-b", cluster.bootstrap_servers, "--config", str(properties), "--on-refused", "park"]
        async with started("outbox", "relay", url, *options) as relay:
            await until(lambda: bool(cluster.records("orders", 0)))
            while json.loads((await run("outbox", "status", url, "--json")).output)["rows_waiting"]:
                pass
            relay.terminate()
            stopped = await ended(relay)
    status = await run("outbox", "status", url, "--json")
    parked = await run("outbox", "parked", url)
    skipped = await run("outbox", "skip", url, "1")
    retried = await run("outbox", "retry", url)

    assert created == (0, "outbox kafka_outbox exists\n", [])
    assert stopped.code == 130
    found = json.loads(status.output)
    assert (found["rows_waiting"], found["rows_parked"], found["trouble"]) == (0, 1, None)
    assert [(shard["shard"], shard["relay"]) for shard in found["shards"]] == [(0, None)]
    assert "topic 'missing' is still unknown" in parked.output
    assert (skipped.code, skipped.output) == (0, "1 row was deleted\n")
    assert (retried.code, retried.errors) == (1, ["there is no such row"])


async def test_relay_divides_and_keeps_rows(url: str) -> None:
    await run("outbox", "create", url)
    before = await run("outbox", "status", url)
    await write(url, *["orders"] * 3)
    async with FakeCluster(nodes=1, topics={"orders": 1}) as cluster:
        options = ["-b", cluster.bootstrap_servers, "--shards", "4", "--keep", "3600"]
        async with started("outbox", "relay", url, *options) as relay:
            await until(lambda: len(cluster.records("orders", 0)) == 3)
            engine = create_async_engine(url)
            while await rows_left(engine, "kafka_outbox_sent") != 3:
                pass
            await engine.dispose()
            relay.terminate()
            await ended(relay)
    status = await run("outbox", "status", url)

    assert "no relay has worked yet" in before.output
    lines = status.output.splitlines()
    assert lines[4].split() == ["rows", "kept", "3"]
    assert lines[5].split() == ["SHARD", "ROWS", "WAITING", "RELAY", "BATCH", "TROUBLE"]
    assert [line.split()[0] for line in lines[6:]] == ["0", "1", "2", "3"]


def test_missing_table_is_one_line(url: str) -> None:
    result = refused("outbox", "status", url)

    assert result.code == 1
    assert result.errors == ["no such table: kafka_outbox_relay"]


@pytest.mark.parametrize(
    "arguments,text",
    [
        (["create", "orders.db"], "URL: Could not parse SQLAlchemy URL"),
        (["create", "sqlite:///a.db"], "URL: The asyncio extension requires an async driver"),
        (["create", "sqlite+aiosqlite://", "--table", "a b"], "name must be the name of a table"),
        (["skip", "sqlite+aiosqlite://"], "give the ids of rows, or --batch"),
        (["retry", "sqlite+aiosqlite://", "1", "--batch"], "not both"),
        (["relay", "sqlite+aiosqlite://", "--on-refused", "drop"], "--on-refused must be stop, park or park-key"),
        (
            ["relay", "sqlite+aiosqlite://", "-b", "127.0.0.1:1", "--shards", "0"],
            "--shards must be an int from 1 to 32",
        ),
        (["relay", "sqlite+aiosqlite://", "-b", "127.0.0.1:1", "--keep", "0"], "--keep must be a number above 0"),
    ],
)
def test_bad_argument_is_a_usage_error(arguments: list[str], text: str) -> None:
    result = refused("outbox", *arguments)

    assert result.code == 2
    assert text in result.errors[0]
