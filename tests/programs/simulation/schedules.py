"""Schedules: the order where asyncio leaves it open, as asyncio's own, by random priorities, or by deviations.

What may change places, and what may not, is said in `scheduled_loop.py`; a schedule only chooses among what may.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from random import Random
from typing import Protocol

DEPTH = 3  # depth of faults: one that needs this many unlucky orderings is found with a known probability
HORIZON = 200  # choices of a run among which the change points are drawn; half of the runs of D2 have more than 150
LAG_S = 0.0005  # lateness of a busy loop; well below the tolerance of deadlines

_LATE = 0.3


class Schedule(Protocol):
    def choose(self, lanes: Sequence[Hashable]) -> int:
        """Return the number of the lane that goes first."""

    def lag(self) -> float:
        """Return the seconds by which the loop is late when it next waits."""


class PrioritySchedule:
    """Probabilistic concurrency testing: each lane has a random priority, and at a few points the first becomes last.

    A fault that needs `depth` orderings among `lanes` lanes and `choices` choices is found by one run with a
    probability of at least 1 / (lanes * choices ** (depth - 1)), however rare it is among all schedules (Burckhardt
    et al., A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs, 2010).

    Args:
        seed: decides everything.
        depth: the orderings a fault needs, one more than there are change points.
        horizon: choices among which the change points are drawn.
        lag_s: seconds by which the loop is late now and then.
    """

    def __init__(self, seed: int | str, *, depth: int = DEPTH, horizon: int = HORIZON, lag_s: float = LAG_S) -> None:
        self._random = Random(f"priorities-{seed}")
        self._change_points = set(self._random.sample(range(horizon), depth - 1))
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
        """Return what a loop is late by that is sometimes busy."""
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
        """Return 0, or what the deviations say."""
        if self._look is None:
            return 0
        self._look()
        self.ways.append(len(lanes))
        return self._deviations.get(len(self.ways) - 1, 0)

    def lag(self) -> float:
        return self._lag_s
