"""The brokers that lead partitions, and which of them keyless records go to."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from aioproducer._accumulator.partition import Node

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioproducer._network.node_connection import NodeConnection
    from aioproducer._timing.timers import TimerHeap
    from aioproducer.cluster import Cluster


class Nodes:
    """All nodes, and the preferred ones: those that take batches, and of these the ones in the client's rack.

    Source: NodeLatencyStats of RecordAccumulator (KIP-794), and BuiltInPartitioner (KIP-1123), in Apache Kafka. There a
    node's time runs from its last drain, so that one that was idle is unavailable as soon as a batch waits for it; here
    it runs from the first turn in which a batch waited.

    Args:
        on_unavailable: called with a node when it becomes unavailable.
        availability_timeout_s: how long ready batches may wait for a node; 0: without end.
        rack: the client's, if leaders in it are preferred.
    """

    def __init__(
        self,
        timers: TimerHeap,
        *,
        on_unavailable: Callable[[Node], None],
        availability_timeout_s: float = 0.0,
        rack: str | None = None,
    ) -> None:
        self._timers = timers
        self._on_unavailable = on_unavailable
        self._timeout_s = availability_timeout_s
        self._rack = rack
        self._by_id: dict[int, Node] = {}
        self._nearby: frozenset[Node] = frozenset()
        self._unavailable: set[Node] = set()

    def of(self, node_id: int) -> Node:
        node = self._by_id.get(node_id)
        if node is None:
            node = self._by_id[node_id] = Node(node_id)
        return node

    def update(self, cluster: Cluster, connections: Mapping[int, NodeConnection]) -> None:
        """Take the connections and racks of the nodes that metadata names."""
        for node_id in cluster.nodes:
            self.of(node_id).connection = connections[node_id]
        if self._rack is not None:
            nearby = (self.of(node.id) for node in cluster.nodes.values() if node.rack == self._rack)
            self._nearby = frozenset(nearby)

    # Preference

    def preferred(self, leaders: frozenset[Node]) -> frozenset[Node]:
        """Return the preferred ones of these nodes; all of them if none is preferred."""
        if not self._nearby and not self._unavailable:
            return leaders
        available = leaders - self._unavailable or leaders
        return available & self._nearby or available

    def is_far(self, node: Node) -> bool:
        """Whether a node is outside the client's rack, while others are in it."""
        return bool(self._nearby) and node not in self._nearby

    def note_waiting(self, node: Node, now: float) -> None:
        """Note that a node has ready partitions and takes no request now."""
        if self._timeout_s and node.wait is None:
            node.wait = self._timers.schedule(now + self._timeout_s, partial(self._waits_too_long, node))

    def note_drained(self, node: Node) -> None:
        """Note that a node takes batches, or that none waits for it any more."""
        if node.wait is not None:
            node.wait.cancel()
            node.wait = None
            self._unavailable.discard(node)

    def _waits_too_long(self, node: Node, now: float) -> None:  # noqa: ARG002  # a timer's callback
        self._unavailable.add(node)
        self._on_unavailable(node)
