"""Partitions in use that follow metadata, and notes of what befell them."""

import random

from aioproducer._accumulator.partition_queue import PartitionQueue
from aioproducer._accumulator.preferred_nodes import PreferredNodes
from aioproducer._accumulator.producer_identity import ProducerIdentity
from aioproducer._accumulator.topic_partitions import TopicPartitions
from aioproducer._timing.timers import TimerHeap


class Moves:
    """Notes each new leader of a partition, and sets it."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int | None]] = []
        self.renewed: list[tuple[int, bool]] = []

    def move(self, queue: PartitionQueue, leader_id: int | None) -> None:
        queue.leader_id = leader_id
        self.seen.append((queue.topic_partition.partition, leader_id))

    def note_renewed(self, queue: PartitionQueue, *, exists: bool) -> None:
        self.renewed.append((queue.topic_partition.partition, exists))


def use_all(partitions: TopicPartitions) -> None:
    for topic in partitions.topics.values():
        for number in range(len(topic.slots)):
            partitions.slot(topic, number)


def in_use(
    *,
    is_adaptive: bool = True,
    identity: ProducerIdentity | None = None,
    preferred: PreferredNodes | None = None,
) -> tuple[TopicPartitions, Moves]:
    moves = Moves()
    partitions = TopicPartitions(
        identity or ProducerIdentity(is_enabled=True),
        max_in_flight=5,
        random=random.Random(1),
        move=moves.move,
        on_recreated=moves.note_renewed,
        is_adaptive=is_adaptive,
        preferred=preferred or PreferredNodes(TimerHeap(lambda _: None), on_unavailable=lambda _: None),
    )
    return partitions, moves
