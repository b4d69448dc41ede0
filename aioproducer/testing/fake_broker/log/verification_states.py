"""What a partition remembers of producers whose transaction it had to ask about, until it has their first batch.

Of two batches sent together the first may be refused (the coordinator could not be asked, the partition was not
added) and the second be let in. So the lowest sequence that was asked about is kept, and a batch after it waits.

Source: VerificationStateEntry and ProducerAppendInfo.checkSequence in Apache Kafka.
"""

from aioproducer.testing.fake_broker.log.partition_log import LoggedBatch
from aioproducer.testing.fake_broker.transactions.transaction_entry import ProducerIdAndEpoch


class _Asked:
    """A producer's first batch here, verified but not appended yet."""

    __slots__ = ("epoch", "is_version_2", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int, *, is_version_2: bool) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.is_version_2 = is_version_2


class VerificationStates:
    """The states of all producers of one partition."""

    def __init__(self) -> None:
        self._asked: dict[int, _Asked] = {}

    def ask(self, producer: ProducerIdAndEpoch, sequence: int, *, is_version_2: bool) -> None:
        """Note a batch about which the coordinator is asked."""
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
