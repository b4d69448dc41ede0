"""Watches the pace of a transactional producer's requests to its coordinators, and the identity in them.

What is refused for the moment is asked again, with the same content, after the pauses that the options name: each
twice as long as the one before, up to `retry_backoff_max_ms`, and short where the last transaction is not over yet.
A request that is done makes the next pause the first again.
"""

from typing import Final

from aioproducer._protocol.error_codes import ErrorCode
from aioproducer.testing import ApiKey
from tests.programs.simulation.history import History
from tests.programs.simulation.plan import Plan

ASKED: Final = frozenset(
    int(api)
    for api in (
        ApiKey.FIND_COORDINATOR,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN,
    )
)

SPREAD: Final = (0.8, 1.2)

SLACK_S: Final = 0.05

SOON_MS: Final = (1, 20)  # the first and the longest pause where the last transaction is not over yet
SOON_AT_MOST: Final = 50  # attempts after such pauses; then those of the options follow

_FIRST: Final = frozenset((int(ApiKey.FIND_COORDINATOR), int(ApiKey.DESCRIBE_TRANSACTIONS)))
"""Requests that precede another request, whose attempts are counted."""

_CORRELATION: Final = slice(8, 12)

Key = tuple[int, int]


class AskingWatch:
    """Sees the requests to coordinators of one run."""

    def __init__(self, history: History, plan: Plan) -> None:
        self._violated = history.violated
        self._first_ms = plan.number("retry_backoff_ms")
        self._most_ms = plan.number("retry_backoff_max_ms")
        self._may_be_throttled = "throttle" in plan.enabled
        self._last: bytes | None = None  # what was asked, but for what is asked first
        self._key: Key | None = None
        self._asked_at = 0.0
        self._attempts = 0
        self._finds = 0
        self._is_soon = False
        self._heard_at: float | None = None  # when the last answer came; None: none has
        self._is_clean = False  # whether nothing but refusals has lengthened the pauses since a request was done
        self._was_done = True
        self._is_over = False  # done, and the response has arrived: the same again is another request

    def asked(self, key: Key, api: int, frame: bytes, *, now: float) -> None:
        """Look at a request as it is written."""
        content = frame[4 : _CORRELATION.start] + frame[_CORRELATION.stop :]
        if api in _FIRST:
            self._finds += 1
            self._heard_at = None  # what it waits for now is the answer to this
            return
        if self._last == content and not self._is_over:
            self._look_at_pace(key, now, ApiKey(api).name)
            self._attempts += 1
        else:
            self._is_clean = self._was_done and not self._finds
            self._attempts, self._finds = 1, 0
        self._last = content
        self._key, self._asked_at, self._heard_at = key, now, None
        self._is_soon = self._was_done = self._is_over = False

    def observed(self, key: Key, codes: list[int]) -> None:
        """Look at an answer as a broker gives it."""
        if key == self._key:
            self._is_soon = ErrorCode.CONCURRENT_TRANSACTIONS in codes
            self._was_done = not any(codes)

    def answered(self, key: Key, now: float) -> None:
        """Look at an answer as it arrives."""
        if key == self._key:
            self._heard_at = now
            self._is_over = self._was_done

    def disturbed(self) -> None:
        """A connection is lost, or made: the number of attempts cannot be seen."""
        self._is_clean = False

    def _look_at_pace(self, key: Key, now: float, name: str) -> None:
        """PACE: not too soon for the coordinator, and not too late for the waiter."""
        pause_s = self._pause_s(self._attempts - 1) * SPREAD[0]
        if now < self._asked_at + pause_s:
            self._violated(
                "PACE", f"{name} is asked again after {now - self._asked_at:.6f} s, attempt {self._attempts}"
            )
        is_known = self._is_clean and not self._may_be_throttled and self._key is not None and key[0] == self._key[0]
        longest_s = self._pause_s(self._attempts - 1 + self._finds) * SPREAD[1] + SLACK_S
        if is_known and self._heard_at is not None and now > self._heard_at + longest_s:
            waited_s = now - self._heard_at
            self._violated("PACE", f"{name} is asked again only after {waited_s:.6f} s, attempt {self._attempts}")

    def _pause_s(self, doublings: int) -> float:
        first_ms, most_ms = self._first_ms, self._most_ms
        if self._is_soon and doublings < SOON_AT_MOST:
            first_ms, most_ms = min(first_ms, SOON_MS[0]), min(most_ms, SOON_MS[1])
        return min(first_ms << min(doublings, 20), most_ms) / 1000
