"""Compares what was read with what was sent: missing, doubled, altered, or out of order within a key.

Records must come in the order of their partition's log; how the partitions are mixed does not matter.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

ROW_HEADER = "row"
"""Header with the record's place among the sent ones, so that two equal flights are still two records."""

EXAMPLES = 5
"""Rows of each kind of fault that are shown."""

Headers = tuple[tuple[str, bytes | None], ...]


class SentRecord(NamedTuple):
    """A record for the producer."""

    key: bytes | None
    """The aircraft's tail number; None if the airline did not report it."""

    value: bytes
    headers: Headers
    """`carrier` and `ROW_HEADER`."""


class ReadRecord(NamedTuple):
    """A record from the consumer."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def headers_of(carrier: bytes, row: int) -> Headers:
    """Return the headers of the record at place `row`, counted from 0."""
    return (("carrier", carrier), (ROW_HEADER, b"%d" % row))


@dataclass(slots=True)
class Fault:
    """The number of faults of one kind, and the rows of the first ones."""

    count: int = 0
    rows: list[int] = field(default_factory=list)
    """-1 for a record without a valid row."""

    def add(self, row: int) -> None:
        """Count one more."""
        self.count += 1
        if len(self.rows) < EXAMPLES:
            self.rows.append(row)


class DeliveryCheck:
    """The check, fed one record at a time."""

    def __init__(self, sent: Sequence[SentRecord]) -> None:
        """Check against `sent`, which must not change."""
        self._sent = sent
        self._is_read = bytearray(len(sent))
        self._last_of_key: dict[bytes, tuple[int, int]] = {}  # key -> partition and row read last
        self.read = 0
        self.faults = {name: Fault() for name in ("missing", "twice", "altered", "disorder", "unknown")}

    @property
    def holds(self) -> bool:
        """Whether no fault was found."""
        return not any(fault.count for fault in self.faults.values())

    def add(self, records: Iterable[ReadRecord]) -> None:
        """Check the next records of a partition."""
        for record in records:
            self._add(record)

    def finish(self) -> None:
        """Count the records that were never read."""
        for row, is_read in enumerate(self._is_read):
            if not is_read:
                self.faults["missing"].add(row)

    def lines(self) -> Iterator[str]:
        """Yield one line for each kind of fault."""
        for name, fault in self.faults.items():
            if fault.count or name != "unknown":
                examples = f"  first at rows {', '.join(map(str, fault.rows))}" if fault.rows else ""
                yield f"  {name:<10} {fault.count:>9,}{examples}"

    def _add(self, record: ReadRecord) -> None:
        self.read += 1
        row = _row_of(record)
        if not 0 <= row < len(self._sent):
            self.faults["unknown"].add(-1)
            return
        sent = self._sent[row]
        if (record.key, record.value, record.headers) != sent:
            self.faults["altered"].add(row)
        if self._is_read[row]:
            self.faults["twice"].add(row)
            return
        self._is_read[row] = 1
        if sent.key is not None:
            partition_before, row_before = self._last_of_key.get(sent.key, (record.partition, -1))
            if record.partition != partition_before or row < row_before:
                self.faults["disorder"].add(row)
            self._last_of_key[sent.key] = (record.partition, max(row, row_before))


def _row_of(record: ReadRecord) -> int:
    """Return the row in a record's headers, or -1."""
    for name, row in record.headers:
        if name == ROW_HEADER and row is not None and row.isdigit():
            return int(row)
    return -1
