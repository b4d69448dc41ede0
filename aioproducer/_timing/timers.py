"""Everything that must happen at a time: lingers, backoffs, expiries, request deadlines.

A binary heap, not a timing wheel: there is one timer a partition and one a connection, not one a record, because
each is armed for the earliest of its deadlines and armed again when it fires. Of batches only those have one that
are to be sent again after a pause. With so few timers `heapq`, which is C, was measured faster than a wheel in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

TICK_S: Final = 0.001
"""The grain of event loops' timers: asyncio rounds up to it, and uvloop a delay of less than half of it to none."""

_TIDY_ABOVE: Final = 64


class Timer:
    """One thing to do at a time; made by `TimerHeap.schedule`."""

    __slots__ = ("_heap", "callback", "when")

    def __init__(self, when: float, callback: Callable[[float], None], heap: TimerHeap) -> None:
        """Keep the time, in monotonic seconds, and what to call with the time it became."""
        self.when = when
        self.callback: Callable[[float], None] | None = callback
        """None once it was cancelled or has fired."""
        self._heap = heap

    def cancel(self) -> None:
        """Never call back; cancelling twice, or after it fired, does nothing."""
        if self.callback is not None:
            self.callback = None
            self._heap.forget_one()

    @property
    def is_pending(self) -> bool:
        """Whether it is still going to fire."""
        return self.callback is not None

    def fire(self, now: float) -> None:
        """Call back, once."""
        callback, self.callback = self.callback, None
        if callback is not None:
            callback(now)


class TimerHeap:
    """Timers by time; takes the time from its caller."""

    __slots__ = ("_cancelled", "_heap", "_order", "on_earlier")

    def __init__(self) -> None:
        """Start with no timers."""
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = count()
        self._cancelled = 0
        self.on_earlier: Callable[[float], None] = _nothing
        """Called with the time of a new timer that is due before all others: who sleeps must sleep less."""

    def schedule(self, when: float, callback: Callable[[float], None]) -> Timer:
        """Call `callback(now)` in the first `fire` at or after `when` (monotonic seconds)."""
        timer = Timer(when, callback, self)
        heappush(self._heap, (when, next(self._order), timer))
        if self._heap[0][2] is timer:
            self.on_earlier(when)
        return timer

    def next_at(self) -> float | None:
        """When the earliest timer is due, or None."""
        while self._heap and self._heap[0][2].callback is None:
            heappop(self._heap)
            self._cancelled -= 1
        return self._heap[0][0] if self._heap else None

    def fire(self, now: float) -> None:
        """Run what is due, earliest first; timers that this schedules for the past run too."""
        while self._heap and self._heap[0][0] <= now:
            timer = heappop(self._heap)[2]
            self._cancelled -= not timer.is_pending
            timer.fire(now)

    def forget_one(self) -> None:
        """Note that a timer was cancelled; cancelled ones never outnumber the others for long."""
        self._cancelled += 1
        if self._cancelled > _TIDY_ABOVE and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].is_pending]
            heapify(self._heap)
            self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def __repr__(self) -> str:
        return f"<TimerHeap pending={len(self)} next_at={self.next_at()}>"


def _nothing(_: float) -> None:
    """Stands for a listener that nobody has set."""
