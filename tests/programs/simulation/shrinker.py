"""Looks for a smaller run that breaks the same invariant: fewer faults, fewer records and callers, plainer options."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.programs.simulation.campaign import run_plan
from tests.programs.simulation.plan import Plan

PLAIN_OPTIONS = {
    "compression_type": "none",
    "linger_ms": 0,
    "batch_size": 16_384,
    "max_in_flight_requests_per_connection": 1,
    "buffer_memory": 65_536,
    "max_waiting_records": 65_536,
    "metadata_max_age_ms": 300_000,
}
MOST_RUNS = 600


@dataclass(frozen=True)
class Shrinkage:
    """A plan, and the arguments that make it of its seed's plan."""

    plan: Plan
    faults: tuple[int, ...] | None = None  # numbers of the faults that are left, in the seed's plan; None: all
    arguments: tuple[tuple[str, str], ...] = field(default=())

    @property
    def command(self) -> str:
        words = [f"python -m tests.programs.simulation --family {self.plan.family.name} --seed {self.plan.seed}"]
        if self.plan.schedule != "fifo":
            words.append(f"--schedule {self.plan.schedule}")
        if self.faults is not None:
            words.append(f"--only-faults {','.join(map(str, self.faults)) or ','}")
        words += [f"{name} {value}" for name, value in self.arguments]
        return " ".join(words)

    def with_faults(self, kept: Sequence[int]) -> Shrinkage:
        numbers = self.faults or tuple(range(len(self.plan.faults)))
        plan = dataclasses.replace(self.plan, faults=tuple(self.plan.faults[number] for number in kept))
        return dataclasses.replace(self, plan=plan, faults=tuple(numbers[number] for number in kept))

    def with_records(self, records: int) -> Shrinkage:
        records = min(records, self.plan.records)
        return self._changed(f"{records}", "--records", records=records)

    def with_callers(self, callers: int) -> Shrinkage:
        callers = min(callers, self.plan.clients)
        return self._changed(f"{callers}", "--callers", clients=callers)

    def with_option(self, name: str, value: object) -> Shrinkage:
        plan = self.plan.with_options(**{name: value})
        return dataclasses.replace(self, plan=plan, arguments=(*self.arguments, ("--set", f"{name}={value}")))

    def _changed(self, text: str, argument: str, **fields: int) -> Shrinkage:
        kept = tuple(pair for pair in self.arguments if pair[0] != argument)
        plan = dataclasses.replace(self.plan, **fields)  # type: ignore[arg-type]  # numbers all
        return dataclasses.replace(self, plan=plan, arguments=(*kept, (argument, text)))


def shrink(plan: Plan, is_broken: Callable[[Plan], bool]) -> Shrinkage:
    """Return the smallest broken run found; `is_broken` may raise ValueError for options that exclude each other."""
    present = Shrinkage(plan)
    runs = 0
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for smaller in _smaller(present):
            runs += 1
            if runs > MOST_RUNS:
                return present
            if _is_broken(smaller.plan, is_broken):
                present, is_smaller = smaller, True
                break
    return present


def breaks(invariant: str) -> Callable[[Plan], bool]:
    return lambda plan: any(violation.invariant == invariant for violation in run_plan(plan).violations)


def _is_broken(plan: Plan, is_broken: Callable[[Plan], bool]) -> bool:
    try:
        return is_broken(plan)
    except ValueError:
        return False


def _smaller(present: Shrinkage) -> Iterator[Shrinkage]:
    plan = present.plan
    for kept in _fewer(len(plan.faults)):
        yield present.with_faults(kept)
    for records in (plan.records // 4, plan.records // 2, plan.records * 3 // 4, plan.records - 1):
        if 0 < records < plan.records:
            yield present.with_records(records)
    for callers in (1, plan.clients // 2, plan.clients - 1):
        if 0 < callers < plan.clients:
            yield present.with_callers(callers)
    for name, value in PLAIN_OPTIONS.items():
        if plan.options[name] != value:
            yield present.with_option(name, value)


def _fewer(count: int) -> Iterator[list[int]]:
    """Subsets to try: halves and quarters first, then each without one."""
    everything = list(range(count))
    for parts in (1, 2, 4):
        size = -(-count // parts)
        if 0 < size < count or parts == 1:
            for start in range(0, count, max(size, 1)):
                gone = set(everything[start : start + size])
                yield [number for number in everything if number not in gone]
    for number in everything:
        yield [each for each in everything if each != number]
