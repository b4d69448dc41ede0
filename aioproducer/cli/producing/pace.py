"""How long to wait before the next record, so that no more than so many go a second."""

MAX_CATCH_UP_S = 0.1
"""After a standstill, at most the records of so long go at once."""


class Pace:
    """A steady pace.

    Args:
        records_per_s: above 0.
        now: monotonic seconds; the first record may go then.
    """

    __slots__ = ("_interval_s", "_next_at")

    def __init__(self, records_per_s: float, now: float) -> None:
        self._interval_s = 1 / records_per_s
        self._next_at = now

    def next_delay_s(self, now: float) -> float:
        """Take the next record's turn; returns the seconds until it, 0 or less when it has come."""
        turn = max(self._next_at, now - MAX_CATCH_UP_S)
        self._next_at = turn + self._interval_s
        return turn - now
