"""A row is inserted in the caller's transaction, or the call says why it cannot be."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import aiosqlite
import psycopg
import pytest
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from aioproducer import ConfigurationError, ProducerRecord
from aioproducer.outbox import NotInTransactionError, Outbox
from aioproducer.outbox._transactions import ended_by
from tests.outbox.test_enqueue import rows_in

pytestmark = pytest.mark.usefixtures("engine")


class OwnConnection(sqlite3.Connection):
    """As services have for their settings."""


class UnknownCursor:
    """Of a driver that must be awaited, which the outbox does not know."""

    __module__ = "pymysql"  # whose paramstyle it has

    async def execute(self, sql: str, params: object) -> None:
        raise AssertionError("awaited", sql, params)

    def executemany(self, sql: str, params: object) -> object:
        return self.execute(sql, params)

    def fetchone(self) -> None:
        return None

    @property
    def connection(self) -> "UnknownCursor":
        return self


@pytest.fixture
async def other(database: Path, request: pytest.FixtureRequest) -> AsyncIterator[AsyncEngine]:
    """An engine of the options of the test."""
    made = create_async_engine(f"sqlite+aiosqlite:///{database}", **request.param)
    yield made
    await made.dispose()


@pytest.fixture
def blocking(database: Path) -> Engine:
    return create_engine(f"sqlite:///{database}")


async def test_row_is_inserted_by_aiosqlite(outbox: Outbox, database: Path) -> None:
    async with aiosqlite.connect(database) as connection:
        await outbox.enqueue(connection, "orders", b"0")
        await outbox.enqueue_many(connection, [ProducerRecord("orders", b"1"), ProducerRecord("orders", b"2")])
        await outbox.enqueue(await connection.cursor(), "orders", b"3")
        assert rows_in(database) == []
        await connection.commit()
        await outbox.enqueue(connection, "orders", b"never")
        await connection.rollback()

    assert [row[3] for row in rows_in(database)] == [b"0", b"1", b"2", b"3"]
    with pytest.raises(NotInTransactionError, match="no active connection"):
        outbox.enqueue(connection, "orders", b"never")


@pytest.mark.parametrize("count", [1, 2])
def test_driver_that_must_be_awaited_is_refused_if_unknown(outbox: Outbox, count: int) -> None:
    records = [ProducerRecord("orders")] * count
    with pytest.raises(TypeError, match=r"is asynchronous.*AsyncSession or AsyncConnection of SQLAlchemy"):
        outbox.enqueue_many(UnknownCursor(), records)


async def test_session_that_is_closed_for_good_is_refused(engine: AsyncEngine, outbox: Outbox) -> None:
    async with AsyncSession(engine, close_resets_only=False) as session:
        await outbox.enqueue(session, "orders")

    with pytest.raises(NotInTransactionError, match="permanently closed"):
        await outbox.enqueue(session, "orders")


async def test_row_in_a_transaction_that_has_ended_is_refused(
    engine: AsyncEngine, outbox: Outbox, database: Path
) -> None:
    async with AsyncSession(engine) as session, session.begin():
        await session.commit()
        with pytest.raises(NotInTransactionError, match="closed transaction"):
            await outbox.enqueue(session, "orders")

    assert rows_in(database) == []


async def test_row_awaited_after_a_transaction_of_a_driver_is_refused(outbox: Outbox, database: Path) -> None:
    """It would be in a transaction of its own, without a commit."""
    async with aiosqlite.connect(database) as connection:
        first = outbox.enqueue(connection, "orders", b"0")  # begins it
        await first
        late = outbox.enqueue(connection, "orders", b"1")
        await connection.commit()
        with pytest.raises(NotInTransactionError, match="has ended: await the call within it"):
            await late

    assert len(rows_in(database)) == 1


class Base(DeclarativeBase):
    """Of tables that do not exist."""


class Invoice(Base):
    __tablename__ = "invoices"
    id: Mapped[int] = mapped_column(primary_key=True)


async def test_error_of_what_the_session_flushes_is_its_own(engine: AsyncEngine, outbox: Outbox) -> None:
    async with AsyncSession(engine) as session:
        session.add(Invoice(id=1))
        with pytest.raises(OperationalError, match="no such table: invoices"):
            await outbox.enqueue(session, "orders", b"v")


async def test_error_of_a_trigger_is_its_own(engine: AsyncEngine, outbox: Outbox) -> None:
    async with engine.begin() as connection:
        body = "BEGIN INSERT INTO audit VALUES (NEW.id); END"
        await connection.exec_driver_sql(f"CREATE TRIGGER noted AFTER INSERT ON kafka_outbox {body}")
        with pytest.raises(OperationalError, match=r"no such table: main\.audit"):
            await outbox.enqueue(connection, "orders", b"v")


def test_failed_transaction_is_known_by_the_cause() -> None:
    """Django raises an error of its own, whose cause is the driver's."""
    error = Exception("current transaction is aborted")
    error.__cause__ = psycopg.errors.InFailedSqlTransaction("current transaction is aborted")

    assert "has failed by an earlier statement" in str(ended_by(error, error))


async def test_session_without_autobegin_must_have_begun(engine: AsyncEngine, outbox: Outbox, database: Path) -> None:
    async with AsyncSession(engine, autobegin=False) as session:
        with pytest.raises(NotInTransactionError, match="begin one first"):
            outbox.enqueue(session, "orders")
        async with session.begin():
            await outbox.enqueue(session, "orders")

    assert len(rows_in(database)) == 1


async def test_session_that_has_not_begun_begins(engine: AsyncEngine, outbox: Outbox, database: Path) -> None:
    async with AsyncSession(engine) as session:
        await outbox.enqueue(session, "orders")
        await session.commit()

    assert len(rows_in(database)) == 1


async def test_autocommit_of_one_transaction_is_refused(  # noqa: PLR0917  # fixtures
    engine: AsyncEngine, blocking: Engine, outbox: Outbox, database: Path
) -> None:
    options = {"isolation_level": "AUTOCOMMIT"}
    async with AsyncSession(engine) as session:
        await session.connection(execution_options=options)
        with pytest.raises(NotInTransactionError, match="AUTOCOMMIT"):
            await outbox.enqueue(session, "orders")
    with Session(blocking) as plain:
        plain.connection(execution_options=options)
        with pytest.raises(NotInTransactionError, match="AUTOCOMMIT"):
            outbox.enqueue(plain, "orders")
    blocking.dispose()

    assert rows_in(database) == []


@pytest.mark.parametrize(
    "other", [{"isolation_level": "autocommit"}, {"connect_args": {"isolation_level": None}}], indirect=True
)
async def test_autocommit_of_an_engine_is_refused(other: AsyncEngine, outbox: Outbox, database: Path) -> None:
    async with AsyncSession(other) as session, other.connect() as connection:
        for target in (session, connection):
            with pytest.raises(NotInTransactionError, match=r"AUTOCOMMIT|isolation_level is None"):
                await outbox.enqueue(target, "orders")

    assert rows_in(database) == []


@pytest.mark.parametrize("other", [{"connect_args": {"isolation_level": None}}], indirect=True)
async def test_transaction_that_an_event_begins_is_accepted(other: AsyncEngine, outbox: Outbox, database: Path) -> None:
    """As SQLAlchemy's manual advises for savepoints of SQLite."""
    event.listen(other.sync_engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    async with AsyncSession(other) as session:
        await outbox.enqueue(session, "orders", b"v")
        await session.commit()
        await outbox.enqueue(session, "orders", b"never")
        await session.rollback()
    async with other.connect() as connection:
        assert isinstance(connection, AsyncConnection)
        await outbox.enqueue(connection, "orders", b"w")
        await connection.commit()

    assert [row[3] for row in rows_in(database)] == [b"v", b"w"]


def test_closed_connection_or_cursor_of_a_driver_is_refused(outbox: Outbox, database: Path) -> None:
    connection = sqlite3.connect(database)
    cursor = connection.cursor()
    cursor.close()
    with pytest.raises(NotInTransactionError, match="closed cursor"):
        outbox.enqueue(cursor, "orders")
    connection.close()
    with pytest.raises(NotInTransactionError, match="closed database"):
        outbox.enqueue(connection, "orders")


async def test_row_is_inserted_by_what_stands_for_a_connection(  # noqa: PLR0917  # fixtures
    engine: AsyncEngine, blocking: Engine, outbox: Outbox, database: Path
) -> None:
    """A subclass of a driver's connection, and one of an engine's pool."""
    with closing(sqlite3.connect(database, factory=OwnConnection)) as own:
        outbox.enqueue(own, "orders", b"0")
        own.commit()
    raw = blocking.raw_connection()
    outbox.enqueue(raw, "orders", b"1")
    raw.commit()
    raw.close()
    with pytest.raises(NotInTransactionError, match="is closed"):
        outbox.enqueue(raw, "orders", b"never")
    blocking.dispose()
    pooled = await engine.raw_connection()
    driver = pooled.driver_connection
    assert driver is not None
    await outbox.enqueue(pooled, "orders", b"2")
    await driver.commit()
    pooled.close()

    assert [row[3] for row in rows_in(database)] == [b"0", b"1", b"2"]


async def test_session_without_an_engine_for_the_table_is_told(engine: AsyncEngine, database: Path) -> None:
    class Base(DeclarativeBase):
        """Of the service."""

    outbox = Outbox(metadata=Base.metadata)
    async with AsyncSession(binds={Base: engine}) as session:
        with pytest.raises(ConfigurationError, match="knows no engine for table 'kafka_outbox': give it one, as in"):
            await outbox.enqueue(session, "orders", b"v")
    binds = {Base: engine, outbox.metadata.tables["kafka_outbox"]: engine}
    async with AsyncSession(binds=binds) as session, session.begin():
        await outbox.enqueue(session, "orders", b"v")

    assert len(rows_in(database)) == 1
