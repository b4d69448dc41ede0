"""The transactions of one partition: the open ones, the aborted ones, and the last stable offset.

    offset   0 ..... first record of the oldest open transaction ..... high watermark
             read_committed sees this |                 read_uncommitted sees this |

A transaction whose marker is not on all copies yet counts as open here, though its producer has begun another.

Source: ProducerStateManager (firstUnstableOffset), TransactionIndex and UnifiedLog in Apache Kafka.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from aioproducer.testing.fake_broker.log.control_batch import marker_of
from aioproducer.testing.fake_broker.log.partition_log import LoggedBatch


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    marker_offset: int


class OpenTransactions:
    def __init__(self) -> None:
        self._first_offsets: dict[int, int] = {}  # of each producer's open transaction
        self._ended: list[tuple[int, int]] = []  # first offset and marker's offset of those ended last, oldest first
        self._aborted: list[AbortedTransaction] = []

    def first_offset(self, producer_id: int) -> int | None:
        """Return where a producer's open transaction begins here; None if it has none."""
        return self._first_offsets.get(producer_id)

    def note(self, batch: LoggedBatch) -> None:
        if not batch.is_transactional:
            return
        if not batch.is_control:
            self._first_offsets.setdefault(batch.producer_id, batch.base_offset)
            return
        first = self._first_offsets.pop(batch.producer_id, None)
        if first is None:
            return
        self._ended.append((first, batch.base_offset))
        if not marker_of(batch).is_commit:
            self._aborted.append(AbortedTransaction(batch.producer_id, first, batch.base_offset))

    def last_stable_offset(self, high_watermark: int) -> int:
        self._ended = [ended for ended in self._ended if ended[1] >= high_watermark]
        unstable = [*self._first_offsets.values(), *(first for first, _ in self._ended)]
        return min([high_watermark, *unstable])

    def aborted_between(self, start: int, end: int) -> Sequence[AbortedTransaction]:
        """Return those with records or a marker in [start, end), ordered by marker."""
        return [known for known in self._aborted if known.marker_offset >= start and known.first_offset < end]

    def rebuild(self, batches: Iterable[LoggedBatch]) -> None:
        """Read everything from a log whose end was cut off."""
        self._first_offsets.clear()
        self._ended.clear()
        self._aborted.clear()
        for batch in batches:
            self.note(batch)
