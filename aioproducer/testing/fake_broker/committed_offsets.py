"""Committed offsets of consumer groups, and offsets that open transactions are about to commit.

Offsets of an open transaction are pending by producer id until its marker comes; meanwhile a request for stable offsets
gets 88 UNSTABLE_OFFSET_COMMIT. Of two commits the one that was sent later wins, though its transaction may end first.

Source: OffsetMetadataManager in Apache Kafka.
"""

from typing import Final, NamedTuple

from aioproducer.records import TopicPartition
from aioproducer.testing.fake_broker.log.producer_state import ProducerIdAndEpoch

_METADATA_UNITS_MAX: Final = 4096
"""The longest text with an offset, `offset.metadata.max.bytes`; Kafka counts Java's UTF-16 units, not bytes."""


class CommittedOffset(NamedTuple):
    """The next offset to read of one partition."""

    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""

    @property
    def is_too_large(self) -> bool:
        return len(self.metadata.encode("utf-16-le", "surrogatepass")) // 2 > _METADATA_UNITS_MAX


NOT_COMMITTED = CommittedOffset()


class GroupOffsets:
    def __init__(self) -> None:
        self._committed: dict[TopicPartition, tuple[int, CommittedOffset]] = {}
        self._pending: dict[int, dict[TopicPartition, tuple[int, CommittedOffset]]] = {}
        self._sent = 0  # goes up with every commit; says which was sent later

    def partitions(self) -> list[TopicPartition]:
        return list(self._committed)

    def get(self, partition: TopicPartition) -> CommittedOffset:
        """Return the committed offset of a partition; -1 if there is none."""
        return self._committed.get(partition, (0, NOT_COMMITTED))[1]

    def commit(self, partition: TopicPartition, committed: CommittedOffset) -> None:
        self._sent += 1
        self._committed[partition] = (self._sent, committed)

    def hold(self, producer_id: int, partition: TopicPartition, committed: CommittedOffset) -> None:
        """Keep an offset until the producer's transaction ends."""
        self._sent += 1
        self._pending.setdefault(producer_id, {})[partition] = (self._sent, committed)

    def forget(self, producer_id: int, partition: TopicPartition) -> None:
        self._pending.get(producer_id, {}).pop(partition, None)

    def drop_topic(self, topic: str) -> None:
        for known in (self._committed, *self._pending.values()):
            for partition in [partition for partition in known if partition.topic == topic]:
                del known[partition]

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether an open transaction has an offset for this partition."""
        return any(partition in held for held in self._pending.values())

    def finish_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        held = self._pending.pop(producer_id, {})
        for partition, (sent, committed) in held.items():
            if is_commit and sent > self._committed.get(partition, (0, NOT_COMMITTED))[0]:
                self._committed[partition] = (sent, committed)


class OffsetsProducers:
    """The producers that send offsets with their transactions, by partition of the offsets topic.

    There are no logs of that topic here, but as in any partition the leader knows each producer's epoch, and whether
    its transaction is open.
    """

    def __init__(self) -> None:
        self._epochs: dict[tuple[int, int], int] = {}
        self._open: set[tuple[int, int]] = set()

    def open_epoch(self, producer_id: int, partition: int) -> int | None:
        """Return the epoch of a producer's open transaction with offsets here; None if there is none."""
        key = (producer_id, partition)
        return self._epochs[key] if key in self._open else None

    def is_before(self, producer: ProducerIdAndEpoch, partition: int) -> bool:
        """Whether this epoch of a producer is over in that partition."""
        return producer.epoch < self._epochs.get((producer.producer_id, partition), -1)

    def note_offsets(self, producer: ProducerIdAndEpoch, partition: int) -> None:
        self._epochs[producer.producer_id, partition] = producer.epoch
        self._open.add((producer.producer_id, partition))

    def note_marker(self, producer: ProducerIdAndEpoch, partition: int) -> None:
        self._epochs[producer.producer_id, partition] = producer.epoch
        self._open.discard((producer.producer_id, partition))
