"""Copies of requests that went unanswered, and what waits for those that would do harm.

Most are refused for their old epoch, and that is all. Two are not so harmless. A late InitProducerId aborts the open
transaction and fences this producer. A late TxnOffsetCommit is refused, but Kafka 3.9's group coordinator then drops
the pending offsets of the same producer id: the open transaction would be committed without them.

Either does so only at the node that it was sent to, while that is the coordinator; any other refuses it without a look.
So where another node has answered in the end, because the first one died, nothing waits. Else the next transaction
begins later: it must not wait when it has begun, for then the coordinator counts its time, and readers wait with it.

How long the first records of a transaction of version 2 wait for the markers of the last one.

EndTxn is answered before the markers are written. A Produce that comes too early is not refused: the leader waits
20 ms (`add.partitions.to.txn.retry.backoff.ms`) and tries again. Between two small transactions that is most of the
time, and a millisecond's patience here saves it. How much is needed differs from cluster to cluster and from hour to
hour, so it is learnt: more after each first answer that took as long as that wait, a little less after each other
that records had waited for. A transaction begins at once; what its caller does until the first record is no wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer._protocol.messages import INIT_PRODUCER_ID
from aioproducer._protocol.offset_messages import TXN_OFFSET_COMMIT
from aioproducer._timing.timers import TICK_S

if TYPE_CHECKING:
    from aioproducer._transactions.requests import Coordinator, TransactionRequest


class StrayRequests:
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
        # Under V1 a late TxnOffsetCommit is refused and still removes the next transaction's pending offsets: EndTxn
        # would commit the output without them (Kafka 3.9.1).
        is_renewal = request.api is INIT_PRODUCER_ID and request.subject is not None
        if node_id is not None and (is_renewal or (request.api is TXN_OFFSET_COMMIT and not is_v2)):
            self._given_up.setdefault(request.coordinator, {})[node_id] = now

    def answered(self, request: TransactionRequest, node_id: int) -> None:
        """Note that a node has done what was asked: it is the coordinator, and those before are not any more."""
        if request.api in {INIT_PRODUCER_ID, TXN_OFFSET_COMMIT} and request.coordinator in self._given_up:
            # A copy does harm only at the node it was sent to, and only while that node is the coordinator.
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


BROKER_WAITS_S: Final = 0.020
STEP_S: Final = 0.0005
"""What a wait of the broker's adds to the pause."""

LONGEST_S: Final = 0.010
"""With more than this the pause costs about as much as it saves."""

FAST_S: Final = 0.005
"""What an answer that did not wait is assumed to take until one is known: the first is no guide, it may take three
times as long, and each later one may have waited.
"""

EASED: Final = 0.99
"""What is left of the pause after an answer that did not wait."""

SHORTEST_REST: Final = 16
LONGEST_REST: Final = 1_000
"""How many transactions go without a pause once it would have passed `LONGEST_S`: twice as many each time, and fewer
again the longer it does not. A broker just started takes long for its first hundreds, and is much faster then.
"""


class MarkerBackoff:
    """The pause, and what it has learnt from.

    Args:
        grain_s: of whoever keeps it, who cannot wait for less.
    """

    __slots__ = ("_fastest_s", "_grain_s", "_next_rest", "_rest", "has_held", "seconds", "until")

    def __init__(self, grain_s: float = TICK_S) -> None:
        self._grain_s = grain_s
        self.seconds = 0.0
        """From the answer to EndTxn to the next record."""
        self.until = 0.0
        """The end of the pause; monotonic seconds."""
        self.has_held = False
        """Whether something waited for it."""
        self._fastest_s = FAST_S
        self._rest = 0
        self._next_rest: float = SHORTEST_REST

    def is_over(self, now: float) -> bool:
        """Whether nothing is left of it that could be waited for."""
        # An alarm for less than half of its grain rings at once: the tasks would spin on a core that the broker needs.
        return self.until - now <= self._grain_s / 2

    def begin(self, first_answer_s: float, now: float) -> None:
        """Begin the pause after a transaction, whose first Produce took so long to be answered."""
        self._learn(first_answer_s)
        self.until = now + self.seconds
        self.has_held = False

    def _learn(self, first_answer_s: float) -> None:
        self._fastest_s = min(self._fastest_s * (2 - EASED), first_answer_s)
        has_waited = first_answer_s > self._fastest_s + 0.75 * BROKER_WAITS_S
        if self._rest:
            self._rest -= 1
        elif not has_waited and self.has_held:
            self.seconds *= EASED
            self._next_rest = max(SHORTEST_REST, self._next_rest * EASED)
        elif has_waited and self.seconds + STEP_S > LONGEST_S:
            self.seconds, self._rest = 0.0, round(self._next_rest)
            self._next_rest = min(2 * self._next_rest, LONGEST_REST)
        elif has_waited:
            self.seconds += STEP_S

    def __repr__(self) -> str:
        """Show how long it is."""
        return f"<MarkerPause seconds={self.seconds:.4f}>"
