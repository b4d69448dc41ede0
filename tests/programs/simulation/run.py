"""Runs a plan, on a loop in virtual time, and returns the verdict."""

import asyncio
import contextlib
from collections.abc import Callable
from random import Random

from tests.programs.simulation.excuses import is_end_by_lies
from tests.programs.simulation.history import History
from tests.programs.simulation.life import Run, Verdict
from tests.programs.simulation.log_events import recorded_in
from tests.programs.simulation.plan import Plan
from tests.programs.simulation.scheduled_loop import ScheduledLoop
from tests.programs.simulation.schedules import PrioritySchedule
from tests.programs.simulation.secrecy import LOOKS_FOR_PAYLOADS, LOOKS_FOR_SECRETS, Secrecy
from tests.programs.simulation.simulated_loop import SimulatedLoop, threads_on
from tests.programs.simulation.transactional_life import TransactionalRun

__all__ = ["MOST_TURNS", "Life", "Run", "Verdict", "live_on", "live_through"]

MOST_TURNS = 200_000


def live_through(plan: Plan, *, is_recording: bool = False) -> Verdict:
    """Live a plan through and judge it."""
    return live_on(_loop(plan), plan, is_recording=is_recording)


def live_on(loop: SimulatedLoop, plan: Plan, life: "Life | None" = None, *, is_recording: bool = False) -> Verdict:
    """Live a plan through on a loop of one's own."""
    history = History(is_recording=is_recording)
    history.clock = loop.time
    if plan.seed % (LOOKS_FOR_SECRETS if plan.mechanism else LOOKS_FOR_PAYLOADS) == 0:
        history.secrecy = Secrecy(history.violated)
    loop.most_turns = MOST_TURNS
    asyncio.set_event_loop(loop)
    with recorded_in(history), threads_on(loop):
        run = (life or _life_of(plan))(plan, loop, history)
        try:
            loop.run_until_complete(run.live())
        except AssertionError as error:
            history.violated("HANG", str(error))
            _end_tasks(loop)
        except Exception as error:  # noqa: BLE001  # every exception that escapes the producer is a finding
            told = history.note if is_end_by_lies(error, plan) else history.violated
            told("CRASH", f"{type(error).__name__}: {error}")
            _end_tasks(loop)
        finally:
            asyncio.set_event_loop(None)
            loop.close()
    return run.judge()


def _life_of(plan: Plan) -> "Life":
    return TransactionalRun if plan.family.is_transactional else Run


def _loop(plan: Plan) -> SimulatedLoop:
    chance = Random(f"threads-{plan.seed}")
    if plan.schedule == "fifo":
        return SimulatedLoop(chance)
    return ScheduledLoop(chance, PrioritySchedule(f"{plan.family.name}-{plan.seed}"))


def _end_tasks(loop: SimulatedLoop) -> None:
    """Let go of what a run that failed has left, so that it does not speak up in the next one."""
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.most_turns = loop.turns + 1_000
    with contextlib.suppress(AssertionError):
        loop.run_until_complete(asyncio.sleep(0))


Life = Callable[[Plan, SimulatedLoop, History], Run]
