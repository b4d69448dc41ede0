"""Topics that records were sent to, their partitions and leaders, and the choice of one for keyless records.

A partition in use stays in use: its identity (epoch, next sequence) must survive a moment in which metadata lacks the
topic, or the broker would take its next records for copies of old ones.

A topic may have a hundred thousand partitions: a partition without records is only a leader id in an array.

Source: the topic map of RecordAccumulator, and BuiltInPartitioner, in Apache Kafka.
"""

from __future__ import annotations

from array import array
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Final

from aioproducer._accumulator.partition_queue import PartitionQueue
from aioproducer._native.append import OpenPartition, TopicInfo
from aioproducer._protocol.partition_views import NO_LEADER
from aioproducer._protocol.primitives import NO_TOPIC_ID
from aioproducer.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from aioproducer._accumulator.events import ProducerEvents
    from aioproducer._accumulator.nodes import Nodes
    from aioproducer._accumulator.partition_queue import Node
    from aioproducer._accumulator.producer_identity import ProducerIdentity
    from aioproducer._timing.retry_backoff import RandomSource
    from aioproducer.cluster import Cluster, TopicView


_PARTITIONS_LOOKED_AT: Final = 64

_LONGEST_CHOICE_S: Final = 0.1
"""Time after which keyless records change partition with less than a batch: awaited ones take minutes to fill one.
Longer than a fast sender needs for a batch, and than most responses take."""

_DRAWS: Final = 8  # random draws of a partition with a leader, before all partitions are searched


class TopicPartitions:
    """Partitions by topic and number, each with its queue.

    Args:
        move: called with a partition and its new leader, or None, when that changes.
        is_adaptive: prefer partitions with fewer batches; `partitioner.adaptive.partitioning.enable`.
        nodes: the leaders, and which of them are preferred.
    """

    def __init__(  # noqa: PLR0913  # what it works with, by name
        self,
        producer_identity: ProducerIdentity,
        *,
        max_in_flight: int,
        random: RandomSource,
        move: Callable[[PartitionQueue, Node | None], None],
        events: ProducerEvents,
        is_adaptive: bool,
        nodes: Nodes,
    ) -> None:
        self.topics: dict[str, TopicInfo] = {}
        self._producer_identity = producer_identity
        self._max_in_flight = max_in_flight
        self._random = random
        self._move = move
        self._events = events
        self._is_adaptive = is_adaptive
        self._nodes = nodes
        self._led: dict[str, tuple[frozenset[Node], array[int]]] = {}  # preferred nodes and what they lead, by topic
        self._slots: dict[str, dict[int, OpenPartition]] = {}  # by topic and number, of partitions that were used
        self._leaders: dict[str, array[int]] = {}  # by topic and number, of all partitions
        self._views: dict[str, TopicView] = {}
        self._topic_ids: dict[str, bytes] = {}  # last known, also of topics no longer followed
        self._gone: dict[TopicPartition, OpenPartition] = {}  # kept for their identities, in case they come back
        self._node_ids: Collection[int] = ()
        self._cluster_id: str | None = None
        self._leading: dict[str, frozenset[Node]] = {}  # by topic
        self._last_chosen: dict[str, OpenPartition] = {}
        self._chosen_at: dict[str, float] = {}

    # Following metadata

    def update(self, cluster: Cluster) -> list[str]:
        """Follow new metadata: partitions join, leaders move; an unchanged topic costs nothing.

        Returns:
            Topics that became usable, or are followed again: records may wait for them.
        """
        is_elsewhere = self._cluster_id not in {None, cluster.cluster_id}
        self._cluster_id = cluster.cluster_id
        for name in [*self._views] if is_elsewhere else self._views.keys() - cluster.topics.keys():
            self._forget_leaders(name)
        changed = self._changed(cluster)
        fresh = [view.name for view in changed if view.name not in self._views]
        for view in changed:
            is_another = self._is_another(view)
            self._follow(cluster, view)
            if is_another and not is_elsewhere:
                self._forget_logs(self.topics[view.name], len(view.partitions))
        if is_elsewhere:
            self._start_over(cluster)
        return fresh

    @property
    def leaders(self) -> frozenset[Node]:
        return frozenset().union(*self._leading.values())

    def _changed(self, cluster: Cluster) -> list[TopicView]:
        """Return the topics to follow again: all if the set of nodes has changed, since any node may be a leader."""
        nodes_changed = cluster.nodes.keys() != self._node_ids
        self._node_ids = cluster.nodes.keys()
        return [
            view
            for view in cluster.topics.values()
            if view.partitions and (nodes_changed or self._views.get(view.name) is not view)
        ]

    def _is_another(self, view: TopicView) -> bool:
        """Whether a topic was deleted and made again; without topic ids, fewer partitions are the sign of it."""
        ids = {self._topic_ids.get(view.name, NO_TOPIC_ID), view.topic_id}
        if NO_TOPIC_ID not in ids:
            return len(ids) > 1
        topic = self.topics.get(view.name)
        return topic is not None and len(view.partitions) < len(topic.slots)

    def _follow(self, cluster: Cluster, view: TopicView) -> None:
        topic = self.topics.get(view.name)
        if topic is None:
            topic = self.topics[view.name] = TopicInfo(view.name)
            self._slots[view.name], self._leaders[view.name] = {}, array("i")
        elif view.name not in self._views:
            topic.unblock()  # `_forget_leaders` has blocked it
        self._views[view.name], self._topic_ids[view.name] = view, view.topic_id
        if len(view.partitions) > len(topic.slots):
            topic.slots.extend([None] * (len(view.partitions) - len(topic.slots)))
        leaders = _known_leaders(view, cluster)
        leaders.extend([NO_LEADER] * (len(topic.slots) - len(leaders)))
        self._follow_leaders(topic, leaders)
        again = [number for name, number in self._gone if name == view.name and number < len(topic.slots)]
        for number in again:  # the old queue comes back, since a broker may still answer for it
            self.slot(topic, number)

    def _forget_leaders(self, name: str) -> None:
        """Stop following a topic not used for long; the next record for it first asks for metadata.

        It may have more partitions by then, and a key placed among the old ones would be where no consumer expects it.
        """
        del self._views[name]
        topic = self.topics[name]
        # No record joins a batch until metadata is back, so a keyed record is not placed by an old partition count.
        topic.block()
        self._follow_leaders(topic, array("i", [NO_LEADER]) * len(topic.slots))

    def _follow_leaders(self, topic: TopicInfo, leaders: array[int]) -> None:
        """Take the leaders of all partitions of a topic; those without records cost no step each."""
        before = self._leaders[topic.topic]
        if before == leaders:
            return
        self._leaders[topic.topic] = leaders
        self._leading[topic.topic] = frozenset(map(self._nodes.of, set(leaders) - {NO_LEADER}))
        self._led.pop(topic.topic, None)
        for _, slot in sorted(self._slots[topic.topic].items()):
            self._follow_leader(slot)

    def _start_over(self, cluster: Cluster) -> None:
        """Start over in another cluster, with different logs; the producer id may be another producer's there."""
        identity = self._producer_identity
        if identity.producer_id is not None:
            identity.discard(identity.producer_id)
        for name, topic in self.topics.items():
            self._forget_logs(topic, cluster.partition_count(name) or len(topic.slots))

    def _forget_logs(self, topic: TopicInfo, count: int) -> None:
        """Forget the logs of a topic that was deleted and made again."""
        if len(topic.slots) > count:
            topic.stick_to(-1)
            self._last_chosen.pop(topic.topic, None)
        del topic.slots[count:]
        slots = self._slots[topic.topic]
        del self._leaders[topic.topic][count:]  # they have no leader any more
        gone = [slots.pop(number) for number in sorted(slots) if number >= count]
        for _, slot in sorted(slots.items()):
            self._events.topic_recreated(slot.queue, exists=True)
        for slot in gone:
            # If the partition returns, it must continue its sequences: the broker may know them.
            self._gone[slot.queue.topic_partition] = slot
            self._events.topic_recreated(slot.queue, exists=False)

    def slot(self, topic: TopicInfo, partition: int) -> OpenPartition:
        """Return one partition, which is in use from now on."""
        slot: OpenPartition | None = topic.slots[partition]
        if slot is None:
            slot = topic.slots[partition] = self._new_slot(TopicPartition(topic.topic, partition))
            self._slots[topic.topic][partition] = slot
            self._follow_leader(slot)
        return slot

    def _new_slot(self, topic_partition: TopicPartition) -> OpenPartition:
        if topic_partition in self._gone:
            return self._gone.pop(topic_partition)
        identity = self._producer_identity.of_partition()
        queue = PartitionQueue(topic_partition, identity, max_in_flight=self._max_in_flight)
        queue.slot = OpenPartition(topic_partition.partition, queue)
        return queue.slot

    def _follow_leader(self, slot: OpenPartition) -> None:
        queue = slot.queue
        leader = self._leader_of(queue.topic_partition.topic, slot.partition)
        if queue.leader is leader:
            return
        if leader is None or self._nodes.is_far(leader):
            self._leave(queue)
        self._move(queue, leader)

    def _leader_of(self, topic: str, partition: int) -> Node | None:
        leader_id = self._leaders[topic][partition]
        return None if leader_id == NO_LEADER else self._nodes.of(leader_id)

    # Looking up

    def queues(self) -> list[PartitionQueue]:
        return [slot.queue for slots in self._slots.values() for _, slot in sorted(slots.items())]

    def is_any_on_wire(self) -> bool:
        """Whether any batch is on the wire, including to partitions that no longer exist."""
        # An abort waits for this. A late batch for a deleted partition would be committed with the next transaction.
        slots = chain(*(slots.values() for slots in self._slots.values()), self._gone.values())
        return any(slot.queue.on_wire for slot in slots)

    def is_forgotten(self, topic: str) -> bool:
        """Whether a topic has partitions here but is no longer followed."""
        return topic in self.topics and topic not in self._views

    def queue(self, topic_partition: TopicPartition) -> PartitionQueue:
        queue: PartitionQueue = self.slot(self.topics[topic_partition.topic], topic_partition.partition).queue
        return queue

    # Choosing

    def choose(self, topic: TopicInfo, now: float) -> int:
        """Choose a partition for the next keyless records: of two at random the one with the shorter queue.

        Kafka weighs all partitions by queue length (KIP-794); two at random have nearly the same effect at a constant
        cost.
        """
        self._chosen_at[topic.topic] = now
        # "The power of two choices": nearly as good as the shortest of all queues, at the cost of two look-ups.
        eligible = self._eligible(topic)
        first, second = (self._random_partition(topic, eligible) for _ in range(2))
        if self._is_adaptive and self._backlog(topic, second) < self._backlog(topic, first):
            return second
        return first

    @staticmethod
    def _backlog(topic: TopicInfo, partition: int) -> int:
        slot: OpenPartition | None = topic.slots[partition]
        return 0 if slot is None else slot.queue.backlog

    def candidates(
        self, topic: TopicInfo, at_most: int, is_free: Callable[[OpenPartition], bool]
    ) -> list[OpenPartition]:
        """Return partitions for a waiting record that may go anywhere: one per leader.

        The partition of the last such record comes first, while its batch is open.

        Args:
            is_free: whether the record would overtake no other in a partition.
        """
        eligible = self._eligible(topic)
        count = len(eligible)
        start = self._random.randrange(count)
        near = [eligible[(start + step) % count] for step in range(min(count, _PARTITIONS_LOOKED_AT))]
        free = [number for number in near if (slot := topic.slots[number]) is None or is_free(slot)]
        by_leader = {self._leader_of(topic.topic, number): number for number in free}
        unled = by_leader.pop(None, None)
        numbers = list(by_leader.values())[:at_most] or ([unled] if unled is not None else [])
        found = [self.slot(topic, number) for number in numbers]
        last = self._last_chosen.get(topic.topic)
        if last is not None and last.builder is not None and is_free(last):
            found.insert(0, last)
        return found

    def note_chosen(self, topic: TopicInfo, slot: OpenPartition) -> None:
        """Let the next records that may go anywhere follow to this partition."""
        self._last_chosen[topic.topic] = slot
        # Also when the partition is not new: otherwise every later keyless record waits for memory on its own.
        topic.stick_to(slot.partition)
        self._chosen_at.pop(topic.topic, None)

    def note_batch(self, queue: PartitionQueue, now: float) -> None:
        """Note a closed batch: if the choice is adaptive and not recent, the next batch goes elsewhere.

        If all records are awaited, a slow node has no queue that would show it.
        """
        chosen_at = self._chosen_at.setdefault(queue.topic_partition.topic, now)
        if self._is_adaptive and now >= chosen_at + _LONGEST_CHOICE_S:
            self._leave(queue)

    def note_failure(self, queue: PartitionQueue) -> None:
        """If the choice is adaptive, let the next keyless records choose again: other queues are shorter.

        Otherwise a batch of them would follow into the failing partition, which is many if each is awaited.
        """
        if self._is_adaptive:
            self._leave(queue)

    def leave_node(self, node: Node) -> None:
        """Let keyless records choose again where they went to a node that does not take them."""
        for queue in self.queues():
            if queue.leader is node:
                self._leave(queue)

    def _leave(self, queue: PartitionQueue) -> None:
        name, partition = queue.topic_partition
        self.topics[name].leave(partition)
        if self._last_chosen.get(name) is queue.slot:
            del self._last_chosen[name]

    def _eligible(self, topic: TopicInfo) -> Sequence[int]:
        """Return the partitions for keyless records: those of preferred leaders, or all if none is preferred."""
        leading = self._leading[topic.topic]
        nodes = self._nodes.preferred(leading)
        if nodes == leading:
            return range(len(topic.slots))
        known = self._led.get(topic.topic)
        if known is None or known[0] != nodes:  # all partitions are looked at only when nodes or leaders change
            leaders, ids = enumerate(self._leaders[topic.topic]), {node.id for node in nodes}
            known = nodes, array("i", [number for number, leader_id in leaders if leader_id in ids])
            self._led[topic.topic] = known
        return known[1]

    def _random_partition(self, topic: TopicInfo, eligible: Sequence[int]) -> int:
        leaders = self._leaders[topic.topic]
        for _ in range(_DRAWS):
            partition = eligible[self._random.randrange(len(eligible))]
            if leaders[partition] != NO_LEADER:
                return partition
        led = [number for number, leader_id in enumerate(leaders) if leader_id != NO_LEADER]
        return led[self._random.randrange(len(led))] if led else self._random.randrange(len(leaders))

    def __repr__(self) -> str:
        led = Counter(chain(*self._leaders.values()))
        del led[NO_LEADER]
        return f"<TopicPartitions topics={len(self.topics)} leaders={dict(led)}>"


def _known_leaders(view: TopicView, cluster: Cluster) -> array[int]:
    """Return the leaders of a topic's partitions, `NO_LEADER` where metadata lacks the leader's address."""
    leaders = view.partitions.leader_ids
    unknown = set(leaders).difference(cluster.nodes)
    if unknown <= {NO_LEADER}:
        return leaders[:]
    return array("i", [NO_LEADER if leader_id in unknown else leader_id for leader_id in leaders])
