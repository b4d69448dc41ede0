"""Time, and one alarm, finer than an event loop's.

The pause between two transactions is half a millisecond where brokers are near. asyncio's timers count whole
milliseconds; so does uvloop's clock, which besides moves only once a turn of the loop. With either, the pause was cut
short as often as it was doubled (docs/explanation/transactions.md).
"""

from __future__ import annotations

import os
import sys
from time import monotonic
from typing import TYPE_CHECKING, Final

from aioproducer._native.timerfd import open_timer, set_timer
from aioproducer._timing.timers import TICK_S

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

FINE_GRAIN_S: Final = 0.00005
"""What it takes to be called by a timer of the kernel's."""

_OF_REAL_TIME: Final = frozenset(("asyncio.unix_events", "uvloop"))
"""Modules of loops whose time is the system's; tests have others."""

_SHORTEST_S: Final = 1e-9


class HighResolutionTimer:
    """The time of a loop, and an alarm that is set for one thing at a time.

    Args:
        loop: whose own time and timers do where the system has no finer ones.
    """

    __slots__ = ("_callback", "_descriptor", "_handle", "_is_fine", "_loop", "now", "rings_at")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        is_real = type(loop).__module__ in _OF_REAL_TIME
        self._loop = loop
        self._is_fine = is_real and sys.platform == "linux"
        self._descriptor: int | None = None  # of the kernel's timer, from the first alarm on
        self._handle: asyncio.TimerHandle | None = None
        self._callback: Callable[[], None] | None = None
        self.now: Callable[[], float] = monotonic if is_real else loop.time
        """Monotonic seconds."""
        self.rings_at: float | None = None
        """When the alarm is due; None: it is not set."""

    @property
    def grain_s(self) -> float:
        """The shortest wait that an alarm can keep; a rest of less than half of it is not waited for."""
        return FINE_GRAIN_S if self._is_fine else TICK_S

    def ring_at(self, when: float, now: float, callback: Callable[[], None]) -> None:
        """Call `callback` at a time, which is not before `now`, instead of what was to be called before."""
        self.stop()
        self.rings_at, self._callback = when, callback
        if self._is_fine and self._descriptor is None:
            self._open()
        if self._descriptor is not None:
            set_timer(self._descriptor, max(when - now, _SHORTEST_S))
        else:
            self._handle = self._loop.call_later(max(when - now, TICK_S), self._ring)

    def stop(self) -> None:
        """Call nobody."""
        if self.rings_at is None:
            return
        self.rings_at = self._callback = None
        if self._descriptor is not None:
            set_timer(self._descriptor, 0.0)
        elif self._handle is not None:
            self._handle.cancel()

    def close(self) -> None:
        """Stop, and let go of the timer."""
        self.stop()
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> None:
        try:
            self._descriptor = open_timer()
        except OSError:  # no descriptor is left
            self._is_fine = False
            return
        self._loop.add_reader(self._descriptor, self._readable, self._descriptor)

    def _readable(self, descriptor: int) -> None:
        try:
            os.read(descriptor, 8)
        except BlockingIOError:
            return  # it was set anew, or stopped, in the same turn of the loop
        self._ring()

    def _ring(self) -> None:
        callback, self._callback, self._handle, self.rings_at = self._callback, None, None, None
        if callback is not None:
            callback()

    def __repr__(self) -> str:
        """Show how fine it is."""
        return f"<FineTime grain_s={self.grain_s} rings_at={self.rings_at}>"
