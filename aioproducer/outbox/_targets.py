"""Sessions and connections that rows are inserted by."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Generator, Mapping, Sequence
from functools import lru_cache
from inspect import isawaitable
from typing import Final, NoReturn, Protocol, TypeAlias, TypeGuard, cast
from weakref import WeakSet

from sqlalchemy import Connection, Dialect, Transaction, insert
from sqlalchemy.exc import DBAPIError, MissingGreenlet, StatementError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session, SessionTransaction

from aioproducer.outbox._arguments import refuse_moved
from aioproducer.outbox._check import check_types
from aioproducer.outbox._drivers import (
    driver_of,
    is_async_driver,
    is_cursor,
    parameter_mark,
    quote_of,
    refuse_awaitable,
)
from aioproducer.outbox._errors import OutboxTableError, creation_of
from aioproducer.outbox._record import Row
from aioproducer.outbox._tables import Tables
from aioproducer.outbox._transactions import check_again, check_begun, checked, ended_by
from aioproducer.outbox._wake import mark, wake_all

_MISSING: Final = re.compile(
    r"no such table|does not exist|doesn't exist|has no column|no column named|unknown column", re.IGNORECASE
)
_ARGUMENT: Final = re.compile(r"invalid input for query argument \$([1-6])\b")
"""Of asyncpg, where a column has a type that the value has not."""


class SqlAlchemySession(Protocol):
    """A session or connection of SQLAlchemy, also a scoped session."""

    def begin_nested(self) -> object:
        """Begin a savepoint."""

    def close(self) -> None:
        """Close it."""


class SqlAlchemyAsyncSession(Protocol):
    """An asynchronous session or connection of SQLAlchemy, also a scoped session."""

    def begin_nested(self) -> object:
        """Begin a savepoint."""

    async def close(self) -> None:
        """Close it."""


class DbApiCursor(Protocol):
    """A cursor of the DB-API, also Django's."""

    def execute(self, sql: str, params: Sequence[object], /) -> object:
        """Execute a statement."""

    def executemany(self, sql: str, params: Sequence[Sequence[object]], /) -> object:
        """Execute a statement for each of many rows."""


class DbApiConnection(Protocol):
    """A connection of the DB-API, also psycopg's."""

    def cursor(self) -> DbApiCursor:
        """Open a cursor."""


class AsyncpgConnection(Protocol):
    """A connection of asyncpg, also one of its pool."""

    def is_in_transaction(self) -> bool:
        """Whether a transaction is open."""

    def is_closed(self) -> bool:
        """Whether it is closed."""

    async def executemany(self, command: str, args: Sequence[Sequence[object]], /) -> None:
        """Execute a statement for each of many rows."""


class PsycopgAsyncConnection(Protocol):
    """An asynchronous connection or cursor of psycopg or aiosqlite, or a cursor of asyncmy or aiomysql."""

    async def close(self) -> None:
        """Close it."""


class MysqlAsyncConnection(Protocol):
    """A connection of asyncmy or aiomysql."""

    async def commit(self) -> None:
        """Commit."""


# Protocols alone: without SQLAlchemy, which is optional, a type checker would know a union with its classes in part.
AsyncTarget: TypeAlias = SqlAlchemyAsyncSession | AsyncpgConnection | PsycopgAsyncConnection | MysqlAsyncConnection
SyncTarget: TypeAlias = SqlAlchemySession | DbApiConnection | DbApiCursor


class Enqueued:
    """The result of `enqueue` with a session or connection that is not asynchronous: done, and may be awaited."""

    def __await__(self) -> Generator[None, None, None]:
        """Return at once."""
        yield from ()


def is_async(target: object) -> TypeGuard[AsyncTarget]:
    """Return whether `enqueue` must wait to insert."""
    return isinstance(target, AsyncSession | AsyncConnection) or is_async_driver(target)


class Inserts:
    """Inserts rows of one outbox by any session or connection."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._insert = insert(tables.rows).inline()  # no RETURNING of the id: a user that may only insert suffices
        self._seen: WeakSet[Dialect] = WeakSet()  # of engines, also with options, whose table is as it must be

    def checked(self, target: object) -> AsyncTarget | SyncTarget:
        """Return the session, connection or cursor that a target stands for; refuse others, closed ones, autocommit.

        Raises:
            TypeError: it is none.
            NotInTransactionError: it is closed, or not in a transaction.
        """
        return cast("AsyncTarget | SyncTarget", checked(target, self._insert))

    def insert(self, target: SyncTarget, rows: Sequence[Row]) -> None:
        """Insert by what is not asynchronous."""
        try:
            if isinstance(target, Session):
                self._by_session(target, rows)
            elif isinstance(target, Connection):
                self._by_connection(target, rows)
            else:
                self._by_cursor(target, rows)
        except Exception as error:  # noqa: BLE001  # of any driver; it is raised
            self._explain(error)
        self._note(target)

    async def insert_async(
        self, target: AsyncTarget, rows: Sequence[Row], *, begun: Transaction | SessionTransaction | bool
    ) -> None:
        """Insert by what is asynchronous.

        Args:
            begun: the transaction, where one had begun when `enqueue` was called, which may have ended since.

        Raises:
            NotInTransactionError: it has.
        """
        check_again(target, self._insert, begun=begun)
        try:
            if isinstance(target, AsyncSession):
                await target.run_sync(self._by_session, rows)
            elif isinstance(target, AsyncConnection):
                await target.run_sync(self._by_connection, rows)
            elif driver_of(target) == "asyncpg":
                await cast("AsyncpgConnection", target).executemany(self._sql(target), rows)
            else:
                await self._by_async_cursor(target, rows)
        except Exception as error:  # noqa: BLE001  # of any driver; it is raised
            self._explain(error)
        self._note(target)

    def _by_session(self, session: Session, rows: Sequence[Row]) -> None:
        self._check(session.connection(bind_arguments={"clause": self._insert}))
        session.execute(self._insert, _mappings(rows))

    def _by_connection(self, connection: Connection, rows: Sequence[Row]) -> None:
        self._check(connection)
        connection.execute(self._insert, _mappings(rows))

    def _check(self, connection: Connection) -> None:
        check_begun(connection)
        refuse_moved(connection.get_execution_options(), self._tables.rows)
        self._check_table(connection)

    def _check_table(self, connection: Connection) -> None:
        """Look at the columns before the first row of an engine, where the database turns bytes into text unasked."""
        dialect = connection.dialect
        if dialect.name != "postgresql" or dialect in self._seen:
            return
        check_types(connection, self._tables.rows, Row._fields)
        self._seen.add(dialect)

    async def _by_async_cursor(self, target: object, rows: Sequence[Row]) -> None:
        cursor = target if is_cursor(target) else cast("DbApiConnection", target).cursor()
        if cursor is not target and isawaitable(cursor):
            cursor = await cursor
        await cast("Awaitable[object]", _execute(cast("DbApiCursor", cursor), self._sql(cursor), rows))
        if cursor is not target:
            await cast("PsycopgAsyncConnection", cursor).close()

    def _by_cursor(self, target: SyncTarget, rows: Sequence[Row]) -> None:
        cursor = target if is_cursor(target) else cast("DbApiConnection", target).cursor()
        refuse_awaitable(cursor, target)
        refuse_awaitable(_execute(cast("DbApiCursor", cursor), self._sql(cursor), rows), target)

    def _sql(self, target: object) -> str:
        table = self._tables.rows
        return _insert_text(table.schema, table.name, placeholder=parameter_mark(target), quote=quote_of(target))

    def _note(self, target: object) -> None:
        """Have the relays of this process woken: by a session after its commit, else now, so that they look soon."""
        if isinstance(target, AsyncSession):
            target = target.sync_session
        if isinstance(target, Session):
            mark(target, self._tables.name)
        else:
            wake_all(self._tables.name)

    def _explain(self, error: Exception) -> NoReturn:
        """Raise what a missing table or a wrong column means; anything else as the driver has raised it."""
        cause = error.orig if isinstance(error, StatementError) and error.orig is not None else error
        if isinstance(cause, MissingGreenlet):
            raise TypeError(
                "session must be the AsyncSession or AsyncConnection itself, not what it has in sync_session or "
                "sync_connection, which works only within run_sync"
            ) from error
        if (ended := ended_by(error, cause)) is not None:
            raise ended from error
        if isinstance(error, DBAPIError) and self._tables.rows.name not in (error.statement or ""):
            raise error  # of the connection, or of what the session has flushed
        text = str(cause).strip()
        if (argument := _ARGUMENT.search(text)) is not None:
            text = f"column {Row._fields[int(argument[1]) - 1]}: {text}"
        elif not (_MISSING.search(text) and self._is_named(text)):
            raise error
        name = self._tables.name
        raise OutboxTableError(
            f"cannot insert into table {name!r} ({text}): {creation_of(name)} creates it, or says which of "
            "its columns is wrong; so does a migration of the tables in the MetaData of Outbox(metadata=...)"
        ) from error

    def _is_named(self, text: str) -> bool:
        """Return whether a text is about the table of the outbox, or a column, and not about a trigger's table."""
        names = [name for name in (self._tables.rows.name, self._tables.rows.schema) if name is not None]
        return any(name in text for name in names) or "unknown column" in text.lower()


@lru_cache(maxsize=64)
def _insert_text(schema: str | None, table: str, *, placeholder: str, quote: str) -> str:
    columns = Row._fields
    marks = [f"${number}" if placeholder == "$" else placeholder for number in range(1, len(columns) + 1)]
    place = ".".join(f"{quote}{name}{quote}" for name in (schema, table) if name is not None)
    names = ", ".join(f"{quote}{name}{quote}" for name in columns)
    return f"INSERT INTO {place} ({names}) VALUES ({', '.join(marks)})"  # noqa: S608  # names are checked, values are not in it


def _mappings(rows: Sequence[Row]) -> Mapping[str, object] | list[dict[str, object]]:
    return rows[0]._asdict() if len(rows) == 1 else [row._asdict() for row in rows]


def _execute(cursor: DbApiCursor, sql: str, rows: Sequence[Row]) -> object:
    if len(rows) == 1:
        return cursor.execute(sql, tuple(rows[0]))
    return cursor.executemany(sql, [tuple(row) for row in rows])
