"""Refuses sessions and connections that are closed, not in a transaction, or none: a row would be lost or alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NoReturn

from sqlalchemy import Connection, Insert, PoolProxiedConnection, Transaction
from sqlalchemy.exc import DBAPIError, UnboundExecutionError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

from aioproducer.errors import ConfigurationError
from aioproducer.outbox._drivers import SUPPORTED, driver_of, is_cursor, parameter_mark
from aioproducer.outbox._errors import NotInTransactionError, OutboxError

_IDLE: Final = 0
"""The status of a connection of psycopg without a transaction."""
_OPEN: Final = (1, 2, 3)
"""Its status with one: a statement runs, none does, one has failed."""
_FAILED: Final = 3
"""Its status where a statement has failed."""
_STATE_FAILED: Final = "25P02"
"""What PostgreSQL answers to a statement in a transaction that has failed."""
_IN_TRANSACTION: Final = 1
"""The bit of MySQL's status."""
_ENDED_BEFORE: Final = "the transaction in which enqueue was called has ended: await the call within it"
_ENDED: Final = re.compile(
    r"operate on (a )?closed|cursor closed|permanently closed|(connection|cursor) is closed|released back to the pool",
    re.IGNORECASE,
)


def checked(target: object, statement: Insert) -> object:
    """Return the session, connection or cursor that a target stands for.

    Raises:
        TypeError: it is none.
        NotInTransactionError: it is closed, or seen to commit each statement by itself.
        ConfigurationError: it is a session that knows no engine for the table.
    """
    if isinstance(target, scoped_session | async_scoped_session):
        target = target()
    if isinstance(target, PoolProxiedConnection):  # of engine.raw_connection()
        target = target.driver_connection if target.is_valid else _refuse_closed()
    if isinstance(target, Session | AsyncSession):
        _check_session(target, statement)
    elif isinstance(target, Connection | AsyncConnection):
        _check_connection(target)
    else:
        _check_driver(target)
    return target


def begun_by(target: object) -> Transaction | SessionTransaction | bool:
    """Return the transaction that a row would be in, also a savepoint; of a driver, whether there is one.

    False where none has begun yet: the row's statement begins it.
    """
    if isinstance(target, AsyncSession):
        target = target.sync_session
    elif isinstance(target, AsyncConnection):
        target = target.sync_connection
    if isinstance(target, Session | Connection):
        return target.get_nested_transaction() or target.get_transaction() or False
    return _has_transaction(target)


def check_again(target: object, statement: Insert, *, begun: Transaction | SessionTransaction | bool) -> None:
    """Refuse to insert where what `enqueue` was called in has ended before it was awaited.

    Raises:
        NotInTransactionError: the row would be alone, or in another transaction.
    """
    if not isinstance(begun, bool) and not begun.is_active:
        raise NotInTransactionError(_ENDED_BEFORE)
    checked(target, statement)
    if begun is True and not _has_transaction(target):
        raise NotInTransactionError(_ENDED_BEFORE)


def check_begun(connection: Connection) -> None:
    """Refuse a connection of SQLAlchemy whose statements are committed one by one.

    Its own settings and its driver's are looked at after its transaction has begun, since a handler of that event may
    be what begins one in the database.

    Raises:
        NotInTransactionError: they are.
    """
    if not connection.in_transaction():
        connection.begin()  # as its first statement does
    _refuse_level(connection.get_execution_options(), connection.dialect)
    pooled = connection.connection
    _refuse_if_autocommit(getattr(pooled.dbapi_connection, "isolation_level", None))
    _check_autocommit(pooled.driver_connection)


def ended_by(error: Exception, cause: object) -> NotInTransactionError | None:
    """Return what the error of an insert means where its transaction was closed or has failed before."""
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return None
    if _STATE_FAILED in {getattr(each, "sqlstate", None) for each in (cause, error.__cause__)}:  # Django's has a cause
        return _failed()
    text = str(cause).strip()
    if _ENDED.search(text):
        return NotInTransactionError(
            f"the session or connection is not in a transaction any more ({text}): enqueue before it ends"
        )
    return None


def _check_session(session: Session | AsyncSession, statement: Insert) -> None:
    sync_session = session.sync_session if isinstance(session, AsyncSession) else session
    if not sync_session.is_active:
        raise NotInTransactionError(
            "the session's transaction has failed, or is ending, as in its events: roll it back, then begin another"
        )
    if not sync_session.autobegin and not sync_session.in_transaction():
        raise NotInTransactionError("the session is not in a transaction, and its autobegin is off: begin one first")
    try:
        bind = sync_session.get_bind(clause=statement)
    except UnboundExecutionError as error:
        table = statement.table.fullname
        raise ConfigurationError(
            f"the session knows no engine for table {table!r}: give it one, as in "
            f"binds={{Base: engine, outbox.metadata.tables[{table!r}]: engine}}"
        ) from error
    _refuse_level(bind.get_execution_options(), bind.dialect)


def _check_connection(connection: Connection | AsyncConnection) -> None:
    sync_connection = connection.sync_connection if isinstance(connection, AsyncConnection) else connection
    if sync_connection is None or sync_connection.closed:
        raise NotInTransactionError("the connection is closed: enqueue before its block ends")
    _refuse_level(sync_connection.get_execution_options(), sync_connection.dialect)


def _refuse_level(options: Mapping[str, object], dialect: object) -> None:
    _refuse_if_autocommit(options.get("isolation_level", getattr(dialect, "_on_connect_isolation_level", None)))


def _refuse_if_autocommit(level: object) -> None:
    if isinstance(level, str) and level.upper() == "AUTOCOMMIT":
        _refuse("its isolation level is AUTOCOMMIT")


def _refuse(why: str) -> NoReturn:
    raise NotInTransactionError(
        f"the session or connection is not in a transaction ({why}): the row would be committed alone; begin one first"
    )


def _refuse_closed() -> NoReturn:
    raise NotInTransactionError(
        "the connection or cursor is closed, or its connection was lost: enqueue before it is closed or released"
    )


def _failed() -> NotInTransactionError:
    return NotInTransactionError("the transaction has failed by an earlier statement: roll it back, then begin another")


def _check_driver(target: object) -> None:
    if isinstance(target, type) or not (hasattr(target, "cursor") or hasattr(target, "execute")):
        raise TypeError(f"session must be {SUPPORTED}, not {type(target).__name__}")
    parameter_mark(target)  # refuses drivers
    driver = driver_of(target)
    if driver == "asyncpg" and not hasattr(target, "is_in_transaction"):
        raise TypeError(
            f"session must be a connection of asyncpg, not {type(target).__name__}: "
            "async with pool.acquire() as connection, connection.transaction()"
        )
    try:
        if driver == "django":  # whose cursor knows Django's connection as `db`, and shows the driver's as its own
            _check_django(target)
        else:
            _check_open(target)
    except OutboxError:
        raise
    except Exception as error:  # of a driver that refuses to say it
        raise NotInTransactionError(
            f"the connection or cursor cannot be used ({error}): enqueue before it is closed or released"
        ) from error


def _check_open(target: object) -> None:
    connection = getattr(target, "connection", None) if is_cursor(target) else target
    if connection is None or any(_is_closed(each) for each in (target, connection)):
        _refuse_closed()
    if driver_of(target) == "asyncpg":
        if not getattr(connection, "is_in_transaction", bool)():
            _refuse("async with connection.transaction()")
        return
    _check_autocommit(connection)


def _is_closed(target: object) -> bool:
    is_closed = getattr(target, "is_closed", None)  # asyncpg
    if callable(is_closed) and is_closed() is True:
        return True
    if getattr(target, "closed", 0) in (1, 2):  # psycopg, aiomysql; psycopg2 has 2 too
        return True
    return any(getattr(target, name, 1) == 0 for name in ("open", "connected"))  # pymysql, asyncmy


def _check_autocommit(connection: object) -> None:
    """Refuse a driver's connection that commits each statement, unless a transaction was begun by hand."""
    status = getattr(getattr(connection, "info", None), "transaction_status", None)  # psycopg
    if status == _FAILED:
        raise _failed()
    if driver_of(connection) in {"sqlite3", "aiosqlite"}:
        is_auto = getattr(connection, "isolation_level", "") is None or getattr(connection, "autocommit", 0) is True
        if not getattr(connection, "in_transaction", True) and is_auto:
            _refuse("its isolation_level is None")
    elif status in {None, _IDLE} and _has_autocommit(connection) and not _has_begun(connection):
        _refuse("its autocommit is on")


def _has_autocommit(connection: object) -> bool:
    ask = getattr(connection, "get_autocommit", None)
    found = ask() if callable(ask) else getattr(connection, "autocommit", None)
    return found is True or (ask is not None and found == 1)


def _has_begun(connection: object) -> bool:
    """Return whether MySQL has said that a transaction is open."""
    status = getattr(connection, "server_status", None)
    if isinstance(status, int):
        return bool(status & _IN_TRANSACTION)
    return getattr(connection, "in_transaction", None) is True


def _has_transaction(target: object) -> bool:
    """Return whether a transaction is open on a connection that must be awaited, or on that of a cursor."""
    connection = getattr(target, "connection", None) if is_cursor(target) else target
    if driver_of(target) == "asyncpg":
        return getattr(connection, "is_in_transaction", bool)() is True
    status = getattr(getattr(connection, "info", None), "transaction_status", None)  # psycopg
    if status is not None:
        return status in _OPEN
    return _has_begun(connection)


def _check_django(cursor_or_connection: object) -> None:
    database = getattr(cursor_or_connection, "db", cursor_or_connection)
    if getattr(database, "get_autocommit", bool)() is True and not getattr(database, "in_atomic_block", False):
        _refuse("with transaction.atomic()")
