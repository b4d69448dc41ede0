"""Topics that records were sent to, their partitions and leaders, and the choice of one for keyless records.

A partition in use stays in use: its identity (epoch, next sequence) must survive a moment in which metadata lacks the
topic, or the broker would take its next records for copies of old ones.

A topic may have a hundred thousand partitions: a partition without records is only a leader id in an array. A producer
may use ten thousand topics: an update of metadata looks at those that have changed alone.

Source: the topic map of RecordAccumulator, and BuiltInPartitioner, in Apache Kafka.
"""

from __future__ import annotations

from array import array
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Final

from aioproducer._accumulator.partition import Partition, Topic
from aioproducer._protocol.partition_views import NO_LEADER
from aioproducer._protocol.primitives import NO_TOPIC_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from aioproducer._accumulator.events import ProducerEvents
    from aioproducer._accumulator.nodes import Nodes
    from aioproducer._accumulator.partition import Node
    from aioproducer._accumulator.producer_identity import ProducerIdentity
    from aioproducer._timing.retry_backoff import RandomSource
    from aioproducer.cluster import Cluster, TopicView
    from aioproducer.records import TopicPartition


_PARTITIONS_LOOKED_AT: Final = 64

_DRAWS: Final = 8  # random draws of a partition with a leader, before all partitions are searched


class TopicPartitions:
    """The topics in use by name, each with its partitions.

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
        move: Callable[[Partition, Node | None], None],
        events: ProducerEvents,
        is_adaptive: bool,
        nodes: Nodes,
    ) -> None:
        self.topics: dict[str, Topic] = {}
        self._producer_identity = producer_identity
        self._max_in_flight = max_in_flight
        self._random = random
        self._move = move
        self._events = events
        self._is_adaptive = is_adaptive
        self._nodes = nodes
        self._topics_led: Counter[Node] = Counter()  # number of topics by node
        self._node_ids: Collection[int] = ()
        self._cluster_id: str | None = None

    # Following metadata

    def update(self, cluster: Cluster, changed: Collection[str]) -> list[str]:
        """Follow new metadata: partitions join, leaders move; an unchanged topic costs nothing.

        Args:
            changed: names of the topics whose views have come, gone or changed since the last update.

        Returns:
            Topics that became usable, or are followed again: records may wait for them.
        """
        for topic in filter(None, map(self.topics.get, changed)):
            topic.noted_until = 0.0  # it may be in error: the metadata hears of its next use
        is_elsewhere = self._cluster_id not in {None, cluster.cluster_id}
        self._cluster_id = cluster.cluster_id
        for topic in self._lost(cluster, changed, is_elsewhere=is_elsewhere):
            self._forget_leaders(topic)
        views = self._changed(cluster, cluster.topics if is_elsewhere else changed)
        fresh = [view.name for view in views if self._is_news(view.name)]
        for view in views:
            is_another = self._is_another(view)
            self._follow(cluster, view)
            if is_another and not is_elsewhere:
                self._forget_logs(self.topics[view.name], len(view.partitions))
        if is_elsewhere:
            self._start_over(cluster)
        return fresh

    @property
    def leaders(self) -> Collection[Node]:
        return [node for node, topics in self._topics_led.items() if topics]

    def _lost(self, cluster: Cluster, changed: Collection[str], *, is_elsewhere: bool) -> list[Topic]:
        """Return the followed topics that metadata no longer has: all, if it is another cluster's."""
        if is_elsewhere:
            return [topic for topic in self.topics.values() if topic.view is not None]
        known = (self.topics.get(name) for name in changed if name not in cluster.topics)
        return [topic for topic in known if topic is not None and topic.view is not None]

    def _is_news(self, name: str) -> bool:
        topic = self.topics.get(name)
        return topic is None or topic.view is None

    def _changed(self, cluster: Cluster, changed: Collection[str]) -> list[TopicView]:
        """Return the topics to follow again: all if the set of nodes has changed, since any node may be a leader."""
        nodes_changed = cluster.nodes.keys() != self._node_ids
        self._node_ids = cluster.nodes.keys()
        if nodes_changed:
            return [view for view in cluster.topics.values() if view.partitions]
        views = (cluster.topics.get(name) for name in changed)
        return [view for view in views if view is not None and view.partitions]

    def _is_another(self, view: TopicView) -> bool:
        """Whether a topic was deleted and made again; without topic ids, fewer partitions are the sign of it."""
        topic = self.topics.get(view.name)
        if topic is None:
            return False
        if NO_TOPIC_ID not in {topic.topic_id, view.topic_id}:
            return topic.topic_id != view.topic_id
        return len(view.partitions) < len(topic.partitions)

    def _follow(self, cluster: Cluster, view: TopicView) -> None:
        topic = self.topics.get(view.name)
        if topic is None:
            topic = self.topics[view.name] = Topic(view.name, is_adaptive=self._is_adaptive)
        elif topic.view is None:
            topic.unblock()  # `_forget_leaders` has blocked it
        topic.view, topic.topic_id = view, view.topic_id
        if len(view.partitions) > len(topic.partitions):
            topic.partitions.extend([None] * (len(view.partitions) - len(topic.partitions)))
        leader_ids = _known_leaders(view, cluster)
        leader_ids.extend([NO_LEADER] * (len(topic.partitions) - len(leader_ids)))
        self._follow_leaders(topic, leader_ids)
        for number in [number for number in topic.gone if number < len(topic.partitions)]:
            self.use(topic, number)  # the old partition comes back, since a broker may still answer for it

    def _forget_leaders(self, topic: Topic) -> None:
        """Stop following a topic not used for long; the next record for it first asks for metadata.

        It may have more partitions by then, and a key placed among the old ones would be where no consumer expects it.
        """
        topic.view = None
        # No record joins a batch until metadata is back, so a keyed record is not placed by an old partition count.
        topic.block()
        self._follow_leaders(topic, array("i", [NO_LEADER]) * len(topic.partitions))

    def _follow_leaders(self, topic: Topic, leader_ids: array[int]) -> None:
        """Take the leaders of all partitions of a topic; those without records cost no step each."""
        if topic.leader_ids == leader_ids:
            return
        before, topic.leading = topic.leading, frozenset(map(self._nodes.of, set(leader_ids) - {NO_LEADER}))
        topic.leader_ids = leader_ids
        topic.preferred = None
        self._topics_led.subtract(before - topic.leading)
        self._topics_led.update(topic.leading - before)
        for partition in topic.in_use:
            self._follow_leader(topic, partition)

    def _start_over(self, cluster: Cluster) -> None:
        """Start over in another cluster, with different logs; the producer id may be another producer's there."""
        identity = self._producer_identity
        if identity.producer_id is not None:
            identity.discard(identity.producer_id)
        for name, topic in self.topics.items():
            self._forget_logs(topic, cluster.partition_count(name) or len(topic.partitions))

    def _forget_logs(self, topic: Topic, count: int) -> None:
        """Forget the logs of a topic that was deleted and made again."""
        if len(topic.partitions) > count:
            topic.stick_to(-1)
            topic.last_chosen = None
        del topic.partitions[count:]
        del topic.leader_ids[count:]  # they have no leader any more
        gone = {number: topic.used.pop(number) for number in sorted(topic.used) if number >= count}
        topic.gone.update(gone)  # a partition that returns must continue its sequences: the broker may know them
        for partition in topic.in_use:
            self._events.topic_recreated(partition, exists=True)
        for partition in gone.values():
            self._events.topic_recreated(partition, exists=False)

    def use(self, topic: Topic, number: int) -> Partition:
        """Return one partition, which is in use from now on."""
        partition = topic.partitions[number]
        if partition is None:
            partition = topic.gone.pop(number, None) or self._new_partition(topic, number)
            topic.partitions[number] = topic.used[number] = partition
            self._follow_leader(topic, partition)
        return partition

    def _new_partition(self, topic: Topic, number: int) -> Partition:
        return Partition(topic, number, self._producer_identity.of_partition(), max_in_flight=self._max_in_flight)

    def _follow_leader(self, topic: Topic, partition: Partition) -> None:
        leader_id = topic.leader_ids[partition.number]
        leader = None if leader_id == NO_LEADER else self._nodes.of(leader_id)
        if partition.leader is leader:
            return
        if leader is None or self._nodes.is_far(leader):
            topic.choose_again(partition)
        self._move(partition, leader)

    # Looking up

    def in_use(self) -> list[Partition]:
        return [partition for topic in self.topics.values() for partition in topic.in_use]

    def is_any_on_wire(self) -> bool:
        """Whether any batch is on the wire, including to partitions that no longer exist."""
        # An abort waits for this. A late batch for a deleted partition would be committed with the next transaction.
        topics = self.topics.values()
        return any(each.on_wire for topic in topics for each in chain(topic.used.values(), topic.gone.values()))

    def find(self, topic_partition: TopicPartition) -> Partition:
        return self.use(self.topics[topic_partition.topic], topic_partition.partition)

    # Choosing

    def choose(self, topic: Topic, now: float) -> int:
        """Choose a partition for the next keyless records: at random, or the adaptive way.

        The adaptive way draws two partitions at random and takes the one with fewer batches. Kafka weighs all
        partitions by queue length (KIP-794); "the power of two choices" has nearly the same effect at the cost of two
        look-ups.
        """
        topic.chosen_at = now
        eligible = self._eligible(topic)
        first, second = (self._random_partition(topic, eligible) for _ in range(2))
        if self._is_adaptive and topic.backlog(second) < topic.backlog(first):
            return second
        return first

    def candidates(self, topic: Topic, at_most: int, is_free: Callable[[Partition], bool]) -> list[Partition]:
        """Return partitions for a waiting record that may go anywhere: one per leader.

        The partition of the last such record comes first, while its batch is open.

        Args:
            is_free: whether the record would overtake no other in a partition.
        """
        eligible = self._eligible(topic)
        count = len(eligible)
        start = self._random.randrange(count)
        near = [eligible[(start + step) % count] for step in range(min(count, _PARTITIONS_LOOKED_AT))]
        free = [number for number in near if (partition := topic.partitions[number]) is None or is_free(partition)]
        by_leader = {topic.leader_ids[number]: number for number in free}
        unled = by_leader.pop(NO_LEADER, None)
        numbers = list(by_leader.values())[:at_most] or ([unled] if unled is not None else [])
        found = [self.use(topic, number) for number in numbers]
        last = topic.last_chosen
        if last is not None and last.open_batch is not None and is_free(last):
            found.insert(0, last)
        return found

    def leave_node(self, node: Node) -> None:
        """Let keyless records choose again where they went to a node that does not take them."""
        for topic in self.topics.values():
            for partition in topic.in_use:
                if partition.leader is node:
                    topic.choose_again(partition)

    def _eligible(self, topic: Topic) -> Sequence[int]:
        """Return the partitions for keyless records: those of preferred leaders, or all if none is preferred."""
        nodes = self._nodes.preferred(topic.leading)
        if nodes == topic.leading:
            return range(len(topic.partitions))
        known = topic.preferred
        if known is None or known[0] != nodes:  # all partitions are looked at only when nodes or leaders change
            leaders, ids = enumerate(topic.leader_ids), {node.id for node in nodes}
            known = nodes, array("i", [number for number, leader_id in leaders if leader_id in ids])
            topic.preferred = known
        return known[1]

    def _random_partition(self, topic: Topic, eligible: Sequence[int]) -> int:
        leader_ids = topic.leader_ids
        for _ in range(_DRAWS):
            number = eligible[self._random.randrange(len(eligible))]
            if leader_ids[number] != NO_LEADER:
                return number
        led = [number for number, leader_id in enumerate(leader_ids) if leader_id != NO_LEADER]
        return led[self._random.randrange(len(led))] if led else self._random.randrange(len(leader_ids))

    def __repr__(self) -> str:
        led = Counter(chain.from_iterable(topic.leader_ids for topic in self.topics.values()))
        del led[NO_LEADER]
        return f"<TopicPartitions topics={len(self.topics)} leaders={dict(led)}>"


def _known_leaders(view: TopicView, cluster: Cluster) -> array[int]:
    """Return the leaders of a topic's partitions, `NO_LEADER` where metadata lacks the leader's address."""
    leaders = view.partitions.leader_ids
    unknown = set(leaders).difference(cluster.nodes)
    if unknown <= {NO_LEADER}:
        return leaders[:]
    return array("i", [NO_LEADER if leader_id in unknown else leader_id for leader_id in leaders])
