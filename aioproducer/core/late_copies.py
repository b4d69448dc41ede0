"""Copies of requests that went unanswered, and what waits for those that would do harm.

Most are refused for their old epoch, and that is all. Two are not so harmless. A late InitProducerId aborts the open
transaction and fences this producer. A late TxnOffsetCommit is refused, but Kafka 3.9's group coordinator then drops
the pending offsets of the same producer id: the open transaction would be committed without them.

Either does so only at the node that it was sent to, while that is the coordinator; any other refuses it without a look.
So where another node has answered in the end, because the first one died, nothing waits. Else the next transaction
begins later: it must not wait when it has begun, for then the coordinator counts its time, and readers wait with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.protocol.messages import INIT_PRODUCER_ID
from aioproducer.protocol.offset_messages import TXN_OFFSET_COMMIT

if TYPE_CHECKING:
    from aioproducer.core.transaction_requests import Coordinator, TransactionRequest


class LateCopies:
    """What the next transaction has to wait for.

    Args:
        lifetime_s: how long after it was given up a request may still arrive.
    """

    __slots__ = ("_given_up", "_lifetime_s")

    def __init__(self, lifetime_s: float) -> None:
        self._lifetime_s = lifetime_s
        self._given_up: dict[Coordinator, dict[int, float]] = {}
        """When, by coordinator and node."""

    def unanswered(self, request: TransactionRequest, node_id: int | None, now: float, *, is_v2: bool) -> None:
        """Note that a request was given up; not a first InitProducerId, which fences whoever has the id anyway."""
        is_renewal = request.api is INIT_PRODUCER_ID and request.subject is not None
        if node_id is not None and (is_renewal or (request.api is TXN_OFFSET_COMMIT and not is_v2)):
            self._given_up.setdefault(request.coordinator, {})[node_id] = now

    def answered(self, request: TransactionRequest, node_id: int) -> None:
        """Note that a node has done what was asked: it is the coordinator, and those before are not any more."""
        if request.api in {INIT_PRODUCER_ID, TXN_OFFSET_COMMIT} and request.coordinator in self._given_up:
            before = self._given_up.pop(request.coordinator)
            if node_id in before:
                self._given_up[request.coordinator] = {node_id: before[node_id]}

    @property
    def begin_at(self) -> float:
        """No transaction begins before; monotonic seconds."""
        given_up = [at for nodes in self._given_up.values() for at in nodes.values()]
        return max(given_up) + self._lifetime_s if given_up else 0.0

    def transaction_began(self) -> None:
        """Note that what was lost before has arrived by now, or never will."""
        self._given_up.clear()

    def __repr__(self) -> str:
        """Show how many may still arrive."""
        return f"<LateCopies {sum(map(len, self._given_up.values()))} begin_at={self.begin_at:.3f}>"
