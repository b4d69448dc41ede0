"""Adds sessions up: `python -m tests.chaos.transacting.totals [FILE]` prints a table for the documentation."""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.evidence import ROOT

EVIDENCE = ROOT / "docs" / "evidence" / "transactions.jsonl"
ENDS = ("committed", "aborted", "unknown", "killed")
VISIBLE_AFTER_ALL = "unknown or killed, and visible"


@dataclass(slots=True)
class Totals:
    """Of sessions."""

    sessions: Counter[str] = field(default_factory=Counter)
    """By release."""
    seconds: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    """Transactions by how they ended, transfers among them, and how many of those without a known end are visible."""
    transfers: int = 0
    copies: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    violations: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def add(self, outcome: Mapping[str, Any]) -> None:
        """One more session, as its line of evidence tells of it."""
        self.sessions[outcome["release"]] += 1
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
        """Whether there was a session, nothing was violated, and nothing else went wrong."""
        return bool(self.sessions) and not self.violations and not self.problems

    @property
    def transactions(self) -> int:
        """All that began, but for the copier's."""
        return sum(self.ends[end] for end in ENDS)

    def rows(self) -> Iterator[tuple[str, str]]:
        """What there is, and how much of it."""
        yield "sessions", _by_kind(self.sessions)
        yield "minutes", f"{self.seconds / 60:.0f}"
        yield "transactions", f"{self.transactions:,}"
        for end in ENDS:
            yield f"- {end}", f"{self.ends[end]:,}"
        yield f"- {VISIBLE_AFTER_ALL}", f"{self.ends[VISIBLE_AFTER_ALL]:,}"
        yield "- of them bank transfers", f"{self.transfers:,}"
        yield "records copied by consume-transform-produce", f"{self.copies:,}"
        yield "faults", f"{self.faults.total()}: {_by_kind(self.faults)}"
        yield "violations", _by_kind(self.violations)
        yield "problems", str(len(self.problems))

    def lines(self) -> Iterator[str]:
        """A table, and each problem."""
        yield "| | |"
        yield "|---|---|"
        for name, value in self.rows():
            yield f"| {name} | {value} |"
        yield from self.problems


def of_evidence(file: Path) -> Totals:
    """All that a file of evidence tells of."""
    totals = Totals()
    for line in file.read_text("utf-8").splitlines():
        totals.add(json.loads(line)["totals"])
    return totals


def _by_kind(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items())) or "0"


if __name__ == "__main__":
    print("\n".join(of_evidence(Path(sys.argv[1]) if sys.argv[1:] else EVIDENCE).lines()))
