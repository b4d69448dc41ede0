"""Runs simulations under `coverage`, and says which lines and branches of what sends they have reached by themselves.

`python -m tests.programs.simulation --coverage --all --seeds 100`; in one process: others are not looked into. It must
be imported before anything of the package is, so that definitions count, too.
"""

import json
import tempfile
from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

import coverage

LINES: Final = 0.95
BRANCHES: Final = 0.90

AREAS: Final[Mapping[str, tuple[str, ...]]] = {
    "sender": (
        "_sender/sender.py",
        "_sender/compressor.py",
        "_sender/settlement.py",
        "_sender/completion.py",
        "_sender/produce_request.py",
    ),
    "accumulator": (
        "_accumulator/record_accumulator.py",
        "_accumulator/open_batches.py",
        "_accumulator/*partition*.py",
        "_accumulator/partition_queue.py",
        "_accumulator/batch_*.py",
        "_accumulator/buffer_pool.py",
        "_accumulator/memory_wait_queues.py",
        "_accumulator/wait_queue*.py",
        "_accumulator/record_accumulator.py",
        "_accumulator/partition_queue.py",
        "_accumulator/flush_generations.py",
        "_timing/timers.py",
        "_sender/produce_outcome.py",
        "_accumulator/producer_identity.py",
        "_timing/retry_backoff.py",
    ),
    "connection": ("_network/*.py", "_protocol/framing.py", "_protocol/handshake.py", "cluster.py"),
    "transactions": (
        "_transactions/manager.py",
        "_transactions/verdicts.py",
        "_transactions/requests.py",
        "_transactions/identity.py",
        "_transactions/begin_delays.py",
        "_transactions/runner.py",
        "_transactions/coordinators.py",
    ),
}
"""Files of the package, by what they are about."""


def run_measured(run: Callable[[], None]) -> bool:
    """Run something, then print what it has reached.

    Args:
        run: imports what it runs; may end the program.

    Returns:
        Whether it went well, and reached enough.
    """
    measure = coverage.Coverage(data_file=None, branch=True, source=["aioproducer"], config_file="pyproject.toml")
    measure.start()
    code: object = 0
    try:
        run()
    except SystemExit as end:
        code = end.code
    finally:
        measure.stop()
    return print_reached(_report(measure)) and not code


def _report(measure: coverage.Coverage) -> Mapping[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "reached.json"
        measure.json_report(outfile=str(file), show_contexts=False)
        files: Mapping[str, Any] = json.loads(file.read_text())["files"]
    return {name.partition("aioproducer/")[2]: found for name, found in files.items()}


def print_reached(files: Mapping[str, Any]) -> bool:
    """Print each area's share of lines and branches, and the lines that were not reached.

    Args:
        files: coverage's report of each file, by its place in the package.

    Returns:
        Whether all areas together reach enough.
    """
    totals = []
    for area, patterns in AREAS.items():
        found = {name: each for name, each in files.items() if any(fnmatch(name, pattern) for pattern in patterns)}
        for name, each in sorted(found.items()):
            if each["missing_lines"]:
                print(f"  {name}: not {', '.join(map(str, each['missing_lines']))}")
        totals.append([each["summary"] for each in found.values()])
        print(_shares(area, totals[-1]))
    everything = [summary for summaries in totals for summary in summaries]
    print(_shares("altogether", everything))
    return _share(everything, *_OF_LINES) >= LINES and _share(everything, *_OF_BRANCHES) >= BRANCHES


_OF_LINES = ("covered_lines", "num_statements")
_OF_BRANCHES = ("covered_branches", "num_branches")


def _share(summaries: list[Mapping[str, int]], reached: str, all_: str) -> float:
    return sum(each[reached] for each in summaries) / max(sum(each[all_] for each in summaries), 1)


def _shares(area: str, summaries: list[Mapping[str, int]]) -> str:
    lines, branches = _share(summaries, *_OF_LINES), _share(summaries, *_OF_BRANCHES)
    return f"{area}: {lines:.1%} of the lines, {branches:.1%} of the branches"
