"""Writing the markers of an ended transaction, into each of its partitions and to the groups whose offsets it holds.

A partition without a leader gets its marker when it has one again; if the leader moves before all copies have the
marker, it is written a second time, which does no harm. Until the last is written the transaction is completing.
A partition where the producer has a higher epoch refuses the marker, and the transaction never completes.

Source: TransactionMarkerChannelManager and TransactionMarkerRequestCompletionHandler in Apache Kafka.
"""

from collections.abc import Callable
from functools import partial

from aioproducer.testing.fake_broker.consumer_groups import OFFSETS_TOPIC, ConsumerGroups
from aioproducer.testing.fake_broker.log.partition import Partition
from aioproducer.testing.fake_broker.log.producer_state import ProducerIdAndEpoch
from aioproducer.testing.fake_broker.log.record_batch import Marker, logged_marker
from aioproducer.testing.fake_broker.schedule import Schedule
from aioproducer.testing.fake_broker.settings import ClusterSettings
from aioproducer.testing.fake_broker.topics import Topic, TopicCatalogue
from aioproducer.testing.fake_broker.transaction_coordinator import TransactionEntry, TransactionState
from aioproducer.testing.fake_broker.wire import codes


class MarkerWriter:
    """Writes markers, each to the leader of its partition."""

    def __init__(
        self, topics: TopicCatalogue, groups: ConsumerGroups, *, settings: ClusterSettings, schedule: Schedule
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._settings = settings
        self._schedule = schedule

    def error_of(self, marker: Marker, partition: Partition) -> int:
        """Return the error with which a partition's leader refuses a marker; 0 if it accepts it."""
        entry = partition.producers.entry(marker.producer_id)
        if entry is None:
            return 0
        if entry.epoch > marker.producer_epoch:
            return codes.INVALID_PRODUCER_EPOCH
        return codes.TRANSACTION_COORDINATOR_FENCED if entry.coordinator_epoch > marker.coordinator_epoch else 0

    def append(self, marker: Marker, topic: Topic, partition: Partition, *, now: float) -> None:
        batch = logged_marker(
            marker,
            base_offset=partition.log.end_offset,
            leader_epoch=partition.leader_epoch,
            timestamp=self._settings.wall_clock_ms(now),
        )
        partition.append(batch, topic.config, now=now)

    def finish_offsets(self, marker: Marker, *, offsets_partition: int) -> int:
        """Let the groups of an offsets partition commit or drop a producer's offsets; returns the error."""
        producer = ProducerIdAndEpoch(marker.producer_id, marker.producer_epoch)
        if self._groups.producers.is_before(producer, offsets_partition):
            return codes.INVALID_PRODUCER_EPOCH
        self._groups.finish_transaction(producer, is_commit=marker.is_commit, offsets_partition=offsets_partition)
        return 0

    def write_all(
        self, entry: TransactionEntry, coordinator_epoch: int, done: Callable[[float], None], *, now: float
    ) -> None:
        """Write all markers of a transaction that is prepared to end; `done(now)` is called when all are written."""
        is_commit = entry.state is TransactionState.PREPARE_COMMIT
        marker = Marker(entry.producer_id, entry.epoch, is_commit, coordinator_epoch)
        job = _MarkerJob(self, marker, done)
        for topic_name, index in entry.partitions:
            if topic_name == OFFSETS_TOPIC:
                job.offsets_partitions.append(index)
            elif (topic := self._topics.named(topic_name)) is not None and index < len(topic.partitions):
                job.missing[topic.partitions[index]] = topic
        if self._settings.marker_delay_s > 0:
            self._schedule.at(now + self._settings.marker_delay_s, job.start)
        else:
            job.start(now)


class _MarkerJob:
    """The markers of one transaction."""

    def __init__(self, writer: MarkerWriter, marker: Marker, done: Callable[[float], None]) -> None:
        self.missing: dict[Partition, Topic] = {}
        self.offsets_partitions: list[int] = []
        self._writer = writer
        self._marker = marker
        self._done: Callable[[float], None] | None = done
        self._written: dict[Partition, tuple[int, int]] = {}  # leader epoch and offset, until all copies have it

    def start(self, now: float) -> None:
        for index in self.offsets_partitions:
            if self._writer.finish_offsets(self._marker, offsets_partition=index):
                self._done = None
        for partition in list(self.missing):
            self._look(partition, now)
        self._finish(now)

    def _look(self, partition: Partition, now: float) -> None:
        if partition.is_deleted:
            del self.missing[partition]
            return
        leader_epoch, offset = self._written.get(partition, (-1, -1))
        if leader_epoch == partition.leader_epoch and partition.high_watermark > offset:
            del self.missing[partition]
            return
        if partition.is_led and leader_epoch != partition.leader_epoch:
            if self._writer.error_of(self._marker, partition):
                return
            self._written[partition] = (partition.leader_epoch, partition.log.end_offset)
            self._writer.append(self._marker, self.missing[partition], partition, now=now)
            self._look(partition, now)
            return
        partition.watch(partial(self._look_again, partition))

    def _look_again(self, partition: Partition, now: float) -> None:
        if partition in self.missing:
            self._look(partition, now)
            self._finish(now)

    def _finish(self, now: float) -> None:
        done = self._done
        if not self.missing and done is not None:
            self._done = None
            done(now)
