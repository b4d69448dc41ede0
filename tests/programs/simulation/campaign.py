"""Many runs, in as many processes as wanted: what they found, how fast, and what they covered."""

import gc
import hashlib
import math
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

from aioproducer.testing.fake_broker.wire.messages import load_message_classes
from tests.programs.simulation.plan import draw_plan
from tests.programs.simulation.run import Verdict, live_through

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

    def add(self, family: str, seed: int, verdict: Verdict) -> None:
        self.runs += 1
        self.digests[family, seed] = verdict.digest
        self.records.setdefault(family, []).append(verdict.records)
        self.brokers.setdefault(family, []).append(verdict.plan.brokers)
        self.turns += verdict.turns
        for total, more in (
            (self.ends, verdict.ends),
            (self.faults, verdict.faults),
            (self.error_codes, verdict.error_codes),
            (self.states, verdict.states),
        ):
            total.update(more)  # type: ignore[arg-type]  # pairs of the same kind
        if verdict.violations:
            found = [str(violation) for violation in verdict.violations]
            schedule = verdict.plan.schedule
            self.failures.append(Failure(family=family, seed=seed, violations=found, schedule=schedule))

    def merge(self, other: "Outcome") -> None:
        self.runs += other.runs
        self.turns += other.turns
        self.cpu_s += other.cpu_s
        self.failures += other.failures
        self.digests |= other.digests
        for name in ("ends", "faults", "error_codes", "states"):
            getattr(self, name).update(getattr(other, name))
        for mine, theirs in ((self.records, other.records), (self.brokers, other.brokers)):
            for family, found in theirs.items():
                mine.setdefault(family, []).extend(found)

    @property
    def digest(self) -> str:
        text = "\n".join(f"{family} {seed} {digest}" for (family, seed), digest in sorted(self.digests.items()))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def live_through_many(campaign: Campaign) -> Outcome:
    began = time.perf_counter()
    outcome = Outcome()
    load_message_classes()
    live_through(draw_plan(campaign.families[0], 0))  # so that what is imported late is imported once
    gc.collect()
    gc.freeze()  # modules and classes stay: the collector need not visit them again
    try:
        for found in _in_processes(campaign) if campaign.jobs > 1 else map(_live_through, _chunks(campaign)):
            outcome.merge(found)
            if (campaign.stops_at_first and outcome.failures) or time.perf_counter() - began > campaign.seconds:
                break
    finally:
        gc.unfreeze()
    outcome.elapsed_s = time.perf_counter() - began
    return outcome


def _chunks(campaign: Campaign) -> list[list[tuple[str, int, str]]]:
    """Families, seeds and schedules; seeds first, so that every family has its turn early."""
    seeds = range(campaign.first, campaign.first + campaign.seeds)
    runs = [(family, seed, campaign.schedule) for seed, family in product(seeds, campaign.families)]
    return [runs[start : start + _CHUNK] for start in range(0, len(runs), _CHUNK)]


def _in_processes(campaign: Campaign) -> Iterator[Outcome]:
    with multiprocessing.get_context("fork").Pool(campaign.jobs) as pool:
        yield from pool.imap_unordered(_live_through, _chunks(campaign))


def _live_through(chunk: list[tuple[str, int, str]]) -> Outcome:
    outcome = Outcome()
    gc.set_threshold(*_THRESHOLDS)
    began = time.process_time()
    for family, seed, schedule in chunk:
        outcome.add(family, seed, live_through(draw_plan(family, seed, schedule=schedule)))
        gc.collect(0)  # while the run's memory is in the processor's cache; the next run uses the same again
    outcome.cpu_s = time.process_time() - began
    return outcome
