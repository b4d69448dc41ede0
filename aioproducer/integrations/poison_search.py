"""Finds the record that keeps its batch from being committed.

    batch fails, one of its records at fault ──▶ the same records again, each in a transaction of its own
        │                                             │ one fails `ATTEMPTS` times
        └── all of them commit: batches again         └──▶ poison: the hook is asked, or the loop ends

Pure; `aiokafka.py` acts on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiokafka import ConsumerRecord

    from aioproducer.integrations.record_batch import RecordBatch
    from aioproducer.records import OffsetAndMetadata

ATTEMPTS: Final = 3
"""A record that fails alone so often is poison: user code may have failed for a passing reason of its own."""


class PoisonSearch:
    """Which records are under suspicion, and how often each has failed alone."""

    def __init__(self) -> None:
        self._until: dict[TopicPartition, int] = {}
        """Partition -> the offset behind the last record that is under suspicion."""
        self._failures: dict[tuple[TopicPartition, int], int] = {}
        self._found: dict[tuple[TopicPartition, int], Exception] = {}

    @property
    def is_on(self) -> bool:
        """Whether any record is under suspicion."""
        return bool(self._until)

    def limit(self, max_records: int) -> int:
        """How many records the next transaction may have."""
        return 1 if self.is_on else max_records

    def failed(self, batch: RecordBatch, error: Exception) -> None:
        """One of the records is at fault."""
        for partition, offset in batch.next_offsets().items():
            self._until[partition] = max(offset.offset, self._until.get(partition, 0))
        if len(batch.records) > 1:
            return
        place = _place(batch.records[0])
        self._failures[place] = self._failures.get(place, 0) + 1
        if self._failures[place] >= ATTEMPTS:
            self._found[place] = error

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """The group is past these: nothing before them is under suspicion any more."""
        for partition, offset in offsets.items():
            if offset.offset >= self._until.get(partition, 0):
                self._until.pop(partition, None)
            for place in [place for place in self._failures if place[0] == partition and place[1] < offset.offset]:
                del self._failures[place]
                self._found.pop(place, None)

    def keep(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Another assignment: partitions that are not in it are somebody else's concern."""
        self._until = {partition: until for partition, until in self._until.items() if partition in partitions}
        self._failures = {place: count for place, count in self._failures.items() if place[0] in partitions}
        self._found = {place: error for place, error in self._found.items() if place[0] in partitions}

    def error_of(self, record: ConsumerRecord) -> Exception | None:
        """What the record fails with whenever it is tried; None if it is not known to be poison."""
        return self._found.get(_place(record)) if self._found else None


def _place(record: ConsumerRecord) -> tuple[TopicPartition, int]:
    return TopicPartition(record.topic, record.partition), record.offset
