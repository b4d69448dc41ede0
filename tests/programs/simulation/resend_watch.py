"""Looks at how often, and how soon after each other, the same is asked: what `retries` and backoff are for.

A batch is known by its checksum, which its identity and its records decide. Its first attempts may follow each other
at once, because its leader has moved in between; a producer that knows no pause sends it again and again, or asks
so for a producer id. Where a broker may say CONCURRENT_TRANSACTIONS, the pause is short. Where no leader moves, each
pause is twice as long as the one before. What repetition is unlikely to change is repeated few times.
"""

from collections import Counter, deque
from typing import Final

from aioproducer._protocol.error_codes import ErrorCode
from tests.programs.simulation.history import History
from tests.programs.simulation.plan import Plan

AT_ONCE: Final = 3  # attempts at one node that may follow each other within a pause: leaders move away and back

SPREAD: Final = 0.8

FEW_RETRIES: Final = 3  # attempts of what a broker refuses by one of `FEW`; the next refusal ends it
SOON_MS: Final = 1  # the first pause where a broker may say CONCURRENT_TRANSACTIONS

FEW: Final = frozenset(int(code) for code in ErrorCode if code.few_retries)
"""Codes that a broker gives again and again: the bytes are bad, or the version is."""

BEHIND: Final = int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
"""Code of a batch behind a refused one: it may follow that one without a pause."""

COUNTED: Final = FEW | {int(ErrorCode.CONCURRENT_TRANSACTIONS), BEHIND}
"""Codes that change how often a batch may be sent."""

MOVING: Final = frozenset(
    (
        "stale metadata",
        "no leader",
        "crash",
        "crash with loss",
        "topic changes",
        "cluster moves",
        "outage",
        "lies",
        "hostile bytes",
    )
)
"""Faults after which leaders move, and batches follow them without a pause."""

Key = tuple[int, int]


class ResendWatch:
    """Sees the batches of one run on the wire."""

    def __init__(self, history: History, plan: Plan) -> None:
        options = plan.options
        self.is_told_all = True
        self._history = history
        self._most = plan.number("retries") + 1 if "retries" in options else None
        pause_ms = min(plan.number("retry_backoff_ms"), plan.number("retry_backoff_max_ms"))
        may_be_busy = plan.family.is_transactional or "codes" in plan.enabled
        self._batch_pause_s = SPREAD * (min(SOON_MS, pause_ms) if may_be_busy else pause_ms) / 1000
        self._pause_s = SPREAD * pause_ms / 1000
        self._attempts: dict[tuple[object, ...], int] = {}
        self._asked_for_id: deque[float] = deque(maxlen=AT_ONCE)
        self._lately: dict[tuple[object, ...], deque[float]] = {}
        self._last: dict[tuple[object, ...], float] = {}  # when a batch was sent the last time
        self._grows = not may_be_busy and not MOVING & set(plan.enabled)
        self._first_ms, self._most_ms = plan.number("retry_backoff_ms"), plan.number("retry_backoff_max_ms")
        self._in_request: dict[Key, dict[int, tuple[object, ...]]] = {}  # unanswered batches, by partition
        self._bad: dict[Key, list[tuple[object, ...]]] = {}  # batches in answers that have not arrived
        self._put_off: dict[Key, list[tuple[object, ...]]] = {}  # such batches, to be sent again in a moment
        self._held_up: dict[Key, list[tuple[object, ...]]] = {}  # such batches, refused because of one before them
        self._may_follow: set[tuple[object, ...]] = set()  # those of them that have not been sent again
        self._allowed: Counter[tuple[object, ...]] = Counter()  # attempts beyond `retries`: brokers had no time
        self._ended: set[tuple[object, ...]] = set()

    def sent(self, batch: tuple[object, ...], node: int, now: float) -> None:
        """Look at one attempt to send a batch."""
        count = self._attempts[batch] = self._attempts.get(batch, 0) + 1
        if batch in self._ended:
            self._history.violated("RETRIES", f"attempt {count} of {batch}, which was refused for good")
        may_follow = batch in self._may_follow
        self._may_follow.discard(batch)
        if count > 1 and self._grows and not may_follow:
            self._look_at_growth(batch, count - 1 - self._allowed[batch], now)
        self._last[batch] = now
        if self._most is not None and count > self._most + self._allowed[batch]:
            self._history.violated("RETRIES", f"attempt {count} of {batch}, of {self._most} allowed")
        if may_follow:
            return
        lately = self._lately.setdefault((*batch, node), deque(maxlen=AT_ONCE))
        self._look_at_pace(lately, self._batch_pause_s, now, what=f"attempts of {batch} at node {node}")

    def asked(self, key: Key, partition: int, batch: tuple[object, ...]) -> None:
        """Note by which request a batch goes."""
        self._in_request.setdefault(key, {})[partition] = batch

    def refused(self, key: Key, partition: int, code: int) -> None:
        """Look at what a broker answers for one batch, one of `COUNTED`."""
        batch = self._in_request.get(key, {}).get(partition)
        if batch is not None and code == ErrorCode.CONCURRENT_TRANSACTIONS:
            self._put_off.setdefault(key, []).append(batch)
        if batch is not None and code == BEHIND:
            self._held_up.setdefault(key, []).append(batch)
        if batch is not None and code in FEW and self._attempts[batch] > FEW_RETRIES:
            self._bad.setdefault(key, []).append(batch)

    def answered(self, key: Key, *, is_heard: bool = True) -> None:
        """Note that an answer has arrived: what it says is known from now on, if its bytes are what was answered."""
        self._in_request.pop(key, None)
        bad = self._bad.pop(key, ())
        if is_heard and self.is_told_all:
            self._ended.update(bad)
        held_up = self._held_up.pop(key, ())
        self._may_follow.update(held_up)
        self._allowed.update((*held_up, *self._put_off.pop(key, ())))

    def _look_at_growth(self, batch: tuple[object, ...], failures: int, now: float) -> None:
        pause_s = SPREAD * min(self._first_ms << min(failures - 1, 20), self._most_ms) / 1000
        if now < self._last[batch] + pause_s:
            passed_s = now - self._last[batch]
            self._history.violated("PACE", f"{batch} is sent again after {passed_s:.6f} s, failure {failures}")

    def asked_for_id(self, now: float) -> None:
        """Look at one InitProducerId of a producer without a transactional id."""
        self._look_at_pace(self._asked_for_id, self._pause_s, now, what="questions for a producer id")

    def _look_at_pace(self, lately: deque[float], pause_s: float, now: float, *, what: str) -> None:
        if len(lately) == AT_ONCE and now < lately[0] + pause_s:
            self._history.violated("PACE", f"{AT_ONCE + 1} {what} in {now - lately[0]:.6f} s")
        lately.append(now)
