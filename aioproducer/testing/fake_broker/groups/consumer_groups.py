"""All consumer groups of the cluster, and where their offsets are."""

import struct
import uuid
from collections.abc import Iterable, Mapping
from random import Random

from aioproducer.records import TopicPartition
from aioproducer.testing.fake_broker.groups.committed_offsets import CommittedOffset, OffsetsProducers
from aioproducer.testing.fake_broker.groups.consumer_group import ConsumerGroup
from aioproducer.testing.fake_broker.schedule import Schedule
from aioproducer.testing.fake_broker.settings import ClusterSettings
from aioproducer.testing.fake_broker.transactions.transaction_entry import ProducerIdAndEpoch

_UTF_16 = struct.Struct(">H")

OFFSETS_TOPIC = "__consumer_offsets"


class ConsumerGroups:
    """Groups by name; the first JoinGroup or commit creates a group."""

    def __init__(self, schedule: Schedule, random: Random, settings: ClusterSettings) -> None:
        self._schedule = schedule
        self._random = random
        self._offsets_partitions = settings.offsets_topic_partitions
        self._as_4_0 = settings.profile.coordinates_groups_as_4_0
        self.producers: OffsetsProducers = OffsetsProducers()
        self._groups: dict[str, ConsumerGroup] = {}

    def named(self, group_id: str) -> ConsumerGroup:
        group = self._groups[group_id] = self.found(group_id)
        group.exists = True
        return group

    def found(self, group_id: str) -> ConsumerGroup:
        """Return the group of this name, or an empty one that is not kept: a query creates no group."""
        group = self._groups.get(group_id)
        return ConsumerGroup(self._schedule, as_4_0=self._as_4_0) if group is None else group

    def existing(self) -> Mapping[str, ConsumerGroup]:
        return self._groups

    def delete(self, group_id: str) -> None:
        self._groups.pop(group_id).expect_none()

    def unload(self, group_id: str, now: float) -> None:
        """Refuse the requests that wait in a group, as its coordinator has changed."""
        self.found(group_id).unload(now)

    def new_member_id(self, begin: str | None) -> str:
        """Return a member id in Kafka's form: client id or instance id, and a random UUID."""
        return f"{begin or ''}-{uuid.UUID(int=self._random.getrandbits(128), version=4)}"

    def hold(
        self, group_id: str, producer: ProducerIdAndEpoch, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        self.producers.note_offsets(producer, self.offsets_partition_of(group_id))
        group = self.named(group_id)
        for partition, committed in offsets.items():
            group.offsets.hold(producer.producer_id, partition, committed)

    def forget(self, group_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]) -> None:
        """Drop pending offsets that a producer's open transaction has sent, as its log has refused more of it."""
        if self.producers.open_epoch(producer.producer_id, self.offsets_partition_of(group_id)) is not None:
            for partition in partitions:
                self.found(group_id).offsets.forget(producer.producer_id, partition)

    def finish_transaction(self, producer: ProducerIdAndEpoch, *, is_commit: bool, offsets_partition: int) -> None:
        self.producers.note_marker(producer, offsets_partition)
        for group_id, group in self._groups.items():
            if self.offsets_partition_of(group_id) == offsets_partition:
                group.offsets.finish_transaction(producer.producer_id, is_commit=is_commit)

    def drop_topic(self, topic: str) -> None:
        for group in self._groups.values():
            group.offsets.drop_topic(topic)

    def offsets_partition_of(self, group_id: str) -> int:
        """Return the partition of the offsets topic that holds a group: Java's hash of the name."""
        value = 0
        for (unit,) in _UTF_16.iter_unpack(group_id.encode("utf-16-be")):
            value = (31 * value + unit) & 0xFFFFFFFF
        return (value & 0x7FFFFFFF) % self._offsets_partitions
