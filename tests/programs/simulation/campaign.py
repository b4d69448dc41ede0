"""Runs a plan on a loop in virtual time, or many plans in as many processes as wanted.

Log events are a part of the history, or dropped. Of many runs it is told what they found, how fast, and what they
covered.
"""

import asyncio
import contextlib
import gc
import hashlib
import logging
import math
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from itertools import product
from random import Random

import structlog

from aioproducer.testing.fake_broker.wire.messages import load_message_classes
from tests.programs.simulation.allowed_failures import is_end_by_lies
from tests.programs.simulation.history import LOOKS_FOR_PAYLOADS, LOOKS_FOR_SECRETS, History, Secrecy
from tests.programs.simulation.plan import Plan, draw_plan
from tests.programs.simulation.run import Run, RunResult
from tests.programs.simulation.scheduled_loop import PrioritySchedule, ScheduledLoop
from tests.programs.simulation.simulated_loop import SimulatedLoop, threads_on
from tests.programs.simulation.transactional_run import TransactionalRun

MOST_TURNS = 200_000

RunFactory = Callable[[Plan, SimulatedLoop, History], Run]


def run_plan(plan: Plan, *, is_recording: bool = False) -> RunResult:
    """Execute a plan and check the outcomes."""
    return run_on(_loop(plan), plan, is_recording=is_recording)


def run_on(
    loop: SimulatedLoop, plan: Plan, make_run: RunFactory | None = None, *, is_recording: bool = False
) -> RunResult:
    """Execute a plan on a given loop."""
    history = History(is_recording=is_recording)
    history.clock = loop.time
    if plan.seed % (LOOKS_FOR_SECRETS if plan.mechanism else LOOKS_FOR_PAYLOADS) == 0:
        history.secrecy = Secrecy(history.violated)
    loop.most_turns = MOST_TURNS
    asyncio.set_event_loop(loop)
    with recorded_in(history), threads_on(loop):
        run = (make_run or (TransactionalRun if plan.family.is_transactional else Run))(plan, loop, history)
        try:
            loop.run_until_complete(run.execute())
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
    return run.check()


def _loop(plan: Plan) -> SimulatedLoop:
    rng = Random(f"threads-{plan.seed}")
    if plan.schedule == "fifo":
        return SimulatedLoop(rng)
    return ScheduledLoop(rng, PrioritySchedule(f"{plan.family.name}-{plan.seed}"))


def _end_tasks(loop: SimulatedLoop) -> None:
    """Let go of what a run that failed has left, so that it does not speak up in the next one."""
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.most_turns = loop.turns + 1_000
    with contextlib.suppress(AssertionError):
        loop.run_until_complete(asyncio.sleep(0))


_SILENT = structlog.make_filtering_bound_logger(logging.CRITICAL)
_SPEAKING = structlog.make_filtering_bound_logger(logging.DEBUG)


@contextlib.contextmanager
def recorded_in(history: History) -> Iterator[None]:
    def keep(_logger: object, level: str, event: MutableMapping[str, object]) -> str:
        name = event.pop("event")
        event.pop("client_id", None)
        text = " ".join(f"{key}={value}" for key, value in event.items())
        history.note("log", "%s %s %s", level, name, text)
        if history.secrecy is not None:
            history.secrecy.check(f"the event {name}", text)
        raise structlog.DropEvent

    before = structlog.get_config() if structlog.is_configured() else None
    is_heard = history.is_recording or history.secrecy is not None
    structlog.configure(processors=[keep], wrapper_class=_SPEAKING if is_heard else _SILENT)
    try:
        yield
    finally:
        structlog.reset_defaults()
        if before is not None:
            structlog.configure(**before)


_COUNTERS = ("ends", "faults", "error_codes", "states")
_CHUNK = 25  # runs that a process is given at a time
_THRESHOLDS = (100_000, 10, 100)  # thresholds of the collector: no run makes so much garbage, unless it never ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    families: tuple[str, ...]
    first: int
    seeds: int
    jobs: int = 1
    stops_at_first: bool = False
    seconds: float = math.inf
    """Seconds after which no more runs are begun; how many there are then depends on the machine."""

    schedule: str = "fifo"


@dataclass(slots=True, kw_only=True)
class Failure:
    family: str
    seed: int
    violations: list[str]
    schedule: str = "fifo"

    @property
    def command(self) -> str:
        chosen = "" if self.schedule == "fifo" else f" --schedule {self.schedule}"
        return f"python -m tests.programs.simulation --family {self.family} --seed {self.seed}{chosen}"


@dataclass(slots=True, kw_only=True)
class Outcome:
    """Outcome of some runs; those of several processes add up."""

    runs: int = 0
    failures: list[Failure] = field(default_factory=list)
    digests: dict[tuple[str, int], int] = field(default_factory=dict)
    records: dict[str, list[int]] = field(default_factory=dict)
    brokers: dict[str, list[int]] = field(default_factory=dict)
    turns: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    error_codes: Counter[tuple[str, int]] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    elapsed_s: float = 0.0
    cpu_s: float = 0.0

    def add(self, family: str, seed: int, result: RunResult) -> None:
        self.runs += 1
        self.digests[family, seed] = result.digest
        self.records.setdefault(family, []).append(result.records)
        self.brokers.setdefault(family, []).append(result.plan.brokers)
        self.turns += result.turns
        for name in _COUNTERS:
            getattr(self, name).update(getattr(result, name))
        if result.violations:
            found = [str(violation) for violation in result.violations]
            schedule = result.plan.schedule
            self.failures.append(Failure(family=family, seed=seed, violations=found, schedule=schedule))

    def merge(self, other: "Outcome") -> None:
        self.runs += other.runs
        self.turns += other.turns
        self.cpu_s += other.cpu_s
        self.failures += other.failures
        self.digests |= other.digests
        for name in _COUNTERS:
            getattr(self, name).update(getattr(other, name))
        for mine, theirs in ((self.records, other.records), (self.brokers, other.brokers)):
            for family, found in theirs.items():
                mine.setdefault(family, []).extend(found)

    @property
    def digest(self) -> str:
        text = "\n".join(f"{family} {seed} {digest}" for (family, seed), digest in sorted(self.digests.items()))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def run_campaign(campaign: Campaign) -> Outcome:
    began = time.perf_counter()
    outcome = Outcome()
    load_message_classes()
    run_plan(draw_plan(campaign.families[0], 0))  # so that what is imported late is imported once
    gc.collect()
    gc.freeze()  # modules and classes stay: the collector need not visit them again
    for found in _in_processes(campaign) if campaign.jobs > 1 else map(_run_chunk, _chunks(campaign)):
        outcome.merge(found)
        if (campaign.stops_at_first and outcome.failures) or time.perf_counter() - began > campaign.seconds:
            break
    outcome.elapsed_s = time.perf_counter() - began
    return outcome


def _chunks(campaign: Campaign) -> list[list[tuple[str, int, str]]]:
    """Families, seeds and schedules; seeds first, so that every family has its turn early."""
    seeds = range(campaign.first, campaign.first + campaign.seeds)
    runs = [(family, seed, campaign.schedule) for seed, family in product(seeds, campaign.families)]
    return [runs[start : start + _CHUNK] for start in range(0, len(runs), _CHUNK)]


def _in_processes(campaign: Campaign) -> Iterator[Outcome]:
    with multiprocessing.get_context("fork").Pool(campaign.jobs) as pool:
        yield from pool.imap_unordered(_run_chunk, _chunks(campaign))


def _run_chunk(chunk: list[tuple[str, int, str]]) -> Outcome:
    outcome = Outcome()
    gc.set_threshold(*_THRESHOLDS)
    began = time.process_time()
    for family, seed, schedule in chunk:
        outcome.add(family, seed, run_plan(draw_plan(family, seed, schedule=schedule)))
        gc.collect(0)  # while the run's memory is in the processor's cache; the next run uses the same again
    outcome.cpu_s = time.process_time() - began
    return outcome
