"""Measures two ways of keeping deadlines: a heap, and a hierarchical timing wheel, both in Python.

    python docs/measure_timers.py

The work is that of a producer under load. Batches come and go; each must be looked at when its linger is over and when
its delivery deadline is reached, and nearly every one leaves before either. Two plans, each on both structures:

* a timer a partition: set for the earliest deadline and left alone; when it fires, it looks which batch is there now;
* a timer a batch: set when the batch opens, cancelled when it leaves.

Prints nanoseconds a batch, medians of several rounds, and the ratio to the first row, which is what the producer does.
"""
# ruff: noqa: INP001, T201  # a script beside the pages that prints

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable
from typing import Final, Protocol

from aioproducer._timing.timers import TimerHeap

LINGER_S: Final = 0.005
DEADLINE_S: Final = 120.0
BATCHES: Final = 50_000
BATCHES_A_SECOND: Final = 10_000
TURN_S: Final = 0.001
ROUNDS: Final = 5


class Timer(Protocol):
    """What both structures hand out."""

    def cancel(self) -> None:
        """Do not call."""


class Timers(Protocol):
    """What both structures can do."""

    def schedule(self, when: float, callback: Callable[[float], None]) -> Timer:
        """Call back at `when`."""

    def fire(self, now: float) -> None:
        """Run what is due."""

    def next_at(self) -> float | None:
        """When the next one is due: what the sender sleeps until."""


class WheelTimer:
    """An entry of the wheel; knows its slot, so that cancelling costs the same however many there are."""

    __slots__ = ("callback", "slot", "tick")

    def __init__(self, tick: int, callback: Callable[[float], None]) -> None:
        """Stand in no slot yet."""
        self.tick = tick
        self.callback = callback
        self.slot: dict[WheelTimer, None] | None = None

    def cancel(self) -> None:
        """Leave the slot."""
        if self.slot is not None:
            del self.slot[self]
            self.slot = None


class TimingWheel:
    """Wheels of 64 slots, each turning 64 times slower than the one before; the first has slots of a millisecond.

    A timer stands in the slot of the slowest wheel that it needs, and moves to a faster one when its slot comes up.
    """

    LEVELS: Final = 4
    BITS: Final = 6
    MASK: Final = (1 << BITS) - 1
    TICK_S: Final = 0.001

    def __init__(self) -> None:
        """Start at tick 0 with no timers."""
        self._now = 0
        self._wheels: list[list[dict[WheelTimer, None]]] = [
            [{} for _ in range(1 << self.BITS)] for _ in range(self.LEVELS)
        ]

    def schedule(self, when: float, callback: Callable[[float], None]) -> WheelTimer:
        """Put a timer into its slot: no search, whatever the number of timers."""
        timer = WheelTimer(max(int(when / self.TICK_S) + 1, self._now + 1), callback)
        self._put(timer)
        return timer

    def fire(self, now: float) -> None:
        """Turn tick by tick."""
        until = int(now / self.TICK_S)
        while self._now < until:
            self._now += 1
            self._refill()
            slot = self._wheels[0][self._now & self.MASK]
            while slot:
                timer, _ = slot.popitem()
                timer.slot = None
                timer.callback(now)

    def next_at(self) -> float | None:
        """Look for the first slot that is not empty; in a slower wheel its beginning is when to look again."""
        for level, wheel in enumerate(self._wheels):
            shift = level * self.BITS
            base = self._now >> shift
            for step in range(1, 1 << self.BITS):
                if wheel[(base + step) & self.MASK]:
                    return ((base + step) << shift) * self.TICK_S
        return None

    def _put(self, timer: WheelTimer) -> None:
        level, distance = 0, timer.tick - self._now
        while distance > self.MASK and level < self.LEVELS - 1:
            level, distance = level + 1, distance >> self.BITS
        slot = self._wheels[level][(timer.tick >> (level * self.BITS)) & self.MASK]
        slot[timer] = None
        timer.slot = slot

    def _refill(self) -> None:
        for level in range(1, self.LEVELS):
            if self._now & ((1 << (level * self.BITS)) - 1):
                return
            slot = self._wheels[level][(self._now >> (level * self.BITS)) & self.MASK]
            timers = list(slot)
            slot.clear()
            for timer in timers:
                self._put(timer)


class Partition:
    """A partition with its open batch, as far as time is concerned."""

    __slots__ = ("_linger", "_opened", "_timers")

    def __init__(self, timers: Timers) -> None:
        """Start without a timer."""
        self._timers = timers
        self._linger: Timer | None = None
        self._opened = 0.0

    def batch_opens(self, now: float) -> None:
        """Set a timer unless an earlier one is there."""
        self._opened = now
        if self._linger is None:
            self._linger = self._timers.schedule(now + LINGER_S, self._look)

    def _look(self, now: float) -> None:
        """Look whose time has come; for a batch that opened later, look again later."""
        self._linger = None
        if now < self._opened + LINGER_S:
            self._linger = self._timers.schedule(self._opened + LINGER_S, self._look)


def timer_a_partition(timers: Timers, partitions: int) -> None:
    """Run the load with a linger timer and a deadline timer for each partition."""
    lingering = [Partition(timers) for _ in range(partitions)]
    for partition in range(partitions):
        timers.schedule(DEADLINE_S + partition / BATCHES_A_SECOND, _nothing)
    turns = run_turns(timers)
    for number in range(BATCHES):
        now = number / BATCHES_A_SECOND
        lingering[number % partitions].batch_opens(now)
        turns(now)


def timer_a_batch(timers: Timers, partitions: int) -> None:
    """Run the load with a linger timer and a deadline timer for each batch, cancelled when the next one opens."""
    open_timers: list[tuple[Timer, Timer] | None] = [None] * partitions
    turns = run_turns(timers)
    for number in range(BATCHES):
        now = number / BATCHES_A_SECOND
        left = open_timers[number % partitions]
        if left is not None:
            left[0].cancel()
            left[1].cancel()
        linger = timers.schedule(now + LINGER_S, _nothing)
        open_timers[number % partitions] = (linger, timers.schedule(now + DEADLINE_S, _nothing))
        turns(now)


def run_turns(timers: Timers) -> Callable[[float], None]:
    """Return what lets the sender take a turn every millisecond: fire, and ask until when to sleep."""
    next_turn = 0.0

    def turn(now: float) -> None:
        nonlocal next_turn
        if now >= next_turn:
            next_turn = now + TURN_S
            timers.fire(now)
            timers.next_at()

    return turn


def _nothing(_: float) -> None:
    """Stand for a deadline that nothing is done at."""


def main() -> None:
    """Print a table for few, many and very many partitions."""
    print(f"{platform.python_implementation()} {platform.python_version()}, {platform.machine()}")
    for partitions in (4, 100, 10_000):
        costs = nanoseconds_a_batch(partitions)
        base = next(iter(costs.values()))
        for (plan, kind), cost in costs.items():
            print(f"{partitions:>6} partitions  {plan:<20} {kind:<6} {cost:>7.0f} ns {cost / base:>6.2f}")


def nanoseconds_a_batch(partitions: int) -> dict[tuple[str, str], float]:
    """Return medians by plan and structure; rounds interleave, so that a disturbance hits all of them."""
    times: dict[tuple[str, str], list[float]] = {(plan, kind): [] for plan in PLANS for kind in KINDS}
    for _ in range(ROUNDS):
        for (plan, kind), found in times.items():
            began = time.process_time_ns()
            PLANS[plan](KINDS[kind](), partitions)
            found.append((time.process_time_ns() - began) / BATCHES)
    return {names: statistics.median(found) for names, found in times.items()}


PLANS: Final[dict[str, Callable[[Timers, int], None]]] = {
    "a timer a partition": timer_a_partition,
    "a timer a batch": timer_a_batch,
}
KINDS: Final[dict[str, Callable[[], Timers]]] = {"heap": TimerHeap, "wheel": TimingWheel}

if __name__ == "__main__":
    main()
