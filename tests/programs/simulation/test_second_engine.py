"""Runs on detangle's loop come to the same verdicts as on ours, good and bad."""

import asyncio
from random import Random

import pytest

from tests.programs.simulation.plan import draw_plan
from tests.programs.simulation.run import Run, Verdict, live_on, live_through
from tests.programs.simulation.second_engine import FAMILIES, STRATEGIES, DetangleLoop, live_there, make_strategy
from tests.programs.simulation.simulated_loop import SimulatedLoop


class _ForgetfulRun(Run):
    """A run whose brokers lose the last batch of every log before they are asked."""

    def judge(self) -> Verdict:
        """Cut, then compare."""
        for partition in self._network.model.partitions():
            partition.log.truncate(max(partition.log.end_offset - 1, 0))
        return super().judge()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("spec", STRATEGIES)
@pytest.mark.parametrize("family", FAMILIES)
def test_good_runs_are_good_there_too(family: str, spec: str, seed: int) -> None:
    """Nothing is broken on either, and nobody has done nothing."""
    plan = draw_plan(family, seed)
    here, there = live_through(plan), live_there(plan, make_strategy(spec, seed))

    assert [str(violation) for violation in here.violations] == []
    assert [str(violation) for violation in there.violations] == []
    assert there.records >= (plan.records if family == "D2" else 1)


def test_lost_record_is_found_there_too() -> None:
    """Both say of the same partition that an acknowledged record is in no log."""
    plan = draw_plan("D2", 1)
    here = live_on(SimulatedLoop(Random(0)), plan, _ForgetfulRun)
    there = live_there(plan, make_strategy("fifo", 0), _ForgetfulRun)

    assert {violation.invariant for violation in here.violations} == {"C1"}
    assert {violation.invariant for violation in there.violations} == {"C1"}


def lost_update(spec: str, seed: int) -> int:
    """What two tasks that add one each come to, if each reads, waits and writes."""
    strategy = make_strategy(spec, seed)
    strategy.start(0)
    loop = DetangleLoop(Random(0), strategy)
    counter = [0]

    async def add(pauses: int) -> None:
        for _ in range(pauses):
            await asyncio.sleep(0)
        seen = counter[0]
        await asyncio.sleep(0)
        counter[0] = seen + 1

    async def both() -> None:
        await asyncio.gather(add(0), add(2))

    loop.run_until_complete(both())
    loop.close()
    return counter[0]


def test_it_finds_a_race_that_asyncio_does_not_show() -> None:
    """By some seeds and not by others."""
    found = [lost_update("pct:3", seed) for seed in range(60)]

    assert lost_update("fifo", 0) == 2
    assert set(found) == {1, 2}
