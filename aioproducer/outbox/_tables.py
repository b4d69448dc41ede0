"""Tables of an outbox: rows that wait, parked rows, rows that were sent, and the state of the relay.

The table of the rows is a contract: anything that can insert into it may, in any transaction. The relay only reads and
deletes rows; which rows it has claimed stands in its own table, so a claim writes one row however many it claims.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlalchemy import (
    ARRAY,
    DDL,
    BigInteger,
    Column,
    DateTime,
    Identity,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    Update,
    and_,
    case,
    event,
    func,
    literal,
    literal_column,
    or_,
    select,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import ExecutableDDLElement
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.functions import FunctionElement

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

from aioproducer.errors import ConfigurationError

MAX_NAME: Final = 48
"""With what follows, a name is at most 63 characters long, as PostgreSQL allows."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_ID: Final = BigInteger().with_variant(Integer, "sqlite")
_BYTES: Final = LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
_TEXT: Final = Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
_TIME: Final = DateTime(timezone=True).with_variant(mysql.TIMESTAMP(fsp=3), "mysql", "mariadb")
_NAME_OF_TOPIC: Final = String(249).with_variant(mysql.VARCHAR(249, charset="ascii"), "mysql", "mariadb")

ROW_OVERHEAD: Final = 64
"""Bytes that a row counts beside its key, value and headers."""
RECORD_COLUMNS: Final = ("topic", "key", "value", "headers", "partition", "timestamp")


class current_time(FunctionElement[object]):  # noqa: N801  # an SQL function
    """The time of the database, as `created_at` keeps it."""

    inherit_cache = True


class current_ms(FunctionElement[int]):  # noqa: N801  # an SQL function
    """The time of the database in ms since 1970, also within a transaction that is open for long."""

    inherit_cache = True
    type = BigInteger()


class ms_of(FunctionElement[int]):  # noqa: N801  # an SQL function
    """The ms since 1970 of a column like `created_at`."""

    inherit_cache = True
    type = BigInteger()


_CURRENT_TIME: Final = {
    "postgresql": "now()",
    "sqlite": "(strftime('%Y-%m-%d %H:%M:%f', 'now'))",
    "mysql": "CURRENT_TIMESTAMP(3)",
    "mariadb": "CURRENT_TIMESTAMP(3)",
}
_UTC_MS: Final = "timestampdiff(MICROSECOND, '1970-01-01', utc_timestamp(3)) DIV 1000"
"""Not of `now()`: one hour in a year, the time of a zone that changes in summer stands for two."""
_CURRENT_MS: Final = {
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)",
    "sqlite": "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)",
    "mysql": f"({_UTC_MS})",
    "mariadb": f"({_UTC_MS})",
}
_MS_OF: Final = {
    "postgresql": (
        "CASE WHEN isfinite({0}) THEN CAST(extract(epoch FROM {0}) * 1000 AS bigint)"
        f" ELSE {_CURRENT_MS['postgresql']} END"
    ),
    "sqlite": "CAST(round((julianday({}) - 2440587.5) * 86400000) AS INTEGER)",
    "mysql": "CAST(unix_timestamp({}) * 1000 AS SIGNED)",
    "mariadb": "CAST(unix_timestamp({}) * 1000 AS SIGNED)",
}


@compiles(current_time)
def _current_time(_element: current_time, compiler: SQLCompiler, **_: object) -> str:
    return _CURRENT_TIME.get(compiler.dialect.name, "CURRENT_TIMESTAMP")


@compiles(current_ms)
def _current_ms(_element: current_ms, compiler: SQLCompiler, **_: object) -> str:
    return _CURRENT_MS[compiler.dialect.name]


@compiles(ms_of)
def _ms_of(element: ms_of, compiler: SQLCompiler, **_: object) -> str:
    return _MS_OF[compiler.dialect.name].format(compiler.process(element.clauses))


class Tables(NamedTuple):
    """The tables of one outbox."""

    rows: Table
    parked: Table
    relay: Table
    sent: Table
    """Used only by a relay that keeps rows."""

    @property
    def needed(self) -> tuple[Table, ...]:
        """The tables that every relay uses."""
        return self.rows, self.parked, self.relay

    @property
    def name(self) -> str:
        """Name of the outbox, with its schema."""
        return self.rows.fullname


def tables_of(name: str, metadata: MetaData, schema: str | None) -> Tables:
    """Return the tables of an outbox, in a MetaData of the caller's.

    Raises:
        ConfigurationError: a name that cannot be, or that the MetaData has already.
    """
    for argument, text in (("name", name), ("schema", schema)):
        if text is not None and not (isinstance(text, str) and _NAME.fullmatch(text) and len(text) <= MAX_NAME):
            raise ConfigurationError(
                f"{argument} must be the name of a table: a-z A-Z 0-9 _, at most {MAX_NAME} characters, not {text!r}"
            )
    place = metadata.schema if schema is None else schema
    for table in (name, f"{name}_parked", f"{name}_relay", f"{name}_sent"):
        full = table if place is None else f"{place}.{table}"
        if full in metadata.tables:
            raise ConfigurationError(f"the MetaData has a table {full!r} already: make one Outbox for each table")
    rows = Table(
        name,
        metadata,
        Column("id", _ID, Identity(always=False), primary_key=True, comment="order of the rows"),
        *_record_columns(),
        Column("created_at", _TIME, nullable=False, server_default=current_time()),
        schema=schema,
        sqlite_autoincrement=True,
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
    )
    _notify_of_inserts(rows)
    parked = Table(
        f"{name}_parked",
        metadata,
        Column("id", _ID, primary_key=True, autoincrement=False),
        *_record_columns(),
        Column("created_at", _TIME, nullable=False, server_default=current_time()),
        Column("error", _TEXT, nullable=False),
        Column("parked_at", _TIME, nullable=False, server_default=current_time()),
        schema=schema,
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
    )
    return Tables(rows, parked, _relay_table(f"{name}_relay", metadata, schema), _sent_table(name, metadata, schema))


def _sent_table(name: str, metadata: MetaData, schema: str | None) -> Table:
    return Table(
        f"{name}_sent",
        metadata,
        Column("sent_at", _TIME, primary_key=True),
        Column("id", _ID, primary_key=True, autoincrement=False),
        *_record_columns(),
        Column("created_at", _TIME, nullable=False, server_default=current_time()),
        schema=schema,
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
    )


def _notify_of_inserts(rows: Table) -> None:
    """Let PostgreSQL notify of each commit with new rows: by a trigger, so that plain SQL does it too."""
    place = "" if rows.schema is None else f'"{rows.schema}".'
    function = f'{place}"{rows.name}_notify"'
    body = "$$ BEGIN PERFORM pg_notify(TG_TABLE_NAME, ''); RETURN NULL; END $$"
    trigger = f'"{rows.name}_notify" AFTER INSERT ON {place}"{rows.name}"'
    for statement in (
        f"CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS {body}",
        f"CREATE TRIGGER {trigger} FOR EACH STATEMENT EXECUTE FUNCTION {function}()",
    ):
        event.listen(rows, "after_create", _on_postgresql(statement))
    event.listen(rows, "after_drop", _on_postgresql(f"DROP FUNCTION IF EXISTS {function}()"))


def _on_postgresql(statement: str) -> ExecutableDDLElement:
    made: ExecutableDDLElement = DDL(statement).execute_if(dialect="postgresql")  # type: ignore[no-untyped-call]  # of SQLAlchemy
    return made


def _record_columns() -> list[Column[object]]:
    return [
        Column("topic", _NAME_OF_TOPIC, nullable=False),
        Column("key", _BYTES),
        Column("value", _BYTES),
        Column("headers", _TEXT, comment="JSON: [[name, text], ...]"),
        Column("partition", Integer),
        Column("timestamp", BigInteger, comment="ms since 1970; NULL is created_at"),
    ]


def _relay_table(name: str, metadata: MetaData, schema: str | None) -> Table:
    return Table(
        name,
        metadata,
        Column("id", SmallInteger, primary_key=True, autoincrement=False, comment="number of the shard"),
        Column("identity", String(32), nullable=False, comment="in the transactional id and the group"),
        Column("epoch", BigInteger, nullable=False),
        Column("number", BigInteger, nullable=False, comment="of the last batch that was claimed"),
        Column("claimed", _TEXT, nullable=False, comment="batches that may not be deleted yet, with the ids of each"),
        Column("topic", _NAME_OF_TOPIC, comment="the group's offset in its partition 0 is the last batch in Kafka"),
        Column("token", String(32), nullable=False),
        Column("former_token", String(32), nullable=False),
        Column("owner", String(255), comment="the relay that works"),
        Column("lease_until", BigInteger, nullable=False, comment="ms since 1970"),
        Column("renewals", BigInteger, nullable=False),
        Column("wanted_by", String(255), comment="the relay that asks for this shard"),
        Column("trouble", _TEXT, comment="why nothing is sent; NULL if it is"),
        schema=schema,
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
    )


def transacting(engine: AsyncEngine) -> AsyncEngine:
    """Return an engine of the same pool whose connections have transactions, also where the user's commits each."""
    level = "SERIALIZABLE" if engine.dialect.name == "sqlite" else "READ COMMITTED"
    return engine.execution_options(isolation_level=level)


def waiting_for_disk(statement: Update, dialect: str) -> Update:
    """Return an UPDATE whose transaction waits for the disk at its commit, also where PostgreSQL is told not to.

    For this transaction alone: behind a pooler, the next one on the server's connection is another client's.
    """
    if dialect != "postgresql":
        return statement
    name = "synchronous_commit"
    is_off = func.current_setting(name) == "off"
    return statement.returning(case((is_off, func.set_config(name, "on", literal_column("true")))))


RUNS_AT_ONCE: Final = 200
"""Runs of ids in one condition: SQLite allows 1,000 nested ones."""
SHORT_RUN: Final = 8
"""Ids of a shorter run are listed one by one."""
IDS_AT_ONCE: Final = 900
"""MariaDB makes a table of a longer list."""


def ids_within(
    column: ColumnElement[int], runs: Sequence[tuple[int, int]], dialect: str
) -> Iterator[ColumnElement[bool]]:
    """Yield conditions of which each id within the runs meets one.

    Runs are exact: an id between two of them may be of a transaction that is not committed yet.
    """
    long = [run for run in runs if run[1] - run[0] >= SHORT_RUN - 1]
    for start in range(0, len(long), RUNS_AT_ONCE):
        yield or_(*(and_(column >= first, column <= last) for first, last in long[start : start + RUNS_AT_ONCE]))
    ids = [each for first, last in runs if last - first < SHORT_RUN - 1 for each in range(first, last + 1)]
    for start in range(0, len(ids), IDS_AT_ONCE):
        yield _among(column, ids[start : start + IDS_AT_ONCE], dialect)


def _among(column: ColumnElement[int], ids: Sequence[int], dialect: str) -> ColumnElement[bool]:
    """Return the condition of a list of ids; one parameter where that is possible, so that statements stay the same."""
    if dialect == "postgresql":
        return column.in_(select(func.unnest(literal(ids, ARRAY(BigInteger)))))
    if dialect == "sqlite":
        return column.in_(select(func.json_each(json.dumps(ids)).table_valued("value").c.value))
    return column.in_(ids)
