"""Drivers of databases, told apart by the modules of an object's classes, so that none of them is imported."""

from __future__ import annotations

import inspect
import sys
from typing import Final

_ASYNC: Final = frozenset({"asyncpg", "aiosqlite", "asyncmy", "aiomysql"})
_BACKTICKS: Final = frozenset({"pymysql", "MySQLdb", "mysql", "mariadb", "aiomysql", "asyncmy"})
DRIVERS: Final = _ASYNC | _BACKTICKS | {"psycopg", "sqlite3"}
_KNOWN: Final = DRIVERS | {"django"}
_MARKS: Final = {"qmark": "?", "format": "%s", "pyformat": "%s"}
_MARKS_OF: Final = {"asyncpg": "$", "aiomysql": "%s", "django": "%s"}
"""Of those whose module does not say it."""
_ON_THE_SERVER: Final = frozenset({"ServerCursor", "AsyncServerCursor", "RawServerCursor", "AsyncRawServerCursor"})
_RAW: Final = frozenset({"RawCursor", "AsyncRawCursor"})
"""Of psycopg, which sends statements as they are."""
SUPPORTED: Final = (
    "a Session, AsyncSession, Connection or AsyncConnection of SQLAlchemy, a connection of asyncpg, or a connection or "
    "cursor of psycopg, aiosqlite, asyncmy, aiomysql or of the DB-API"
)


def driver_of(target: object) -> str:
    """Return the package of a connection's or cursor's driver, also of a subclass, or its own package."""
    packages = [
        each.__module__.partition(".")[0] for each in target.__class__.__mro__
    ]  # also of what a proxy stands for
    known = (each for each in packages if each in _KNOWN or hasattr(sys.modules.get(each), "paramstyle"))
    return next(known, packages[0])


def is_async_driver(target: object) -> bool:
    """Return whether a connection or cursor of a driver must be awaited."""
    driver = driver_of(target)
    if driver == "psycopg":
        own = (each for each in target.__class__.__mro__ if each.__module__.partition(".")[0] == driver)
        return any(each.__name__.startswith("Async") for each in own)
    return driver in _ASYNC


def is_cursor(target: object) -> bool:
    """Return whether it is a cursor, and no connection."""
    return hasattr(target, "executemany") and hasattr(target, "fetchone")


def parameter_mark(target: object) -> str:
    """Return what stands for a parameter in a statement.

    Raises:
        TypeError: a driver that the outbox cannot use.
    """
    driver = driver_of(target)
    classes = {each.__name__ for each in target.__class__.__mro__} if driver == "psycopg" else set()
    if not classes.isdisjoint(_ON_THE_SERVER):
        raise TypeError(f"session must be {SUPPORTED}, not a cursor with a name, which only reads")
    if not classes.isdisjoint(_RAW):
        return "$"
    if driver in _MARKS_OF:
        return _MARKS_OF[driver]
    style = getattr(sys.modules.get(driver), "paramstyle", None)
    if style is None:
        raise TypeError(f"session must be {SUPPORTED}, not {target.__class__.__qualname__} of {driver}")
    if style not in _MARKS:
        raise TypeError(f"the driver {driver} has paramstyle {style!r}; supported are {', '.join(_MARKS)}")
    return _MARKS[style]


def quote_of(target: object) -> str:
    """Return the quotation mark of names."""
    if driver_of(target) == "django":
        return "`" if getattr(getattr(target, "db", target), "vendor", "") == "mysql" else '"'
    return "`" if driver_of(target) in _BACKTICKS else '"'


def refuse_awaitable(result: object, target: object) -> None:
    """Refuse a driver whose calls must be awaited, where that is not known: nothing would be inserted.

    Raises:
        TypeError: names what can be taken.
    """
    if not inspect.isawaitable(result):
        return
    if inspect.iscoroutine(result):
        result.close()
    raise TypeError(
        f"{target.__class__.__qualname__} of {driver_of(target)} is asynchronous, and the outbox does not know this "
        "driver: enqueue by an AsyncSession or AsyncConnection of SQLAlchemy"
    )
