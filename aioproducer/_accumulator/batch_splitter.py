"""Splits a batch: into halves if it was too large (KIP-126), or around refused records (KIP-467).

The parts share the batch's chunk: renumbering records from 0 never makes one longer, so each part is rewritten in
place and no memory is needed. Only a compressed batch must first be unpacked into memory lent for it, and fails if
there is none. The parts are compressed again when they are sent.

Source: RecordAccumulator.splitAndReenqueue in Apache Kafka.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer._accumulator.partition import Batch
from aioproducer._accumulator.producer_identity import NO_IDENTITY, BatchIdentity, sequence_after
from aioproducer._native.delivery import BatchResult
from aioproducer._native.renumber import record_starts, remove_records, renumber_records
from aioproducer._protocol.compression import CompressionType, decompress

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioproducer._accumulator.buffer_pool import BufferPool
    from aioproducer._accumulator.flush_generations import FlushGenerations

MOST_CUT_OUT: Final = 64  # each refused range becomes a batch, all in one step of the loop


class Range(NamedTuple):
    """Records from `first` to `stop` - 1 of a batch."""

    first: int
    stop: int


def halves(batch: Batch) -> list[Range]:
    """Return two ranges of about the same bytes; the batch has at least two records."""
    starts = record_starts(uncompressed(batch), batch.count)
    middle = next((index for index, start in enumerate(starts) if start * 2 >= starts[-1]), 1)
    middle = min(max(middle, 1), batch.count - 1)
    return [Range(0, middle), Range(middle, batch.count)]


def neighbours(refused: Mapping[int, str | None]) -> list[Range]:
    """Return ranges of adjacent refused records with the same reason, at most `MOST_CUT_OUT`.

    A compacted topic refuses every record without a key: that is one range, not thousands. Records beyond the limit are
    refused again when they are sent again.
    """
    runs: list[Range] = []
    first = stop = 0
    reason: str | None = None
    for index in sorted(refused):
        if index == stop and refused[index] == reason and stop > first:
            stop += 1
            continue
        if stop > first:
            runs.append(Range(first, stop))
        # A response may refuse every record of a batch; one part per record would block the loop for seconds.
        if len(runs) == MOST_CUT_OUT:
            return runs
        first, stop, reason = index, index + 1, refused[index]
    return [*runs, Range(first, stop)] if stop > first else runs


def around(batch: Batch, cut_out: Sequence[Range]) -> list[Range]:
    """Return the given ranges of a batch, and those between them."""
    edges = {0, batch.count}.union(*cut_out)
    return [Range(first, stop) for first, stop in pairwise(sorted(edges))]


def uncompressed(batch: Batch) -> memoryview:
    if not batch.compression:
        return batch.records()
    return memoryview(decompress(CompressionType(batch.compression), batch.records()))


class BatchSplitter:
    """Makes parts of batches."""

    def __init__(self, pool: BufferPool, generations: FlushGenerations) -> None:
        self._pool = pool
        self._generations = generations

    def split(self, batch: Batch, ranges: Sequence[Range], *, keeps_sequences: bool) -> list[Batch]:
        """Replace a batch, taken from the wire, by queued parts.

        Args:
            batch: known not to be in the log; gives up its chunk.
            ranges: contiguous, covering all its records.
            keeps_sequences: the parts keep the sequence numbers of their records; otherwise they get new ones.

        Returns:
            The parts in order; empty, with nothing changed, if there is no memory to unpack the batch.
        """
        was_compressed = bool(batch.compression)
        if was_compressed and not self._unpack(batch):
            return []
        starts = record_starts(batch.records(), batch.count)
        self._pool.share(batch.chunk, len(ranges))
        parts = [self._part(batch, each, starts[each.first]) for each in ranges]
        for part in parts:
            part.is_sealed = not was_compressed  # compression did not make the whole smaller
        if keeps_sequences:
            for part, each in zip(parts, ranges, strict=True):
                part.keeps_sequences = True
                part.identity = _identity_from(batch, each.first)
        batch.result.move([(each.first, part.result, 0) for each, part in zip(ranges, parts, strict=True)])
        by_result = {part.result: part for part in parts}
        for deadline, delivery in batch.record_deadlines:
            by_result[delivery._batch_result].set_deadline(delivery, deadline)
        self._generations.leave(batch.generation)
        return parts

    def cut_out(self, batch: Batch, positions: Sequence[int]) -> BatchResult | None:
        """Take records out of a queued batch that has no sequence; the others are numbered again.

        Returns:
            The result of those records, in order; None, with nothing changed, if there is no memory to unpack a batch.
        """
        if batch.compression:
            if not self._unpack(batch):
                return None
            batch.is_sealed = False
        gone = batch.detached.union(positions)
        size, latest = remove_records(batch.chunk, batch.start, batch.count, gone)
        cut = self._set_apart(batch, positions, gone)
        batch.size = size
        batch.count -= len(gone)
        batch.max_timestamp = batch.base_timestamp + latest
        batch.detached = frozenset()
        return cut

    def detach(self, batch: Batch, positions: Sequence[int]) -> BatchResult:
        """Give records of a batch that cannot change a result of their own; they stay in the batch."""
        apart = self._set_apart(batch, positions, frozenset())
        batch.detached = batch.detached.union(positions)
        return apart

    @staticmethod
    def _set_apart(batch: Batch, positions: Sequence[int], gone: frozenset[int]) -> BatchResult:
        """Move some records to a result of their own, and the others to one in which `gone` records take no place."""
        loop, topic_partition = batch.result.loop, batch.result.topic_partition
        others, apart = BatchResult(loop, topic_partition), BatchResult(loop, topic_partition)
        indexes = {position: index for index, position in enumerate(positions)}
        moves: list[tuple[int, BatchResult, int]] = []
        left = 0
        for position in range(batch.count):
            if position in indexes:
                moves.append((position, apart, indexes[position]))
            elif not moves or moves[-1][1] is apart or position in gone or position - 1 in gone:
                moves.append((position, others, left))
            left += position not in gone
        batch.result.move(moves)
        batch.result = others
        return apart

    def _unpack(self, batch: Batch) -> bool:
        data = uncompressed(batch)
        leader = batch.partition.leader
        chunk = self._pool.lend_for_unpacking(len(data), None if leader is None else leader.reserve)
        if chunk is None:
            return False
        chunk.fill(data)
        self._pool.give_back(batch.chunk)
        batch.replace_records(chunk, len(data), 0)
        return True

    def _part(self, batch: Batch, records: Range, start: int) -> Batch:
        result = BatchResult(batch.result.loop, batch.result.topic_partition)
        part = Batch(
            batch.partition,
            result,
            batch.chunk,
            options=batch.options,
            order=batch.order + records.first,
            called_at=batch.called_at,
        )
        count = records.stop - records.first
        size, latest = renumber_records(batch.chunk, batch.start + start, records.first, count)
        # Timestamps stay relative to the batch's base. Brokers answer a copy with the latest time of the part itself.
        part.hold(
            batch.start + start,
            size,
            count=count,
            base_timestamp=batch.base_timestamp,
            max_timestamp=batch.base_timestamp + latest,
        )
        part.generation = batch.generation
        part.attempts_before = batch.attempts_before + batch.attempts
        part.last_error = batch.last_error
        part.is_part = True
        part.detached = frozenset(range(count)).intersection(position - records.first for position in batch.detached)
        self._generations.enter_again(batch.generation)
        return part


def _identity_from(batch: Batch, first: int) -> BatchIdentity:
    if not batch.is_stamped:
        return NO_IDENTITY
    return batch.identity._replace(base_sequence=sequence_after(batch.identity.base_sequence, first))
