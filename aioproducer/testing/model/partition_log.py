"""One partition's log: batches as bytes, by offset. Nothing here decodes a record but the search by time."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from aioproducer.testing.model.record_batch import LoggedRecord, decode_records


class LoggedBatch(NamedTuple):
    """One batch as it stands in the log."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    data: bytes
    """The whole batch, its base offset and leader epoch written in."""


_base_offset = attrgetter("base_offset")
_last_offset = attrgetter("last_offset")
_COMPACT_AT = 1024


class PartitionLog:
    """Batches in order; grows at the end, is cut at the front by retention and at the end after a crash."""

    def __init__(self) -> None:
        self._batches: list[LoggedBatch] = []
        self._dropped = 0  # batches at the front of the list that retention has removed already
        self.start_offset = 0
        self.end_offset = 0
        self.size_bytes = 0

    def append(self, batch: LoggedBatch) -> None:
        """Add a batch whose base offset is the present end."""
        self._batches.append(batch)
        self.end_offset = batch.last_offset + 1
        self.size_bytes += len(batch.data)

    def batches(self) -> Iterator[LoggedBatch]:
        """All that is there, oldest first."""
        return iter(self._batches[self._dropped :])

    def read(self, offset: int, *, limit: int, max_bytes: int, at_least_one: bool = True) -> list[bytes]:
        """Batches from the one that holds `offset` on, as a Fetch returns them.

        Args:
            offset: first offset wanted; the batch may begin before it.
            limit: no batch that begins at or after this offset (the high watermark).
            max_bytes: stop before exceeding it.
            at_least_one: but not before the first batch (KIP-74).
        """
        index = max(self._dropped, bisect_right(self._batches, offset, key=_base_offset) - 1)
        found: list[bytes] = []
        size = 0
        while index < len(self._batches):
            batch = self._batches[index]
            size += len(batch.data)
            if batch.base_offset >= limit or (size > max_bytes and not (at_least_one and not found)):
                break
            if batch.last_offset >= offset:
                found.append(batch.data)
            index += 1
        return found

    def drop_front(self, *, keep_bytes: int) -> None:
        """Delete the oldest batches while what is left is still `keep_bytes` or more; moves the start offset."""
        while self._dropped < len(self._batches) - 1:
            oldest = self._batches[self._dropped]
            if self.size_bytes - len(oldest.data) < keep_bytes:
                break
            self._dropped += 1
            self.size_bytes -= len(oldest.data)
            self.start_offset = oldest.last_offset + 1
        if self._dropped >= _COMPACT_AT:
            del self._batches[: self._dropped]
            self._dropped = 0

    def truncate(self, offset: int) -> bool:
        """Cut off every batch that reaches to `offset` or past it; returns whether there was one."""
        keep = max(self._dropped, bisect_left(self._batches, offset, key=_last_offset))
        cut = self._batches[keep:]
        del self._batches[keep:]
        self.size_bytes -= sum(len(batch.data) for batch in cut)
        if cut:
            self.end_offset = cut[0].base_offset
        return bool(cut)

    def find_time(self, timestamp: int, *, limit: int) -> LoggedRecord | None:
        """The first record below offset `limit` whose timestamp is at least `timestamp` ms."""
        for batch in self.batches():
            if batch.max_timestamp >= timestamp and batch.base_offset < limit:
                found = next((record for record in decode_records(batch.data) if record.timestamp >= timestamp), None)
                return found if found is not None and found.offset < limit else None
        return None

    def highest_timestamp(self) -> LoggedRecord | None:
        """The first record that has the highest timestamp of the log."""
        latest = max(self.batches(), key=attrgetter("max_timestamp"), default=None)
        if latest is None:
            return None
        return max(decode_records(latest.data), key=attrgetter("timestamp"))

    def end_of_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """The largest leader epoch not above this one, and the offset after its last record; (-1, -1) if none."""
        epoch, end = -1, -1
        for batch in self.batches():
            if batch.leader_epoch > leader_epoch:
                break
            epoch, end = batch.leader_epoch, batch.last_offset + 1
        return epoch, end

    def records(self) -> list[LoggedRecord]:
        """Every record that is there, decoded."""
        return [record for batch in self.batches() for record in decode_records(batch.data)]
