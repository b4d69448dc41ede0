"""Nodes that keyless records go to: those that take batches, and of these the ones in the client's rack.

Source: NodeLatencyStats of RecordAccumulator (KIP-794), and BuiltInPartitioner (KIP-1123), in Apache Kafka. There a
node's time runs from its last drain, so that one that was idle is unavailable as soon as a batch waits for it; here it
runs from the first turn in which a batch waited.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer._timing.timers import Timer, TimerHeap
    from aioproducer.cluster import Cluster


class PreferredNodes:
    """Nodes by availability and rack.

    Args:
        on_unavailable: called with a node when it becomes unavailable.
        availability_timeout_s: how long ready batches may wait for a node; 0: without end.
        rack: the client's, if leaders in it are preferred.
    """

    def __init__(
        self,
        timers: TimerHeap,
        *,
        on_unavailable: Callable[[int], None],
        availability_timeout_s: float = 0.0,
        rack: str | None = None,
    ) -> None:
        self._timers = timers
        self._on_unavailable = on_unavailable
        self._timeout_s = availability_timeout_s
        self._rack = rack
        self._nearby: frozenset[int] = frozenset()
        self.waits: dict[int, Timer] = {}  # by node with ready batches that could not be drained
        self._unavailable: set[int] = set()

    def update(self, cluster: Cluster) -> None:
        if self._rack is not None:
            self._nearby = frozenset(node.id for node in cluster.nodes.values() if node.rack == self._rack)

    def note_waiting(self, node_id: int, now: float) -> None:
        """Note that a node has ready batches and takes no request now."""
        if self._timeout_s and node_id not in self.waits:
            self.waits[node_id] = self._timers.schedule(now + self._timeout_s, partial(self._waits_too_long, node_id))

    def note_drained(self, node_id: int) -> None:
        """Note that a node takes batches, or that none waits for it any more."""
        timer = self.waits.pop(node_id, None)
        if timer is not None:
            timer.cancel()
            self._unavailable.discard(node_id)

    def _waits_too_long(self, node_id: int, now: float) -> None:  # noqa: ARG002  # a timer's callback
        self._unavailable.add(node_id)
        self._on_unavailable(node_id)

    def of(self, leaders: frozenset[int]) -> frozenset[int]:
        """Return the preferred ones of these nodes; all of them if none is preferred."""
        if not self._nearby and not self._unavailable:
            return leaders
        available = leaders - self._unavailable or leaders
        return available & self._nearby or available

    def is_far(self, node_id: int) -> bool:
        """Whether a node is outside the client's rack, while others are in it."""
        return bool(self._nearby) and node_id not in self._nearby
