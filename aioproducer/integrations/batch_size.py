"""How many records a transaction may have, by how fast the caller's code has worked through the last ones.

A coordinator aborts a transaction that is open for too long. The same records take as long the next time, so a batch
that is too large for the code would be tried for ever, and nothing of it ever committed. Where one record alone is to
blame, those before it are fast: so the size grows step by step, and is down to one when that record is the next.

Pure; `aiokafka.py` acts on it.
"""

from __future__ import annotations

from typing import Final

SHARE: Final = 0.5
"""Of the time that a transaction may be open: what the code of a batch is to take at most. The rest is for the end."""
GROWTH: Final = 2
"""From one batch to the next, at most."""


class BatchSize:
    """As many records as the code gets through in time.

    Args:
        max_records: never more.
        transaction_timeout_s: of the producer.
    """

    __slots__ = ("_max_records", "_timeout_s", "limit")

    def __init__(self, max_records: int, transaction_timeout_s: float) -> None:
        self._max_records = max_records
        self._timeout_s = transaction_timeout_s
        self.limit = max_records
        """Records of the next batch."""

    def worked(self, count: int, took_s: float, *, is_whole: bool) -> bool:
        """Note how long the code took; True: for longer than a transaction may be open.

        Args:
            count: records of the batch.
            took_s: since its transaction began.
            is_whole: the code came to its end. One that failed in the middle says nothing of its pace, unless late.
        """
        is_late = took_s >= self._timeout_s
        if is_whole or is_late:
            most = min(self._max_records, GROWTH * self.limit)
            in_time = count * self._timeout_s * SHARE  # times 1 / took_s
            self.limit = max(1, int(in_time / took_s)) if in_time < most * took_s else most
        return is_late

    def __repr__(self) -> str:
        """Show how many."""
        return f"<BatchSize {self.limit} of {self._max_records}>"
