"""When a request that failed may be repeated, and why it must be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aioproducer.core.retry_backoff import ExponentialBackoff

SOON_MS: Final = (5, 20)
"""The wait, at first and at most, where the other side is only busy with something that is over in a moment."""


SOON_AT_MOST: Final = 50
"""So often in a row; then, after a second, it was no moment, and the ordinary pauses begin."""


class RequestPacing:
    """The pauses of requests that are asked one at a time.

    Args:
        backoff: between attempts.
    """

    __slots__ = ("_attempts", "_backoff", "_soon", "_soon_attempts", "next_at", "trouble")

    def __init__(self, backoff: ExponentialBackoff) -> None:
        self.next_at = 0.0
        """No request before; monotonic seconds."""
        self.trouble = ""
        """Why the last one must be repeated; empty when it need not."""
        self._backoff = backoff
        self._soon = backoff.within(*SOON_MS)
        self._attempts = 0
        self._soon_attempts = 0

    def again(self, trouble: str, now: float, *, is_soon: bool = False) -> None:
        """Note that a request must be repeated."""
        self.trouble = trouble
        if is_soon and self._soon_attempts < SOON_AT_MOST:
            self.next_at = now + self._soon.delay_s(self._soon_attempts)
            self._soon_attempts += 1
        else:
            self.next_at = now + self._backoff.delay_s(self._attempts)
            self._attempts += 1

    def passed(self) -> None:
        """Note that a request need not be repeated."""
        self._attempts = self._soon_attempts = 0
        self.trouble = ""

    def __repr__(self) -> str:
        """Show how often the request at hand was tried in vain."""
        return f"<RequestPacing attempts={self._attempts + self._soon_attempts} trouble={self.trouble!r}>"
