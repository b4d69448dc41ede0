"""Timers for lingers, backoffs, expiries and request deadlines, and the wakeup of the task that waits for them.

A binary heap, not a timing wheel: there is one timer per partition and one per connection, not one per record, because
each is set for the earliest of its deadlines and set again when it fires. Only batches in a retry backoff have one
each. With so few timers `heapq`, which is C, was measured faster than a wheel in Python.
"""

from __future__ import annotations

import asyncio
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

TICK_S: Final = 0.001
"""Resolution of event loops' timers: asyncio rounds up to it; uvloop rounds a delay below half of it to 0."""

LONGEST_SLEEP_S: Final = 3600.0
"""Event loops refuse times that are too far away, and options such as `linger.ms` may be 2**63 - 1."""

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


class Wakeup:
    """Wakes the one task that waits for something to become possible, or for the next of its timers.

    It is made before the parts that wake it, and given to each of them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_set = False  # since the last `clear`
        self._loop = loop
        self._waiting: asyncio.Future[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0.0
        self._next_at: Callable[[], float | None]  # given by `wait`

    @property
    def is_waited_for(self) -> bool:
        return self._waiting is not None and not self._waiting.done()

    def set(self) -> None:
        """Wake the task, or do not let it wait next time; cheap, and callable from anywhere on the loop."""
        # No reason is passed: the task looks at what there is to do, so no caller can forget to report an event.
        self.is_set = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def clear(self) -> None:
        """Note that the task looks at everything from now on."""
        self.is_set = False

    def wait(self, next_at: Callable[[], float | None]) -> Awaitable[None]:
        """Wait until the next `set`, or the time that `next_at` returns then (monotonic seconds; None: no time)."""
        # No coroutine function: what it returns is awaited by the caller, which spares each wait a frame.
        if self.is_set:
            self.is_set = False
            return asyncio.sleep(0)
        self._next_at = next_at
        self._waiting = self._loop.create_future()
        when = next_at()
        if when is not None:
            self.set_alarm(when)
        return self._waiting

    def set_alarm(self, when: float) -> None:
        """Wake the task at `when` at the latest, so that setting a timer need not wake it."""
        # An earlier alarm stays, also through turns that need none: setting one costs more than looking again.
        if self._alarm is not None and self._alarm_at <= when:
            return
        if not self.is_waited_for:  # the next `wait` sets it
            return
        now = self._loop.time()
        if now < when < now + TICK_S:
            when = now + TICK_S  # uvloop rounds down and would fire early, in a busy loop
        if self._alarm is not None and self._alarm_at <= when:
            return  # the current alarm is within a tick of `when`: keep it
        self.stop()
        self._alarm_at = min(when, now + LONGEST_SLEEP_S)
        self._alarm = self._loop.call_at(self._alarm_at, self._ring)

    def stop(self) -> None:
        """Cancel the alarm."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _ring(self) -> None:
        self._alarm = None
        when = self._next_at()
        if when is None:
            return
        if when <= self._loop.time():
            self.set()
        else:
            self.set_alarm(when)

    def __repr__(self) -> str:
        return f"<Wakeup is_waited_for={self.is_waited_for} is_set={self.is_set}>"
