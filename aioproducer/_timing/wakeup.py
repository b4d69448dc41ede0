"""Wakes a task that waits for something to become possible, or for the next of its timers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from aioproducer._timing.timers import TICK_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LONGEST_SLEEP_S: Final = 3600.0
"""Event loops refuse times that are too far away, and options such as `linger.ms` may be 2**63 - 1."""


class Wakeup:
    """Wakes the one task that waits; made before the parts that wake it, and given to each of them."""

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
