"""Whether what was read is what was sent: nothing missing, nothing twice, nothing altered, order per key kept.

Pure: records go in, a `DeliveryReport` comes out. Records must come in the order of their partition's log; how the
partitions are mixed does not matter.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from aioproducer.cli.demonstration.records import ROW_HEADER, ReadRecord, SentRecord

EXAMPLES = 5
"""How many rows of each kind of fault are kept to be shown."""


@dataclass(slots=True)
class Fault:
    """How often one thing went wrong, and where first."""

    count: int = 0
    rows: list[int] = field(default_factory=list)
    """The first `EXAMPLES` rows, -1 for a record whose row cannot be told."""

    def add(self, row: int) -> None:
        """Count one more."""
        self.count += 1
        if len(self.rows) < EXAMPLES:
            self.rows.append(row)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryReport:
    """What the check found."""

    sent: int
    read: int
    keys: int
    """Different keys among the sent."""

    without_key: int
    """Sent with no key, so with no order to keep."""

    missing: Fault = field(default_factory=Fault)
    """Sent and never read."""

    doubled: Fault = field(default_factory=Fault)
    """Read once more than sent."""

    altered: Fault = field(default_factory=Fault)
    """Key, value or headers are not those sent under that row."""

    disordered: Fault = field(default_factory=Fault)
    """Read after a later record of its key, or in another partition than the ones before."""

    unknown: Fault = field(default_factory=Fault)
    """Read and never sent: the row is none of ours."""

    @property
    def holds(self) -> bool:
        """Whether every record came back once, unaltered and in order."""
        faults = (self.missing, self.doubled, self.altered, self.disordered, self.unknown)
        return not any(fault.count for fault in faults)


def check_delivery(sent: Sequence[SentRecord], read: Iterable[ReadRecord]) -> DeliveryReport:
    """Compare all that was sent with all that was read."""
    check = DeliveryCheck(sent)
    for record in read:
        check.add(record)
    return check.report()


class DeliveryCheck:
    """`check_delivery` fed one record at a time, so that what was read need not be kept."""

    def __init__(self, sent: Sequence[SentRecord]) -> None:
        """Check against `sent`, which must not change meanwhile."""
        self._sent = sent
        self._read = 0
        self._is_read = bytearray(len(sent))
        self._last_of_key: dict[bytes, tuple[int, int]] = {}  # key -> partition and row read last
        self._doubled, self._altered, self._disordered, self._unknown = Fault(), Fault(), Fault(), Fault()

    def add(self, record: ReadRecord) -> None:
        """Take the next record of a partition."""
        self._read += 1
        row = _row_of(record)
        if not 0 <= row < len(self._sent):
            self._unknown.add(-1)
            return
        sent = self._sent[row]
        if (record.key, record.value, record.headers) != sent:
            self._altered.add(row)
        if self._is_read[row]:
            self._doubled.add(row)
            return
        self._is_read[row] = 1
        if sent.key is not None:
            self._follow(sent.key, record.partition, row)

    def report(self) -> DeliveryReport:
        """Everything has been read: what was found."""
        missing = Fault()
        for row, is_read in enumerate(self._is_read):
            if not is_read:
                missing.add(row)
        keys = {record.key for record in self._sent} - {None}
        return DeliveryReport(
            sent=len(self._sent),
            read=self._read,
            keys=len(keys),
            without_key=sum(record.key is None for record in self._sent),
            missing=missing,
            doubled=self._doubled,
            altered=self._altered,
            disordered=self._disordered,
            unknown=self._unknown,
        )

    def _follow(self, key: bytes, partition: int, row: int) -> None:
        """Compare with the record of the same key read before."""
        partition_before, row_before = self._last_of_key.get(key, (partition, -1))
        if partition != partition_before or row < row_before:
            self._disordered.add(row)
        self._last_of_key[key] = (partition, max(row, row_before))


def _row_of(record: ReadRecord) -> int:
    """The row in a record's headers, -1 if there is none."""
    for name, row in record.headers:
        if name == ROW_HEADER and row is not None and row.isdigit():
            return int(row)
    return -1
