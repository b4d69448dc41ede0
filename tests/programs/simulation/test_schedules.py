"""Schedules change only what they may, and find what depends on the order of events."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from tests.programs.simulation.plan import draw_plan
from tests.programs.simulation.run import live_through
from tests.programs.simulation.scheduled_loop import ScheduledLoop
from tests.programs.simulation.schedules import DeviatingSchedule, PrioritySchedule, Schedule
from tests.programs.simulation.simulated_network import Node, Passage

SEEDS = 80


def live(schedule: Schedule, play: Callable[[ScheduledLoop, list[str]], None], for_s: float = 1.0) -> list[str]:
    loop = ScheduledLoop(Random(0), schedule)
    happened: list[str] = []

    async def act() -> None:
        play(loop, happened)
        await asyncio.sleep(for_s)

    try:
        loop.run_until_complete(act())
    finally:
        loop.close()
    return happened


def orders(play: Callable[[ScheduledLoop, list[str]], None]) -> set[tuple[str, ...]]:
    return {tuple(live(PrioritySchedule(seed), play)) for seed in range(SEEDS)}


def arrive(loop: ScheduledLoop, way: str, what: Callable[[], object], *, after_s: float) -> None:
    loop.call_later(after_s, Passage(way, Node(1), what, []))


def arrivals(loop: ScheduledLoop, happened: list[str]) -> None:
    """Three connections, always a little apart, and one of them twice."""
    for name, way, after_s in (("a1", "a", 0.0101), ("b", "b", 0.0102), ("c", "c", 0.0103), ("a2", "a", 0.0104)):
        arrive(loop, way, lambda name=name: happened.append(name), after_s=after_s)  # type: ignore[misc]  # bound at once


def chains(loop: ScheduledLoop, happened: list[str]) -> None:
    """Callbacks that call others soon, and an arrival meanwhile."""

    def step(name: str, left: int) -> None:
        happened.append(f"{name}{left}")
        if left:
            loop.call_soon(step, name, left - 1)

    def begin() -> None:
        loop.call_soon(step, "x", 3)
        loop.call_soon(step, "y", 3)

    loop.call_later(0.01, begin)
    arrive(loop, "a", lambda: happened.append("arrival"), after_s=0.01)


def timers(loop: ScheduledLoop, happened: list[str]) -> None:
    """Two timers of one time, between an earlier and a later one that are due in the same turn if the loop is late."""
    now = loop.time()
    for name, after_s in (("later", 0.0104), ("one", 0.0102), ("other", 0.0102), ("earlier", 0.01)):
        loop.call_at(now + after_s, happened.append, name)


def wakings(loop: ScheduledLoop, happened: list[str]) -> None:
    """One callback wakes two tasks, calls something soon, and wakes two more."""
    futures = [loop.create_future() for _ in range(4)]

    async def wait(name: str, future: asyncio.Future[None]) -> None:
        await future
        happened.append(name)

    tasks = [loop.create_task(wait(str(number), future)) for number, future in enumerate(futures)]

    def wake() -> None:
        assert len(tasks) == 4
        for future in futures[:2]:
            future.set_result(None)
        loop.call_soon(happened.append, "between")
        for future in futures[2:]:
            future.set_result(None)

    loop.call_later(0.01, wake)


def test_connections_overtake_each_other_and_none_itself() -> None:
    found = orders(arrivals)

    assert all(sorted(order) == ["a1", "a2", "b", "c"] and order.index("a1") < order.index("a2") for order in found)
    assert {order[0] for order in found} == {"a1", "b", "c"}
    assert len(found) >= 8


def test_callbacks_keep_order_and_arrivals_come_between_turns() -> None:
    found = orders(chains)
    chained = ["x3", "y3", "x2", "y2", "x1", "y1", "x0", "y0"]

    assert all([what for what in order if what != "arrival"] == chained for order in found)
    assert len({order.index("arrival") for order in found}) > 1


def test_only_timers_of_one_time_change_places() -> None:
    assert orders(timers) == {("earlier", "one", "other", "later"), ("earlier", "other", "one", "later")}


def test_woken_tasks_change_places_but_overtake_no_callback() -> None:
    firsts, lasts = (("0", "1"), ("1", "0")), (("2", "3"), ("3", "2"))

    assert orders(wakings) == {(*first, "between", *last) for first in firsts for last in lasts}


def test_cancelled_timer_that_waits_for_its_turn_does_not_run() -> None:
    def play(loop: ScheduledLoop, happened: list[str]) -> None:
        timer = loop.call_later(0.0102, happened.append, "timer")
        arrive(loop, "a", timer.cancel, after_s=0.0101)
        arrive(loop, "b", lambda: happened.append("b"), after_s=0.0102)

    assert orders(play) == {("b",), ("timer", "b"), ("b", "timer")}


def test_no_timer_fires_before_its_time() -> None:
    """Asyncio runs timers that are due within its clock's resolution; a callback that reads the clock sees it due."""

    def play(loop: ScheduledLoop, happened: list[str]) -> None:
        def look(when: float) -> None:
            happened.append("early" if loop.time() < when else "in time")

        when = loop.time() + 0.01
        for _ in range(3):
            loop.call_at(when, look, when)
            when += 1e-10

    assert orders(play) == {("in time",) * 3}


def test_without_deviations_it_is_asyncio() -> None:
    assert live(DeviatingSchedule({}), arrivals) == ["a1", "b", "c", "a2"]


def racy(loop: ScheduledLoop, happened: list[str]) -> None:
    """A fault of depth three: c before b before a, which always arrives earliest."""
    arrived: list[str] = []

    def note(name: str) -> None:
        arrived.append(name)
        if arrived == ["c", "b", "a"]:
            happened.append("broken")

    for number, name in enumerate("abc"):
        arrive(loop, name, lambda name=name: note(name), after_s=0.01 + 0.0001 * number)  # type: ignore[misc]  # bound at once


def test_priorities_find_what_plain_order_never_shows() -> None:
    found = [seed for seed in range(SEEDS) if live(PrioritySchedule(seed), racy)]

    assert live(DeviatingSchedule({}), racy) == []
    assert 1 <= len(found) <= SEEDS // 4


@pytest.mark.parametrize("family", ["D2", "D8", "D16"])
def test_no_invariant_is_broken_by_priorities(family: str) -> None:
    verdicts = [live_through(draw_plan(family, 1, schedule="pct")) for _ in range(2)]

    assert [str(violation) for violation in verdicts[0].violations] == []
    assert len({(verdict.digest, verdict.turns) for verdict in verdicts}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("family", ["D1", "D2", "D5", "D7", "D8", "D14", "D16", "D17"])
def test_no_invariant_is_broken_by_more_priorities(family: str, seed: int) -> None:
    found = [str(violation) for violation in live_through(draw_plan(family, seed, schedule="pct")).violations]

    assert found == [], f"python -m tests.programs.simulation --family {family} --seed {seed} --schedule pct"
