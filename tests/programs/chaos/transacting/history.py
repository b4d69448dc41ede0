"""History of transacting processes: a line of JSON for each beginning and each end of a transaction.

A line is written before a transaction begins, and another when its end is known. A life is what a producer object has
between its start and its end; each has a name of its own, also under the same transactional id.
"""

import json
import os
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

RECORDS = 10

PARTITIONS = 3


class What(StrEnum):
    BEGIN = "begin"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Line(NamedTuple):
    transactional_id: str
    life: str
    number: int
    what: str
    time_us: int


class TransactionHistory:
    """Appends lines."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        if os.fstat(self._file).st_size:
            os.write(self._file, b"\n")

    def write(self, transactional_id: str, life: str, number: int, *, what: What) -> None:
        """One line, in the file before this returns: the process may be killed at any time."""
        line = Line(transactional_id, life, number, what, time.time_ns() // 1000)
        os.write(self._file, json.dumps(line).encode() + b"\n")


def read_lines(folder: Path) -> Iterator[Line]:
    """The lines of all processes; half a line, or none, is skipped."""
    for file in sorted(folder.glob("transactions-*.jsonl")):
        for text in file.read_text("utf-8").splitlines():
            if text.endswith("]"):
                yield Line(*json.loads(text))


class Value(NamedTuple):
    transactional_id: str
    life: str
    number: int
    index: int

    def encode(self) -> bytes:
        return json.dumps(self).encode()


def decode_value(value: bytes) -> Value:
    return Value(*json.loads(value))
