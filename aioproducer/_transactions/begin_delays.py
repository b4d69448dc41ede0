"""Reasons to begin a transaction, or to send its first record, a little later.

A copy of a request that was never answered may still arrive. A coordinator refuses most copies for their old epoch,
but two do harm. A late InitProducerId aborts the open transaction and fences this producer. A late TxnOffsetCommit is
refused, but Kafka 3.9's group coordinator then drops the pending offsets of the same producer id: the open
transaction would be committed without them.

A copy does so only at the node that it was sent to, while that node is the coordinator; any other refuses it
unread. So if another node has answered in the end, because the first one died, nothing waits. Otherwise the next
transaction begins later. It must not begin and then wait: the coordinator would count its time, and readers would
wait with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer._protocol.messages import INIT_PRODUCER_ID
from aioproducer._protocol.transaction_messages import TXN_OFFSET_COMMIT
from aioproducer._timing.timers import TICK_S

if TYPE_CHECKING:
    from aioproducer._transactions.requests import Coordinator, TransactionRequest


class StrayRequests:
    """Requests that may still arrive at a coordinator, and the delay of the next transaction because of them.

    Args:
        lifetime_s: time after which a request that was given up no longer arrives.
    """

    __slots__ = ("_given_up", "_lifetime_s")

    def __init__(self, lifetime_s: float) -> None:
        self._lifetime_s = lifetime_s
        self._given_up: dict[Coordinator, dict[int, float]] = {}  # times, by coordinator and node

    def unanswered(self, request: TransactionRequest, node_id: int | None, now: float, *, is_v2: bool) -> None:
        """Note a request without a response; a first InitProducerId fences every older producer anyway."""
        is_renewal = request.api is INIT_PRODUCER_ID and request.subject is not None
        if node_id is not None and (is_renewal or (request.api is TXN_OFFSET_COMMIT and not is_v2)):
            self._given_up.setdefault(request.coordinator, {})[node_id] = now

    def answered(self, request: TransactionRequest, node_id: int) -> None:
        """Note that a node has done a request: it is the coordinator, and earlier nodes no longer are."""
        if request.api in {INIT_PRODUCER_ID, TXN_OFFSET_COMMIT} and request.coordinator in self._given_up:
            # A copy does harm only at the node it was sent to, and only while that node is the coordinator.
            before = self._given_up.pop(request.coordinator)
            if node_id in before:
                self._given_up[request.coordinator] = {node_id: before[node_id]}

    @property
    def begin_at(self) -> float:
        """Earliest time of the next transaction; monotonic seconds."""
        given_up = [at for nodes in self._given_up.values() for at in nodes.values()]
        return max(given_up) + self._lifetime_s if given_up else 0.0

    def transaction_began(self) -> None:
        self._given_up.clear()


LATE_MARKERS_S: Final = 0.015
"""A first response that took this long has probably waited for markers: the leader checks for them every 20 ms."""
TRANSACTIONS_PER_LATE_ONE: Final = 200
"""In balance, one transaction in about so many is late: with 50 the slowest two of a hundred took 20 ms more."""

_RAISED_BY_S: Final = TICK_S
_LOWERED_BY_S: Final = _RAISED_BY_S / TRANSACTIONS_PER_LATE_ONE
_LONGEST_PAUSE_S: Final = 0.003  # also after responses that are late for another reason, as of a cluster far away


class MarkerBackoff:
    """Pause before the first record of a V2 transaction, in which brokers write the markers of the previous one.

    The coordinator answers EndTxn before the markers are written. A leader does not refuse a Produce that comes
    earlier: it waits for 20 ms (`add.partitions.to.txn.retry.backoff.ms`) and tries again, which is most of the time
    of a small transaction. How long markers take differs from one machine to the next, and with its load. So each
    first response that was late raises the pause, and each other one lowers it a little.
    """

    __slots__ = ("_pause_s", "until")

    def __init__(self) -> None:
        self._pause_s = 0.0
        self.until = 0.0  # end of the pause; monotonic seconds

    def is_over(self, now: float) -> bool:
        """Whether the rest of the pause is too short for a timer of the event loop."""
        # An alarm for less than half of its grain rings at once: the tasks would spin on a core that the broker needs.
        return self.until - now <= TICK_S / 2

    def begin(self, first_response_s: float, now: float) -> None:
        """Begin the pause after a transaction whose first Produce took this long to be answered."""
        changed_by_s = _RAISED_BY_S if first_response_s >= LATE_MARKERS_S else -_LOWERED_BY_S
        self._pause_s = min(max(self._pause_s + changed_by_s, 0.0), _LONGEST_PAUSE_S)
        self.until = now + self._pause_s
