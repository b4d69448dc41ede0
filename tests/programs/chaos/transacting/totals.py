"""Adds sessions up, as a table."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

ENDS = ("committed", "aborted", "unknown", "killed")
VISIBLE_AFTER_ALL = "unknown or killed, and visible"


@dataclass(slots=True)
class Totals:
    sessions: int = 0
    seconds: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    """Transactions by how they ended, transfers among them, and how many of those without a known end are visible."""
    transfers: int = 0
    copies: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    violations: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def add(self, outcome: Mapping[str, Any]) -> None:
        self.sessions += 1
        self.seconds += outcome["seconds"]
        for kind in ("transactions", "transfers"):
            self.ends.update(outcome.get(kind, {}))
        self.transfers += sum(outcome.get("transfers", {}).get(end, 0) for end in ENDS)
        self.copies += outcome.get("copies", 0)
        self.faults.update(outcome["faults"])
        self.violations.update(outcome["violations"])
        self.problems += outcome["problems"]

    @property
    def is_clean(self) -> bool:
        return bool(self.sessions) and not self.violations and not self.problems

    @property
    def transactions(self) -> int:
        return sum(self.ends[end] for end in ENDS)

    def rows(self) -> Iterator[tuple[str, int]]:
        yield "sessions", self.sessions
        yield "minutes", round(self.seconds / 60)
        yield "transactions", self.transactions
        yield "of them committed", self.ends["committed"]
        yield "aborted", self.ends["aborted"]
        yield "of unknown end", self.ends["unknown"]
        yield "of a process that was killed", self.ends["killed"]
        yield "of the last two kinds, found committed", self.ends[VISIBLE_AFTER_ALL]
        yield "transfers among them", self.transfers
        yield "records copied (consume, transform, produce)", self.copies
        yield "faults", self.faults.total()
        yield "violations", self.violations.total()
        yield "other problems", len(self.problems)


def by_release(outcomes: Iterator[Mapping[str, Any]]) -> dict[str, Totals]:
    totals: dict[str, Totals] = {}
    for outcome in outcomes:
        for name in (outcome["release"], "all"):
            totals.setdefault(name, Totals()).add(outcome)
    return {**{name: totals[name] for name in sorted(totals) if name != "all"}, "all": totals.get("all", Totals())}


def table(totals: Mapping[str, Totals]) -> Iterator[str]:
    yield f"| | {' | '.join(totals)} |"
    yield f"|---|{'---:|' * len(totals)}"
    for same in zip(*(each.rows() for each in totals.values()), strict=True):
        yield f"| {same[0][0]} | {' | '.join(f'{value:,}' for _, value in same)} |"


def faults_told(totals: Totals) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(totals.faults.items()))
