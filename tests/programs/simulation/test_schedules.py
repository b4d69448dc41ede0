"""Schedules change only what they may, and find what depends on the order of events; scenarios go right in every order.

Deliberate races in copies of the package are found by the search and by priorities, not by the plain order.
"""

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from aioproducer import Delivery
from tests.nightly import rounds
from tests.programs.mutants.mutant import Change, Mutant
from tests.programs.mutants.session import Tree
from tests.programs.simulation.campaign import run_plan
from tests.programs.simulation.plan import draw_plan
from tests.programs.simulation.scenarios import SCENARIOS, Driver, Scenario, play, schedule_of, search
from tests.programs.simulation.scheduled_loop import DeviatingSchedule, PrioritySchedule, Schedule, ScheduledLoop
from tests.programs.simulation.simulated_network import Node, Passage

SEEDS = 80


def live(schedule: Schedule, play: Callable[[ScheduledLoop, list[str]], None]) -> list[str]:
    loop = ScheduledLoop(Random(0), schedule)
    happened: list[str] = []

    async def act() -> None:
        play(loop, happened)
        await asyncio.sleep(1.0)

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
    results = [run_plan(draw_plan(family, 1, schedule="pct")) for _ in range(2)]

    assert [str(violation) for violation in results[0].violations] == []
    assert len({(result.digest, result.turns) for result in results}) == 1


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("family", ["D1", "D2", "D5", "D7", "D8", "D14", "D16", "D17"])
def test_no_invariant_is_broken_by_more_priorities(family: str, seed: int) -> None:
    found = [str(violation) for violation in run_plan(draw_plan(family, seed, schedule="pct")).violations]

    assert found == [], f"python -m tests.programs.simulation --family {family} --seed {seed} --schedule pct"


async def racy_scenario(driver: Driver) -> None:
    """A caller that relies on it that the answers of three brokers do not come in the opposite order."""
    done: list[int] = []

    def note(partition: int) -> None:
        done.append(partition)
        if done == [2, 1, 0]:
            raise RuntimeError("they came in the opposite order")

    for partition in range(3):
        delivery = driver.send(partition)
        assert isinstance(delivery, Delivery)
        delivery.add_done_callback(lambda _, partition=partition: note(partition))  # type: ignore[misc]  # bound at once
    await driver.together()


SCHEDULES = rounds(20, nightly=80)

RACY = Scenario(act=racy_scenario, brokers=3, partitions=3)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_no_invariant_is_broken_by_one_deviation(scenario: Scenario) -> None:
    found = search(scenario, most_deviations=1)

    assert [str(broken) for broken in found.broken] == []
    assert found.is_exhausted
    assert found.schedules > found.choices >= 5
    assert play(scenario, schedule_of([])).records > 2 * scenario.partitions


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_no_invariant_is_broken_by_two_deviations(scenario: Scenario) -> None:
    """A sample of the orders that differ in two choices; `nox -s simulate -- --scenario all` tries each."""
    found = search(scenario, most_schedules=SCHEDULES)

    assert [str(broken) for broken in found.broken] == []
    assert found.is_exhausted or found.schedules == SCHEDULES


@pytest.mark.slow
def test_search_finds_what_one_deviation_does_not_show() -> None:
    """Two deviations turn three responses round; the found order is replayed."""
    assert search(RACY, most_deviations=1).broken == []

    found = search(RACY, most_deviations=2)
    assert {str(violation) for broken in found.broken for violation in broken.violations} != set()
    first = found.broken[0]
    assert "opposite order" in str(first.violations[0])
    assert play(RACY, schedule_of(first.deviations)).violations == first.violations
    assert f"--scenario racy_scenario --deviations {first.deviations[0][0]}:" in first.command


def test_search_that_is_cut_short_says_so() -> None:
    found = search(SCENARIOS["flush_beside_sends"], most_schedules=3)

    assert (found.schedules, found.is_exhausted) == (3, False)


def test_each_schedule_is_tried_once() -> None:
    found = search(RACY, most_deviations=0)
    assert found.schedules == 1

    schedule = schedule_of([])
    play(RACY, schedule)
    assert search(RACY, most_deviations=1).schedules == 1 + sum(ways - 1 for ways in schedule.ways)


TOLD_WHO_GAVE_UP = Mutant(
    "flush_tells_who_gave_up",
    "an answer in the same turn of the loop in which a flush gives up ends the producer",
    Change("_sender/flush_waiters.py", "", "not finished.done()", "finished.cancelled() or not finished.done()"),
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    plain = Tree(tmp_path_factory.mktemp("races") / "plain")
    plain.fill()
    return plain.mutated(TOLD_WHO_GAVE_UP)


def simulated(tree: Tree, *arguments: str) -> "subprocess.CompletedProcess[str]":
    done = tree.run("-m", "tests.programs.simulation", *arguments)
    assert done.stderr == ""
    return done


def test_race_fits_the_code(tmp_path: Path) -> None:
    (tmp_path / "_sender").mkdir()
    (tmp_path / "_sender/flush_waiters.py").write_text(
        (Path(__file__).parents[3] / "aioproducer" / "_sender/flush_waiters.py").read_text("utf-8"), "utf-8"
    )

    TOLD_WHO_GAVE_UP.apply(tmp_path)


@pytest.mark.slow
def test_search_finds_the_race_and_the_plain_order_does_not(copy: Tree) -> None:
    scenario = ("--scenario", "flush_gives_up_as_the_answer_comes")
    plain = simulated(copy, *scenario, "--most-deviations", "0")
    assert plain.returncode == 0

    found = simulated(copy, *scenario, "--most-deviations", "2")
    assert found.returncode == 1
    deviations = found.stdout.strip().rpartition("--deviations ")[2]
    assert simulated(copy, *scenario, "--deviations", deviations).returncode == 1


PRIORITIES = """
from tests.programs.simulation.scenarios import SCENARIOS
from tests.programs.simulation.scheduled_loop import PrioritySchedule
from tests.programs.simulation.scenarios import LAG_S, play

scenario = SCENARIOS["flush_gives_up_as_the_answer_comes"]
print(sum(bool(play(scenario, PrioritySchedule(seed, horizon=10, lag_s=LAG_S)).violations) for seed in range(150)))
"""


@pytest.mark.nightly
@pytest.mark.slow
def test_priorities_find_the_race_now_and_then(copy: Tree) -> None:
    assert 1 <= int(copy.run("-c", PRIORITIES).stdout) <= 50
    assert int(Tree(copy.folder.parent / "plain").run("-c", PRIORITIES).stdout) == 0
