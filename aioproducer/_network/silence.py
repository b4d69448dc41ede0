"""Whether brokers answer: times of questions, answers and failures, over all connections of a producer. No I/O."""

from __future__ import annotations

import math
from typing import Final

_FRESH_S: Final = 0.25  # a response that is no older shows that brokers answer


class Silence:
    """Times of questions and answers, in monotonic seconds; a question is asked until any broker answers."""

    __slots__ = ("_asked_at", "_failed_at", "answered_at")

    def __init__(self) -> None:
        self.answered_at = -math.inf  # to any request, except those of a handshake: they show no broker that works
        self._asked_at = math.inf
        self._failed_at = -math.inf

    def asked(self, now: float) -> None:
        """Note that some broker is asked, though it may have to be connected to first."""
        self._asked_at = min(self._asked_at, now)

    def answered(self) -> None:
        """Note that the question was answered, be it with a refusal."""
        self._asked_at = math.inf

    def failed(self, now: float) -> None:
        """Note that asking has failed at all brokers, unless one has answered with a refusal."""
        if self._asked_at < math.inf:
            self._failed_at = now

    @property
    def is_out_of_reach(self) -> bool:
        """Whether all brokers have failed since one has last answered."""
        return self._failed_at > self.answered_at

    def for_s(self, now: float) -> float:
        """Return for how long no broker has answered although asked; 0.0 if none is asked."""
        return max(0.0, now - max(self._asked_at, self.answered_at))

    def is_worth_asking(self, now: float) -> bool:
        """Whether no broker has just answered, and none is asked."""
        return self._asked_at == math.inf and now - self.answered_at >= _FRESH_S
