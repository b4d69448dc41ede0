"""Records become rows of the caller's transaction, or are refused before anything is inserted."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from opentelemetry import context, propagate, trace
from sqlalchemy import MetaData, Table, create_engine, inspect, select
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Session

from aioproducer import (
    ConfigurationError,
    JsonSerializer,
    ProducerInterceptor,
    ProducerRecord,
    RecordFilteredError,
    RecordTooLargeError,
    SerializationError,
)
from aioproducer.outbox import NotInTransactionError, Outbox, OutboxTableError
from aioproducer.outbox._record import decode_headers


def rows_in(database: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(database)) as found:
        query = 'SELECT id, topic, "key", value, headers, "partition", timestamp FROM kafka_outbox ORDER BY id'
        return found.execute(query).fetchall()


ROW = (1, "orders", b"k", b"v", '[["h","1"],["n",null],["b",{"base64":"/w=="}]]', 2, 17)
PARTS: dict[str, object] = {
    "key": b"k",
    "partition": 2,
    "timestamp": 17,
    "headers": [("h", b"1"), ("n", None), ("b", b"\xff")],
}


async def test_row_is_there_after_the_commit_of_a_session(engine: AsyncEngine, outbox: Outbox, database: Path) -> None:
    async with AsyncSession(engine) as session, session.begin():
        await outbox.enqueue(session, "orders", b"v", **PARTS)
        assert rows_in(database) == []

    assert rows_in(database) == [ROW]


async def test_row_is_not_there_after_a_rollback(engine: AsyncEngine, outbox: Outbox, database: Path) -> None:
    async with AsyncSession(engine) as session:
        await outbox.enqueue(session, "orders", b"v")
        await session.rollback()

    assert rows_in(database) == []


async def test_row_is_inserted_by_an_asynchronous_connection(
    engine: AsyncEngine, outbox: Outbox, database: Path
) -> None:
    async with engine.begin() as connection:
        await outbox.enqueue(connection, "orders", b"v", **PARTS)

    assert rows_in(database) == [ROW]


@pytest.mark.usefixtures("engine")
def test_row_is_inserted_without_an_event_loop(outbox: Outbox, database: Path) -> None:
    """By a session and a connection of SQLAlchemy, and by a connection and a cursor of the DB-API."""
    made = create_engine(f"sqlite:///{database}")
    with Session(made) as session, session.begin():
        outbox.enqueue(session, "orders", b"v", **PARTS)
    with made.begin() as connection:
        outbox.enqueue(connection, "orders", b"v", **PARTS)
    made.dispose()
    with closing(sqlite3.connect(database)) as plain:
        outbox.enqueue(plain, "orders", b"v", **PARTS)
        outbox.enqueue(plain.cursor(), "orders", b"v", **PARTS)
        plain.commit()

    assert rows_in(database) == [(number, *ROW[1:]) for number in (1, 2, 3, 4)]


async def test_many_rows_are_inserted_in_order(engine: AsyncEngine, outbox: Outbox, database: Path) -> None:
    async with AsyncSession(engine) as session, session.begin():
        await outbox.enqueue_many(session, [ProducerRecord("orders", b"%d" % number) for number in range(10)])

    assert [row[3] for row in rows_in(database)] == [b"%d" % number for number in range(10)]


async def test_serializers_run_in_the_call(engine: AsyncEngine, database: Path) -> None:
    async def later(value: object) -> bytes:
        return repr(value).encode()

    outbox = Outbox(key_serializer=str.encode, value_serializer=later)
    async with AsyncSession(engine) as session, session.begin():
        await outbox.enqueue(session, "orders", 7, key="k")
        with pytest.raises(SerializationError, match="key_serializer"):
            await outbox.enqueue(session, "orders", 7, key=7)

    assert [row[2:4] for row in rows_in(database)] == [(b"k", b"7")]


@pytest.mark.usefixtures("engine")
def test_asynchronous_serializer_needs_an_asynchronous_session(database: Path) -> None:
    async def later(_value: object) -> bytes:
        return b""

    outbox = Outbox(value_serializer=later)
    with closing(sqlite3.connect(database)) as plain, pytest.raises(SerializationError, match="is asynchronous"):
        outbox.enqueue(plain, "orders", 7)

    assert rows_in(database) == []


async def test_interceptors_see_each_record_in_the_call(engine: AsyncEngine, database: Path) -> None:
    class Drops(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
            return None if record.value is None else record

    outbox = Outbox(interceptors=[Drops()], value_serializer=JsonSerializer())
    async with AsyncSession(engine) as session, session.begin():
        await outbox.enqueue(session, "orders", {"a": 1})
        with pytest.raises(RecordFilteredError):
            await outbox.enqueue(session, "orders")

    assert [row[3] for row in rows_in(database)] == [b'{"a":1}']


async def test_trace_context_goes_into_the_headers(engine: AsyncEngine, outbox: Outbox, database: Path) -> None:
    parent = trace.SpanContext(7, 9, is_remote=True, trace_flags=trace.TraceFlags(1))
    token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(parent)))
    try:
        async with AsyncSession(engine) as session, session.begin():
            await outbox.enqueue(session, "orders")
            await outbox.enqueue(session, "orders", headers=[("traceparent", b"given")])
    finally:
        context.detach(token)

    own, given = [dict(decode_headers(str(row[4])) or []) for row in rows_in(database)]
    carrier = {"traceparent": (own["traceparent"] or b"").decode()}
    assert trace.get_current_span(propagate.extract(carrier)).get_span_context().trace_id == 7
    assert given == {"traceparent": b"given"}


@pytest.mark.parametrize(
    "call,kind,text",
    [
        (lambda outbox, session: outbox.enqueue(session, "a b"), ValueError, "topic 'a b' has the character ' '"),
        (lambda outbox, session: outbox.enqueue(session, b"t"), TypeError, "topic must be a str"),
        (lambda outbox, session: outbox.enqueue(session, "t", "text"), TypeError, "value must be bytes"),
        (lambda outbox, session: outbox.enqueue(session, "t", key=7), TypeError, "key must be bytes"),
        (lambda outbox, session: outbox.enqueue(session, "t", partition=-1), ValueError, "partition must be"),
        (lambda outbox, session: outbox.enqueue(session, "t", timestamp="now"), TypeError, "timestamp must be an int"),
        (lambda outbox, session: outbox.enqueue(session, "t", headers={"a": b""}), TypeError, "headers must be pairs"),
        (
            lambda outbox, session: outbox.enqueue(session, "t", bytes(1_048_576)),
            RecordTooLargeError,
            "takes up to 1",
        ),
        (lambda outbox, _: outbox.enqueue("dsn", "t"), TypeError, "session must be a Session.*not str"),
        (lambda outbox, _: outbox.enqueue(Session, "t"), TypeError, "session must be a Session.*not "),
        (
            lambda outbox, session: outbox.enqueue_many(session, ["t"]),
            TypeError,
            r"records\[0\] must be",
        ),
        (lambda outbox, session: outbox.enqueue_many(session, 7), TypeError, "records must be an iterable"),
        (
            lambda outbox, session: outbox.enqueue_many(session, [ProducerRecord("t"), ProducerRecord("t", 7)]),
            TypeError,
            r"records\[1\]: value must be bytes",
        ),
    ],
)
async def test_bad_argument_is_refused_and_nothing_inserted(  # noqa: PLR0917  # of a table
    call: Callable[[Outbox, object], object],
    kind: type[Exception],
    text: str,
    engine: AsyncEngine,
    outbox: Outbox,
    database: Path,
) -> None:
    async with AsyncSession(engine) as session, session.begin():
        with pytest.raises(kind, match=text):
            call(outbox, session)

    assert rows_in(database) == []


async def test_connection_that_commits_by_itself_is_refused(
    engine: AsyncEngine, outbox: Outbox, database: Path
) -> None:
    automatic = engine.execution_options(isolation_level="AUTOCOMMIT")
    async with AsyncSession(automatic) as session, automatic.connect() as connection:
        for target in (session, connection):
            with pytest.raises(NotInTransactionError, match="AUTOCOMMIT"):
                outbox.enqueue(target, "orders")
    made = create_async_engine(f"sqlite+aiosqlite:///{database}", isolation_level="AUTOCOMMIT")
    async with AsyncSession(made) as session:
        with pytest.raises(NotInTransactionError, match="AUTOCOMMIT"):
            outbox.enqueue(session, "orders")
    await made.dispose()
    with closing(sqlite3.connect(database, isolation_level=None)) as plain:
        with pytest.raises(NotInTransactionError, match="isolation_level is None"):
            outbox.enqueue(plain, "orders")
        plain.execute("BEGIN")
        outbox.enqueue(plain, "orders")
        plain.commit()

    assert len(rows_in(database)) == 1


async def test_closed_connection_is_refused(engine: AsyncEngine, outbox: Outbox) -> None:
    async with engine.connect() as connection:
        pass

    with pytest.raises(NotInTransactionError, match="is closed"):
        outbox.enqueue(connection, "orders")


async def test_missing_table_or_column_is_named(tmp_path: Path, outbox: Outbox) -> None:
    made = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'other.db'}")
    async with AsyncSession(made) as session:
        with pytest.raises(OutboxTableError, match=r"no such table: kafka_outbox.*aioproducer outbox create"):
            await outbox.enqueue(session, "orders")
        await session.rollback()
        await (await session.connection()).exec_driver_sql("CREATE TABLE kafka_outbox (id INTEGER, topic TEXT)")
        with pytest.raises(OutboxTableError, match="no column named"):
            await outbox.enqueue(session, "orders")
    await made.dispose()


async def test_tables_are_made_in_the_callers_metadata() -> None:
    metadata = MetaData()
    outbox = Outbox("events", metadata=metadata, schema="app")

    assert sorted(metadata.tables) == ["app.events", "app.events_parked", "app.events_relay", "app.events_sent"]
    assert outbox.name == "app.events"
    with pytest.raises(ConfigurationError, match=r"has a table 'app.events' already"):
        Outbox("events", metadata=metadata, schema="app")


def test_second_outbox_of_a_table_is_refused() -> None:
    """Also where the MetaData names the schema, or where it is a table of the relay."""
    metadata = MetaData(schema="app")
    Outbox(metadata=metadata)
    with pytest.raises(ConfigurationError, match=r"has a table 'app.kafka_outbox' already"):
        Outbox(metadata=metadata)
    with pytest.raises(ConfigurationError, match=r"has a table 'app.kafka_outbox_relay' already"):
        Outbox("kafka_outbox_relay", metadata=metadata)
    Outbox("x_relay", metadata=metadata)
    with pytest.raises(ConfigurationError, match=r"has a table 'app.x_relay' already"):
        Outbox("x", metadata=metadata)


def test_metadata_of_another_type_is_refused() -> None:
    class Base(DeclarativeBase):
        pass

    with pytest.raises(TypeError, match=r"metadata must be a MetaData of SQLAlchemy, such as Base.metadata, not Base"):
        Outbox(metadata=Base)  # type: ignore[arg-type]  # what is tested
    assert "kafka_outbox" in Outbox(metadata=Base.metadata).metadata.tables


def test_error_of_one_of_many_records_has_its_position(outbox: Outbox) -> None:
    with closing(sqlite3.connect(":memory:")) as plain, pytest.raises(RecordTooLargeError) as raised:
        outbox.enqueue_many(plain, [ProducerRecord("t"), ProducerRecord("t", bytes(1_048_576))])

    assert raised.value.__notes__ == ["of records[1]"]


@pytest.mark.parametrize(
    "options,text",
    [
        ({"name": "a b"}, "name must be the name of a table"),
        ({"name": "a" * 49}, "at most 48 characters"),
        ({"schema": ""}, "schema must be"),
        ({"max_request_size": 0}, "max_request_size must be an int"),
        ({"value_serializer": 7}, "value_serializer must be"),
        ({"interceptors": [7]}, "must be a ProducerInterceptor"),
    ],
)
def test_bad_option_is_refused(options: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        Outbox(**options)  # type: ignore[arg-type]  # what is tested


async def test_create_leaves_existing_rows(engine: AsyncEngine, outbox: Outbox) -> None:
    async with AsyncSession(engine) as session, session.begin():
        await outbox.enqueue(session, "orders")
    await outbox.create(engine)

    table: Table = outbox.metadata.tables["kafka_outbox"]
    async with engine.connect() as connection:
        assert len((await connection.execute(select(table.c.id))).all()) == 1


@pytest.mark.parametrize(
    "statement,text",
    [
        ("CREATE TABLE events (id INTEGER, topic TEXT)", "table 'events' has no column key, value"),
        ("CREATE VIEW events AS SELECT * FROM kafka_outbox", "'events' is a view"),
        ("CREATE TABLE events_relay (id INTEGER)", "table 'events_relay' has no column identity"),
    ],
)
async def test_create_refuses_what_is_no_outbox(engine: AsyncEngine, statement: str, text: str) -> None:
    outbox = Outbox("events")
    async with engine.begin() as connection:
        await connection.exec_driver_sql(statement)
    with pytest.raises(OutboxTableError, match=text):
        await outbox.create(engine)

    async with engine.connect() as connection:
        assert "events_parked" not in await connection.run_sync(lambda found: inspect(found).get_table_names())


async def test_create_takes_any_type_of_sqlite(engine: AsyncEngine, outbox: Outbox, database: Path) -> None:
    columns = 'id INTEGER PRIMARY KEY, topic, "key" TEXT, value TEXT, headers, "partition", timestamp'
    async with engine.begin() as connection:
        await connection.exec_driver_sql("DROP TABLE kafka_outbox")
        await connection.exec_driver_sql(f"CREATE TABLE kafka_outbox ({columns}, created_at TEXT)")
    await outbox.create(engine)
    async with AsyncSession(engine) as session, session.begin():
        await outbox.enqueue(session, "orders", b"v", **PARTS)

    assert rows_in(database) == [ROW]


async def test_map_that_moves_the_table_is_refused(engine: AsyncEngine, outbox: Outbox, database: Path) -> None:
    """No relay would read the row there."""
    moving: dict[str, object] = {"schema_translate_map": {None: "tenant"}}
    refused = "moves table 'kafka_outbox' to schema 'tenant', where no relay of this outbox reads"
    async with AsyncSession(engine.execution_options(**moving)) as session:
        with pytest.raises(ConfigurationError, match=refused):
            await outbox.enqueue(session, "orders", b"v")
    async with AsyncSession(engine) as session:
        await session.connection(execution_options=moving)
        with pytest.raises(ConfigurationError, match=refused):
            await outbox.enqueue_many(session, [ProducerRecord("orders", b"v")])
    async with engine.connect() as connection:
        await connection.execution_options(**moving)
        with pytest.raises(ConfigurationError, match=refused):
            await outbox.enqueue(connection, "orders", b"v")

    assert rows_in(database) == []


async def test_map_of_other_schemas_leaves_the_table(engine: AsyncEngine, outbox: Outbox, database: Path) -> None:
    mapped = engine.execution_options(schema_translate_map={"tenants": "one", None: None})
    async with AsyncSession(mapped) as session, session.begin():
        await outbox.enqueue(session, "orders", b"v")
    moving = engine.execution_options(schema_translate_map={None: "tenant"})
    async with AsyncSession(moving) as session, session.begin():
        await Outbox(schema="main").enqueue(session, "orders", b"v")

    assert len(rows_in(database)) == 2
