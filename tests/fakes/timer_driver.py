"""Fires a `TimerHeap` from an event loop, as the sender does."""

import asyncio

from aioproducer._timing.timers import TimerHeap


class TimerDriver:
    """One `call_at` at a time, for the earliest timer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.heap = TimerHeap()
        self.heap.on_earlier = lambda _when: self._set_alarm()
        self.wakes = 0
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        self.wakes += 1

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
