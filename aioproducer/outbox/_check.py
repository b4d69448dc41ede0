"""Checks whether a database can have an outbox: its kind, and the shape and types of the tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import TIMESTAMP, Connection, DateTime, Table, inspect
from sqlalchemy.exc import CompileError, DBAPIError, IntegrityError, NoSuchTableError
from sqlalchemy.schema import CreateColumn

from aioproducer.outbox._errors import OutboxTableError, creation_of

if TYPE_CHECKING:
    from sqlalchemy.engine import Dialect, Inspector
    from sqlalchemy.types import TypeEngine

DIALECTS: Final = ("postgresql", "sqlite", "mysql", "mariadb")
_STATES_AT_ONCE: Final = ("42P07", "42710", "XX000", "40P01")
"""What PostgreSQL says to the slower ones of those that make a table: it or its type exists, its row in the catalogue
was updated concurrently, a deadlock."""
_NUMBERS_AT_ONCE: Final = (1050, 1213)
"""Likewise of MySQL: the table exists, a deadlock."""
_WORDS_AT_ONCE: Final = "already exists"
"""Likewise of SQLite, which has one code for all errors of a statement."""


def check_dialect(dialect: Dialect) -> None:
    """Refuse other databases.

    Raises:
        OutboxTableError: names those that work.
    """
    if dialect.name not in DIALECTS:
        raise OutboxTableError(f"the outbox works on {', '.join(DIALECTS)}, not on {dialect.name}")


def check_tables(connection: Connection, tables: Sequence[Table]) -> None:
    """Refuse tables that do not exist, lack a column, have one of another kind of type, or cannot lock.

    Args:
        tables: of one outbox; first that of its rows, unless all exist.

    Raises:
        OutboxTableError: says what to run, or which column it is.
    """
    inspector = inspect(connection)
    for table in tables:
        _check_columns(inspector, table, outbox=tables[0].fullname)
        _check_kind(inspector, table)


def check_types(connection: Connection, table: Table, names: Collection[str]) -> None:
    """Refuse columns that exist and have another kind of type; of a table that cannot be seen, the INSERT tells.

    Raises:
        OutboxTableError: names them.
    """
    with suppress(NoSuchTableError):
        found = {each["name"]: each["type"] for each in inspect(connection).get_columns(table.name, table.schema)}
        _refuse_types(connection.dialect, table, {name: found[name] for name in names if name in found})


def check_existing(connection: Connection, tables: Iterable[Table]) -> None:
    """Refuse what `check_tables` refuses, among the tables that exist, and other databases.

    Raises:
        OutboxTableError: as `check_dialect` and `check_tables`.
    """
    check_dialect(connection.dialect)
    inspector = inspect(connection)
    check_tables(connection, [each for each in tables if inspector.has_table(each.name, each.schema)])


def is_creation_by_others(error: DBAPIError) -> bool:
    """Return whether a table could not be made because another connection makes it at the same time."""
    if isinstance(error, IntegrityError):  # of PostgreSQL's catalogue
        return True
    cause = error.orig
    first = next(iter(getattr(cause, "args", ())), None)
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)  # of psycopg2
    if isinstance(first, dict):  # of pg8000
        state = first.get("C")
    elif first in _NUMBERS_AT_ONCE:
        return True
    return state in _STATES_AT_ONCE or _WORDS_AT_ONCE in str(cause)


def _check_kind(inspector: Inspector, table: Table) -> None:
    dialect = inspector.dialect.name
    views = inspector.get_view_names(table.schema)
    if dialect == "postgresql":
        views += inspector.get_materialized_view_names(table.schema)
    if table.name in views:
        raise OutboxTableError(f"{table.fullname!r} is a view; the rows of an outbox are in a table")
    if dialect in {"mysql", "mariadb"}:
        engine = str(inspector.get_table_options(table.name, table.schema).get(f"{dialect}_engine", "InnoDB"))
        if engine.lower() != "innodb":
            raise OutboxTableError(
                f"table {table.fullname!r} has the engine {engine}, which cannot lock, and may keep rows that were "
                f"rolled back: run ALTER TABLE {table.fullname} ENGINE = InnoDB"
            )


def _check_columns(inspector: Inspector, table: Table, *, outbox: str) -> None:
    dialect = inspector.dialect
    try:
        found = {column["name"]: column["type"] for column in inspector.get_columns(table.name, table.schema)}
    except NoSuchTableError:
        raise OutboxTableError(
            f"there is no table {table.fullname!r}: create it with {creation_of(outbox)}, or by a "
            "migration of the tables in the MetaData of Outbox(metadata=...)"
        ) from None
    _check_missing(dialect, table, found)
    if dialect.name != "sqlite":  # whose columns take values of any type
        _refuse_types(dialect, table, found)


def _refuse_types(dialect: Dialect, table: Table, found: Mapping[str, TypeEngine[Any]]) -> None:
    wrong = [
        f"{column.name} is {_text(found[column.name], dialect)}, and must be {_text(column.type, dialect)}"
        for column in table.columns
        if column.name in found and not _is_like(found[column.name], column.type, dialect)
    ]
    if wrong:
        raise OutboxTableError(f"table {table.fullname!r} has columns of another type: {'; '.join(wrong)}")


def _is_like(found: TypeEngine[Any], wanted: TypeEngine[Any], dialect: Dialect) -> bool:
    """Return whether a type has values of the same kind; of a time without a zone, no one knows which moment it is."""
    found = getattr(found, "data_type", found)  # of a domain of PostgreSQL
    if _kind(found) is not _kind(wanted):
        return False
    if not isinstance(found, DateTime):
        return True
    return found.timezone if dialect.name == "postgresql" else isinstance(found, TIMESTAMP)  # of MySQL, kept in UTC


def _kind(found: TypeEngine[Any]) -> type | None:
    """Return the type of its values in Python, None if SQLAlchemy does not know one."""
    try:
        return found.python_type
    except NotImplementedError:  # SQLAlchemy's word for a type that has none
        return None


def _text(found: TypeEngine[Any], dialect: Dialect) -> str:
    try:
        return found.compile(dialect=dialect)
    except CompileError:
        return type(found).__name__


def _check_missing(dialect: Dialect, table: Table, found: Collection[str]) -> None:
    missing = [column for column in table.columns if column.name not in found]
    if not missing:
        return
    text = f"table {table.fullname!r} has no column {', '.join(column.name for column in missing)}"
    if all(column.nullable for column in missing):  # of an earlier version
        added = [str(CreateColumn(column).compile(dialect=dialect)).strip() for column in missing]
        quoted = dialect.identifier_preparer.format_table(table)
        raise OutboxTableError(f"{text}: run {'; '.join(f'ALTER TABLE {quoted} ADD COLUMN {each}' for each in added)}")
    raise OutboxTableError(f"{text}; it has {', '.join(sorted(found))}")
