"""When a request that failed may be repeated, and why it must be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aioproducer.core.retry_backoff import ExponentialBackoff

SOON_MS: Final = (1, 20)
"""The wait, at first and at most, where the other side is only busy with something that is over in a moment."""


SOON_AT_MOST: Final = 50
"""How many attempts are made at this pace, a second in all; whatever takes longer is asked at the ordinary pace."""


class RequestPacing:
    """The pauses of requests that are asked one at a time.

    Args:
        backoff: between attempts.
    """

    __slots__ = ("_attempts", "_backoff", "_soon", "next_at", "trouble")

    def __init__(self, backoff: ExponentialBackoff) -> None:
        self.next_at = 0.0
        """No request before; monotonic seconds."""
        self.trouble = ""
        """Why the last one must be repeated; empty when it need not."""
        self._backoff = backoff
        self._soon = backoff.within(*SOON_MS)
        self._attempts = 0

    def again(self, trouble: str, now: float, *, is_soon: bool = False) -> None:
        """Note that a request must be repeated."""
        backoff = self._soon if is_soon and self._attempts < SOON_AT_MOST else self._backoff
        self.trouble = trouble
        self.next_at = now + backoff.delay_s(self._attempts)
        self._attempts += 1

    def passed(self) -> None:
        """Note that a request need not be repeated."""
        self._attempts = 0
        self.trouble = ""

    def __repr__(self) -> str:
        """Show how often the request at hand was tried in vain."""
        return f"<RequestPacing attempts={self._attempts} trouble={self.trouble!r}>"
