"""The client's view of the cluster: brokers, topics and leaders. Immutable: every update makes a new one.

`_network/cluster_updates.py` holds the rules of the updates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from aioproducer._protocol.messages import MetadataResponse, Node, TopicView
from aioproducer._protocol.partition_views import NO_EPOCH, NO_LEADER, Partitions, PartitionView
from aioproducer._protocol.primitives import NO_TOPIC_ID

__all__ = ["NO_EPOCH", "NO_LEADER", "Cluster", "MetadataResponse", "Node", "PartitionView", "Partitions", "TopicView"]

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


def _nothing() -> Mapping[KeyT, ValueT]:
    return MappingProxyType({})


class Doubt(NamedTuple):
    """A value that would go back, and the broker that reported it first.

    It counts once another broker reports it too, or the same one for long enough.
    """

    news: PartitionView | int
    """A lower leader epoch, or a lower count of partitions."""
    from_node: int
    since: float


@dataclass(frozen=True, slots=True)
class Cluster:
    """A snapshot of the cluster, as a partitioner gets it. It never changes, so it may be kept and compared."""

    nodes: Mapping[int, Node] = field(default_factory=_nothing)
    """Brokers by node id; each has `id`, `host`, `port` and `rack`."""
    topics: Mapping[str, TopicView] = field(default_factory=_nothing)
    """Topics by name; each has `name`, `topic_id` and `partitions`, a sequence of `leader_id` and `leader_epoch`. An
    update that changes nothing in a topic keeps its object."""
    cluster_id: str | None = None
    """The cluster's id; None before the first response."""
    controller_id: int = -1
    """Node id of the controller; -1 if unknown."""
    updated_at: float = 0.0
    """Time of the last response that was merged, in monotonic seconds; 0.0 before the first."""
    _doubts: Mapping[tuple[str, int], Doubt] = field(default_factory=_nothing)
    """Lower epochs and counts that a single broker has reported, without topic ids to settle it; by topic and
    partition."""

    def leader_of(self, topic: str, partition: int) -> int | None:
        """Return the id of a partition's leader, or None if it has none, is unknown, or its node is unknown."""
        view = self.topics.get(topic)
        if view is None or not 0 <= partition < len(view.partitions):
            return None
        leader_id = view.partitions[partition].leader_id
        return leader_id if leader_id in self.nodes else None

    def partition_count(self, topic: str) -> int | None:
        """Return how many partitions a topic has, or None if it is unknown."""
        view = self.topics.get(topic)
        return len(view.partitions) if view is not None and view.partitions else None

    def topic_id(self, topic: str) -> bytes:
        """Return a topic's id of 16 bytes, all zero if unknown."""
        view = self.topics.get(topic)
        return view.topic_id if view is not None else NO_TOPIC_ID
