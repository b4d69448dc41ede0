"""Copies of requests that went unanswered, and where one that still arrives would do harm.

Most are refused for their old epoch, and that is all. Two are not so harmless. One of InitProducerId aborts the open
transaction and fences this producer. One of TxnOffsetCommit is refused too, but the coordinator of groups of Kafka 3.9
forgets what is pending of the same producer id with it: the open transaction would be committed without its offsets.

Either does so only at the node that it was sent to, and only while that node is the coordinator; any other refuses it
without a look. So who goes on at another node, because the first one died, need not wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer.protocol.offset_messages import TXN_OFFSET_COMMIT

if TYPE_CHECKING:
    from aioproducer.core.transaction_requests import Coordinator, TransactionRequest

OFFSETS_HELD: Final = "offsets of an earlier transaction may still arrive, and these wait for that"


class LateCopies:
    """What the next transaction has to wait for.

    Args:
        lifetime_s: how long after it was given up a request may still arrive.
    """

    __slots__ = ("_lifetime_s", "_offsets", "_offsets_before", "_renewals", "begin_at", "held_until")

    def __init__(self, lifetime_s: float) -> None:
        self.begin_at = 0.0
        """No transaction begins before; monotonic seconds."""
        self.held_until = 0.0
        """What was asked for last waits until then."""
        self._lifetime_s = lifetime_s
        self._renewals: set[int] = set()
        """Nodes that did not answer InitProducerId."""
        self._offsets: dict[tuple[Coordinator, int], float] = {}
        """Of the transaction that is open, or was last: until when a copy may arrive at a node."""
        self._offsets_before: dict[tuple[Coordinator, int], float] = {}
        """Of those before."""

    def renewal_lost(self, request: TransactionRequest, node_id: int) -> None:
        """Note that InitProducerId had no answer that says what became of it.

        A first one, with no identity, leaves nothing: it fences whoever has the id in any case.
        """
        if request.subject is not None:
            self._renewals.add(node_id)

    def renewed(self, node_id: int, now: float) -> None:
        """Note that a node has answered it."""
        if node_id in self._renewals:
            self.begin_at = now + self._lifetime_s
        self._renewals.clear()

    def unanswered(self, request: TransactionRequest, node_id: int | None, now: float, *, is_v2: bool) -> None:
        """Note that a request had no answer at all; a copy of offsets is harmless in its own transaction."""
        if request.api is TXN_OFFSET_COMMIT and not is_v2 and node_id is not None:
            self._offsets_before = {where: until for where, until in self._offsets_before.items() if until > now}
            self._offsets[request.coordinator, node_id] = now + self._lifetime_s

    def transaction_began(self) -> None:
        """Note that what was lost belongs to an earlier transaction from now on."""
        self._offsets_before |= self._offsets
        self._offsets.clear()

    def holds(self, request: TransactionRequest, node_id: int | None, now: float) -> bool:
        """Whether a request must wait, until `held_until`: offsets, where those of an earlier transaction may come."""
        if request.api is TXN_OFFSET_COMMIT and node_id is not None:
            self.held_until = self._offsets_before.get((request.coordinator, node_id), 0.0)
        return now < self.held_until

    def __repr__(self) -> str:
        """Show how many may still arrive."""
        count = len(self._renewals) + len(self._offsets) + len(self._offsets_before)
        return f"<LateCopies {count} begin_at={self.begin_at:.3f}>"
