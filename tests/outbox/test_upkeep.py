"""Rows that are kept after they were sent, and tables that were made before this version."""

import time
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from aioproducer import ConfigurationError, ProducerRecord
from aioproducer.outbox import Outbox
from aioproducer.outbox._operations import Operations
from aioproducer.outbox._tables import current_ms
from aioproducer.outbox._upkeep import Upkeep
from aioproducer.testing import FakeCluster
from tests.outbox.test_relay import relaying, rows_left, sent, until, until_empty, write

pytestmark = pytest.mark.timing

SENT = "kafka_outbox_sent"
MANY = 2_500
"""More than are deleted at once."""


@pytest.fixture
async def kafka() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(nodes=1, topics={"orders": 1}, auto_create_topics=False) as running:
        yield running


async def until_kept(engine: AsyncEngine, rows: int) -> None:
    while await rows_left(engine, SENT) != rows:
        pass


@pytest.mark.slow(seconds=20)
@pytest.mark.parametrize("shards", [1, 2])
async def test_rows_are_kept_and_deleted_after_their_time(  # noqa: PLR0917  # fixtures
    any_engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster, shards: int
) -> None:
    headers = [("h", b"1")]
    await write(any_engine, outbox, *(ProducerRecord("orders", b"v", b"%d" % n, 0, n, headers) for n in range(MANY)))
    options = {"keep": timedelta(hours=1), "lease_s": 0.5, "shards": shards}
    async with relaying(outbox, any_engine, kafka, **options):
        await until_empty(any_engine)
        status = await Operations(outbox, any_engine).status()
        assert (status.rows_waiting, status.rows_kept) == (0, MANY)
        async with any_engine.begin() as connection:
            rows = outbox.metadata.tables[SENT]
            (last,) = await connection.execute(select(rows).where(rows.c.timestamp == MANY - 1))
            assert (last.topic, last.key, last.value, last.partition) == ("orders", b"%d" % (MANY - 1), b"v", 0)
            assert last.headers == '[["h","1"]]'
            assert timedelta(0) <= last.sent_at - last.created_at < timedelta(minutes=10)
            for part in range(5):
                old = rows.update().where(rows.c.timestamp < MANY - 1, rows.c.timestamp % 5 == part)
                await connection.execute(old.values(sent_at=last.sent_at - timedelta(hours=2, seconds=part)))
        await until_kept(any_engine, 1)

    assert len(sent(kafka)) == MANY


async def test_time_of_the_database_needs_no_zone(any_engine: AsyncEngine) -> None:
    """In one hour of a year, the time of a zone that changes in summer stands for two."""
    async with any_engine.connect() as connection:
        if any_engine.dialect.name in {"mysql", "mariadb"}:
            await connection.execute(text("SET time_zone = '+05:00'"))
        now_ms = (await connection.execute(select(current_ms()))).scalar_one()
        await connection.invalidate()  # the pool must not lend it with that zone

    assert abs(now_ms / 1000 - time.time()) < 600  # noqa: TID251  # of this machine, as the database's


async def test_old_rows_are_deleted_while_the_first_shard_is_stopped(
    monkeypatch: pytest.MonkeyPatch, engine: AsyncEngine, outbox: Outbox
) -> None:
    deleted: list[float] = []

    async def delete_sent(_upkeep: Upkeep, older_than_s: float) -> None:
        deleted.append(older_than_s)

    monkeypatch.setattr(Upkeep, "delete_sent", delete_sent)
    relay = outbox.relay(engine, "127.0.0.1:1", shards=2, keep=60)
    await relay._look()  # noqa: SLF001  # one of the looks that a relay takes
    relay._workers[1].is_working = True  # noqa: SLF001  # as when a row of the other shard is refused
    await relay._look()  # noqa: SLF001

    assert deleted == [60]


async def test_rows_of_a_relay_that_died_are_kept(engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    """Kafka has them, and the next start finds that out."""
    await write(engine, outbox, *(ProducerRecord("orders", b"%d" % number) for number in range(40)))
    async with relaying(outbox, engine, kafka, batch_rows=10, keep=3_600) as relay:
        await until(lambda: relay.statistics().rows_sent >= 10)
    async with relaying(outbox, engine, kafka, keep=3_600):
        await until_empty(engine)

    assert sent(kafka) == [b"%d" % number for number in range(40)]
    assert await rows_left(engine, SENT) == 40


async def test_row_may_have_the_id_of_one_that_is_kept(engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    """As where ids begin again after a table was emptied."""
    async with relaying(outbox, engine, kafka, keep=3_600):
        for _ in range(2):
            async with engine.begin() as connection:
                await connection.execute(text("INSERT INTO kafka_outbox (id, topic) VALUES (1, 'orders')"))
            await until_empty(engine)

    assert await rows_left(engine, SENT) == 2


async def test_only_a_relay_that_keeps_rows_needs_their_table(
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    async with engine.begin() as connection:
        await connection.execute(text(f"DROP TABLE {SENT}"))
    await write(engine, outbox, ProducerRecord("orders", b"v"))
    async with relaying(outbox, engine, kafka, keep=60) as relay:
        await until(lambda: f"no table '{SENT}': create it with `aioproducer outbox create URL`" in relay.explain())
    assert (await Operations(outbox, engine).status()).rows_kept is None
    async with relaying(outbox, engine, kafka):
        await until_empty(engine)

    assert sent(kafka) == [b"v"]


async def test_tables_of_before_need_what_the_error_says(
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    async with engine.begin() as connection:
        await connection.execute(text("ALTER TABLE kafka_outbox_relay DROP COLUMN wanted_by"))
        await connection.execute(text(f"DROP TABLE {SENT}"))
    advice = "ALTER TABLE kafka_outbox_relay ADD COLUMN wanted_by VARCHAR(255)"
    async with relaying(outbox, engine, kafka) as relay:
        await until(lambda: f"has no column wanted_by: run {advice}" in relay.health().reason)
        async with engine.begin() as connection:
            await connection.execute(text(advice))
        await write(engine, outbox, ProducerRecord("orders", b"v"))
        await until(lambda: sent(kafka) == [b"v"])


@pytest.mark.parametrize("keep", [0, -1.0, timedelta(0), "1 day"])
def test_bad_time_to_keep_is_refused(keep: object, outbox: Outbox) -> None:
    with pytest.raises(ConfigurationError, match="keep must be a number of seconds above 0"):
        outbox.relay(create_async_engine("sqlite+aiosqlite:///a.db"), "localhost:9092", keep=keep)  # type: ignore[arg-type]
