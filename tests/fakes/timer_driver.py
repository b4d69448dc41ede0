"""Fires a `TimerHeap` from an event loop, as the sender does."""

import asyncio

from aioproducer._timing.timers import TimerHeap
from tests.fakes.producer_events import EventNotes


class TimerDriver:
    """One `call_at` at a time, for the earliest timer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.events = EventNotes()
        self.events.on_timer = lambda _when: self._set_alarm()
        self.heap = TimerHeap(self.events.timer_set_earlier)
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None

    @property
    def wakes(self) -> int:
        return self.events.wakes

    def _set_alarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        when = self.heap.next_at()
        if when is not None:
            self._handle = self._loop.call_at(when, self._fire)

    def _fire(self) -> None:
        self._handle = None
        self.heap.fire(self._loop.time())
        self._set_alarm()
