"""The same runs on a loop that somebody else wrote: detangle, which keeps asyncio's time and order in its own way.

What is wrong in our loop, or in what it takes for asyncio's promises, is wrong in all of our runs. detangle has a
ready queue for each task and one for all callbacks, a clock and timers of its own, PCT and random walks; of ours it
gets the network, the brokers, the callers and the judgement. It lets tasks overtake callbacks, which
`scheduled_loop.py` does not: it has more schedules to choose from, and some of them asyncio rules out.

`python -m tests.programs.simulation --engine detangle --seeds 50`; detangle is not among what the tests need.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from random import Random
from typing import Any, TypeVar, TypeVarTuple

from detangle import SimConfig, SimLoop, Strategy
from detangle.strategies import make_strategy

from tests.programs.simulation.plan import Plan, draw_plan
from tests.programs.simulation.run import MOST_TURNS, Life, Verdict, live_on
from tests.programs.simulation.simulated_loop import LONGEST_JOB_S, finish
from tests.programs.simulation.simulated_network import SimulatedNetwork
from tests.programs.simulation.simulated_transport import SimulatedTransport

ResultT = TypeVar("ResultT")
ArgumentsT = TypeVarTuple("ArgumentsT")

FAMILIES = ("D2", "D16")
STRATEGIES = ("fifo", "pct:3", "random")
STEPS_A_TURN = 50


class DetangleLoop(SimLoop):
    """detangle's loop, on the simulated network.

    Args:
        random: how long jobs in threads take.
        strategy: who goes first.
    """

    network: SimulatedNetwork

    def __init__(self, random: Random, strategy: Strategy) -> None:
        super().__init__(SimConfig(max_steps=MOST_TURNS * STEPS_A_TURN), strategy)
        self._random = random
        self._now = 1000.0
        self.most_turns = 0
        """Here it is steps that are counted."""

    @property
    def turns(self) -> int:
        """Steps of tasks and callbacks: there are no turns."""
        return self.steps

    def unfinished_tasks(self) -> set[asyncio.Task[Any]]:
        """As of the other loops of simulations."""
        return asyncio.all_tasks(self)

    async def getaddrinfo(self, host: str, port: int, **_: object) -> Any:  # type: ignore[override]  # as is used
        """Ask the simulated name server."""
        found = await self.network.names.look_up(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found]

    async def create_connection(  # type: ignore[override]  # as much of it as is used
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[SimulatedTransport, asyncio.Protocol]:
        """Connect on the simulated network."""
        return await self.network.connect(factory, host, port)

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*ArgumentsT], ResultT], *args: *ArgumentsT
    ) -> asyncio.Future[ResultT]:
        """Run a job that would go to a thread as an event of its own, some time later."""
        del executor
        done: asyncio.Future[ResultT] = self.create_future()
        self.call_later(self._random.uniform(0, LONGEST_JOB_S), finish, done, partial(func, *args))
        return done


def live_there(plan: Plan, strategy: Strategy, life: Life | None = None) -> Verdict:
    """Live a plan through on detangle's loop.

    Args:
        plan: what is to happen.
        strategy: who goes first.
        life: makes the run; None: `Run`.
    """
    strategy.start(0)
    loop = DetangleLoop(Random(f"threads-{plan.seed}"), strategy)
    try:
        verdict = live_on(loop, plan, life)  # type: ignore[arg-type]  # has all that is used of a SimulatedLoop
    finally:
        loop.abandon()
    strategy.finish(loop.decisions, failed=bool(verdict.violations))
    return verdict


def live_many_there(family: str, seeds: range, spec: str) -> Iterator[Verdict]:
    """Live the seeds of a family through, each by a strategy of that seed.

    Yields:
        Each verdict.
    """
    for seed in seeds:
        yield live_there(draw_plan(family, seed), make_strategy(spec, seed))


def live_families_there(families: Sequence[str], seeds: range, strategies: Sequence[str]) -> bool:
    """Live seeds of families through, and print what came of them.

    Returns:
        Whether no invariant was broken.
    """
    is_good = True
    for family in families:
        for spec in strategies:
            is_good &= _live_through(family, seeds, spec)
    return is_good


def _live_through(family: str, seeds: range, spec: str) -> bool:
    verdicts = list(live_many_there(family, seeds, spec))
    broken = [verdict for verdict in verdicts if verdict.violations]
    records, steps = sum(verdict.records for verdict in verdicts), sum(verdict.turns for verdict in verdicts)
    print(f"{family}, {spec}: {len(verdicts)} runs, {records} records, {steps} steps, {len(broken)} broken", flush=True)
    for verdict in broken[:5]:
        words = f"--engine detangle --strategy {spec} --family {family} --first {verdict.plan.seed} --seeds 1"
        print(f"VIOLATED {verdict.violations[0]!s:.300}\n  python -m tests.programs.simulation {words}")
    return not broken
