"""Shards of an outbox: rows are divided by a hash of the key, which the database computes.

No column keeps it, so writers know nothing of shards, and their number may change.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

from sqlalchemy import Integer, Table, case, func, literal_column
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.functions import FunctionElement

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

MAX_SHARDS: Final = 32
"""256 values are divided about evenly among so many."""
_FUNCTION: Final = "aioproducer_hash"


class first_byte(FunctionElement[int]):  # noqa: N801  # an SQL function
    """The first byte of the SHA-256 of a column of bytes; every database has this hash, and none changes it."""

    inherit_cache = True
    type = Integer()


_FIRST_BYTE: Final = {
    "postgresql": "get_byte(sha256({}), 0)",
    "sqlite": _FUNCTION + "({})",
    "mysql": "CAST(CONV(LEFT(SHA2({}, 256), 2), 16, 10) AS UNSIGNED)",
    "mariadb": "CAST(CONV(LEFT(SHA2({}, 256), 2), 16, 10) AS UNSIGNED)",
}


@compiles(first_byte)
def _first_byte(element: first_byte, compiler: SQLCompiler, **_: object) -> str:
    return _FIRST_BYTE[compiler.dialect.name].format(compiler.process(element.clauses))


def shard_of(rows: Table, shards: int) -> ColumnElement[int]:
    """Return the number of a row's shard; rows without a key are divided by their ids, which may be negative."""
    number: ColumnElement[int] = literal_column(str(shards))  # no parameter, so that an index of the expression fits
    by_id = func.abs(rows.c.id) % number
    by_key = first_byte(rows.c.key) % number
    return case((rows.c.key.is_(None), by_id), else_=by_key)


def of_shard(rows: Table, shard: int, shards: int) -> list[ColumnElement[bool]]:
    """Return the condition of the rows of a shard; none where there is one shard."""
    return [] if shards == 1 else [shard_of(rows, shards) == shard]


async def add_hash(connection: AsyncConnection) -> None:
    """Give a connection of SQLite the hash, which it lacks."""
    if connection.dialect.name == "sqlite":
        driver = (await connection.get_raw_connection()).driver_connection
        assert driver is not None
        await driver.create_function(_FUNCTION, 1, hash_of, deterministic=True)


def hash_of(key: object) -> int:
    """Return the first byte of the SHA-256 of a key; plain SQL on SQLite may have written it as text or a number."""
    return sha256(key if isinstance(key, bytes) else str(key).encode()).digest()[0]
