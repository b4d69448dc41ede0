"""Timers for lingers, backoffs, expiries and request deadlines.

A binary heap, not a timing wheel: there is one timer per partition and one per connection, not one per record, because
each is set for the earliest of its deadlines and set again when it fires. Only batches in a retry backoff have one
each. With so few timers `heapq`, which is C, was measured faster than a wheel in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

TICK_S: Final = 0.001
"""Resolution of event loops' timers: asyncio rounds up to it; uvloop rounds a delay below half of it to 0."""

_TIDY_ABOVE: Final = 64


class Timer:
    """A callback at a time; made by `TimerHeap.schedule`."""

    __slots__ = ("_heap", "callback", "when")

    def __init__(self, when: float, callback: Callable[[float], None], heap: TimerHeap) -> None:
        self.when = when
        self.callback: Callable[[float], None] | None = callback  # None after it was cancelled or has fired
        self._heap = heap

    def cancel(self) -> None:
        """Cancel the timer; does nothing if it was cancelled or has fired."""
        if self.callback is not None:
            self.callback = None
            self._heap.forget_one()

    @property
    def is_pending(self) -> bool:
        return self.callback is not None

    def fire(self, now: float) -> None:
        callback, self.callback = self.callback, None
        if callback is not None:
            callback(now)


class TimerHeap:
    """Timers by time, which comes from the caller; `on_earlier` gets that of a new timer due before all others."""

    __slots__ = ("_cancelled", "_heap", "_on_earlier", "_order")

    def __init__(self, on_earlier: Callable[[float], None]) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = count()
        self._cancelled = 0
        self._on_earlier = on_earlier

    def schedule(self, when: float, callback: Callable[[float], None]) -> Timer:
        """Call `callback(now)` in the first `fire` at or after `when` (monotonic seconds)."""
        timer = Timer(when, callback, self)
        heappush(self._heap, (when, next(self._order), timer))
        if self._heap[0][2] is timer:
            self._on_earlier(when)
        return timer

    def next_at(self) -> float | None:
        while self._heap and self._heap[0][2].callback is None:
            heappop(self._heap)
            self._cancelled -= 1
        return self._heap[0][0] if self._heap else None

    def fire(self, now: float, *, at_most: int | None = None) -> None:
        """Run the due timers, earliest first, including those scheduled meanwhile."""
        for _ in count() if at_most is None else range(at_most):
            if not self._heap or self._heap[0][0] > now:
                return
            timer = heappop(self._heap)[2]
            self._cancelled -= not timer.is_pending
            timer.fire(now)

    def forget_one(self) -> None:
        """Count a cancelled timer; cancelled ones never outnumber the others for long."""
        self._cancelled += 1
        if self._cancelled > _TIDY_ABOVE and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].is_pending]
            heapify(self._heap)
            self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def __repr__(self) -> str:
        return f"<TimerHeap pending={len(self)} next_at={self.next_at()}>"
