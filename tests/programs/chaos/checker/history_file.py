"""History of clients: a binary file per process, rows of 40 bytes in the order of time.

    0   kind        uint8    `Kind`
    1   topic       uint8    number of the topic within the cell
    2   partition   int16    INVOKE: asked for, -1 if the producer chooses; OK: where the producer says it is
    4   client      uint32   one per producer object
    8   n           uint64   position among the client's records, from 0 without gaps
    16  offset      int64    OK: as the producer says; else -1
    24  timestamp   int64    INVOKE: as given; OK: as the producer says; else -1. Milliseconds.
    32  time        int64    of the machine's clock, microseconds since the epoch

A row is written before the record is given to the producer, and another when its outcome is told.
"""

import enum
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROW = struct.Struct("<BBhIQqqq")
FLUSH_BYTES = 1 << 16


class Kind(enum.IntEnum):
    INVOKE = 1  # the record is about to be given to the producer
    OK = 2
    NOT_WRITTEN = 3  # failed or refused, and certainly not in the log
    UNKNOWN = 4


class Row(NamedTuple):
    """One row, fields in the file's order."""

    kind: int
    topic: int
    partition: int
    client: int
    n: int
    offset: int
    timestamp: int
    time_us: int


class HistoryWriter:
    """Appends rows; `flush` hands them to the system. Not for several threads."""

    def __init__(self, file: Path) -> None:
        self._rows = bytearray()
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, *fields: int) -> None:
        self._rows += ROW.pack(*fields, time.time_ns() // 1000)
        if len(self._rows) >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        view = memoryview(bytes(self._rows))
        self._rows.clear()
        while view:
            view = view[os.write(self._file, view) :]

    def close(self) -> None:
        self.flush()
        os.close(self._file)


def read_history(file: Path, start: int = 0) -> Iterator[Row]:
    """The rows of a file that begin at byte `start` or later; half a row at its end is not one."""
    with file.open("rb") as rows:
        rows.seek(start)
        while chunk := rows.read(ROW.size * 4096):
            whole = len(chunk) - len(chunk) % ROW.size
            yield from map(Row._make, ROW.iter_unpack(chunk[:whole]))
