"""Real brokers, a fault injector, and an independent checker: `python -m tests.programs.chaos --minutes 30`.

    --gate          three cells of 30 s, and a secured session of transactions; with two seeds, every kind of fault
    --seed N        the first cell's; each later cell has the next one
    --faults a,b    only these kinds
    --client NAME   cells that other clients can run, by this one: aioproducer, confluent-kafka or aiokafka

Prints each cell as it goes, and a summary at the end; `--json FILE` writes the summary, too.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from aioproducer.testing.kafka import MissingToolError
from aioproducer.testing.kafka.cache import require_kafka_prerequisites
from tests.programs.chaos import transactions
from tests.programs.chaos.arena import now
from tests.programs.chaos.cell import CellResult, run_cell
from tests.programs.chaos.plans import PATIENT, VERSIONS, Plan, Scale, compared, drawn, gate, planned, secured
from tests.programs.chaos.producing.peers import CLIENTS

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


GATE = Scale(seconds=30, longest_stop_s=10, records_per_s=3_000, producers_per_s=33)
"""Cells of the gate: 1,000 short-lived producers in 30 s, a third of them in a secured cell."""


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.programs.chaos", description=__doc__)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, default=0, help="run cells until this time is over")
    length.add_argument("--gate", action="store_true", help="three cells and transactions, 30 s each; the default")
    length.add_argument("--cells", type=int, default=0, help="run so many cells")
    parser.add_argument("--kafka", choices=VERSIONS, help="only this version")
    parser.add_argument("--seed", type=int, default=None, help="of the first cell; random if not given")
    parser.add_argument("--cell-seconds", type=float, default=150)
    parser.add_argument("--rate", type=float, default=4_000, help="records a second, at most")
    parser.add_argument("--producers", type=float, default=6, help="short-lived producers a second")
    parser.add_argument("--faults", default="", help="only these kinds, separated by commas; with patient deadlines")
    parser.add_argument("--client", choices=CLIENTS, help="compare: one idempotent producer, deadlines of 4 s")
    parser.add_argument("--secured", action="store_true", help="SASL over TLS, with sessions of ten seconds")
    parser.add_argument("--folder", type=Path, default=None, help="where cells keep their files while they run")
    parser.add_argument("--json", type=Path, default=None, help="write the summary there too")
    return parser.parse_args(given)


def is_gate(asked: argparse.Namespace) -> bool:
    return asked.gate or not (asked.minutes or asked.cells or asked.client)


def plans(asked: argparse.Namespace, seed: int) -> Iterator[Plan]:
    """The cells to run, in order; ends by itself only for a number of cells."""
    if is_gate(asked):
        yield from gate(seed, GATE)
        return
    scale = Scale(asked.cell_seconds, 40, asked.rate, asked.producers)
    number = 0
    while asked.minutes or number < max(asked.cells, 1):
        if asked.client:
            yield compared(seed + number, scale, asked.kafka or VERSIONS[0], client=asked.client)
        elif asked.faults:
            version = asked.kafka or VERSIONS[0]
            yield planned(seed + number, scale, version, limits=PATIENT, faults=asked.faults.split(","))
        else:
            yield drawn(seed + number, scale, asked.kafka)
        number += 1


async def run(asked: argparse.Namespace, seed: int, folder: Path) -> Summary:
    summary = Summary()
    end = time.monotonic() + asked.minutes * 60
    for plan in map(secured, plans(asked, seed)) if asked.secured else plans(asked, seed):
        if asked.minutes and time.monotonic() >= end:
            break
        print(f"{now()} cell {summary.cells + 1}: seed {plan.seed}, Kafka {plan.version}, {plan.limits}")
        try:
            result = await run_cell(plan, folder / f"cell-{plan.seed}")
        except asyncio.CancelledError:
            print("  stopped: this cell counts for nothing")
            break
        summary.add(result)
        if asked.json is not None:
            asked.json.write_text(json.dumps(summary.as_json(), indent=1), "utf-8")
        print("\n".join(cell_lines(result)))
        print(f"  so far {summary.acknowledged:,} acknowledged, {sum(summary.faults.values())} faults", flush=True)
    return summary


async def run_until_told(asked: argparse.Namespace, seed: int, folder: Path) -> Summary:
    """Run until SIGTERM or Ctrl-C: nothing is left behind, and the cells that ended count."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await run(asked, seed, folder)


def main(given: Sequence[str]) -> int:
    """0 if nothing was violated, 1 otherwise."""
    asked = arguments(given)
    try:
        for version in VERSIONS:
            require_kafka_prerequisites(version)
    except MissingToolError as missing:
        print(f"SKIPPED tests/programs/chaos: {missing}")
        return 0 if asked.gate else 1
    seed = random.SystemRandom().randrange(1_000_000) if asked.seed is None else asked.seed
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="aioproducer-chaos-"))
    summary = asyncio.run(run_until_told(asked, seed, folder))
    print("\n" + "\n".join(summary.lines()))
    with contextlib.suppress(OSError):
        folder.rmdir()  # cells that failed keep it
    failed = bool(summary.failed or not summary.cells)
    if is_gate(asked) and summary.cells == len(gate(seed, GATE)):  # not stopped before
        version = VERSIONS[(seed + 1) % 2]  # not that of the secured cell
        failed |= bool(transactions.main(["--secured", "--seconds=30", f"--kafka={version}", f"--seed={seed}"]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
