"""The figures of many runs add up."""

from typing import Any

from tests.programs.chaos.totals import table, totals


def line(package: str, acknowledged: int, **violations: int) -> dict[str, Any]:
    """The evidence of one run."""
    return {
        "package": package,
        "totals": {
            "cells": 2,
            "seconds": 600,
            "acknowledged": acknowledged,
            "clients": 10,
            "faults_by_kind": {"kill_leader": 3},
            "recovery_s": {"max": acknowledged / 1000},
            "in_logs": {"losses_explained": 1},
            "violations": violations,
        },
    }


def test_runs_add_up() -> None:
    """Sums, and the slowest recovery of all."""
    found = totals([line("a", 1_000), line("b", 2_000, C1=2)])

    assert (found["acknowledged"], found["faults"], found["minutes"], found["slowest_recovery_s"]) == (
        3_000,
        6,
        20,
        2.0,
    )
    assert found["violations"] == {"C1": 2}


def test_runs_of_the_present_package_are_shown_apart() -> None:
    """What is claimed of it must have been run on it."""
    rows = list(table([line("a" * 64, 1_000), line("b" * 64, 2_000)], "b" * 64))

    assert "| acknowledged | 3,000 | 2,000 |" in rows
    assert rows[0] == "| | all runs | at package bbbbbbbbbbbb |"
