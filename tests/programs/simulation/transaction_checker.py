"""Reported ends of transactions, and their comparison with the logs.

A transaction is there as a whole or not at all, its offsets too. One that was committed for its caller is there;
one that was never asked to be committed, or that its caller was told to be aborted, is not; the rest are unknown.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Final, NamedTuple

from aioproducer import ConsumerGroupMetadata
from aioproducer.records import TopicPartition
from aioproducer.testing.fake_broker.log.record_batch import LoggedBatch, LoggedRecord, decode_records, marker_of
from tests.programs.simulation.history import Violation

TORN: Final = -2  # offset of a group if only some of its partitions have theirs
STALE_GENERATION: Final = 7  # id of a group without members: a coordinator refuses every call in its name


class TransactionEnd(Enum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"  # a commit was never asked for, or was reported as not done
    UNKNOWN = "unknown"  # the commit failed, or its caller was cancelled in it


class Place(NamedTuple):
    """Identity of a record: its transaction, and its number in it; it stands in the payload."""

    transaction: int
    number: int

    def payload(self, filler: bytes) -> bytes:
        return b"%d.%d|" % self + filler

    @classmethod
    def of(cls, record: LoggedRecord) -> "Place":
        transaction, number = (record.value or b"").split(b"|", 1)[0].split(b".")
        return cls(int(transaction), int(number))


@dataclass(slots=True, eq=False)
class TransactionOperation:
    number: int
    producer: int
    began_at: float
    records: dict[int, int] = field(default_factory=dict)  # partition of each record that was taken, by its number
    has_offset: bool = False  # offsets were given, and nothing has said that they are not taken
    offset_places: list[TopicPartition] = field(default_factory=list)
    """The partitions of its offsets: all of them are committed, or none."""

    is_stale: bool = False
    end: TransactionEnd = TransactionEnd.OPEN
    error: str = ""
    ended_at: float = math.inf

    @property
    def group(self) -> str:
        """The group whose offset it commits: its own, so that every offset can be looked for."""
        return f"group-{self.number}"

    @property
    def text_of_offsets(self) -> str:
        return f"of {self.number}"

    def __str__(self) -> str:
        return (
            f"transaction {self.number} of producer {self.producer} ({self.end.value}{self.error and ': '}{self.error})"
        )


class Outcome(NamedTuple):
    committed: Mapping[int, Sequence[LoggedRecord]]
    batches: Mapping[int, Sequence[LoggedBatch]]
    offsets: Mapping[str, int]
    """Committed offset of each group, the same in each of its partitions; -1: none, or `TORN`."""

    fenced_at: Mapping[int, float]  # virtual times when the successor of each producer had started
    forgotten_at: Mapping[int, float]
    """Virtual times when brokers forgot each producer whose id has expired, for the first time after its start."""


def member_of(group: str, *, is_stale: bool = False) -> ConsumerGroupMetadata:
    """Return the member that commits for a group, as it is looked for on the wire."""
    generation = STALE_GENERATION if is_stale else -1
    return ConsumerGroupMetadata(group, generation, f"member of {group}", f"instance of {group}")


def check_transactions(operations: Sequence[TransactionOperation], outcome: Outcome) -> Iterator[Violation]:
    """Yield everything that differs from the reported ends."""
    found: dict[int, Counter[int]] = defaultdict(Counter)
    for records in outcome.committed.values():
        for record in records:
            place = Place.of(record)
            found[place.transaction][place.number] += 1
    for operation in operations:
        yield from _check_whole(operation, found[operation.number], outcome)
    yield from _check_order(outcome.committed)
    for partition, batches in outcome.batches.items():
        yield from _check_spans(partition, batches)


def _check_whole(operation: TransactionOperation, seen: Counter[int], outcome: Outcome) -> Iterator[Violation]:
    twice = [number for number, times in seen.items() if times > 1]
    if twice:
        yield Violation("DUPLICATE", f"{operation}: records {twice} are there more than once")
    if outcome.offsets.get(operation.group) == TORN:
        yield Violation(
            "OFFSETS", f"{operation}: of its offsets in {operation.offset_places} some are not there, or altered"
        )
    has_offset = outcome.offsets.get(operation.group, -1) == operation.number
    match operation.end:
        case TransactionEnd.COMMITTED:
            yield from _check_committed(operation, set(seen), outcome, has_offset=has_offset)
        case TransactionEnd.ABORTED:
            if seen or has_offset:
                yield Violation(
                    "TRANSACTION_END", f"{operation}: records {sorted(seen)} are there, its offset: {has_offset}"
                )
        case _:
            yield from _check_torn(operation, set(seen), has_offset=has_offset)


def _check_committed(
    operation: TransactionOperation, present: set[int], outcome: Outcome, *, has_offset: bool
) -> Iterator[Violation]:
    expected = set(operation.records)
    if present != expected:
        yield Violation(
            "TRANSACTION_END", f"{operation}: of {len(expected)} records {sorted(expected - present)} are missing"
        )
    if operation.has_offset and not has_offset:
        yield Violation("OFFSETS", f"{operation}: its offset is missing")
    is_late = operation.began_at >= outcome.fenced_at.get(operation.producer, float("inf"))
    if is_late and (expected or operation.has_offset):
        yield Violation("FENCED", f"{operation}: began after its producer was fenced")
    is_of_nobody = operation.began_at >= outcome.forgotten_at.get(operation.producer, math.inf)
    if is_of_nobody and (expected or operation.has_offset):
        yield Violation("FORGOTTEN", f"{operation}: began after the brokers had forgotten its producer")


def _check_torn(operation: TransactionOperation, present: set[int], *, has_offset: bool) -> Iterator[Violation]:
    expected = set(operation.records)
    if present and not expected <= present:
        yield Violation("ATOMIC", f"{operation}: torn, of {len(expected)} records {sorted(present)} are there")
    if operation.has_offset and expected and has_offset != bool(present):
        yield Violation("OFFSETS", f"{operation}: records there: {bool(present)}, offset there: {has_offset}")


def _check_order(committed: Mapping[int, Sequence[LoggedRecord]]) -> Iterator[Violation]:
    """Records of one transaction are in the order of the calls."""
    for partition, records in committed.items():
        places = [Place.of(record) for record in records]
        for before, after in pairwise(places):
            if before.transaction == after.transaction and before.number > after.number:
                yield Violation("ORDER", f"partition {partition}: {after} after {before}")


def _check_spans(partition: int, batches: Sequence[LoggedBatch]) -> Iterator[Violation]:
    """ONE_TRANSACTION: what one commit marker ends is of one transaction."""
    open_records: dict[int, list[Place]] = defaultdict(list)
    for batch in batches:
        if not batch.is_control:
            open_records[batch.producer_id] += [Place.of(record) for record in decode_records(batch.data)]
            continue
        ended = {place.transaction for place in open_records.pop(batch.producer_id, [])}
        if marker_of(batch).is_commit and len(ended) > 1:
            yield Violation(
                "ONE_TRANSACTION", f"partition {partition}: one commit ends records of transactions {sorted(ended)}"
            )
