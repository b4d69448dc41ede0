"""Summary of many cells, as text and as JSON."""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.programs.chaos.cell import CellResult

COPIES = ("second_copies", "unknown_written", "losses_explained")


@dataclasses.dataclass(slots=True)
class Summary:
    cells: int = 0
    failed: list[Path] = dataclasses.field(default_factory=list)
    faults: Counter[str] = dataclasses.field(default_factory=Counter)
    outcomes: dict[str, Counter[str]] = dataclasses.field(default_factory=dict)
    in_logs: Counter[str] = dataclasses.field(default_factory=Counter)
    violations: Counter[str] = dataclasses.field(default_factory=Counter)
    versions: Counter[str] = dataclasses.field(default_factory=Counter)
    recovery_s: list[float] = dataclasses.field(default_factory=list)
    clients: int = 0
    seconds: float = 0

    def add(self, result: CellResult) -> None:
        figures = result.verdict.get("figures", {})
        self.cells += 1
        self.seconds += result.seconds
        self.versions[result.plan.version] += 1
        self.faults.update(result.faults)
        self.violations.update(result.verdict.get("violations", {}))
        self.violations.update({"problems": len(result.problems)} if result.problems else {})
        for topic, counts in figures.get("outcomes", {}).items():
            self.outcomes.setdefault(topic, Counter()).update(counts)
        for counts in figures.get("logs", {}).values():
            self.in_logs.update(counts)
        self.recovery_s += figures.get("recovery_s", [])
        self.clients += figures.get("clients", 0)
        if not result.passed:
            self.failed.append(result.folder)

    @property
    def acknowledged(self) -> int:
        return sum(counts["OK"] for counts in self.outcomes.values())

    def as_json(self) -> dict[str, Any]:
        return {
            "cells": self.cells,
            "seconds": round(self.seconds),
            "kafka": dict(self.versions),
            "acknowledged": self.acknowledged,
            "clients": self.clients,
            "faults": sum(self.faults.values()),
            "faults_by_kind": dict(sorted(self.faults.items())),
            "outcomes": {topic: dict(counts) for topic, counts in self.outcomes.items()},
            "in_logs": dict(self.in_logs),
            "recovery_s": quantiles(self.recovery_s),
            "violations": dict(self.violations),
            "failed": [folder.name for folder in self.failed],
        }

    def lines(self) -> Iterator[str]:
        told = self.as_json()
        yield f"{self.cells} cells in {self.seconds / 60:.1f} min on Kafka {json.dumps(told['kafka'])}"
        yield f"acknowledged  {self.acknowledged:,} records of {self.clients:,} producers"
        for topic, counts in self.outcomes.items():
            yield f"  {topic:20} " + "  ".join(f"{kind} {count:,}" for kind, count in sorted(counts.items()))
        yield f"faults        {told['faults']}: " + ", ".join(f"{n} {kind}" for kind, n in sorted(self.faults.items()))
        yield f"recovery      {told['recovery_s']}"
        yield "in the logs   " + "  ".join(f"{kind} {self.in_logs[kind]:,}" for kind in ("records", *COPIES))
        yield f"violations    {dict(self.violations) or 'none'}"
        yield from (f"look at       {folder}" for folder in self.failed)


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Median, 95th percentile and largest, in seconds."""
    if not values:
        return {}
    ordered = sorted(values)
    return {"median": ordered[len(ordered) // 2], "p95": ordered[int(len(ordered) * 0.95)], "max": ordered[-1]}


def cell_lines(result: CellResult) -> Iterator[str]:
    figures = result.verdict.get("figures", {})
    state = "passed" if result.passed else "FAILED"
    yield (
        f"  {state} in {result.seconds:.0f} s: {figures.get('acknowledged', 0):,} acknowledged, "
        f"{sum(result.faults.values())} faults, recovery {quantiles(figures.get('recovery_s', []))}"
    )
    yield f"    outcomes {json.dumps(figures.get('outcomes', {}))}"
    yield f"    logs {json.dumps(figures.get('logs', {}))}"
    if not result.passed:
        yield from (f"    {problem}" for problem in result.problems)
        yield f"    violations {result.verdict.get('violations')}; kept in {result.folder}"
        yield from (f"    {text}" for text in result.verdict.get("told", []))
