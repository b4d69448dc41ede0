"""Whether a database can have an outbox: its kind, and the shape of the tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, Table, inspect
from sqlalchemy.exc import NoSuchTableError
from sqlalchemy.schema import CreateColumn

from aioproducer.outbox._errors import OutboxTableError

if TYPE_CHECKING:
    from sqlalchemy.engine import Dialect

DIALECTS: Final = ("postgresql", "sqlite", "mysql", "mariadb")


def check_dialect(dialect: Dialect) -> None:
    """Refuse other databases.

    Raises:
        OutboxTableError: names those that work.
    """
    if dialect.name not in DIALECTS:
        raise OutboxTableError(f"the outbox works on {', '.join(DIALECTS)}, not on {dialect.name}")


def check_tables(connection: Connection, tables: Iterable[Table]) -> None:
    """Refuse tables that do not exist, lack a column, or cannot lock.

    Raises:
        OutboxTableError: says what to run.
    """
    for table in tables:
        _check_columns(connection, table)
        if connection.dialect.name in {"mysql", "mariadb"}:
            engine = inspect(connection).get_table_options(table.name, table.schema).get("mysql_engine", "InnoDB")
            if str(engine).lower() != "innodb":
                raise OutboxTableError(
                    f"table {table.fullname!r} has the engine {engine}, which cannot lock: InnoDB can"
                )


def _check_columns(connection: Connection, table: Table) -> None:
    try:
        found = {column["name"] for column in inspect(connection).get_columns(table.name, table.schema)}
    except NoSuchTableError:
        raise OutboxTableError(
            f"there is no table {table.fullname!r}: create it with `aioproducer outbox create URL`, or by a "
            "migration of the tables in the MetaData of Outbox(metadata=...)"
        ) from None
    missing = [column for column in table.columns if column.name not in found]
    if not missing:
        return
    text = f"table {table.fullname!r} has no column {', '.join(column.name for column in missing)}"
    if all(column.nullable for column in missing):  # of an earlier version
        added = [str(CreateColumn(column).compile(dialect=connection.dialect)).strip() for column in missing]
        raise OutboxTableError(
            f"{text}: run {'; '.join(f'ALTER TABLE {table.fullname} ADD COLUMN {each}' for each in added)}"
        )
    raise OutboxTableError(f"{text}; it has {', '.join(sorted(found))}")
