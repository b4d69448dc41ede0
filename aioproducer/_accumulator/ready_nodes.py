"""Partitions with a batch to send, by the node that leads them.

A partition enters its leader's queue when its first batch becomes sendable, and leaves it from the front when it is
drained. No code iterates over partitions without a batch to send, so ten thousand idle ones cost nothing; and no
partition starves, because one with more to send goes to the end.

Source: the `ready` and `drain` scans of RecordAccumulator in Apache Kafka, updated incrementally instead.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from aioproducer._accumulator.partition_queue import PartitionQueue


class ReadyNodes:
    """Queues of ready partitions by node id, and the ready partitions that no node leads."""

    def __init__(self) -> None:
        """Start with nothing ready."""
        self._by_node: dict[int, OrderedDict[PartitionQueue, None]] = {}
        self._leaderless: dict[str, OrderedDict[PartitionQueue, None]] = {}

    def offer(self, queue: PartitionQueue) -> None:
        """Put a partition at the end of its leader's queue, unless it stands there already."""
        if queue.is_offered:
            return
        queue.is_offered = True
        if queue.leader_id is None:
            self._leaderless.setdefault(queue.topic_partition.topic, OrderedDict())[queue] = None
        else:
            self._of(queue.leader_id)[queue] = None

    def offer_first(self, queue: PartitionQueue) -> None:
        """Put a partition back at the front: it was its turn, but the request had no room left."""
        assert queue.leader_id is not None
        queue.is_offered = True
        ready = self._of(queue.leader_id)
        ready[queue] = None
        ready.move_to_end(queue, last=False)

    def take_first(self, node_id: int) -> PartitionQueue | None:
        """Take the partition whose turn it is out of a node's queue, or None."""
        ready = self._by_node.get(node_id)
        if not ready:
            return None
        queue, _ = ready.popitem(last=False)
        queue.is_offered = False
        return queue

    def withdraw(self, queue: PartitionQueue) -> None:
        """Take a partition out wherever it stands, if it does: its leader is about to change."""
        if not queue.is_offered:
            return
        queue.is_offered = False
        if queue.leader_id is None:
            topic = queue.topic_partition.topic
            del self._leaderless[topic][queue]
            if not self._leaderless[topic]:
                del self._leaderless[topic]
        else:
            del self._by_node[queue.leader_id][queue]

    def _of(self, node_id: int) -> OrderedDict[PartitionQueue, None]:
        ready = self._by_node.get(node_id)
        if ready is None:
            ready = self._by_node[node_id] = OrderedDict()
        return ready

    @property
    def node_ids(self) -> list[int]:
        """Nodes that lead at least one ready partition."""
        return [node_id for node_id, ready in self._by_node.items() if ready]

    def count(self, node_id: int) -> int:
        return len(self._by_node.get(node_id, ()))

    @property
    def leaderless(self) -> Mapping[str, Collection[PartitionQueue]]:
        """Partitions that have something to send and nobody to send it to, by topic."""
        return self._leaderless

    def __repr__(self) -> str:
        counts = {node_id: len(ready) for node_id, ready in self._by_node.items() if ready}
        return f"<ReadyNodes {counts} leaderless={sum(map(len, self._leaderless.values()))}>"
