"""Real brokers, a nemesis, and an independent checker: `python -m tests.programs.chaos --minutes 30`.

    --gate          three cells of 30 s, and a secured session of transactions; with two seeds, every kind of fault
    --seed N        the first cell's; each later cell has the next one
    --faults a,b    only these kinds
    --client NAME   cells that other clients can run, by this one: aioproducer, confluent-kafka or aiokafka

Prints each cell as it goes, and a summary at the end; `--json FILE` writes the summary, too.
"""

import argparse
import asyncio
import contextlib
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from aioproducer.testing.kafka import MissingToolError
from aioproducer.testing.kafka.kafka_jars import require_kafka_prerequisites
from tests.programs.chaos import transactions
from tests.programs.chaos.cell import run_cell
from tests.programs.chaos.plans import PATIENT, VERSIONS, Plan, Scale, compared, drawn, gate, planned, secured
from tests.programs.chaos.producing.peers import CLIENTS
from tests.programs.chaos.summary import Summary, cell_lines
from tests.programs.timestamp import now

GATE = Scale(seconds=30, longest_stop_s=10, records_per_s=3_000, producers_per_s=33)
"""Cells of the gate: 1,000 short-lived producers in 30 s."""


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
