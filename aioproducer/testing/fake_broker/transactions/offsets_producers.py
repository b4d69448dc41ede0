"""What the partitions of the offsets topic know of the producers that send offsets with their transactions.

There are no logs of that topic here: offsets are kept by group (`committed_offsets`). But as in any partition the
leader knows each producer's epoch, and whether its transaction is open.
"""

from aioproducer.testing.fake_broker.transactions.transaction_entry import ProducerIdAndEpoch


class OffsetsProducers:
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
