"""Updates of the client's view of the cluster: each returns a new `Cluster`.

Metadata comes from many brokers, each with its own delay, so a response may be older than what is known. The rules
that keep old news from undoing new ones:

* Within one topic id, a partition's leader epoch never goes back: a response with a lower one is ignored for that
  partition.
* A new topic id means the topic was deleted and made again: the whole view is replaced, epochs included.
* Another cluster id means that the addresses lead to another cluster: nothing that was known of topics holds there.
* Without topic ids (brokers before 2.8, and the first response with an id after theirs) the two cannot be told apart.
  There a lower epoch is accepted only when a produce to that topic was refused with "unknown" or "not leader" (the
  topic is *suspected*), or the partition has no leader as far as is known, and two different brokers agree on it, or
  one says so for a second (it may be the only one that we are connected to), or when the cluster has a single broker,
  which cannot be behind itself. An id is learnt from a response without a lower epoch. Fewer partitions than before
  are believed on the same grounds: only a topic that was made again has fewer.
* A topic that a response reports in error keeps the partitions known before: a broker that has just restarted may
  report a topic missing that it will know in a second.
* Partitions are added, never removed, within one topic id.

Source: Metadata, MetadataCache and MetadataSnapshot of Apache Kafka, without their locks; KIP-320, KIP-516, KIP-951.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from math import isqrt
from types import MappingProxyType
from typing import Final

from aioproducer._protocol.messages import MetadataResponse, Node, TopicView
from aioproducer._protocol.partition_views import NO_EPOCH, NO_LEADER, Partitions, PartitionView
from aioproducer._protocol.primitives import NO_TOPIC_ID
from aioproducer.cluster import Cluster, Doubt
from aioproducer.records import TopicPartition

_NOT_DESCRIBED: Final = PartitionView()
_COUNT: Final = -1  # stands in `Cluster._doubts` for the number of a partition: the number of partitions is in doubt
_MANY_TOPICS: Final = 256
"""With fewer, a copy of all views costs less than looking each topic up in Python."""
SAME_BROKER_S: Final = 1.0
"""A broker that reports a lower leader epoch for this long is not behind: news of a leader travels in milliseconds."""


def merge(cluster: Cluster, response: MetadataResponse, now: float, *, suspected: Collection[str] = ()) -> Cluster:
    """Return the cluster after a response, by the rules of this file.

    Args:
        response: not trusted: unusable nodes are left out, leaders that are no known node count as none.
        suspected: topics to which a produce was refused with "unknown" or "not leader" since the last response.

    Returns:
        A new cluster. Topics that the response does not name stay as they are, unless they were another cluster's;
        nodes that it does not name are gone.
    """
    nodes = {node.id: node for node in response.nodes if node.is_valid}
    is_elsewhere = bool(response.cluster_id) and cluster.cluster_id not in {None, response.cluster_id}
    known = Cluster() if is_elsewhere else cluster
    views: dict[str, TopicView] = {}
    doubts = dict(known._doubts)
    for seen in response.topics:
        before = views.get(seen.name) or known.topics.get(seen.name)
        merging = _TopicMerge(seen, before, from_node=response.from_node, now=now, doubts=doubts)
        merging.may_go_back = seen.name in suspected
        merging.is_only_node = len(nodes) <= 1
        views[seen.name] = merging.result()
    return Cluster(
        nodes=MappingProxyType(nodes),
        topics=_with_views(known.topics, views),
        cluster_id=response.cluster_id or cluster.cluster_id,
        controller_id=response.controller_id,
        updated_at=now,
        _doubts=MappingProxyType(doubts),
    )


def with_leader_hints(
    cluster: Cluster,
    hints: Mapping[TopicPartition, PartitionView],
    *,
    topic_ids: Mapping[str, bytes],
    endpoints: Iterable[Node] = (),
) -> Cluster:
    """Return the cluster after a broker named new leaders of partitions in a produce response.

    Args:
        hints: who leads, and since which epoch, by partition.
        topic_ids: of their topics when the produce was sent. If one was deleted and made again meanwhile, a hint
            is about the old one, and its epoch would outlive every true one of the new.

    Returns:
        This very cluster if no hint counts. One does not that is not newer than what is known, or about another
        topic of that name, or whose node is neither known nor among the endpoints.

    Source: KIP-951; Metadata.updatePartitionLeadership in Apache Kafka, which does not look at the topic's id.
    """
    nodes = {**cluster.nodes, **{node.id: node for node in endpoints if node.is_valid}}
    changed: dict[str, dict[int, PartitionView]] = {}
    for (topic, partition), leader in hints.items():
        view = cluster.topics.get(topic)
        if view is None or view.topic_id != topic_ids[topic] or not 0 <= partition < len(view.partitions):
            continue
        if leader.leader_epoch <= view.partitions[partition].leader_epoch:
            continue
        if leader.leader_id not in nodes:
            continue
        changed.setdefault(topic, {})[partition] = leader
    if not changed:
        return cluster
    # All hints of a response at once: a new cluster for each one of 10,000 would copy all partitions each time.
    views: dict[str, TopicView] = {}
    for topic, leaders in changed.items():
        view = cluster.topics[topic]
        views[topic] = view._replace(partitions=view.partitions.with_views(leaders.items()))
    return replace(cluster, nodes=MappingProxyType(nodes), topics=_with_views(cluster.topics, views))


def without_topics(cluster: Cluster, names: Collection[str]) -> Cluster:
    if not names:
        return cluster
    return replace(
        cluster,
        topics=MappingProxyType({name: view for name, view in cluster.topics.items() if name not in names}),
        _doubts=MappingProxyType({key: doubt for key, doubt in cluster._doubts.items() if key[0] not in names}),
    )


def _with_views(topics: Mapping[str, TopicView], views: Mapping[str, TopicView]) -> Mapping[str, TopicView]:
    """Return a copy of views of topics, some replaced, new ones at the end; not all are copied if there are many."""
    shared, latest = (topics.shared, topics.latest) if isinstance(topics, _ManyTopics) else (topics, {})
    latest = {**latest, **views}
    if len(shared) < _MANY_TOPICS or len(latest) > isqrt(len(shared)):
        return MappingProxyType({**shared, **latest})
    return _ManyTopics(shared, latest)


class _ManyTopics(Mapping[str, TopicView]):
    """Immutable views of many topics, most of them in a dict that copies share, and the latest in a small one.

    A copy of ten thousand for each new topic would take longer than all that is done for the topic.
    """

    __slots__ = ("_new_count", "latest", "shared")

    def __init__(self, shared: Mapping[str, TopicView], latest: Mapping[str, TopicView]) -> None:
        self.shared = shared
        self.latest = latest
        self._new_count = sum(name not in shared for name in latest)

    def __getitem__(self, name: str) -> TopicView:
        view = self.latest.get(name)
        return self.shared[name] if view is None else view

    def __iter__(self) -> Iterator[str]:
        return chain(self.shared, (name for name in self.latest if name not in self.shared))

    def __len__(self) -> int:
        return len(self.shared) + self._new_count

    def __repr__(self) -> str:
        return repr(dict(self))


def changed_topics(before: Cluster, cluster: Cluster, names: Iterable[str]) -> list[str]:
    """Return those of these topics that have come, gone or changed between two clusters."""
    return [name for name in names if cluster.topics.get(name) != before.topics.get(name)]


class _TopicMerge:
    """One topic of one response meets what was known of it. Writes to `doubts`, shared by the whole merge."""

    __slots__ = (
        "_doubts",
        "_from_node",
        "_has_gone_back",
        "_has_old_news",
        "_known",
        "_now",
        "_seen",
        "is_only_node",
        "may_go_back",
    )

    def __init__(
        self,
        seen: TopicView,
        known: TopicView | None,
        *,
        from_node: int,
        now: float,
        doubts: dict[tuple[str, int], Doubt],
    ) -> None:
        self._seen = seen
        self._known = known
        self._from_node = from_node
        self._now = now
        self._doubts = doubts
        self.may_go_back = False
        self.is_only_node = False
        self._has_gone_back = self._has_old_news = False

    def result(self) -> TopicView:
        seen, known = self._seen, self._known
        if known is None:
            return seen
        if seen.error_code != 0 and not seen.partitions:
            return known._replace(error_code=seen.error_code)
        if self._is_another_topic(known) or self._has_fewer_partitions(known):
            return seen
        partitions = self._partitions(known.partitions, seen.partitions)
        merged = TopicView(seen.name, self._topic_id(known), partitions, seen.error_code)
        return known if merged == known else merged

    def _topic_id(self, known: TopicView) -> bytes:
        """The id to go on with; one that comes with old news, or with those of a topic made again, may be another's."""
        if self._has_gone_back:
            return self._seen.topic_id
        if known.topic_id == NO_TOPIC_ID and self._has_old_news:
            return NO_TOPIC_ID
        return known.topic_id if self._seen.topic_id == NO_TOPIC_ID else self._seen.topic_id

    def _is_another_topic(self, known: TopicView) -> bool:
        return known.topic_id != self._seen.topic_id and NO_TOPIC_ID not in (known.topic_id, self._seen.topic_id)

    def _partitions(self, known: Partitions, seen: Partitions) -> Partitions:
        """The views to go on with; only partitions whose epoch goes back are looked at one by one."""
        behind = known[len(seen) :]
        leader_ids, leader_epochs = seen.leader_ids + behind.leader_ids, seen.leader_epochs + behind.leader_epochs
        if known.leader_epochs == leader_epochs:
            self._forget_doubts(min(len(known), len(seen)), besides=())
            return Partitions(leader_ids, leader_epochs)
        pairs = enumerate(zip(known.leader_epochs, seen.leader_epochs, strict=False))
        older = [number for number, (old, new) in pairs if new < old]
        views = [(number, self._older(number, known[number], seen[number])) for number in older]
        doubted = {number for number in older if seen.leader_epochs[number] != NO_EPOCH}
        self._forget_doubts(min(len(known), len(seen)), besides=doubted)
        return Partitions(leader_ids, leader_epochs).with_views(views)

    def _forget_doubts(self, count: int, *, besides: Collection[int]) -> None:
        """Forget the doubts of the first `count` partitions; looks at these or at all doubts, whichever are fewer."""
        name = self._seen.name
        numbers: Iterable[int] = range(count)
        if len(self._doubts) < count:
            numbers = [number for topic, number in self._doubts if topic == name and 0 <= number < count]
        for number in numbers:
            if number not in besides:
                self._doubts.pop((name, number), None)

    def _older(self, number: int, old: PartitionView, new: PartitionView) -> PartitionView:
        if new.leader_epoch == NO_EPOCH:
            # One that a response leaves out has no epoch there: what comes next must not be older than what was known.
            is_left_out = new == _NOT_DESCRIBED
            return new._replace(leader_epoch=old.leader_epoch) if is_left_out else new
        # Nothing is sent to a partition without a leader, so nothing can be refused: it is always suspected.
        is_suspected = self.may_go_back or old.leader_id == NO_LEADER
        if not is_suspected or not self._is_true(number, new):
            self._has_old_news = True
            return old
        self._has_gone_back = True  # the topic was made again: the id that brokers gave it before is not its own
        return new

    def _has_fewer_partitions(self, known: TopicView) -> bool:
        name, count = self._seen.name, len(self._seen.partitions)
        gone = known.partitions[count:] if count else known.partitions[:0]  # who names none does not know them yet
        if not gone:
            self._doubts.pop((name, _COUNT), None)
            return False
        is_suspected = self.may_go_back or gone.lacks_leader
        return is_suspected and self._is_true(_COUNT, count)

    def _is_true(self, number: int, news: PartitionView | int) -> bool:
        if self._known is not None and NO_TOPIC_ID not in {self._known.topic_id, self._seen.topic_id}:
            return False  # the same id, or it would be another topic
        if self.is_only_node:
            return True
        key = (self._seen.name, number)
        doubt = self._doubts.get(key)
        if doubt is None or doubt.news != news:
            self._doubts[key] = Doubt(news, self._from_node, self._now)
            return False
        if doubt.from_node == self._from_node and self._now < doubt.since + SAME_BROKER_S:
            return False
        del self._doubts[key]
        return True
