"""The SQLite file of a spool: each method is one transaction, in the thread that opened the file."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateTable

from aioproducer.errors import Outcome
from aioproducer.outbox._errors import SpoolError
from aioproducer.outbox._protocol import decode_claimed, runs_in
from aioproducer.outbox._record import Row
from aioproducer.outbox._tables import ROW_OVERHEAD, Tables

if TYPE_CHECKING:
    from pathlib import Path

DURABLE: Final = ("PRAGMA synchronous=FULL", "PRAGMA fullfsync=ON")
"""Each commit waits for the disk, also on macOS, where an ordinary sync does not."""
AGAIN_S: Final = 0.02
RESERVED: Final = 8 * 1024 * 1024
"""Bytes of the disk that records may not take: on a full disk the relay could not even delete what it has sent."""
_MEANINGS: Final = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "the file or its folder may not be written to",
    sqlite3.SQLITE_PERM: "the file or its folder may not be written to",
    sqlite3.SQLITE_BUSY: "another process locks the file",
    sqlite3.SQLITE_LOCKED: "another process locks the file",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened; its folder must exist, and allow new files",
    sqlite3.SQLITE_NOTADB: "the file is not a database of SQLite",
    sqlite3.SQLITE_CORRUPT: "the file is damaged",
    sqlite3.SQLITE_IOERR: "the disk failed, or its quota is used up",
}
_PRIMARY: Final = 0xFF
"""Bits of an error code without its details."""


class Parcel(NamedTuple):
    """Rows of one call, which are stored together or not at all."""

    rows: Sequence[Row]
    size: int


class Contents(NamedTuple):
    """Counts of the rows in the file."""

    rows: int
    bytes: int
    """Of rows, and of parked ones."""
    dropped: int
    """Rows that were dropped since the file was made."""


class Bounds(NamedTuple):
    """How much the file may hold."""

    bytes: int
    age_s: float | None
    waits: bool
    """Whether later rows wait behind the first that has no room, so that their order stays."""
    drops: bool
    """Whether the oldest rows make room."""


def size_of(row: Row) -> int:
    """Return the bytes that a row counts; the triggers count the same."""
    return ROW_OVERHEAD + len(row.topic) + len(row.key or b"") + len(row.value or b"") + len(row.headers or "")


def _size(prefix: str) -> str:
    lengths = [f"coalesce(length(CAST({prefix}{name} AS BLOB)), 0)" for name in ("topic", "key", "value", "headers")]
    return " + ".join([str(ROW_OVERHEAD), *lengths])


def _tables_sql(tables: Tables) -> Iterator[str]:
    """Yield the statements that make the tables, and keep the count of bytes, which also a relay changes."""
    for table in tables.needed:
        yield str(CreateTable(table, if_not_exists=True).compile(dialect=sqlite.dialect()))
    spool, rows, parked = f"{tables.name}_spool", tables.name, tables.parked.name
    yield (
        f"CREATE TABLE IF NOT EXISTS {spool} (id INTEGER PRIMARY KEY, row_count INTEGER NOT NULL, "
        "byte_count INTEGER NOT NULL, dropped INTEGER NOT NULL)"
    )
    waiting = f"SELECT count(*) FROM {rows}"  # noqa: S608  # our names
    size = " + ".join(f"(SELECT coalesce(sum({_size('')}), 0) FROM {table})" for table in (rows, parked))  # noqa: S608  # our names
    yield f"INSERT OR IGNORE INTO {spool} VALUES (0, ({waiting}), {size}, 0)"  # noqa: S608  # our names
    for name in (rows, parked):
        for change, sign, row in (("INSERT", "+", "NEW"), ("DELETE", "-", "OLD")):
            count = f"row_count = row_count {sign} 1, " if name == rows else ""
            counted = f"UPDATE {spool} SET {count}byte_count = byte_count {sign} ({_size(f'{row}.')})"  # noqa: S608  # our names
            trigger = f"{name}_{change.lower()} AFTER {change} ON {name}"
            yield f"CREATE TRIGGER IF NOT EXISTS {trigger} BEGIN {counted}; END"


class SpoolFile:
    """The tables of an outbox in a file of their own, with bounds.

    Args:
        lock_timeout_s: how long each transaction waits while another process writes.
    """

    def __init__(self, path: Path, tables: Tables, bounds: Bounds, *, lock_timeout_s: float) -> None:
        self._path = path
        self._tables = tables
        self._bounds = bounds
        self._lock_timeout_s = lock_timeout_s
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        marks = ", ".join("?" * len(Row._fields))
        self._insert = f"INSERT INTO {tables.name} ({', '.join(Row._fields)}) VALUES ({marks})"  # noqa: S608  # our names
        self._age_ms = "CAST(round((julianday('now') - julianday(created_at)) * 86400000) AS INTEGER)"

    def open(self) -> Contents:
        """Make the file and its tables, if they do not exist.

        Raises:
            SpoolError: the file cannot be used; says why.
        """
        try:
            self._connection = sqlite3.connect(self._path, timeout=self._lock_timeout_s, isolation_level=None)
            self._identity = self._found()
            for pragma in DURABLE:
                self._connection.execute(pragma)
            self._write_ahead_log(self._connection)
            with self._transaction() as connection:
                for statement in _tables_sql(self._tables):
                    connection.execute(statement)
                for table in self._tables.needed:
                    names = ", ".join(f'{table.name}."{column.name}"' for column in table.columns)
                    connection.execute(f"SELECT {names} FROM {table.name} LIMIT 0")  # noqa: S608  # our names
                return self._contents(connection)
        except sqlite3.Error as error:
            self.close()
            raise self._explained(error, at_start=True) from error
        except BaseException:
            self.close()
            raise

    def _write_ahead_log(self, connection: sqlite3.Connection) -> None:
        """Turn it on; SQLite does not wait here while another process does the same."""
        limit = monotonic() + self._lock_timeout_s
        while True:
            try:
                mode = str(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY or monotonic() > limit:
                    raise
                sleep(AGAIN_S)
                continue
            if mode != "wal":
                text = f"its folder allows no write-ahead log (mode {mode}): use a file on a local disk"
                raise self._error(text, Outcome.NOT_WRITTEN)
            return

    def close(self) -> None:
        """Close the file; what it holds stays."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def store(self, parcels: Sequence[Parcel]) -> tuple[list[str], Contents]:
        """Store parcels by one transaction, and return once the disk has them.

        Returns: for each parcel why there is no room for it, empty if it is stored; and what the file holds now.

        Raises:
            SpoolError: none of them is stored, or `outcome` says that it is not known.
        """
        self._check_file(Outcome.NOT_WRITTEN)
        self._check_disk()
        with self._transaction() as connection:
            if self._bounds.drops:
                self._drop_old(connection)
            old = "" if self._bounds.drops else self._too_old(connection)
            held = self._contents(connection).bytes
            faults: list[str] = []
            rows: list[Row] = []
            for parcel in parcels:
                if self._bounds.drops and held + parcel.size > self._bounds.bytes:
                    connection.executemany(self._insert, rows)
                    rows.clear()
                    held -= self._drop(connection, held + parcel.size - self._bounds.bytes)
                fault = faults[-1] if self._bounds.waits and faults else old
                fault = fault or self._too_much(connection, held, parcel.size)
                if not fault:
                    rows.extend(parcel.rows)
                    held += parcel.size
                faults.append(fault)
            connection.executemany(self._insert, rows)
            contents = self._contents(connection)
        self._check_file(Outcome.UNKNOWN)  # the relay may send what the file has that is gone
        return faults, contents

    def _check_file(self, outcome: Outcome) -> None:
        """Refuse to go on with a file that is not at its path any more: the next start would not find its records."""
        if self._found() != self._identity:
            text = "the file was deleted or replaced while it was open, with what it held: make another spool"
            raise self._error(text, outcome)

    def _found(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _check_disk(self) -> None:
        """Leave the relay its part of the disk; pages of the file that are not used count as free."""
        try:
            pages, size = (
                self._open.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_size")
            )
        except sqlite3.Error as error:
            raise self._explained(error) from error
        free = self._free_bytes() + pages * size
        if free < RESERVED:
            text = f"the disk is full: {free:,} bytes are free, and the relay needs {RESERVED:,} to go on"
            raise self._error(text, Outcome.NOT_WRITTEN)

    def check_writable(self) -> None:
        """Refuse a file that cannot be written to now, or a disk that is full, by a write that changes nothing.

        Raises:
            SpoolError: says why.
        """
        self._check_file(Outcome.NOT_WRITTEN)
        self._check_disk()
        with self._transaction() as connection:
            connection.execute(f"UPDATE {self._tables.name}_spool SET dropped = dropped")  # noqa: S608  # our names

    def _free_bytes(self) -> int:
        return shutil.disk_usage(self._path.parent).free

    def look(self) -> Contents:
        """Drop what is too old, if that is wanted, and return what the file holds.

        Raises:
            SpoolError: the file cannot be read or written.
        """
        self._check_file(Outcome.NOT_WRITTEN)
        if self._bounds.drops and self._bounds.age_s is not None:
            with self._transaction() as connection:
                self._drop_old(connection)
                return self._contents(connection)
        try:
            return self._contents(self._open)
        except sqlite3.Error as error:
            raise self._explained(error) from error

    @property
    def _open(self) -> sqlite3.Connection:
        assert self._connection is not None, "open before"
        return self._connection

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Begin a transaction that has the right to write from its start, so that it fails there or not at all."""
        connection = self._open
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._explained(error) from error
        finally:
            if connection.in_transaction:  # failed, and SQLite has not rolled it back by itself
                connection.execute("ROLLBACK")

    def _contents(self, connection: sqlite3.Connection) -> Contents:
        query = f"SELECT row_count, byte_count, dropped FROM {self._tables.name}_spool"  # noqa: S608  # our names
        return Contents._make(connection.execute(query).fetchone())

    def _too_much(self, connection: sqlite3.Connection, held: int, size: int) -> str:
        if held + size <= self._bounds.bytes:
            return ""
        held_text = f"{held:,} of max_bytes={self._bounds.bytes:,} bytes are in use, and this takes {size:,}"
        query = f"SELECT EXISTS (SELECT 1 FROM {self._tables.parked.name})"  # noqa: S608  # our names
        if connection.execute(query).fetchone()[0]:
            url = f"sqlite+aiosqlite:///{self._path}"
            return f"{held_text}; parked records are among them: `aioproducer outbox parked {url}` shows them"
        return f"{held_text}; those in use are being sent" if self._bounds.drops else held_text

    def _too_old(self, connection: sqlite3.Connection) -> str:
        if self._bounds.age_s is None:
            return ""
        query = f"SELECT {self._age_ms} FROM {self._tables.name} ORDER BY id LIMIT 1"  # noqa: S608  # our names
        found = connection.execute(query).fetchone()
        if found is None or found[0] / 1000 <= self._bounds.age_s:
            return ""
        return f"its oldest record has waited for {found[0] / 1000:,.1f} s, longer than max_age_s={self._bounds.age_s}"

    def _drop_old(self, connection: sqlite3.Connection) -> None:
        if self._bounds.age_s is None:
            return
        limit_ms, old = self._bounds.age_s * 1000, []
        for number, _, age_ms in self._droppable(connection):
            if age_ms <= limit_ms:
                break
            old.append(number)
        self._delete(connection, old)

    def _drop(self, connection: sqlite3.Connection, wanted: int) -> int:
        """Delete the oldest rows for so many bytes, or none if that makes no room; returns the bytes."""
        freed, oldest = 0, []
        for number, size, _ in self._droppable(connection):
            freed += size
            oldest.append(number)
            if freed >= wanted:
                self._delete(connection, oldest)
                return freed
        return 0

    def _droppable(self, connection: sqlite3.Connection) -> Iterator[tuple[int, int, int]]:
        """Yield id, bytes and age in ms of the rows, oldest first; those that a relay has claimed may be in Kafka."""
        runs = self._claimed(connection)
        query = f"SELECT id, {_size('')}, {self._age_ms} FROM {self._tables.name} ORDER BY id"  # noqa: S608  # our names
        for number, size, age_ms in connection.execute(query):
            if not any(first <= number <= last for first, last in runs):
                yield number, size, age_ms

    def _delete(self, connection: sqlite3.Connection, numbers: Sequence[int]) -> None:
        if numbers:
            spool, ids = f"{self._tables.name}_spool", [(number,) for number in numbers]
            connection.executemany(f"DELETE FROM {self._tables.name} WHERE id = ?", ids)  # noqa: S608  # our names
            connection.execute(f"UPDATE {spool} SET dropped = dropped + ?", (len(numbers),))  # noqa: S608  # our names

    def _claimed(self, connection: sqlite3.Connection) -> list[tuple[int, int]]:
        query = f"SELECT claimed FROM {self._tables.relay.name} WHERE id = 0"  # noqa: S608  # our names
        found = connection.execute(query).fetchone()
        return [] if found is None else runs_in(decode_claimed(found[0]))

    def _explained(self, error: sqlite3.Error, *, at_start: bool = False) -> SpoolError:
        code = _code(error)
        if at_start and code == sqlite3.SQLITE_IOERR and self._free_bytes() < RESERVED:  # no room for shared memory
            code = sqlite3.SQLITE_FULL
        # A commit whose sync failed may still be found by the next start.
        outcome = Outcome.UNKNOWN if code == sqlite3.SQLITE_IOERR else Outcome.NOT_WRITTEN
        meaning = _MEANINGS.get(code, "SQLite refuses")
        return self._error(f"{meaning} ({error})", outcome)

    def _error(self, text: str, outcome: Outcome) -> SpoolError:
        return SpoolError(f"spool {str(self._path)!r}: {text}", outcome=outcome)


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", None) or 0) & _PRIMARY
