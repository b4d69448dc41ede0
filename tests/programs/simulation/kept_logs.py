"""Logs of the model that forget nothing: what is removed, cut off or deleted stays known to the checker."""

from aioproducer.testing.fake_broker.log.partition import Partition
from aioproducer.testing.fake_broker.log.partition_log import LoggedBatch, PartitionLog
from aioproducer.testing.fake_broker.log.record_batch import LoggedRecord, decode_records
from aioproducer.testing.fake_broker.topics.topics import Topic
from tests.programs.simulation.checker import KeptLog


class WholeLog(PartitionLog):
    """A partition's log, and what was in it once."""

    def __init__(self) -> None:
        super().__init__()
        self.removed: list[LoggedBatch] = []
        self.cut: list[LoggedBatch] = []
        self.forgot_at: list[int] = []

    def drop_front(self, *, keep_bytes: int) -> None:
        """Delete the oldest batches, as retention does."""
        before = list(self.batches())
        super().drop_front(keep_bytes=keep_bytes)
        self._keep_removed(before)

    def drop_before(self, offset: int) -> None:
        before = list(self.batches())
        super().drop_before(offset)
        self._keep_removed(before)

    def truncate(self, offset: int) -> bool:
        """Cut off what the new leader does not have."""
        before = list(self.batches())
        was_cut = super().truncate(offset)
        if was_cut:
            self.cut += before[len(list(self.batches())) :]
            self.forgot_at = [min(at, self.end_offset) for at in self.forgot_at]
        return was_cut

    def _keep_removed(self, before: list[LoggedBatch]) -> None:
        self.removed += before[: len(before) - len(list(self.batches()))]


class LogKeeper:
    """Gives partitions logs that forget nothing, and reads them in the end."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, int, WholeLog]] = []

    def adopt(self, topic: str, index: int, partition: Partition) -> None:
        """Give a partition that has no record yet its log."""
        log = WholeLog()
        partition.log = log
        self._kept.append((topic, index, log))

    def adopt_all(self, topic: Topic, first: int = 0) -> None:
        for index, partition in enumerate(topic.partitions[first:], first):
            self.adopt(topic.name, index, partition)

    def forget_producers(self, partition: Partition) -> None:
        """Lose what a partition knows of its producers, and note where."""
        assert isinstance(partition.log, WholeLog)
        partition.producers.forget()
        partition.log.forgot_at.append(partition.log.end_offset)

    def outlive_sequences(self, partition: Partition) -> None:
        """Let a partition be one whose producers have used up most sequences: of the first batches nothing is left.

        A new leader that read them would take the sequences that come round again for copies of theirs.
        """
        self.forget_producers(partition)
        partition.log.drop_before(partition.log.end_offset)

    def logs(self) -> list[KeptLog]:
        return [
            KeptLog(
                topic=topic,
                partition=index,
                records=_decoded([*log.removed, *log.batches()]),
                cut=_decoded(log.cut),
                forgot_at=tuple(log.forgot_at),
            )
            for topic, index, log in self._kept
        ]


def _decoded(batches: list[LoggedBatch]) -> list[LoggedRecord]:
    return [record for batch in batches for record in decode_records(batch.data)]
