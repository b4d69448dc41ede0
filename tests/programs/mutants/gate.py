"""Runs the simulation until its first violation, in a process of its own.

`python -m tests.programs.mutants.gate D2 D9`.

Started in the folder of a copy of the package, so that the copy is what is imported. It prints what it is about to
do, so that the parent process knows at which seed a run that never ends has hung, and last one line of JSON.
"""

import argparse
import gc
import json
import signal
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import aioproducer
from tests.programs.simulation.campaign import run_plan
from tests.programs.simulation.plan import draw_plan

HANG_S = 60.0  # limit of processor time: no run takes a hundredth of that, so one that reaches it is a busy loop


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.programs.mutants.gate", description=__doc__)
    parser.add_argument("runs", nargs="+", help="families, or single runs as FAMILY:SEED")
    parser.add_argument("--seeds", type=int, default=100, help="of each family")
    parser.add_argument("--seconds", type=float, default=3600.0, help="of processor time: begin no further run then")
    arguments = parser.parse_args()
    if Path(aioproducer.__file__).parents[1] != Path.cwd():
        raise SystemExit(f"{aioproducer.__file__} is not the copy in {Path.cwd()}")
    print(json.dumps(_until_first(_pairs(arguments.runs, arguments.seeds), arguments.seconds)), flush=True)


def _pairs(runs: list[str], seeds: int) -> Iterator[tuple[str, int]]:
    """(family, seed); every family has its turn early."""
    families = [run for run in runs if ":" not in run]
    yield from ((run.partition(":")[0], int(run.partition(":")[2])) for run in runs if ":" in run)
    yield from ((family, seed) for seed, family in product(range(seeds), families))


def _until_first(pairs: Iterator[tuple[str, int]], seconds: float) -> dict[str, object]:
    until = time.process_time() + seconds
    gc.set_threshold(50_000, 20, 100)
    runs = 0
    for family, seed in pairs:
        if time.process_time() > until:
            break
        print(f"{family} {seed}", flush=True)
        signal.setitimer(signal.ITIMER_VIRTUAL, HANG_S)  # SIGVTALRM ends the process, in native code too
        result = run_plan(draw_plan(family, seed))
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        runs += 1
        if result.violations:
            return {"runs": runs, "family": family, "seed": seed, "violation": str(result.violations[0])}
    return {"runs": runs}


main()
