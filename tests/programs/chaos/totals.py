"""Adds the evidence of all runs up.

`python -m tests.programs.chaos.totals [FILE]` prints a table for the documentation.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.programs.evidence import ROOT, package_hash

EVIDENCE = ROOT / "docs" / "evidence" / "chaos.jsonl"


def totals(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The sums over runs."""
    told = [line["totals"] for line in lines]
    kinds: Counter[str] = Counter()
    violations: Counter[str] = Counter()
    for each in told:
        kinds.update(each["faults_by_kind"])
        violations.update(each["violations"])
    return {
        "runs": len(told),
        "cells": sum(each["cells"] for each in told),
        "minutes": round(sum(each["seconds"] for each in told) / 60),
        "acknowledged": sum(each["acknowledged"] for each in told),
        "producers": sum(each["clients"] for each in told),
        "faults": sum(kinds.values()),
        "faults_by_kind": dict(sorted(kinds.items())),
        "slowest_recovery_s": max((each["recovery_s"].get("max", 0) for each in told), default=0),
        "losses_explained": sum(each["in_logs"].get("losses_explained", 0) for each in told),
        "violations": dict(violations),
    }


def table(lines: Sequence[dict[str, Any]], package: str) -> Iterator[str]:
    """Two columns of figures: of all runs, and of those at the present package."""
    everything = totals(lines)
    here = totals([line for line in lines if line["package"] == package])
    yield f"| | all runs | at package {package[:12]} |"
    yield "|---|---:|---:|"
    for name, value in everything.items():
        yield f"| {name} | {shown(value)} | {shown(here[name])} |"


def shown(value: object) -> str:
    """A figure as it is written."""
    if isinstance(value, dict):
        return ", ".join(f"{count} {kind}" for kind, count in value.items()) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)


def main(given: Sequence[str]) -> None:
    """Print the table."""
    file = Path(given[0]) if given else EVIDENCE
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    print("\n".join(table(lines, package_hash())))


if __name__ == "__main__":
    main(sys.argv[1:])
