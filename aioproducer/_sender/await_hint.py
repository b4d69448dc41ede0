"""Notices a program that awaits each `send` in a loop, and tells it once what is a hundred times as fast.

In aiokafka `await send(...)` means "queued"; here it means "delivered", so who brings the habit waits a round trip
for each record. It shows in the batches, and needs no look at records: one record each, each awaited, each begun
after the one before it had ended and sooner than its own acknowledgement takes, hundreds of times in a row. A service
that awaits a record for each of its requests does not look like that: its records overlap, or come with pauses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aioproducer._logs import EventLog

STREAK: Final = 500
"""Batches in a row that make a habit."""

AT_ONCE_S: Final = 0.001
"""A shorter pause is none."""

PAUSE_COSTS: Final = 10
"""Batches that one pause takes off the row: a busy machine makes some, a program with other things to do makes many."""


class SerialAwaitDetector:
    """Counts such batches.

    Args:
        log: told once, with `awaited_one_by_one`.
    """

    __slots__ = ("_is_told", "_last_end", "_log", "_streak")

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._last_end = 0.0
        self._streak = 0
        self._is_told = False

    def note(self, *, records: int, is_awaited: bool, called_at: float, now: float) -> None:
        """Take note of a batch that was delivered.

        Args:
            records: in the batch.
            is_awaited: somebody waits for one of them.
            called_at: monotonic seconds of the call that opened the batch.
            now: monotonic seconds.
        """
        if self._is_told:
            return
        pause = called_at - self._last_end
        self._last_end = now
        if records != 1 or not is_awaited or pause < 0.0:
            self._streak = 0
            return
        if pause > max(now - called_at, AT_ONCE_S):
            self._streak = max(self._streak - PAUSE_COSTS, 0)
            return
        self._streak += 1
        if self._streak == STREAK:
            self._is_told = True
            self._log.info(
                "awaited_one_by_one",
                records=STREAK,
                hint="`await producer.send(...)` waits for the broker's acknowledgement of each record; to send many, "
                "use `await producer.enqueue(...)` and one `await producer.flush()`",
            )
