"""Compares reported outcomes with the logs, a pure function, and keeps logs of the model that forget nothing.

LOST, ORDER, NOT_WRITTEN, DUPLICATE (with idempotence), FOREIGN and RECORD_METADATA are explained in `invariants.py`.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from aioproducer.testing.fake_broker.log.partition import Partition
from aioproducer.testing.fake_broker.log.partition_log import PartitionLog
from aioproducer.testing.fake_broker.log.record_batch import LoggedBatch, LoggedRecord, decode_records
from aioproducer.testing.fake_broker.topics import Topic
from tests.programs.simulation.history import End, Operation, RecordId, Violation
from tests.reference.murmur2 import murmur2

NOT_TOLD_ALONE: Final = -1  # time of a record that was reported together with others, or not at all


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLog:
    """One partition's log, also what is no longer in it. A topic created again has more logs under its names."""

    topic: str
    partition: int
    records: Sequence[LoggedRecord]
    cut: Sequence[LoggedRecord] = ()  # records that only a dead leader had: cut off at the election
    forgot_at: Sequence[int] = ()  # end offsets at the moments when the partition lost what it knew of producers


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantees:
    acks: int
    is_idempotent: bool
    keeps_order: bool = True
    is_honest: bool = True  # whether brokers tell the truth; else only the logs are checked, not the reported offsets
    keeps_append_time: bool = False
    keeps_all: bool = False
    partitions: int | None = None  # constant number of partitions of the topic; None: it may grow


class _Copy(NamedTuple):
    log: KeptLog
    record: LoggedRecord


@dataclass(slots=True)
class _Comparison:
    operations: Mapping[RecordId, Operation]
    guarantees: Guarantees
    by_payload: Mapping[bytes | None, Operation] = field(default_factory=dict)
    """Operations by value, those of tombstones by key: no two have the same."""
    copies: dict[RecordId, list[_Copy]] = field(default_factory=lambda: defaultdict(list))
    lost: dict[RecordId, list[_Copy]] = field(default_factory=lambda: defaultdict(list))
    found: list[Violation] = field(default_factory=list)

    def add(self, check: str, text: str) -> None:
        self.found.append(Violation(check, text))

    def operation_of(self, record: LoggedRecord) -> Operation | None:
        """Return the operation of a record, also if its bytes have been altered."""
        payload = record.value if record.value is not None else record.key
        operation = self.by_payload.get(payload)
        if operation is None:
            name = identity_of(record.value, record.key)
            operation = self.operations.get(name) if name is not None else None
        return operation


def check_history(operations: Sequence[Operation], logs: Sequence[KeptLog], guarantees: Guarantees) -> list[Violation]:
    """Return what is wrong with operations that have ended, and logs of all partitions, of deleted topics too."""
    by_payload = {operation.key if operation.value is None else operation.value: operation for operation in operations}
    comparison = _Comparison({operation.record: operation for operation in operations}, guarantees, by_payload)
    written = [_check_log(comparison, log) for log in logs]
    for operation in operations:
        _check_operation(comparison, operation)
    if guarantees.keeps_order and guarantees.is_honest:
        for log, of_log in zip(logs, written, strict=True):
            _check_order(comparison, log, of_log)
    return comparison.found


def identity_of(value: bytes | None, key: bytes | None) -> RecordId | None:
    text = (value if value is not None else key or b"").partition(b"|")[0]
    parts = text.split(b".")
    if len(parts) != len(RecordId._fields) or not all(part.isdigit() for part in parts):
        return None
    return RecordId(*map(int, parts))


def _check_log(comparison: _Comparison, log: KeptLog) -> list[Operation | None]:
    """Look at each record, and return whose it is, of those that are there still."""
    found: list[Operation | None] = [
        _check_record(comparison, _Copy(log, record), comparison.copies) for record in log.records
    ]
    for record in log.cut:
        _check_record(comparison, _Copy(log, record), comparison.lost)
    return found


def _check_record(comparison: _Comparison, copy: _Copy, where: dict[RecordId, list[_Copy]]) -> Operation | None:
    record = copy.record
    operation = comparison.operation_of(record)
    if operation is None:
        comparison.add("FOREIGN", f"{_where(*copy)} holds a record that was never sent: {record.value!r:.60}")
        return None
    where[operation.record].append(copy)
    if operation.value != record.value or operation.key != record.key or operation.headers != record.headers:
        comparison.add("FOREIGN", f"{_where(*copy)} holds {operation.record} altered")
    _check_place(comparison, operation, copy)
    is_told = operation.given_timestamp is not None and not comparison.guarantees.keeps_append_time
    if is_told and operation.given_timestamp != record.timestamp:
        comparison.add("RECORD_METADATA", f"{_where(*copy)} holds {operation.record} with timestamp {record.timestamp}")
    return operation


def _check_place(comparison: _Comparison, operation: Operation, copy: _Copy) -> None:
    place, count = operation.partition, comparison.guarantees.partitions
    if place is None and operation.is_by_key and count is not None:
        place = _partition_of(operation.key or b"", count)
    if operation.topic != copy.log.topic or (place is not None and place != copy.log.partition):
        comparison.add("FOREIGN", f"{_where(*copy)} holds {operation.record}, which was for {operation.topic}-{place}")


@lru_cache(maxsize=1_000)
def _partition_of(key: bytes, count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % count


def _check_operation(comparison: _Comparison, operation: Operation) -> None:
    acks, copies = comparison.guarantees.acks, comparison.copies.get(operation.record, [])
    lost = comparison.lost.get(operation.record, []) if comparison.lost else []
    if operation.end is End.OPEN:
        comparison.add("ENDS_ONCE", f"{operation.record} ({operation.verb}) never ended")
    if not comparison.guarantees.is_honest:
        return
    if operation.end is End.NOT_WRITTEN:
        for copy in (*copies, *lost):
            comparison.add(
                "NOT_WRITTEN", f"{operation.record} is NOT_WRITTEN ({operation.error:.200}), and in {_where(*copy)}"
            )
    elif operation.end is End.ACKNOWLEDGED and acks != 0:
        _check_acknowledged(comparison, operation, [*copies, *(lost if acks == 1 else ())])
    if len(copies) > 1 and comparison.guarantees.is_idempotent:
        for first, second in _doubles(copies):
            comparison.add(
                "DUPLICATE", f"{operation.record} ({operation.end.value}) is written twice: {first}, {second}"
            )


def _check_acknowledged(comparison: _Comparison, operation: Operation, copies: list[_Copy]) -> None:
    if comparison.guarantees.keeps_all and operation.log_start > 0:
        comparison.add(
            "RECORD_METADATA",
            f"{operation.record} is told that its log begins at {operation.log_start}, and it begins at 0",
        )
    for log, record in copies:
        is_there = log.partition == operation.partition and record.offset == operation.offset
        if is_there and record.timestamp == operation.timestamp:
            return
    told = f"{operation.record} was acknowledged at {operation.topic}-{operation.partition} @ {operation.offset}"
    if not copies:
        comparison.add("LOST", f"{told}, and is in no log")
        return
    if operation.offset < 0:
        _check_range(comparison, operation, copies)
        return
    there = [
        copy for copy in copies if (copy.log.partition, copy.record.offset) == (operation.partition, operation.offset)
    ]
    if not there:
        comparison.add("RECORD_METADATA", f"{told}, and is in {', '.join(_where(*copy) for copy in copies)}")
    elif not _may_be_an_echo(comparison, there[0]):
        comparison.add(
            "RECORD_METADATA", f"{told} with timestamp {operation.timestamp}, and has {there[0].record.timestamp}"
        )


def _may_be_an_echo(comparison: _Comparison, copy: _Copy) -> bool:
    """Whether the batch was appended in the millisecond of its latest record.

    Then the append time in the response to a second attempt cannot be told from an echo of that record's time.
    """
    at = copy.record.timestamp
    operations = [comparison.operation_of(record) for record in copy.log.records if record.timestamp == at]
    return comparison.guarantees.keeps_append_time and any(
        operation is not None and operation.timestamp in {at, NOT_TOLD_ALONE} for operation in operations
    )


def _check_range(comparison: _Comparison, operation: Operation, copies: list[_Copy]) -> None:
    """`send_many` says where its records are together, not each."""
    if operation.ranges is None:
        return
    ranges = {(place.topic, place.partition): told for place, told in operation.ranges.items()}
    for log, record in copies:
        told = ranges.get((log.topic, log.partition))
        if told is not None and (told.first < 0 or told.first <= record.offset <= told.last):
            return
    comparison.add(
        "RECORD_METADATA",
        f"{operation.record} is told to be in {ranges}, and is in {', '.join(_where(*c) for c in copies)}",
    )


def _doubles(copies: list[_Copy]) -> Iterator[tuple[str, str]]:
    """Pairs of copies of a record, but for those between which a broker forgot its producers, or lost its topic."""
    for first, second in pairwise(copies):
        low, high = sorted((first.record.offset, second.record.offset))
        is_allowed = first.log is not second.log or any(low < at <= high for at in first.log.forgot_at)
        if not is_allowed:
            yield _where(*first), _where(*second)


def _check_order(comparison: _Comparison, log: KeptLog, operations: Sequence[Operation | None]) -> None:
    """Records that may go anywhere choose when there is room: they keep their order among themselves."""
    seen: set[RecordId] = set()
    last: dict[bool, Operation] = {}
    for record, operation in zip(log.records, operations, strict=True):
        if operation is None or operation.end is not End.ACKNOWLEDGED or operation.record in seen:
            continue
        seen.add(operation.record)
        if comparison.lost and comparison.lost.get(operation.record):
            continue  # its first copy died with a leader
        before = last.get(operation.is_free)
        if before is not None and operation.order < before.order:
            text = f"{operation.record}, sent before {before.record}, is behind it in {log.topic}-{log.partition}"
            comparison.add("ORDER", f"{text} @ {record.offset}")
        last[operation.is_free] = operation


def _where(log: KeptLog, record: LoggedRecord) -> str:
    return f"{log.topic}-{log.partition} @ {record.offset}"


class WholeLog(PartitionLog):
    """A partition's log, and what was in it once."""

    def __init__(self) -> None:
        super().__init__()
        self.removed: list[LoggedBatch] = []
        self.cut: list[LoggedBatch] = []
        self.forgot_at: list[int] = []

    def drop_front(self, *, keep_bytes: int) -> None:
        before = list(self.batches())
        super().drop_front(keep_bytes=keep_bytes)
        self._keep_removed(before)

    def drop_before(self, offset: int) -> None:
        before = list(self.batches())
        super().drop_before(offset)
        self._keep_removed(before)

    def truncate(self, offset: int) -> bool:
        """Cut off what the new leader does not have."""
        before = list(self.batches())
        was_cut = super().truncate(offset)
        if was_cut:
            self.cut += before[len(list(self.batches())) :]
            self.forgot_at = [min(at, self.end_offset) for at in self.forgot_at]
        return was_cut

    def _keep_removed(self, before: list[LoggedBatch]) -> None:
        self.removed += before[: len(before) - len(list(self.batches()))]


class LogKeeper:
    """Gives partitions logs that forget nothing, and reads them in the end."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, int, WholeLog]] = []

    def adopt_all(self, topic: Topic, first: int = 0) -> None:
        """Give partitions that have no record yet their logs."""
        for index, partition in enumerate(topic.partitions[first:], first):
            partition.log = log = WholeLog()
            self._kept.append((topic.name, index, log))

    def forget_producers(self, partition: Partition) -> None:
        """Lose what a partition knows of its producers, and note where."""
        assert isinstance(partition.log, WholeLog)
        partition.producers.forget()
        partition.log.forgot_at.append(partition.log.end_offset)

    def outlive_sequences(self, partition: Partition) -> None:
        """Let a partition be one whose producers have used up most sequences: of the first batches nothing is left.

        A new leader that read them would take the sequences that come round again for copies of theirs.
        """
        self.forget_producers(partition)
        partition.log.drop_before(partition.log.end_offset)

    def logs(self) -> list[KeptLog]:
        return [
            KeptLog(
                topic=topic,
                partition=index,
                records=_decoded([*log.removed, *log.batches()]),
                cut=_decoded(log.cut),
                forgot_at=tuple(log.forgot_at),
            )
            for topic, index, log in self._kept
        ]


def _decoded(batches: list[LoggedBatch]) -> list[LoggedRecord]:
    return [record for batch in batches for record in decode_records(batch.data)]
