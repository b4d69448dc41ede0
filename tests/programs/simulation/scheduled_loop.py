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
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import count
from random import Random
from typing import NamedTuple, Protocol

from tests.programs.simulation.simulated_loop import RESOLUTION_S, LeanHandle, SimulatedLoop
from tests.programs.simulation.simulated_network import Passage, SimulatedNetwork

DEPTH = 3  # depth of faults: one that needs this many unlucky orderings is found with a known probability
HORIZON = 200  # choices of a run among which the change points are drawn; half of the runs of D2 have more than 150
LAG_S = 0.0005  # lateness of a busy loop; well below the tolerance of deadlines

_LATE = 0.3
_CLOCK = "clock"
_NEXT_TURN = "next turn"


class Schedule(Protocol):
    def choose(self, lanes: Sequence[Hashable]) -> int:
        """Return the number of the lane that goes first."""

    def lag(self) -> float:
        """Return the seconds by which the loop is late when it next waits."""


class _Event(NamedTuple):
    """Something from outside that is due and not yet noticed."""

    when: float
    number: int
    handle: LeanHandle
    lane: Hashable


class ScheduledLoop(SimulatedLoop):
    def __init__(self, random: Random, schedule: Schedule) -> None:
        super().__init__(random)
        self.schedule = schedule
        self._due: list[_Event] = []  # by time
        self._event_numbers = count()
        self._tasks: dict[object, int] = {}  # in the order in which they first ran
        self._task_numbers = count()

    @property
    def timers(self) -> int:
        return super().timers + len(self._due)

    def _collect(self) -> None:
        self._await_events()
        self._admit()
        self._order_steps()

    # Events

    def _await_events(self) -> None:
        """Take what is due; when there is nothing to do, let time pass until something is."""
        self._due = [event for event in self._due if not event.handle.cancelled()]
        later = self.later
        while later and later[0].cancelled():
            heapq.heappop(later)
        if not self._due and not self.soon:
            if not later:
                raise AssertionError("nothing will ever happen again: the test would hang")
            self.now = max(self.now, later[0].when() + self.schedule.lag())
        end = self.now + RESOLUTION_S
        while later and later[0].when() < end:
            handle = heapq.heappop(later)
            self.now = max(self.now, handle.when())  # due within the clock's resolution, so early
            if not handle.cancelled():
                self._due.append(self._event(handle))

    def _event(self, handle: LeanHandle) -> _Event:
        callback = handle.callback
        if isinstance(callback, Passage):
            lane: Hashable = callback.way
        elif isinstance(getattr(callback, "__self__", None), SimulatedNetwork):
            lane = "brokers"
        else:
            lane = _CLOCK
        return _Event(handle.when(), next(self._event_numbers), handle, lane)

    def _admit(self) -> None:
        """Let the loop notice some of what is due, in an order."""
        while self._due:
            heads = self._heads()
            lanes: list[Hashable] = [(_CLOCK, event.number) if event.lane == _CLOCK else event.lane for event in heads]
            if self.soon:
                lanes.append(_NEXT_TURN)
            first = self.schedule.choose(lanes) if len(lanes) > 1 else 0
            if first == len(heads):
                return
            self._due.remove(heads[first])
            self.soon.append(heads[first].handle)

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
        handles = [handle for handle in self.soon if not handle.cancelled()]
        if sum(_task_of(handle) is not None for handle in handles) < 2:
            return
        self.soon.clear()
        steps: list[LeanHandle] = []
        for handle in handles:
            if _task_of(handle) is not None:
                steps.append(handle)
                continue
            self._queue(steps)
            self.soon.append(handle)
        self._queue(steps)

    def _queue(self, steps: list[LeanHandle]) -> None:
        while steps:
            lanes = [self._task_number(_task_of(step)) for step in steps]
            first = self.schedule.choose(lanes) if len(set(lanes)) > 1 else 0
            first = lanes.index(lanes[first])  # of one task the earlier step
            self.soon.append(steps.pop(first))

    def _task_number(self, task: object) -> int:
        number = self._tasks.get(task)
        if number is None:
            number = self._tasks[task] = next(self._task_numbers)
        return number


def _task_of(handle: LeanHandle) -> object | None:
    """The task of which a handle is a step; None: it is a plain callback."""
    owner = getattr(handle.callback, "__self__", None)
    return owner if isinstance(owner, asyncio.Task) else None


class PrioritySchedule:
    """Probabilistic concurrency testing: each lane has a random priority, and at a few points the first becomes last.

    A fault that needs `depth` orderings among `lanes` lanes and `choices` choices is found by one run with a
    probability of at least 1 / (lanes * choices ** (depth - 1)), however rare it is among all schedules (Burckhardt
    et al., A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs, 2010).

    Args:
        seed: decides everything.
        horizon: choices among which the change points are drawn.
        lag_s: seconds by which the loop is late now and then.
    """

    def __init__(self, seed: int | str, *, horizon: int = HORIZON, lag_s: float = LAG_S) -> None:
        self._random = Random(f"priorities-{seed}")
        self._change_points = set(self._random.sample(range(horizon), DEPTH - 1))
        self._priorities: dict[Hashable, float] = {}
        self._lag_s = lag_s
        self.choices = 0

    def choose(self, lanes: Sequence[Hashable]) -> int:
        """Return the number of the lane of highest priority; at a change point it first becomes the lowest."""
        priorities = [self._priority(lane) for lane in lanes]
        first = max(range(len(lanes)), key=priorities.__getitem__)
        if self.choices in self._change_points:
            priorities[first] = self._priorities[lanes[first]] = -1.0 - self.choices
            first = max(range(len(lanes)), key=priorities.__getitem__)
        self.choices += 1
        return first

    def lag(self) -> float:
        return self._lag_s if self._random.random() < _LATE else 0.0

    def _priority(self, lane: Hashable) -> float:
        return self._priorities.setdefault(lane, self._random.random())


class DeviatingSchedule:
    """Asyncio's own order, but for some choices; notes how many ways each choice had.

    Args:
        deviations: number of the choice, from 0 on -> number of the lane, from 1 on.
        lag_s: seconds by which the loop is always late, so that more is due together.
    """

    def __init__(self, deviations: Mapping[int, int], *, lag_s: float = LAG_S) -> None:
        self._deviations = deviations
        self._lag_s = lag_s
        self._look: Callable[[], None] | None = None
        self.ways: list[int] = []

    def watch(self, look: Callable[[], None] | None) -> None:
        """Count choices from now on, and call this before each; None: what follows counts for nothing."""
        self._look = look

    def choose(self, lanes: Sequence[Hashable]) -> int:
        if self._look is None:
            return 0
        self._look()
        self.ways.append(len(lanes))
        return self._deviations.get(len(self.ways) - 1, 0)

    def lag(self) -> float:
        return self._lag_s
