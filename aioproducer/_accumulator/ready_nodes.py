"""Which partitions have something to send, by the node that leads them.

A partition enters its leader's queue at the moment its first batch becomes sendable, and leaves it from the front
when it is drained. Nothing ever looks through partitions that have nothing to send, so ten thousand idle ones cost
nothing; and no partition starves, because one that has more goes to the end.

Source: the `ready` and `drain` scans of RecordAccumulator in Apache Kafka, kept as it changes instead.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from aioproducer._accumulator.partition_queue import PartitionQueue


class ReadyNodes:
    """Queues of ready partitions by node id, and the ready partitions that no node leads."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """Start with nothing ready; `wake` is called when a partition becomes ready."""
        self._wake = wake
        self._by_node: dict[int, OrderedDict[PartitionQueue, None]] = {}
        self._leaderless: dict[str, OrderedDict[PartitionQueue, None]] = {}

    def offer(self, queue: PartitionQueue) -> None:
        """Add a partition if it has a batch that may be sent, and wake the sender."""
        if queue.first_sendable() is not None:
            self.add(queue)
            self._wake()

    def move(self, queue: PartitionQueue, leader_id: int | None) -> None:
        """Give a partition another leader; None if it has none."""
        self.withdraw(queue)
        queue.leader_id = leader_id
        queue.identity.require_confirmation()
        for batch in queue.queued:
            batch.not_before = 0.0
        self.offer(queue)

    def add(self, queue: PartitionQueue) -> None:
        """Put a partition at the end of its leader's queue, unless it is there already."""
        if queue.is_offered:
            return
        queue.is_offered = True
        if queue.leader_id is None:
            self._leaderless.setdefault(queue.topic_partition.topic, OrderedDict())[queue] = None
        else:
            self._of(queue.leader_id)[queue] = None

    def offer_first(self, queue: PartitionQueue) -> None:
        """Put a partition back at the front: the request had no room left for its batch."""
        assert queue.leader_id is not None
        queue.is_offered = True
        ready = self._of(queue.leader_id)
        ready[queue] = None
        ready.move_to_end(queue, last=False)

    def take_first(self, node_id: int) -> PartitionQueue | None:
        """Take the first partition out of a node's queue; None if the queue is empty."""
        ready = self._by_node.get(node_id)
        if not ready:
            return None
        queue, _ = ready.popitem(last=False)
        queue.is_offered = False
        return queue

    def withdraw(self, queue: PartitionQueue) -> None:
        """Take a partition out of its queue, if it is in one."""
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
        """How many ready partitions a node leads."""
        return len(self._by_node.get(node_id, ()))

    @property
    def leaderless(self) -> Mapping[str, Collection[PartitionQueue]]:
        """Ready partitions without a leader, by topic."""
        return self._leaderless

    def __repr__(self) -> str:
        """Show how many partitions are ready at which node."""
        counts = {node_id: len(ready) for node_id, ready in self._by_node.items() if ready}
        return f"<ReadyNodes {counts} leaderless={sum(map(len, self._leaderless.values()))}>"
