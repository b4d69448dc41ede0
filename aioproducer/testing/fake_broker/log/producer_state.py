"""A partition's state of each producer: epoch, last sequence, the last five batches, and its transactions there.

    duplicate of one of the five        -> answered with its first offset, not written again
    lower epoch                         -> 47 INVALID_PRODUCER_EPOCH
    higher epoch, sequence not 0        -> 45 OUT_OF_ORDER_SEQUENCE_NUMBER
    not the next sequence               -> 45 (so also a duplicate older than the five)
    nothing known of this producer      -> any sequence is taken (before Kafka 2.5: 59 UNKNOWN_PRODUCER_ID unless 0)
                                           and 45 unless 0 in a transaction of version 2
    its last batch had no epoch (-1)    -> any sequence is taken
    its transaction is open, no part    -> 48 INVALID_TXN_STATE

A transaction marker raises the epoch to its own, and a higher epoch has no batches yet.

Source: ProducerStateEntry and ProducerAppendInfo in Apache Kafka.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from aioproducer.testing.fake_broker.log.record_batch import MAX_SEQUENCE, BatchHeader, LoggedBatch, marker_of
from aioproducer.testing.fake_broker.wire import codes

NO_EPOCH = -1

NO_PRODUCER_ID = -1

LAST_EPOCH = 2**15 - 1
BATCHES_KEPT = 5


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    epoch: int


class RememberedBatch(NamedTuple):
    """One of the last five batches of a producer."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    max_timestamp: int


@dataclass(slots=True)
class ProducerEntry:
    """One producer's state in one partition; `batches` holds at most five, oldest first."""

    epoch: int
    coordinator_epoch: int = -1  # of the last transaction marker; -1: there was none
    last_timestamp: int = -1  # of its last batch or marker, in ms since 1970
    batches: deque[RememberedBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))

    def duplicate_of(self, header: BatchHeader) -> RememberedBatch | None:
        """Return the remembered batch with the same epoch and sequence range, or None."""
        if header.producer_epoch != self.epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for kept in self.batches:
            if kept.base_sequence == first and kept.last_sequence == last:
                return kept
        return None

    def rejection_of(self, header: BatchHeader) -> int:
        """Return the error for a batch that is not a duplicate; 0 if it comes next."""
        if header.producer_epoch < self.epoch:
            return codes.INVALID_PRODUCER_EPOCH
        if self.epoch == NO_EPOCH:
            return 0
        if header.producer_epoch > self.epoch or not self.batches:
            return 0 if header.base_sequence == 0 else codes.OUT_OF_ORDER_SEQUENCE_NUMBER
        last = self.batches[-1].last_sequence
        expected = 0 if last == MAX_SEQUENCE else last + 1
        return 0 if header.base_sequence == expected else codes.OUT_OF_ORDER_SEQUENCE_NUMBER


class ProducerStates:
    """Every producer's state in one partition; `must_start_at_zero`: as before Kafka 2.5."""

    def __init__(self, *, must_start_at_zero: bool) -> None:
        self._must_start_at_zero = must_start_at_zero
        self._entries: dict[int, ProducerEntry] = {}

    def duplicate_of(self, header: BatchHeader) -> RememberedBatch | None:
        entry = self._entries.get(header.producer_id)
        return entry.duplicate_of(header) if entry else None

    def rejection_of(self, header: BatchHeader) -> int:
        entry = self._entries.get(header.producer_id)
        if entry is not None:
            return entry.rejection_of(header)
        if self._must_start_at_zero and header.base_sequence != 0:
            return codes.UNKNOWN_PRODUCER_ID
        return 0

    def note(self, batch: LoggedBatch) -> None:
        if batch.producer_id < 0:
            return
        entry = self._entries.get(batch.producer_id)
        if entry is None or entry.epoch != batch.producer_epoch:
            coordinator_epoch = entry.coordinator_epoch if entry else -1
            entry = self._entries[batch.producer_id] = ProducerEntry(batch.producer_epoch, coordinator_epoch)
        entry.last_timestamp = batch.max_timestamp
        if batch.is_control:
            entry.coordinator_epoch = marker_of(batch).coordinator_epoch
            return
        entry.batches.append(
            RememberedBatch(
                batch.base_sequence, batch.last_sequence, batch.base_offset, batch.last_offset, batch.max_timestamp
            )
        )

    def is_before(self, producer_id: int, epoch: int) -> bool:
        """Whether this epoch of a producer is over."""
        entry = self._entries.get(producer_id)
        return entry is not None and epoch < entry.epoch

    def entry(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def entries(self) -> Mapping[int, ProducerEntry]:
        return MappingProxyType(self._entries)

    def forget(self, producer_id: int | None = None) -> None:
        """Lose the state of one producer or of all, as when producer ids expire."""
        if producer_id is None:
            self._entries.clear()
        else:
            self._entries.pop(producer_id, None)

    def forget_all_but_last(self) -> None:
        """Keep only the last batch of each producer, as a broker does across a clean restart."""
        for entry in self._entries.values():
            while len(entry.batches) > 1:
                entry.batches.popleft()

    def rebuild(self, batches: Iterable[LoggedBatch]) -> None:
        """Read the state from a log whose end was cut off."""
        self._entries.clear()
        for batch in batches:
            self.note(batch)


@dataclass(slots=True)
class _Asked:
    """A producer's first batch here, verified but not appended yet."""

    epoch: int
    lowest_sequence: int
    is_version_2: bool


class VerificationStates:
    """Producers whose transaction the partition has asked about, until it has their first batch.

    Of two batches sent together the first may be refused (the coordinator could not be asked, the partition was not
    added) and the second be let in. So the lowest sequence that was asked about is kept, and a batch after it waits.

    Source: VerificationStateEntry and ProducerAppendInfo.checkSequence in Apache Kafka.
    """

    def __init__(self) -> None:
        self._asked: dict[int, _Asked] = {}

    def ask(self, producer: ProducerIdAndEpoch, sequence: int, *, is_version_2: bool) -> None:
        asked = self._asked.get(producer.producer_id)
        if asked is None or (asked.is_version_2 and producer.epoch > asked.epoch):
            self._asked[producer.producer_id] = _Asked(producer.epoch, sequence, is_version_2=is_version_2)
        elif producer.epoch == asked.epoch:
            asked.lowest_sequence = min(asked.lowest_sequence, sequence)

    def appended(self, batch: LoggedBatch) -> None:
        """Note an appended batch or marker; with version 2 a marker ends nothing, only the next epoch does."""
        asked = self._asked.get(batch.producer_id)
        if asked is not None and batch.is_transactional and not (batch.is_control and asked.is_version_2):
            del self._asked[batch.producer_id]

    def is_out_of_order(self, producer_id: int, sequence: int, *, has_batches: bool) -> bool:
        """Whether a batch must wait for an earlier one; with version 2 the very first has sequence 0."""
        asked = self._asked.get(producer_id)
        if asked is None:
            return False
        return sequence > asked.lowest_sequence or (asked.is_version_2 and sequence != 0 and not has_batches)


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    marker_offset: int


class OpenTransactions:
    """The transactions of one partition: the open ones, the aborted ones, and the last stable offset.

        offset   0 ..... first record of the oldest open transaction ..... high watermark
                 read_committed sees this |                 read_uncommitted sees this |

    A transaction whose marker is not on all copies yet counts as open, though its producer has begun another.

    Source: ProducerStateManager (firstUnstableOffset), TransactionIndex and UnifiedLog in Apache Kafka.
    """

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
