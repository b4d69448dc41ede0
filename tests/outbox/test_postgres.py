"""The outbox on PostgreSQL, by each of its drivers."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from functools import partial

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from aioproducer import ProducerRecord
from aioproducer.outbox import NotInTransactionError, Outbox, OutboxTableError, Relay
from aioproducer.outbox._operations import Operations
from aioproducer.testing import FakeCluster
from tests.outbox.postgres import Postgres, missing_for_postgres
from tests.outbox.test_relay import relaying, sent, until, until_empty, write

pytestmark = [
    pytest.mark.timing,
    pytest.mark.slow(seconds=20),
    pytest.mark.skipif(bool(missing_for_postgres()), reason=missing_for_postgres() or "-"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    running = Postgres()
    yield running
    running.stop()


@pytest.fixture(params=["asyncpg", "psycopg"])
async def engine(request: pytest.FixtureRequest, server: Postgres, outbox: Outbox) -> AsyncIterator[AsyncEngine]:
    made = create_async_engine(server.url(request.param))
    async with made.begin() as connection:
        await connection.run_sync(outbox.metadata.drop_all)
    await outbox.create(made)
    yield made
    await made.dispose()


@pytest.fixture
async def kafka() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(nodes=1, topics={"orders": 1}, auto_create_topics=False) as running:
        yield running


async def test_row_is_inserted_by_drivers(  # noqa: PLR0915, PLR0917  # one driver after another; fixtures
    engine: AsyncEngine, server: Postgres, outbox: Outbox, kafka: FakeCluster
) -> None:
    """By asyncpg, psycopg, and SQLAlchemy without an event loop."""
    parts: dict[str, object] = {"key": b"k", "timestamp": 17, "headers": [("h", b"1")], "partition": 0}
    plain = await asyncpg.connect(f"postgresql://{server.dsn}")
    async with plain.transaction():
        await outbox.enqueue(plain, "orders", b"0", **parts)
    with pytest.raises(NotInTransactionError, match=r"connection.transaction"):
        outbox.enqueue(plain, "orders", b"never")
    await plain.close()
    async with await psycopg.AsyncConnection.connect(f"postgresql://{server.dsn}") as connection:
        await outbox.enqueue(connection, "orders", b"1", **parts)
        await outbox.enqueue(connection.cursor(), "orders", b"2", **parts)
    with psycopg.connect(f"postgresql://{server.dsn}") as blocking:
        outbox.enqueue(blocking, "orders", b"3", **parts)
        records = [ProducerRecord("orders", b"4", **parts), ProducerRecord("orders", b"5")]
        outbox.enqueue_many(blocking.cursor(), records)
    with psycopg.connect(f"postgresql://{server.dsn}", autocommit=True) as automatic:
        with pytest.raises(NotInTransactionError, match="autocommit is on"):
            outbox.enqueue(automatic, "orders", b"never")
        with automatic.transaction():
            outbox.enqueue(automatic, "orders", b"6")
    made = create_engine(server.url("psycopg"))
    with Session(made) as session, session.begin():
        outbox.enqueue(session, "orders", b"7", **parts)
    made.dispose()

    async with relaying(outbox, engine, kafka):
        await until(lambda: len(sent(kafka)) == 8)
    assert sent(kafka) == [b"%d" % number for number in range(8)]
    assert [record.timestamp for record in kafka.records("orders", 0)][:5] == [17] * 5


class OwnAsyncpg(asyncpg.Connection):  # type: ignore[misc]  # untyped
    """As services have for their types."""


class OwnPsycopg(psycopg.AsyncConnection[tuple[object, ...]]):
    """Likewise."""


@pytest.mark.usefixtures("engine")
async def test_row_is_inserted_by_a_subclass_of_a_driver(server: Postgres, outbox: Outbox) -> None:
    dsn = f"postgresql://{server.dsn}"
    own = await asyncpg.connect(dsn, connection_class=OwnAsyncpg)
    async with own.transaction():
        await outbox.enqueue(own, "orders", b"v")
    assert await own.fetchval("SELECT count(*) FROM kafka_outbox") == 1
    async with await OwnPsycopg.connect(dsn) as other:
        await outbox.enqueue(other, "orders", b"v")
    assert await own.fetchval("SELECT count(*) FROM kafka_outbox") == 2
    await own.close()


@pytest.mark.usefixtures("engine")
async def test_pool_or_released_connection_is_refused(server: Postgres, outbox: Outbox) -> None:
    async with asyncpg.create_pool(f"postgresql://{server.dsn}", min_size=1, max_size=1) as pool:
        with pytest.raises(TypeError, match=r"not Pool: async with pool.acquire\(\) as connection"):
            outbox.enqueue(pool, "orders")
        async with pool.acquire() as connection:
            pass
        with pytest.raises(NotInTransactionError, match="released back to the pool"):
            outbox.enqueue(connection, "orders")


async def test_transaction_that_has_failed_is_refused(engine: AsyncEngine, server: Postgres, outbox: Outbox) -> None:
    dsn = f"postgresql://{server.dsn}"
    async with engine.connect() as connection:
        with pytest.raises(DBAPIError):
            await connection.execute(text("SELECT 1 / 0"))
        with pytest.raises(NotInTransactionError, match="roll it back, then begin another"):
            await outbox.enqueue(connection, "orders")
    plain = await asyncpg.connect(dsn)
    await plain.execute("BEGIN")
    with pytest.raises(asyncpg.DivisionByZeroError):
        await plain.execute("SELECT 1 / 0")
    with pytest.raises(NotInTransactionError, match="roll it back, then begin another"):
        await outbox.enqueue(plain, "orders")
    await plain.close()
    with psycopg.connect(dsn) as blocking:
        with pytest.raises(psycopg.errors.DivisionByZero):
            blocking.execute("SELECT 1 / 0")
        with pytest.raises(NotInTransactionError, match="roll it back, then begin another"):
            outbox.enqueue(blocking, "orders")


async def test_autocommit_of_one_transaction_is_refused(engine: AsyncEngine, outbox: Outbox) -> None:
    async with AsyncSession(engine) as session:
        await session.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
        with pytest.raises(NotInTransactionError, match="AUTOCOMMIT"):
            await outbox.enqueue(session, "orders")


@pytest.mark.parametrize(
    "driver,options",
    [
        ("asyncpg", {"isolation_level": "autocommit"}),
        ("psycopg", {"isolation_level": "autocommit"}),
        ("psycopg", {"connect_args": {"autocommit": True}}),
    ],
)
async def test_autocommit_of_an_engine_is_refused(  # noqa: PLR0917  # of a table
    driver: str, options: dict[str, object], server: Postgres, outbox: Outbox
) -> None:
    made = create_async_engine(server.url(driver), **options)
    async with AsyncSession(made) as session:
        with pytest.raises(NotInTransactionError, match=r"AUTOCOMMIT|its autocommit is on"):
            await outbox.enqueue(session, "orders")
    await made.dispose()


@pytest.mark.parametrize(
    "change,message",
    [
        ("ALTER key TYPE text USING ''", "key is TEXT, and must be BYTEA"),
        ("ALTER value TYPE jsonb USING '{}'", "value is JSONB, and must be BYTEA"),
        ("ALTER headers TYPE jsonb USING '{}'", "headers is JSONB, and must be TEXT"),
        ("ALTER topic TYPE integer USING 1", r"topic is INTEGER, and must be VARCHAR\(249\)"),
        ("ALTER partition TYPE text", "partition is TEXT, and must be INTEGER"),
        (
            "ALTER timestamp TYPE timestamptz USING now()",
            "timestamp is TIMESTAMP WITH TIME ZONE, and must be BIGINT",
        ),
        (
            "ALTER created_at DROP DEFAULT, ALTER created_at TYPE bigint USING 1",
            "created_at is BIGINT, and must be TIMESTAMP WITH TIME ZONE",
        ),
        (
            "ALTER created_at TYPE timestamp",
            "created_at is TIMESTAMP WITHOUT TIME ZONE, and must be TIMESTAMP WITH TIME ZONE",
        ),
    ],
)
async def test_column_of_another_kind_of_type_is_named(  # noqa: PLR0917  # fixtures
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster, change: str, message: str
) -> None:
    async with engine.begin() as connection:
        await connection.execute(text(f"ALTER TABLE kafka_outbox {change}"))
    with pytest.raises(OutboxTableError, match=message):
        await outbox.create(engine)
    async with relaying(outbox, engine, kafka) as relay:
        await until(lambda: re.search(message, relay.health().reason) is not None)


async def test_column_of_the_same_kind_of_type_is_accepted(engine: AsyncEngine, outbox: Outbox) -> None:
    changes = (
        "ALTER topic TYPE text",
        "ALTER headers TYPE varchar(9000)",
        "ALTER partition TYPE bigint",
        "ALTER id TYPE integer",
    )
    async with engine.begin() as connection:
        await connection.execute(text("CREATE DOMAIN payload AS bytea"))
        await connection.execute(text(f"ALTER TABLE kafka_outbox {', '.join(changes)}, ALTER value TYPE payload"))
    await outbox.create(engine)
    async with engine.begin() as connection:
        await outbox.enqueue(connection, "orders", b"v", key=b"k", partition=0, headers=[("a", b"b")])
        await connection.execute(text("DROP TABLE kafka_outbox"))
        await connection.execute(text("DROP DOMAIN payload"))


async def test_view_is_refused(engine: AsyncEngine) -> None:
    for kind, name in (("VIEW", "seen"), ("MATERIALIZED VIEW", "kept")):
        async with engine.begin() as connection:
            await connection.execute(text(f"CREATE {kind} {name} AS SELECT * FROM kafka_outbox"))
        with pytest.raises(OutboxTableError, match=f"'{name}' is a view"):
            await Outbox(name).create(engine)
        async with engine.begin() as connection:
            await connection.execute(text(f"DROP {kind} {name}"))


async def test_rows_of_slower_transactions_are_not_skipped(
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    """Their ids are lower than those of rows that were sent before their commit."""
    async with relaying(outbox, engine, kafka) as relay, engine.connect() as slow, engine.connect() as undone:
        await outbox.enqueue(slow, "orders", b"slow")
        await outbox.enqueue(undone, "orders", b"never")
        await write(engine, outbox, *(ProducerRecord("orders", b"%d" % number) for number in range(5)))
        await until(lambda: relay.statistics().rows_sent == 5)
        await slow.commit()
        await undone.rollback()
        await until(lambda: relay.statistics().rows_sent == 6)

    assert sent(kafka) == [b"0", b"1", b"2", b"3", b"4", b"slow"]


async def test_one_of_two_relays_works_when_both_start_at_once(
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    await write(engine, outbox, *(ProducerRecord("orders", b"%d" % number) for number in range(100)))
    one = outbox.relay(engine, kafka.bootstrap_servers, batch_rows=9)
    other = outbox.relay(engine, kafka.bootstrap_servers, batch_rows=9)
    async with one, other:
        await until(lambda: one.statistics().rows_sent + other.statistics().rows_sent == 100)

    assert sent(kafka) == [b"%d" % number for number in range(100)]


async def test_batch_ends_at_its_bytes(engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    sizes = (600, 600, 3000, 10)
    await write(engine, outbox, *(ProducerRecord("orders", bytes(size)) for size in sizes))
    async with relaying(outbox, engine, kafka, batch_bytes=1000) as relay:
        await until(lambda: relay.statistics().rows_sent == 4)
        assert relay.statistics().batches_sent == 3

    assert [len(value or b"") for value in sent(kafka)] == [*sizes]


async def test_missing_table_is_named_by_each_driver(engine: AsyncEngine, outbox: Outbox) -> None:
    """Also where it was there when the first row was inserted."""
    async with engine.connect() as connection:
        await outbox.enqueue(connection, "orders", b"v")
        await connection.execute(text("DROP TABLE kafka_outbox"))
        with pytest.raises(OutboxTableError, match=r"kafka_outbox.*does not exist"):
            await outbox.enqueue(connection, "orders", b"v")


NOTES = """
CREATE TABLE seen (what text, setting text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN INSERT INTO seen VALUES (TG_ARGV[0], current_setting('synchronous_commit')); RETURN NULL; END $$;
CREATE TRIGGER note AFTER INSERT ON kafka_outbox FOR EACH ROW EXECUTE FUNCTION note('row');
CREATE TRIGGER note_claim AFTER UPDATE ON kafka_outbox_relay FOR EACH ROW
    WHEN (old.number <> new.number) EXECUTE FUNCTION note('claim');
CREATE TRIGGER note_epoch AFTER UPDATE ON kafka_outbox_relay FOR EACH ROW
    WHEN (old.epoch <> new.epoch) EXECUTE FUNCTION note('epoch')
"""


async def test_claims_wait_for_the_disk(  # noqa: PLR0917  # fixtures
    engine: AsyncEngine, server: Postgres, outbox: Outbox, kafka: FakeCluster
) -> None:
    """A crash of the database would lose one whose rows Kafka has; the setting is of their transactions alone."""
    async with await psycopg.AsyncConnection.connect(f"postgresql://{server.dsn}", autocommit=True) as plain:
        await plain.execute("ALTER DATABASE postgres SET synchronous_commit = off")
        await plain.execute(NOTES)
        # One connection after another, as a pooler in transaction mode lends them.
        pooled = create_async_engine(engine.url, pool_size=4, max_overflow=0)
        try:
            async with relaying(outbox, pooled, kafka) as relay:
                await write(pooled, outbox, ProducerRecord("orders", b"1"))
                await until(lambda: relay.statistics().rows_sent == 1)
            for connection in [await pooled.connect() for _ in range(4)]:  # all that there are
                assert (await connection.execute(text("SHOW synchronous_commit"))).scalar_one() == "off"
                await connection.close()
            found = await (await plain.execute("SELECT DISTINCT what, setting FROM seen ORDER BY what")).fetchall()
        finally:
            await pooled.dispose()
            await plain.execute("ALTER DATABASE postgres RESET synchronous_commit")
            await plain.execute("DROP TABLE seen; DROP FUNCTION note() CASCADE")

    assert found == [("claim", "on"), ("epoch", "on"), ("row", "off")]


async def test_time_without_an_end_stops_nothing(engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    async with engine.begin() as connection:
        inserted = "INSERT INTO kafka_outbox (topic, created_at) VALUES ('orders', 'infinity'), ('orders', '-infinity')"
        await connection.execute(text(inserted))
    assert (await Operations(outbox, engine).status()).oldest_age_s is not None
    async with relaying(outbox, engine, kafka):
        await until_empty(engine)

    assert sent(kafka) == [None, None]


async def test_column_of_another_type_is_named_at_the_call(
    engine: AsyncEngine, server: Postgres, outbox: Outbox
) -> None:
    """PostgreSQL would take bytes for a text without a word."""
    async with engine.begin() as connection:
        await connection.execute(text("ALTER TABLE kafka_outbox ALTER key TYPE text USING null"))
    with pytest.raises(OutboxTableError, match="key is TEXT, and must be BYTEA"):
        async with engine.begin() as connection:
            await outbox.enqueue(connection, "orders", b"v", key=b"k")
    plain = await asyncpg.connect(f"postgresql://{server.dsn}")
    with pytest.raises(OutboxTableError, match=r"column key: invalid input for query argument \$2"):
        async with plain.transaction():
            await outbox.enqueue(plain, "orders", b"v", key=b"k")
    await plain.close()


async def test_row_awaited_after_its_transaction_is_refused(
    engine: AsyncEngine, server: Postgres, outbox: Outbox
) -> None:
    """It would be alone, or in the transaction that comes next."""
    plain = await asyncpg.connect(f"postgresql://{server.dsn}")
    async with plain.transaction():
        late = outbox.enqueue(plain, "orders", b"v")
    with pytest.raises(NotInTransactionError, match=r"connection.transaction"):
        await late
    await plain.close()
    async with AsyncSession(engine) as session, engine.connect() as connection:
        async with session.begin():
            of_session = outbox.enqueue(session, "orders", b"v")
        async with connection.begin():
            async with connection.begin_nested():
                of_savepoint = outbox.enqueue(connection, "orders", b"v")
            with pytest.raises(NotInTransactionError, match="has ended: await the call within it"):
                await of_savepoint
        async with session.begin():
            with pytest.raises(NotInTransactionError, match="has ended: await the call within it"):
                await of_session


def test_cursors_of_psycopg_of_other_kinds(engine: AsyncEngine, server: Postgres, outbox: Outbox) -> None:
    """A raw one has other marks, and one with a name only reads."""
    with psycopg.connect(f"postgresql://{server.dsn}", cursor_factory=psycopg.RawCursor) as connection:
        outbox.enqueue(connection, "orders", b"1")
        outbox.enqueue(connection.cursor(), "orders", b"2")
        with connection.cursor("named") as named, pytest.raises(TypeError, match="a cursor with a name, which only"):
            outbox.enqueue(named, "orders", b"3")
        assert [row[0] for row in connection.execute("SELECT value FROM kafka_outbox ORDER BY id")] == [b"1", b"2"]
        connection.rollback()
    assert engine.dialect.name == "postgresql"


async def test_session_within_an_asynchronous_one_is_refused(engine: AsyncEngine, outbox: Outbox) -> None:
    async with AsyncSession(engine) as session:
        with pytest.raises(TypeError, match="session must be the AsyncSession or AsyncConnection itself"):
            outbox.enqueue(session.sync_session, "orders", b"v")
        await session.run_sync(lambda within: outbox.enqueue(within, "orders", b"v"))


async def test_user_who_may_only_insert_enqueues(engine: AsyncEngine, server: Postgres, outbox: Outbox) -> None:
    name = f"writer_{engine.dialect.driver}"  # a role belongs to the server, not to a test's tables
    async with engine.begin() as connection:
        await connection.execute(text(f"CREATE ROLE {name} LOGIN"))
        await connection.execute(text(f"GRANT INSERT ON kafka_outbox TO {name}"))
    writing = create_async_engine(make_url(server.url(engine.dialect.driver)).set(username=name))
    async with AsyncSession(writing) as session, session.begin():
        await outbox.enqueue(session, "orders", b"1")
        await outbox.enqueue_many(session, [ProducerRecord("orders", b"2"), ProducerRecord("orders", b"3")])
    async with writing.begin() as connection:
        await outbox.enqueue(connection, "orders", b"4")
    await writing.dispose()

    async with engine.begin() as connection:
        assert len((await connection.execute(text("SELECT id FROM kafka_outbox"))).all()) == 4
        await connection.execute(text(f"DROP OWNED BY {name}"))


async def test_tables_are_created_by_many_at_once(engine: AsyncEngine, outbox: Outbox) -> None:
    async with engine.begin() as connection:
        await connection.run_sync(outbox.metadata.drop_all)
    engines = [create_async_engine(engine.url) for _ in range(6)]
    await asyncio.gather(*map(outbox.create, engines))
    for each in engines:
        await each.dispose()


async def test_relay_goes_on_after_the_server_was_killed(  # noqa: PLR0917  # fixtures
    engine: AsyncEngine, server: Postgres, outbox: Outbox, kafka: FakeCluster
) -> None:
    async with relaying(outbox, engine, kafka) as relay:
        await write(engine, outbox, ProducerRecord("orders", b"a"))
        await until(lambda: relay.statistics().rows_sent == 1)
        await asyncio.to_thread(server.kill)
        await until(lambda: not relay.health().is_ready)
        await asyncio.to_thread(server.start)
        later = create_async_engine(engine.url)  # the pool of the other has connections that are lost
        await write(later, outbox, ProducerRecord("orders", b"b"))
        await later.dispose()
        await until(lambda: relay.statistics().rows_sent == 2)

    assert sent(kafka) == [b"a", b"b"]


@pytest.fixture
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioproducer.outbox._worker.POLL_S", (3_600.0, 3_600.0))


def has_sent(relay: Relay, rows: int) -> bool:
    return relay.statistics().rows_sent == rows


PLAIN_INSERT = "INSERT INTO kafka_outbox (topic, value) VALUES ('orders', 'v')"


@pytest.mark.usefixtures("no_polling")
async def test_commit_of_another_program_wakes_the_relay(  # noqa: PLR0917  # fixtures
    engine: AsyncEngine, server: Postgres, outbox: Outbox, kafka: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table's trigger notifies; only that, since the relay looks for rows once an hour here."""
    monkeypatch.setattr("aioproducer.outbox._relay.LISTEN_AGAIN_S", 3_600.0)
    async with relaying(outbox, engine, kafka) as relay:
        for number in range(1, 4):
            async with await psycopg.AsyncConnection.connect(f"postgresql://{server.dsn}") as other:
                await other.execute(PLAIN_INSERT)
            await until(partial(has_sent, relay, number))


@pytest.mark.usefixtures("no_polling")
async def test_relay_listens_again_after_its_connection_was_cut(  # noqa: PLR0917  # fixtures
    engine: AsyncEngine, server: Postgres, outbox: Outbox, kafka: FakeCluster
) -> None:
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
    async with (
        relaying(outbox, engine, kafka) as relay,
        await psycopg.AsyncConnection.connect(f"postgresql://{server.dsn}", autocommit=True) as other,
    ):
        async with asyncio.timeout(60):
            while not (await (await other.execute(cut)).fetchall()):  # noqa: ASYNC110  # of another process
                await asyncio.sleep(0.01)
        await other.execute(PLAIN_INSERT)
        await until(lambda: relay.statistics().rows_sent == 1)
        assert relay.health().is_ready


@pytest.mark.usefixtures("engine")
async def test_tables_of_a_schema_notify_and_are_dropped_whole(server: Postgres) -> None:
    made = create_async_engine(server.url("asyncpg"))
    outbox = Outbox("Events", schema="other")
    async with made.begin() as connection:
        await connection.execute(text("CREATE SCHEMA IF NOT EXISTS other"))
    await outbox.create(made)
    async with await psycopg.AsyncConnection.connect(f"postgresql://{server.dsn}", autocommit=True) as listener:
        await listener.execute('LISTEN "Events"')
        async with made.begin() as connection:
            await outbox.enqueue(connection, "orders", b"v")
        assert [found.channel async for found in listener.notifies(stop_after=1, timeout=60)] == ["Events"]
    async with made.begin() as connection:
        await connection.run_sync(outbox.metadata.drop_all)
        await connection.execute(text("DROP SCHEMA other"))  # refused if a function were left
    await made.dispose()
