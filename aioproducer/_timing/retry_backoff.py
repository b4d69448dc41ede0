"""Delay before the next attempt: exponential, capped, with jitter.

The jitter keeps ten thousand clients that lost the same broker from coming back at the same moment.

Source: ExponentialBackoff of Apache Kafka's clients, KIP-144, KIP-580.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from aioproducer.errors import KafkaError

DEFAULT_JITTER: Final = 0.2
_LAST_DOUBLING: Final = 62  # the cap is reached long before


class RandomSource(Protocol):
    """The used part of `random.Random`, injected so that tests are repeatable."""

    def uniform(self, a: float, b: float, /) -> float:
        """Return a float between a and b."""

    def randrange(self, stop: int, /) -> int:
        """Return a number from 0 to `stop` - 1."""


class ExponentialBackoff:
    """Doubles from `initial_ms` to `max_ms`, with up to `jitter` added or subtracted.

    Args:
        initial_ms: before the second attempt; 0 = never wait.
        max_ms: upper bound, jitter included; takes precedence over `initial_ms`.
        jitter: 0.0 to below 1.0.
    """

    __slots__ = ("_initial_ms", "_jitter", "_max_ms", "_random")

    def __init__(self, initial_ms: int, max_ms: int, jitter: float = DEFAULT_JITTER, *, random: RandomSource) -> None:
        self._initial_ms = min(initial_ms, max_ms)
        self._max_ms = max_ms
        self._jitter = jitter
        self._random = random

    def within(self, initial_ms: int, max_ms: int) -> ExponentialBackoff:
        return ExponentialBackoff(
            min(initial_ms, self._initial_ms), min(max_ms, self._max_ms), jitter=self._jitter, random=self._random
        )

    def delay_s(self, attempt: int) -> float:
        """Return seconds to wait; `attempt` is the number of failures so far, minus one."""
        plain_ms: float = min(self._max_ms, self._initial_ms * (1 << min(attempt, _LAST_DOUBLING)))
        if self._jitter:
            plain_ms *= self._random.uniform(1 - self._jitter, 1 + self._jitter)
        return min(plain_ms, self._max_ms) / 1000

    def __repr__(self) -> str:
        return f"ExponentialBackoff({self._initial_ms} to {self._max_ms} ms, jitter {self._jitter})"


SOON_MS: Final = (1, 20)  # first and longest wait for a broker that is busy for a moment
SOON_AT_MOST: Final = 50  # attempts with these waits, a second in all; later ones use the ordinary backoff


class RequestPacing:
    """Pauses between requests that are sent one at a time."""

    __slots__ = ("_attempts", "_backoff", "_soon", "error", "next_at", "trouble")

    def __init__(self, backoff: ExponentialBackoff) -> None:
        self.next_at = 0.0  # earliest time of the next request; monotonic seconds
        self.trouble = ""  # why the last request must be repeated; empty if it need not be
        self.error: KafkaError | None = None  # of the last request, if it must be repeated
        self._backoff = backoff
        self._soon = backoff.within(*SOON_MS)
        self._attempts = 0

    def again(self, trouble: str, now: float, *, error: KafkaError, is_soon: bool = False) -> None:
        backoff = self._soon if is_soon and self._attempts < SOON_AT_MOST else self._backoff
        self.trouble, self.error = trouble, error
        self.next_at = now + backoff.delay_s(self._attempts)
        self._attempts += 1

    def passed(self) -> None:
        self._attempts = 0
        self.trouble, self.error = "", None

    def __repr__(self) -> str:
        return f"<RequestPacing attempts={self._attempts} trouble={self.trouble!r}>"
