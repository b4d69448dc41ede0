"""A simulated loop on which a schedule decides what asyncio leaves open.

What asyncio documents stays as it is: what is given to `call_soon` runs in that order, a timer never before one that
is due earlier, the bytes of one connection in their order. What no program can rely on is up to the schedule:

- **When the loop notices an event from outside**, beside others of the same time: a selector reports connections in
  any order, and an answer arrives a turn of the loop earlier or later. So arrivals on different connections, the two
  directions of one, and the brokers' own doings change places, and any of them waits for later turns while the
  program is at work. A loop that was busy is late, and finds more that is due.
- **Timers of the same time**: asyncio keeps them in a heap, which keeps no order of equals.
- **Which of several woken tasks goes first**, where nothing else is between them in the queue: a future wakes its
  tasks one by one, but which of two futures was done first hangs on the events above, and eager tasks, other loops
  and wrappers such as `gather` change it. No plain callback is ever overtaken.
"""

import asyncio
import heapq
from collections.abc import Hashable
from itertools import count
from random import Random
from typing import NamedTuple

from tests.simulation.schedules import Schedule
from tests.simulation.simulated_loop import SimulatedLoop
from tests.simulation.simulated_network import Passage, SimulatedNetwork

_CLOCK = "clock"
_NEXT_TURN = "next turn"


class _Event(NamedTuple):
    """Something from outside that is due and not yet noticed."""

    when: float
    number: int
    handle: asyncio.TimerHandle
    lane: Hashable


class ScheduledLoop(SimulatedLoop):
    """A loop with a schedule.

    Args:
        random: how long jobs in threads take.
        schedule: chooses.
    """

    def __init__(self, random: Random, schedule: Schedule) -> None:
        super().__init__(random)
        self.schedule = schedule
        self._due: list[_Event] = []  # by time
        self._numbers = count()
        self._tasks: dict[object, int] = {}  # in the order in which they first ran
        self._task_numbers = count()

    @property
    def timers(self) -> int:
        """How many are set or due."""
        return super().timers + len(self._due)

    def _run_once(self) -> None:  # asyncio's own turn, with what goes before it
        self._collect()
        self._admit()
        self._order_steps()
        super()._run_once()  # type: ignore[misc]  # the base class's

    # Events

    def _collect(self) -> None:
        """Take what is due; when there is nothing to do, let time pass until something is."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]  # the base class's
        self._due = [event for event in self._due if not event.handle.cancelled()]
        while timers and timers[0].cancelled():
            self._take()
        if timers and not self._due and not self._ready and not self._stopping:  # type: ignore[attr-defined]  # as above
            self._clock.now = max(self._clock.now, timers[0].when() + self.schedule.lag())
        end = self.time() + self._clock_resolution  # type: ignore[attr-defined]  # as above
        while timers and timers[0].when() < end:
            handle = self._take()
            self._clock.now = max(self._clock.now, handle.when())  # due within the clock's resolution, so early
            if not handle.cancelled():
                self._due.append(self._event(handle))

    def _take(self) -> asyncio.TimerHandle:
        """Take the earliest timer, as asyncio does it."""
        handle: asyncio.TimerHandle = heapq.heappop(self._scheduled)  # type: ignore[attr-defined]  # the base class's
        handle._scheduled = False  # type: ignore[attr-defined]  # noqa: SLF001  # a part of the loop
        if handle.cancelled():
            self._timer_cancelled_count -= 1
        return handle

    def _event(self, handle: asyncio.TimerHandle) -> _Event:
        callback = handle._callback  # type: ignore[attr-defined]  # noqa: SLF001  # a part of the loop
        if isinstance(callback, Passage):
            lane: Hashable = callback.way
        elif isinstance(getattr(callback, "__self__", None), SimulatedNetwork):
            lane = "brokers"
        else:
            lane = _CLOCK
        return _Event(handle.when(), next(self._numbers), handle, lane)

    def _admit(self) -> None:
        """Let the loop notice some of what is due, in an order."""
        while self._due:
            heads = self._heads()
            lanes: list[Hashable] = [(_CLOCK, event.number) if event.lane == _CLOCK else event.lane for event in heads]
            if self._ready:
                lanes.append(_NEXT_TURN)
            first = self.schedule.choose(lanes) if len(lanes) > 1 else 0
            if first == len(heads):
                return
            self._due.remove(heads[first])
            self._ready.append(heads[first].handle)

    def _heads(self) -> list[_Event]:
        """The first event of each lane; of the clock all that are due at the same time."""
        heads: list[_Event] = []
        firsts: dict[Hashable, float] = {}
        for event in self._due:
            earliest = firsts.setdefault(event.lane, event.when)
            if earliest == event.when and (event.lane == _CLOCK or all(event.lane != head.lane for head in heads)):
                heads.append(event)
        return heads

    # Tasks

    def _order_steps(self) -> None:
        """Let tasks that are woken one after the other go in another order."""
        handles = [handle for handle in self._ready if not handle.cancelled()]
        if sum(_task_of(handle) is not None for handle in handles) < 2:
            return
        self._ready.clear()
        steps: list[asyncio.Handle] = []
        for handle in handles:
            if _task_of(handle) is not None:
                steps.append(handle)
                continue
            self._queue(steps)
            self._ready.append(handle)
        self._queue(steps)

    def _queue(self, steps: list[asyncio.Handle]) -> None:
        while steps:
            lanes = [self._task_number(_task_of(step)) for step in steps]
            first = self.schedule.choose(lanes) if len(set(lanes)) > 1 else 0
            first = lanes.index(lanes[first])  # of one task the earlier step
            self._ready.append(steps.pop(first))

    def _task_number(self, task: object) -> int:
        number = self._tasks.get(task)
        if number is None:
            number = self._tasks[task] = next(self._task_numbers)
        return number


def _task_of(handle: asyncio.Handle) -> object | None:
    """The task of which a handle is a step; None: it is a plain callback."""
    owner = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]  # noqa: SLF001  # a part of the loop
    return owner if isinstance(owner, asyncio.Task) else None
