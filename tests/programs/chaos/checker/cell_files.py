"""The files of a cell: what its processes, the fault injector and the independent reader leave for the checker.

CELL/cell.json          topics, clients and limits
CELL/events.jsonl       a line for each fault (`Event`), and for each move of leaders
CELL/history-*.bin      history of each producer process (`Row`)
CELL/end-*.json         what each producer process says at its end: closes, errors logged
CELL/log-*.bin          each topic's log as an independent client read it (`LogRow`), and beside it what it covers
CELL/events-*.log       for people: what the producers logged
"""

import dataclasses
import enum
import hashlib
import json
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypedDict


class Topic(TypedDict):
    name: str
    idempotent: bool  # whether its records are sent with idempotence and acks=all, or else with acks=1


class Limits(TypedDict):
    request_timeout_ms: int
    delivery_timeout_ms: int
    max_block_ms: int


class Cell(TypedDict):
    seed: int
    topics: dict[str, Topic]
    limits: Limits
    lasting_clients: list[int]
    sending_ended_us: int


class Event(TypedDict, total=False):
    """A fault as the fault injector wrote it; times in microseconds of the histories' clock."""

    kind: str
    nodes: list[int]
    clients: list[int]  # clients of the stopped process: from this number, below that one; empty if there is none
    leaders: dict[str, dict[str, int]]
    begin_us: int
    end_us: int
    healed_us: int  # time when every partition had a leader again and every port answered
    moved: list[list[int]]  # topic number and partition of each leader change between `begin_us` and `end_us`


class Close(TypedDict):
    client: int
    seconds: float
    timeout_s: float
    began_us: int


class End(TypedDict):
    clients: list[int]
    closes: list[Close]
    errors: list[str]  # messages that the process logged at ERROR, each with its cause
    errors_without_cause: list[str]
    failed_starts: int
    lags: list[tuple[int, int]]
    """Times when the process did not run, in microseconds: the machine was busy, or it was stopped."""


def load_cell(folder: Path) -> Cell:
    cell: Cell = json.loads((folder / "cell.json").read_text("utf-8"))
    return cell


def load_events(folder: Path) -> list[Event]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text("utf-8").splitlines()]


def load_ends(folder: Path) -> dict[str, End]:
    return {file.stem.removeprefix("end-"): json.loads(file.read_text("utf-8")) for file in folder.glob("end-*.json")}


# The history of clients: rows in the order of time. A row is written before the record is given to the producer, and
# another when its outcome is told.
#
#     0   kind        uint8    `Kind`
#     1   topic       uint8    number of the topic within the cell
#     2   partition   int16    INVOKE: asked for, -1 if the producer chooses; OK: where the producer says it is
#     4   client      uint32   one per producer object
#     8   n           uint64   position among the client's records, from 0 without gaps
#     16  offset      int64    OK: as the producer says; else -1
#     24  timestamp   int64    INVOKE: as given; OK: as the producer says; else -1. Milliseconds.
#     32  time        int64    of the machine's clock, microseconds since the epoch

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


# The dump of a log: rows by partition in the order of offsets. A topic that is deleted during a cell has a dump for
# each of its lives, that is for each topic id.
#
#     0   finding       uint8    `Finding`
#     2   partition     int16
#     4   leader epoch  int32    of the batch; -1 if the reader was not told
#     8   client        uint32   0 if the record is foreign
#     16  n             uint64
#     24  offset        int64
#     32  timestamp     int64    ms

LOG_ROW = struct.Struct("<BxhiI4xQqq")


class Finding(enum.IntEnum):
    OURS = 0
    CORRUPT = 1  # the bytes differ from those that were sent
    MISROUTED = 2


class LogRow(NamedTuple):
    finding: int
    partition: int
    leader_epoch: int
    client: int
    n: int
    offset: int
    timestamp: int


@dataclasses.dataclass(frozen=True, slots=True)
class Covered:
    """Acknowledged records that a dump must hold: those of this topic, invoked and acknowledged between the times."""

    topic: int
    topic_id: str  # topic id of this life of the topic; "" if unknown
    invoked_from_us: int = 0  # later invocations can only have gone to this life of the topic
    acknowledged_until_us: int = 2**62  # later acknowledgements may be of records written after the log was read
    ends: dict[int, int] = dataclasses.field(default_factory=dict)  # offset after the last one, by partition


def save_coverage(file: Path, covered: Covered) -> None:
    _beside(file).write_text(json.dumps(dataclasses.asdict(covered)), "utf-8")


def load_coverage(file: Path) -> Covered:
    fields = json.loads(_beside(file).read_text("utf-8"))
    fields["ends"] = {int(partition): end for partition, end in fields["ends"].items()}
    return Covered(**fields)


def read_dump(file: Path) -> Iterator[LogRow]:
    with file.open("rb") as rows:
        while chunk := rows.read(LOG_ROW.size * 4096):
            yield from map(LogRow._make, LOG_ROW.iter_unpack(chunk))


def _beside(file: Path) -> Path:
    return file.with_suffix(".json")


# The value of a record: client, number and destination, filler, and a digest over all that.
#
#     0   magic            4 bytes
#     4   client           uint32   one per producer object
#     8   stream           uint16   the task within the client
#     10  topic            uint16   number of the topic within the cell
#     12  partition        int16    where the client wants it; -1: the producer's choice
#     14  n                uint64   position in the client's history, from 0 without gaps
#     22  send time        int64    ms since the epoch; also the record's timestamp
#     30  filler           any length, so that sizes differ
#     end SHA-256          32 bytes over all before it

MAGIC = b"aiop"
HEADER = struct.Struct("<4sIHHhQq")
DIGEST_BYTES = 32


class Payload(NamedTuple):
    client: int
    stream: int
    topic: int
    partition: int
    n: int
    sent_ms: int


def encode(payload: Payload, filler: bytes = b"") -> bytes:
    client, stream, topic, partition, n, sent_ms = payload
    body = HEADER.pack(MAGIC, client, stream, topic, partition, n, sent_ms) + filler
    return body + hashlib.sha256(body).digest()


def decode(value: bytes | None) -> Payload | None:
    """Return what the record says, or None if its bytes are not those that were sent."""
    if value is None or len(value) < HEADER.size + DIGEST_BYTES:
        return None
    body, digest = value[:-DIGEST_BYTES], value[-DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        return None
    magic, client, stream, topic, partition, n, sent_ms = HEADER.unpack_from(body)
    return Payload(client, stream, topic, partition, n, sent_ms) if magic == MAGIC else None
