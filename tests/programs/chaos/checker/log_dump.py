"""A topic's log as an independent client read it: rows of 40 bytes, by partition in the order of offsets.

    0   finding       uint8    `Finding`
    1   padding
    2   partition     int16
    4   leader epoch  int32    of the batch; -1 if the reader was not told
    8   client        uint32   0 if the record is foreign
    12  padding
    16  n             uint64
    24  offset        int64
    32  timestamp     int64    ms

Beside it lies FILE.json with what the dump covers (`Covered`). A topic that is deleted during a cell has a dump for
each of its lives, that is for each topic id.
"""

import dataclasses
import enum
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LOG_ROW = struct.Struct("<BxhiI4xQqq")


class Finding(enum.IntEnum):
    OURS = 0
    CORRUPT = 1  # the bytes differ from those that were sent
    MISROUTED = 2


class LogRow(NamedTuple):
    """One record, fields in the file's order."""

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
