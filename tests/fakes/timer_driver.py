"""Fires a `TimerHeap` from an event loop, as the sender does."""

import asyncio

from aioproducer.core.timer_heap import TimerHeap


class TimerDriver:
    """One `call_at` at a time, for the earliest timer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.heap = TimerHeap()
        self.wakes = 0
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Look again at what is due first."""
        self.wakes += 1
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        when = self.heap.next_at()
        if when is not None:
            self._handle = self._loop.call_at(when, self._fire)

    def _fire(self) -> None:
        self._handle = None
        self.heap.fire(self._loop.time())
        self.wake()
