"""Rows that are refused for good are parked, alone or with the later ones of their key, and may come back."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from aioproducer import ProducerRecord
from aioproducer.outbox import Outbox, OutboxError
from aioproducer.outbox._operations import Operations
from aioproducer.outbox._protocol import State
from aioproducer.outbox._store import SqlStore
from aioproducer.testing import FakeCluster
from tests.outbox.postgres import Postgres, missing_for_postgres
from tests.outbox.test_relay import relaying, rows_left, sent, until, until_empty, write

pytestmark = pytest.mark.timing


@pytest.fixture
async def kafka() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(nodes=1, topics={"orders": 1}, auto_create_topics=False) as running:
        yield running


def records(*values: bytes, topic: str = "orders") -> list[ProducerRecord]:
    return [ProducerRecord(topic, value, b"k") for value in values]


async def test_row_that_comes_back_before_its_batch_ends_is_sent(  # noqa: PLR0917  # fixtures
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batch, which is confirmed later, has it no more."""
    operations, park = Operations(outbox, engine), SqlStore.park

    async def park_and_retry(store: SqlStore, state: State, refused: dict[int, str]) -> None:
        await park(store, state, refused)
        kafka.create_topic("bills", 1)
        await operations.retry([])

    monkeypatch.setattr(SqlStore, "park", park_and_retry)
    await write(engine, outbox, *records(b"1"), *records(b"2", topic="bills"), *records(b"3"))
    async with relaying(outbox, engine, kafka, on_refused="park", max_block_ms=500, retry_backoff_max_ms=100):
        await until(lambda: len(sent(kafka)) == 2)
        await until_empty(engine)

    assert (sent(kafka), sent(kafka, "bills")) == ([b"1", b"3"], [b"2"])


async def test_row_with_the_id_of_a_parked_one_is_parked_too(
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    """After a TRUNCATE, ids begin again."""
    async with engine.begin() as connection:
        await connection.execute(text("INSERT INTO kafka_outbox_parked (id, topic, error) VALUES (1, 'orders', 'no')"))
    await write(engine, outbox, *records(b"1", topic="bills"), *records(b"2"))
    async with relaying(outbox, engine, kafka, on_refused="park", max_block_ms=500, retry_backoff_max_ms=100):
        await until(lambda: sent(kafka) == [b"2"])
        await until_empty(engine)
        operations = Operations(outbox, engine)
        assert [(row.id, row.topic) for row in await operations.parked()] == [(-1, "bills"), (1, "orders")]
        kafka.create_topic("bills", 1)
        await write(engine, outbox, *records(b"3"))
        assert await operations.retry([]) == 2
        await until(lambda: sent(kafka, "bills") == [b"1"])
        await until(lambda: len(sent(kafka)) == 3)


async def test_retry_gives_new_ids_where_others_have_them(engine: AsyncEngine, outbox: Outbox) -> None:
    async with engine.begin() as connection:
        insert = "INSERT INTO kafka_outbox_parked (id, topic, value, error) VALUES (:id, 'orders', :value, 'no')"
        await connection.execute(text(insert), [{"id": 1, "value": b"old"}, {"id": 7, "value": b"seven"}])
    await write(engine, outbox, *records(b"new"))

    assert await Operations(outbox, engine).retry([]) == 2
    async with engine.connect() as connection:
        found = (await connection.execute(text("SELECT id, value FROM kafka_outbox ORDER BY id"))).all()
    assert [(row.id, row.value) for row in found] == [(1, b"new"), (7, b"seven"), (8, b"old")]


async def test_retry_leaves_what_is_parked_meanwhile(outbox: Outbox, server_of: Callable[[type], Postgres]) -> None:
    """Each statement of PostgreSQL sees what was committed before it, also what an earlier one did not see."""
    if reason := missing_for_postgres():
        pytest.skip(reason)
    server = server_of(Postgres)
    engine = create_async_engine(server.url("asyncpg"))
    async with engine.begin() as connection:
        await connection.run_sync(outbox.metadata.drop_all)
    await outbox.create(engine)

    def park(number: int) -> None:
        with psycopg.connect(f"postgresql://{server.dsn}", autocommit=True) as other:
            other.execute("INSERT INTO kafka_outbox_parked (id, topic, error) VALUES (%s, 'orders', 'no')", [number])

    @event.listens_for(engine.sync_engine, "before_cursor_execute")
    def park_another(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("DELETE FROM kafka_outbox_parked"):
            park(2)

    park(1)
    assert await Operations(outbox, engine).retry([]) == 1
    assert (await rows_left(engine), await rows_left(engine, "kafka_outbox_parked")) == (1, 1)
    await engine.dispose()


async def test_rows_before_a_refused_one_of_their_key_are_sent(
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    big = ProducerRecord("orders", bytes(3000), b"k")
    await write(engine, outbox, *records(b"1"), big, *records(b"3"))
    async with relaying(outbox, engine, kafka, on_refused="park key", max_request_size=2000) as relay:
        await until(lambda: relay.statistics().rows_parked == 2)
        await until_empty(engine)

    assert sent(kafka) == [b"1"]
    assert [row.id for row in await Operations(outbox, engine).parked()] == [2, 3]


@pytest.mark.parametrize(
    "column, value, told",
    [
        ("partition", -1, "partition must be between 0 and 2147483647, not -1"),
        ("partition", "abc", "partition must be an int or None, not str"),
        ("headers", "[" * 9_000, "headers must be JSON like"),
        ("headers", '["ab", "cd"]', "headers must be JSON like"),
        ("value", 1.5, "value must be bytes"),
        ("timestamp", "noon", "timestamp must be an int"),
    ],
)
async def test_row_of_another_program_that_cannot_be_sent_is_parked(  # noqa: PLR0917  # fixtures
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster, column: str, value: object, told: str
) -> None:
    """SQLite lets any value into any column; Java's "no partition" is -1."""
    async with engine.begin() as connection:
        statement = f"INSERT INTO kafka_outbox (topic, {column}) VALUES ('orders', :value)"
        await connection.execute(text(statement), {"value": value})
    await write(engine, outbox, *records(b"behind"))
    async with relaying(outbox, engine, kafka, on_refused="park"):
        await until(lambda: sent(kafka) == [b"behind"])

    (row,) = await Operations(outbox, engine).parked()
    assert (row.id, told in row.error) == (1, True)


async def test_batch_is_not_in_doubt_while_the_broker_is_away(
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    """What was not sent would be deleted."""
    await write(engine, outbox, *records(b"1"))
    async with relaying(outbox, engine, kafka, max_block_ms=200):
        await until_empty(engine)
        await kafka.kill(1)
        await write(engine, outbox, *records(b"2"))
        operations = Operations(outbox, engine)
        async with asyncio.timeout(60):
            while not (await operations.status()).trouble:  # noqa: ASYNC110  # of a database, which has no event for it
                await asyncio.sleep(0.05)
        for command in (operations.skip_batch(), operations.retry_batch(new_identity=False)):
            with pytest.raises(OutboxError, match="no batch is in doubt: the relay sends again once this is over: "):
                await command
        await kafka.restart(1)
        await until_empty(engine)

    assert sent(kafka) == [b"1", b"2"]


async def test_relay_has_transactions_on_an_engine_without(database: Path, outbox: Outbox, kafka: FakeCluster) -> None:
    """Else two relays may both have the last epoch."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{database}", isolation_level="AUTOCOMMIT")
    await outbox.create(engine)
    levels: set[object] = set()

    @event.listens_for(engine.sync_engine, "before_cursor_execute")
    def note(connection: Connection, _cursor: object, statement: str, *_: object) -> None:
        if "kafka_outbox_relay" in statement:
            levels.add(connection.get_execution_options().get("isolation_level"))

    async with engine.begin() as connection:
        await connection.execute(text("INSERT INTO kafka_outbox (topic, value) VALUES ('orders', x'31')"))
    async with relaying(outbox, engine, kafka):
        await until(lambda: sent(kafka) == [b"1"])
        await until_empty(engine)
    await engine.dispose()

    assert levels == {"SERIALIZABLE"}


WRITTEN = [("'orders'", "'customer-7'"), ("'orders'", "7"), ("'orders'", "2.5"), ("x'6f'", "x'31'")]


@pytest.mark.parametrize("shards", [1, 4])
async def test_values_of_other_types_stop_neither_relay_nor_command(  # noqa: PLR0917  # fixtures
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster, shards: int
) -> None:
    """Plain SQL on SQLite may write a text or a number for a key, and bytes for a topic."""
    async with engine.begin() as connection:
        for topic, key in WRITTEN:
            rows = f"({topic}, {key}, x'31', 8), ({topic}, {key}, 7, NULL)"
            await connection.execute(text(f"INSERT INTO kafka_outbox (topic, key, value, headers) VALUES {rows}"))
    await write(engine, outbox, *records(b"behind"))
    operations = Operations(outbox, engine)
    async with relaying(outbox, engine, kafka, on_refused="park key", shards=shards) as relay:
        await until(lambda: sent(kafka) == [b"behind"])
        await until(lambda: relay.statistics().rows_parked == 8)
        await until_empty(engine)
        assert (relay.statistics().retries, (await operations.status()).rows_parked) == (0, 8)

    found = [(row.topic, row.key) for row in await operations.parked()]
    assert found[::2] == [("orders", "customer-7"), ("orders", "7"), ("orders", "2.5"), ("o", "1")]
    assert "key must be bytes or NULL, not str: write CAST(... AS BLOB) in SQL" in (await operations.parked())[0].error
