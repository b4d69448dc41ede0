"""Every order of every scene with one deviation, and that the search finds what hangs on two."""

import pytest

from aioproducer import Delivery
from tests.programs.simulation.scenes import SCENES
from tests.programs.simulation.search import schedule_of, search
from tests.programs.simulation.stage import Scene, Stage, play


async def racy(stage: Stage) -> None:
    """A caller that relies on it that the answers of three brokers do not come in the opposite order."""
    done: list[int] = []

    def note(partition: int) -> None:
        done.append(partition)
        if done == [2, 1, 0]:
            raise RuntimeError("they came in the opposite order")

    for partition in range(3):
        delivery = stage.send(partition)
        assert isinstance(delivery, Delivery)
        delivery.add_done_callback(lambda _, partition=partition: note(partition))  # type: ignore[misc]  # bound at once
    await stage.together()


SCHEDULES = 80

RACY = Scene(act=racy, brokers=3, partitions=3)


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_no_invariant_is_broken_by_one_deviation(scene: Scene) -> None:
    found = search(scene, most_deviations=1)

    assert [str(broken) for broken in found.broken] == []
    assert found.is_exhausted
    assert found.schedules > found.choices >= 5
    assert play(scene, schedule_of([])).records > 2 * scene.partitions


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_no_invariant_is_broken_by_two_deviations(scene: Scene) -> None:
    """A sample of the orders that differ in two choices; `nox -s simulate -- --scene all` tries each."""
    found = search(scene, most_schedules=SCHEDULES)

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
    assert f"--scene racy --deviations {first.deviations[0][0]}:" in first.command


def test_search_that_is_cut_short_says_so() -> None:
    found = search(SCENES["flush_beside_sends"], most_schedules=3)

    assert (found.schedules, found.is_exhausted) == (3, False)


def test_each_schedule_is_tried_once() -> None:
    found = search(RACY, most_deviations=0)
    assert found.schedules == 1

    schedule = schedule_of([])
    play(RACY, schedule)
    assert search(RACY, most_deviations=1).schedules == 1 + sum(ways - 1 for ways in schedule.ways)
