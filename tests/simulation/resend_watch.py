"""Looks at how often, and how soon after each other, the same is asked: what `retries` and backoff are for.

A batch is known by its checksum, which its identity and its records decide. Its first attempts may follow each other
at once, because its leader has moved in between; a producer that knows no pause sends it again and again, or asks
so for a producer id. Where a broker may say CONCURRENT_TRANSACTIONS, the pause is short.
"""

from collections import deque
from typing import Final

from aioproducer.core.request_pacing import SOON_MS
from tests.simulation.history import History
from tests.simulation.plan import Plan

AT_ONCE: Final = 3
"""Attempts at one node that may follow each other within a pause: leaders move away and back."""

SPREAD: Final = 0.8
"""Of a pause, what chance leaves of it at least."""


class ResendWatch:
    """Sees the batches of one run on the wire.

    Args:
        history: is told of attempts that should not have been.
        plan: says how many attempts there are, and how long the pause is.
    """

    def __init__(self, history: History, plan: Plan) -> None:
        options = plan.options
        self._history = history
        self._most = plan.number("retries") + 1 if "retries" in options else None
        pause_ms = min(plan.number("retry_backoff_ms"), plan.number("retry_backoff_max_ms"))
        may_be_busy = plan.family.is_transactional or "codes" in plan.enabled
        self._batch_pause_s = SPREAD * (min(SOON_MS[0], pause_ms) if may_be_busy else pause_ms) / 1000
        self._pause_s = SPREAD * pause_ms / 1000
        self._attempts: dict[tuple[object, ...], int] = {}
        self._asked_for_id: deque[float] = deque(maxlen=AT_ONCE)
        self._lately: dict[tuple[object, ...], deque[float]] = {}

    def sent(self, batch: tuple[object, ...], node: int, now: float) -> None:
        """Look at one attempt to send a batch."""
        count = self._attempts[batch] = self._attempts.get(batch, 0) + 1
        if self._most is not None and count > self._most:
            self._history.violated("RETRIES", f"attempt {count} of {batch}, of {self._most} allowed")
        lately = self._lately.setdefault((*batch, node), deque(maxlen=AT_ONCE))
        self._look_at_pace(lately, self._batch_pause_s, now, what=f"attempts of {batch} at node {node}")

    def asked_for_id(self, now: float) -> None:
        """Look at one InitProducerId of a producer without a transactional id."""
        self._look_at_pace(self._asked_for_id, self._pause_s, now, what="questions for a producer id")

    def _look_at_pace(self, lately: deque[float], pause_s: float, now: float, *, what: str) -> None:
        if len(lately) == AT_ONCE and now < lately[0] + pause_s:
            self._history.violated("I22", f"{AT_ONCE + 1} {what} in {now - lately[0]:.6f} s")
        lately.append(now)
