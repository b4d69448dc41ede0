"""Sessions and connections that rows are inserted by, and what each must be for it.

Drivers are told apart by the module of the object's class, so none of them is imported.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Generator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NoReturn, Protocol, TypeAlias, TypeGuard, cast

from sqlalchemy import Connection, Insert, insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from aioproducer.outbox._errors import NotInTransactionError, OutboxTableError
from aioproducer.outbox._record import Row
from aioproducer.outbox._tables import Tables
from aioproducer.outbox._wake import mark, wake_all

_MISSING: Final = re.compile(
    r"no such table|does not exist|doesn't exist|has no column|no column named|unknown column", re.IGNORECASE
)
_IDLE: Final = 0
"""The status of a connection of psycopg without a transaction."""
_BACKTICKS: Final = frozenset({"pymysql", "MySQLdb", "mysql", "mariadb", "aiomysql", "asyncmy"})
_PLACEHOLDERS: Final = {"qmark": "?", "format": "%s", "pyformat": "%s"}


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
    """An asynchronous connection or cursor of psycopg."""

    async def close(self) -> None:
        """Close it."""


# Protocols alone: without SQLAlchemy, which is optional, a type checker would know a union with its classes in part.
AsyncTarget: TypeAlias = SqlAlchemyAsyncSession | AsyncpgConnection | PsycopgAsyncConnection
SyncTarget: TypeAlias = SqlAlchemySession | DbApiConnection | DbApiCursor


class Enqueued:
    """The result of `enqueue` with a session or connection that is not asynchronous: done, and may be awaited."""

    def __await__(self) -> Generator[None, None, None]:
        """Return at once."""
        yield from ()


def is_async(target: object) -> TypeGuard[AsyncTarget]:
    """Return whether `enqueue` must wait to insert."""
    if isinstance(target, AsyncSession | async_scoped_session | AsyncConnection):
        return True
    return _root(target) == "asyncpg" or (_root(target) == "psycopg" and type(target).__name__.startswith("Async"))


class Inserts:
    """Inserts rows of one outbox by any session or connection."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._insert = insert(tables.rows)

    def check(self, target: object) -> None:
        """Refuse an object that is no session or connection, is closed, or commits each statement by itself.

        Raises:
            TypeError: it is none.
            NotInTransactionError: it is closed, or not in a transaction.
        """
        if isinstance(target, scoped_session | async_scoped_session):
            target = target()
        if isinstance(target, Session | AsyncSession):
            _check_session(target, self._insert)
        elif isinstance(target, Connection | AsyncConnection):
            _check_connection(target)
        else:
            _check_driver(target)

    def insert(self, target: SyncTarget, rows: Sequence[Row]) -> None:
        """Insert by what is not asynchronous."""
        try:
            if isinstance(target, Session | scoped_session | Connection):
                target.execute(self._insert, _mappings(rows))
            else:
                self._by_cursor(target, rows)
        except Exception as error:  # noqa: BLE001  # of any driver; it is raised
            self._explain(error)
        self._note(target)

    async def insert_async(self, target: AsyncTarget, rows: Sequence[Row]) -> None:
        """Insert by what is asynchronous."""
        try:
            if isinstance(target, AsyncSession | async_scoped_session | AsyncConnection):
                await target.execute(self._insert, _mappings(rows))
            elif _root(target) == "asyncpg":
                await cast("AsyncpgConnection", target).executemany(self._sql("$", '"'), rows)
            else:
                await self._by_psycopg(target, rows)
        except Exception as error:  # noqa: BLE001  # of any driver; it is raised
            self._explain(error)
        self._note(target)

    async def _by_psycopg(self, target: object, rows: Sequence[Row]) -> None:
        sql = self._sql("%s", '"')
        cursor = target if hasattr(target, "executemany") else cast("DbApiConnection", target).cursor()
        await cast("Awaitable[None]", cast("DbApiCursor", cursor).executemany(sql, rows))

    def _by_cursor(self, target: SyncTarget, rows: Sequence[Row]) -> None:
        root = _root(target)
        placeholder = "%s" if root == "django" else _placeholder(root, target)
        sql = self._sql(placeholder, "`" if _has_backticks(target) else '"')
        is_cursor = hasattr(target, "executemany") and hasattr(target, "fetchone")
        cursor = cast("DbApiCursor", target) if is_cursor else cast("DbApiConnection", target).cursor()
        if len(rows) == 1:
            cursor.execute(sql, tuple(rows[0]))
        else:
            cursor.executemany(sql, [tuple(row) for row in rows])

    def _sql(self, placeholder: str, quote: str) -> str:
        table = self._tables.rows
        return _insert_text(table.schema, table.name, placeholder=placeholder, quote=quote)

    def _note(self, target: object) -> None:
        """Have the relays of this process woken: by a session after its commit, else now, so that they look soon."""
        if isinstance(target, scoped_session | async_scoped_session):
            target = target()
        if isinstance(target, AsyncSession):
            target = target.sync_session
        if isinstance(target, Session):
            mark(target, self._tables.name)
        else:
            wake_all(self._tables.name)

    def _explain(self, error: Exception) -> NoReturn:
        """Raise what a missing table or column means; anything else as the driver has raised it."""
        cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
        text = str(cause).strip()
        if not _MISSING.search(text):
            raise error
        raise OutboxTableError(
            f"cannot insert into table {self._tables.name!r} ({text}): create it with `aioproducer outbox create URL`, "
            "or by a migration of the tables in the MetaData of Outbox(metadata=...)"
        ) from error


@lru_cache(maxsize=64)
def _insert_text(schema: str | None, table: str, *, placeholder: str, quote: str) -> str:
    columns = Row._fields
    marks = [f"${number}" if placeholder == "$" else placeholder for number in range(1, len(columns) + 1)]
    place = ".".join(f"{quote}{name}{quote}" for name in (schema, table) if name is not None)
    names = ", ".join(f"{quote}{name}{quote}" for name in columns)
    return f"INSERT INTO {place} ({names}) VALUES ({', '.join(marks)})"  # noqa: S608  # names are checked, values are not in it


def _mappings(rows: Sequence[Row]) -> Mapping[str, object] | list[dict[str, object]]:
    return rows[0]._asdict() if len(rows) == 1 else [row._asdict() for row in rows]


def _root(target: object) -> str:
    return type(target).__module__.partition(".")[0]


def _placeholder(root: str, target: object) -> str:
    style = getattr(sys.modules.get(root), "paramstyle", None)
    if style not in _PLACEHOLDERS:
        text = (
            f"the driver of {type(target).__qualname__} has paramstyle {style!r}; supported are qmark, format, pyformat"
        )
        raise TypeError(text)
    return _PLACEHOLDERS[style]


def _has_backticks(target: object) -> bool:
    if _root(target) == "django":
        database = getattr(target, "db", target)
        return getattr(database, "vendor", "") == "mysql"
    return _root(target) in _BACKTICKS


def _check_session(session: Session | AsyncSession, statement: Insert) -> None:
    sync_session = session.sync_session if isinstance(session, AsyncSession) else session
    if not sync_session.is_active:
        raise NotInTransactionError("the session's transaction has failed: roll it back, then begin another")
    bind = sync_session.get_bind(clause=statement)
    _refuse_autocommit(bind.get_execution_options(), bind.dialect)


def _check_connection(connection: Connection | AsyncConnection) -> None:
    sync_connection = connection.sync_connection if isinstance(connection, AsyncConnection) else connection
    if sync_connection is None or sync_connection.closed:
        raise NotInTransactionError("the connection is closed: enqueue before its block ends")
    _refuse_autocommit(sync_connection.get_execution_options(), sync_connection.dialect)


def _refuse_autocommit(options: Mapping[str, object], dialect: object) -> None:
    level = options.get("isolation_level", getattr(dialect, "_on_connect_isolation_level", None))
    if level == "AUTOCOMMIT":
        _refuse("its isolation level is AUTOCOMMIT")


def _refuse(why: str) -> NoReturn:
    raise NotInTransactionError(
        f"the session or connection is not in a transaction ({why}): the row would be committed alone; begin one first"
    )


def _check_driver(target: object) -> None:
    if isinstance(target, type) or not (hasattr(target, "cursor") or hasattr(target, "execute")):
        raise TypeError(
            "session must be a Session, AsyncSession, Connection or AsyncConnection of SQLAlchemy, a connection of "
            f"asyncpg, or a connection or cursor of psycopg or of the DB-API, not {type(target).__name__}"
        )
    root = _root(target)
    if root == "asyncpg":
        connection = cast("AsyncpgConnection", target)
        if connection.is_closed():
            raise NotInTransactionError("the connection is closed")
        if not connection.is_in_transaction():
            _refuse("async with connection.transaction()")
        return
    if getattr(target, "closed", False) is True:
        raise NotInTransactionError("the connection or cursor is closed")
    if root == "django":  # whose cursor knows Django's connection as `db`, and shows the driver's as its own
        _check_django(target)
        return
    _check_autocommit(root, getattr(target, "connection", target) if hasattr(target, "fetchone") else target)


def _check_autocommit(root: str, connection: object) -> None:
    if root == "psycopg":
        status = getattr(getattr(connection, "info", None), "transaction_status", None)
        if getattr(connection, "autocommit", False) and status == _IDLE:
            _refuse("its autocommit is on")
    elif root == "sqlite3":
        is_auto = getattr(connection, "isolation_level", "") is None or getattr(connection, "autocommit", 0) is True
        if is_auto and not getattr(connection, "in_transaction", True):
            _refuse("its isolation_level is None")
    else:
        found = getattr(connection, "get_autocommit", None) or getattr(connection, "autocommit", None)
        if (found() if callable(found) and "get" in getattr(found, "__name__", "") else found) is True:
            _refuse("its autocommit is on")


def _check_django(cursor_or_connection: object) -> None:
    database = getattr(cursor_or_connection, "db", cursor_or_connection)
    if getattr(database, "get_autocommit", bool)() is True and not getattr(database, "in_atomic_block", False):
        _refuse("with transaction.atomic()")
