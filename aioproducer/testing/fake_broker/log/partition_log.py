"""One partition's log: batches as bytes, by offset. Nothing here decodes a record but the search by time."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import attrgetter

from aioproducer.testing.fake_broker.log.record_batch import LoggedBatch, LoggedRecord, decode_records
from aioproducer.testing.fake_broker.wire.primitives import Buffer

_base_offset = attrgetter("base_offset")
_last_offset = attrgetter("last_offset")
_COMPACT_AT = 1024
_NEVER = 2**63 - 1
NO_TIME = -1


class PartitionLog:
    """Batches in order; appended at the end, cut at the front by retention and at the end after a crash."""

    def __init__(self) -> None:
        self._batches: list[LoggedBatch] = []
        self._dropped = 0  # batches at the front of the list that retention has removed already
        self.start_offset: int = 0
        self.end_offset: int = 0
        self.size_bytes: int = 0
        self._segments = [0]  # first offset of each segment, ascending
        self._segment_size = 0
        self._segment_time = NO_TIME  # highest timestamp of its first batch

    def append(self, batch: LoggedBatch, *, segment_bytes: int = _NEVER, segment_ms: int = _NEVER) -> None:
        """Add a batch at the end, in a new segment if the last one would exceed `segment_bytes` or `segment_ms`."""
        is_late = self._segment_time >= 0 and batch.max_timestamp - self._segment_time > segment_ms
        is_full = self._segment_size + len(batch.data) > segment_bytes
        if self._segment_size and (is_late or is_full):
            self._segments.append(batch.base_offset)
            self._segment_size = 0
        if not self._segment_size:
            self._segment_time = batch.max_timestamp
        self._segment_size += len(batch.data)
        self._batches.append(batch)
        self.end_offset = batch.last_offset + 1
        self.size_bytes += len(batch.data)

    def batches(self) -> Iterator[LoggedBatch]:
        return iter(self._batches[self._dropped :])

    def read(self, offset: int, *, end_offset: int, max_bytes: int, at_least_one: bool = True) -> list[Buffer]:
        """Return batches from the one that holds `offset` on, as a Fetch does: the last may be cut off.

        Args:
            end_offset: no batch that begins at or after this offset (the high watermark).
            max_bytes: no more than this, and nothing if not even the first batch fits.
            at_least_one: the first batch whole, of any size (KIP-74).
        """
        index = self._index_of(offset)
        found: list[Buffer] = []
        room = max_bytes
        end_offset = min(end_offset, self._end_of_segment(index))
        while index < len(self._batches) and self._batches[index].base_offset < end_offset and (room > 0 or not found):
            data = self._batches[index].data
            if not found and len(data) > room:
                return [data] if at_least_one else []
            found.append(data if len(data) <= room else memoryview(data)[:room])
            room -= len(data)
            index += 1
        return found

    def end_of_segment_with(self, offset: int) -> int:
        """Return the end offset of the segment that a Fetch from `offset` reads."""
        return self._end_of_segment(self._index_of(offset))

    def _index_of(self, offset: int) -> int:
        """Return the index of the batch that holds an offset, or of the next one."""
        index = max(self._dropped, bisect_right(self._batches, offset, key=_base_offset) - 1)
        while index < len(self._batches) and self._batches[index].last_offset < offset:
            index += 1
        return index

    def _end_of_segment(self, index: int) -> int:
        """Return the end offset of a batch's segment; a Fetch reads one segment only."""
        if index >= len(self._batches):
            return self.end_offset
        following = bisect_right(self._segments, self._batches[index].base_offset)
        return self._segments[following] if following < len(self._segments) else self.end_offset

    def drop_front(self, *, keep_bytes: int) -> None:
        """Delete the oldest batches while at least `keep_bytes` are left; moves the start offset."""
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

    def drop_before(self, offset: int) -> None:
        """Move the start up to `offset`; batches wholly below it are deleted."""
        self.start_offset = max(self.start_offset, offset)
        while self._dropped < len(self._batches) and self._batches[self._dropped].last_offset < self.start_offset:
            self.size_bytes -= len(self._batches[self._dropped].data)
            self._dropped += 1

    def truncate(self, offset: int) -> bool:
        """Cut off every batch that reaches `offset`; returns whether there was one."""
        keep = max(self._dropped, bisect_left(self._batches, offset, key=_last_offset))
        cut = self._batches[keep:]
        del self._batches[keep:]
        self.size_bytes -= sum(len(batch.data) for batch in cut)
        if cut:
            self.end_offset = cut[0].base_offset
            del self._segments[max(1, bisect_left(self._segments, self.end_offset)) :]
        return bool(cut)

    def find_time(self, timestamp: int, *, end_offset: int) -> LoggedRecord | None:
        """Return the first record below `end_offset` whose timestamp is at least `timestamp` ms."""
        for batch in self.batches():
            if batch.max_timestamp >= timestamp and batch.base_offset < end_offset:
                records = decode_records(batch.data)
                late = (record for record in records if record.timestamp >= timestamp)
                found = next((record for record in late if record.offset >= self.start_offset), None)
                if found is not None:
                    return found if found.offset < end_offset else None
        return None

    def highest_timestamp(self) -> LoggedRecord | None:
        latest = max(self.batches(), key=attrgetter("max_timestamp"), default=None)
        if latest is None:
            return None
        return max(decode_records(latest.data), key=attrgetter("timestamp"))

    def end_of_epoch(self, leader_epoch: int) -> tuple[int, int]:
        epoch, end = -1, -1
        for batch in self.batches():
            if batch.leader_epoch > leader_epoch:
                break
            epoch, end = batch.leader_epoch, batch.last_offset + 1
        return epoch, end

    def records(self) -> list[LoggedRecord]:
        """Return every record, decoded, without transaction markers."""
        return [record for batch in self.batches() if not batch.is_control for record in decode_records(batch.data)]
