"""A record's deadline that counts from a call on another thread."""

from __future__ import annotations

import time

from aioproducer.errors import DeliveryTimeoutError, Outcome
from aioproducer.records import check_deadline


class CallDeadline(float):
    """Seconds as given, for the `deadline` of a send method, with the time at which they are over.

    The event loop comes to the record later; errors name the seconds that the user gave.
    """

    __slots__ = ("at",)

    at: float  # `time.monotonic`

    @classmethod
    def of(cls, seconds: float, delivery_timeout_ms: int) -> CallDeadline:
        """Let a deadline count from now.

        Raises:
            TypeError, ValueError: not a number of seconds up to `delivery_timeout_ms`.
        """
        check_deadline(seconds, delivery_timeout_ms)
        deadline = cls(seconds)
        deadline.at = time.monotonic() + seconds
        return deadline

    @property
    def left_s(self) -> float:
        return self.at - time.monotonic()

    def over(self) -> DeliveryTimeoutError:
        """Return the error of a record that the producer did not get in time."""
        text = (
            f"deadline={self:g} was over before the event loop came to the record: earlier records wait for "
            "their topic or for room, or the loop was busy"
        )
        return DeliveryTimeoutError(text, outcome=Outcome.NOT_WRITTEN)


def from_call(seconds: float | None, delivery_timeout_ms: int) -> float | None:
    """Let a deadline count from now; an invalid one stays, and is refused when the record is sent."""
    if seconds is None:
        return None
    try:
        return CallDeadline.of(seconds, delivery_timeout_ms)
    except (TypeError, ValueError):
        return seconds
