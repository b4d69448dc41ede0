"""Checks the cell in a folder: `python -m tests.programs.chaos.checker FOLDER`; writes FOLDER/verdict.json.

Logs are compared with histories (`log_check.py`); then recovery, closing and logged errors are checked.
"""

import json
import sys
from collections import Counter
from pathlib import Path

from tests.programs.chaos.checker.cell_files import Cell, End, Event, Kind, load_cell, load_ends, load_events
from tests.programs.chaos.checker.log_check import (
    Deadline,
    Histories,
    LogCheck,
    check_all_lives,
    check_endings,
    load_histories,
    overlap,
)
from tests.programs.chaos.checker.verdict import Verdict

RECOVERY_S = 10.0  # limit of the first acknowledgement after healing, on top of the request timeout
BUSY_S = 5.0  # lateness of deadlines that a busy machine may cause

CLOSE_LATE_S = 2.0
"""What a busy machine needs, beside the times when the process did not run at all."""


def check_cell(folder: Path) -> Verdict:
    verdict = Verdict()
    cell, events = load_cell(folder), load_events(folder)
    histories = load_histories(sorted(folder.glob("history-*.bin")), verdict)
    faults = [event for event in events if "healed_us" in event]
    ends = load_ends(folder)
    _check_histories(cell, histories, list(ends.values()), verdict=verdict)
    _check_logs(folder, cell, histories, events=events, verdict=verdict)
    _check_recovery(cell, histories, faults, ends=list(ends.values()), verdict=verdict)
    for name, end in ends.items():
        _check_end(name, end, verdict)
    return verdict


def _check_histories(cell: Cell, histories: Histories, ends: list[End], *, verdict: Verdict) -> None:
    limits = cell["limits"]
    limit_us = int((limits["delivery_timeout_ms"] + limits["max_block_ms"]) * 1000 + BUSY_S * 1e6)
    outcomes: dict[str, Counter[str]] = {topic["name"]: Counter() for topic in cell["topics"].values()}
    longest = 0
    for client, history in histories.items():
        deadline = Deadline(limit_us, lags_of(client, ends))
        longest = max(longest, check_endings(history, deadline, verdict))
        for topic, outcome in zip(history.topic, history.outcome, strict=True):
            outcomes[cell["topics"][str(topic)]["name"]][Kind(outcome).name] += 1
    verdict.figures["outcomes"] = {topic: dict(counts) for topic, counts in outcomes.items()}
    verdict.figures["acknowledged"] = sum(counts["OK"] for counts in outcomes.values())
    verdict.figures["clients"] = len(histories)
    verdict.figures["longest_life_s"] = round(longest / 1e6, 2)


def _check_logs(folder: Path, cell: Cell, histories: Histories, *, events: list[Event], verdict: Verdict) -> None:
    checks = []
    for dump in sorted(folder.glob("log-*.bin")):
        topic = dump.stem.split("-")[1]
        check = LogCheck(dump, histories, verdict, idempotent=cell["topics"][topic]["idempotent"])
        check.run(events)
        checks.append(check)
    check_all_lives(checks, histories, verdict)
    missing = {int(topic) for topic in cell["topics"]} - {check.covered.topic for check in checks}
    for topic in sorted(missing):
        verdict.add("LOST", f"topic {topic} was never read")
    verdict.figures["logs"] = {
        f"{cell['topics'][str(check.covered.topic)]['name']} {check.covered.topic_id}": dict(check.counts)
        for check in checks
    }


def lags_of(client: int, ends: list[End]) -> list[tuple[int, int]]:
    """Return the times when the process of a client did not run."""
    return [lag for end in ends if end["clients"][0] <= client < end["clients"][1] for lag in end["lags"]]


def _check_recovery(
    cell: Cell, histories: Histories, faults: list[Event], *, ends: list[End], verdict: Verdict
) -> None:
    bound_us = cell["limits"]["request_timeout_ms"] * 1000 + int(RECOVERY_S * 1e6)
    recovered: list[float] = []
    by_fault: list[tuple[str, int, float | None]] = []
    for event in faults:
        for client in cell["lasting_clients"]:
            healed_us = event["healed_us"]
            first = histories[client].first_acknowledged_after(healed_us) if client in histories else None
            took_us = None if first is None else first - healed_us
            lag_us = overlap(healed_us, healed_us + bound_us, lags_of(client, ends))
            by_fault.append((event["kind"], client, None if took_us is None else took_us / 1e6))
            if took_us is not None and took_us <= bound_us + lag_us:
                recovered.append(took_us / 1e6)
            elif healed_us + bound_us < cell["sending_ended_us"]:
                verdict.add("RECOVERY", f"client {client} after {event['kind']}: {took_us} us (bound {bound_us} us)")
    recovered.sort()
    verdict.figures["recovery_by_fault"] = by_fault
    verdict.figures["recovery_s"] = [round(seconds, 3) for seconds in recovered]


def _check_end(name: str, end: End, verdict: Verdict) -> None:
    """CLOSE and LOGGED_ERROR for one process."""
    for close in end["closes"]:
        until_us = close["began_us"] + int(close["seconds"] * 1e6)
        lag_s = overlap(close["began_us"], until_us, end["lags"]) / 1e6
        if close["seconds"] - lag_s > close["timeout_s"] + CLOSE_LATE_S:
            verdict.add("CLOSE", f"{name}: {close}, of which the process did not run {lag_s:.1f} s")
    for text in end["errors_without_cause"]:
        verdict.add("LOGGED_ERROR", f"{name}: {text}")


def main() -> int:
    """0 if nothing was violated, 1 otherwise."""
    folder = Path(sys.argv[1])
    verdict = check_cell(folder)
    (folder / "verdict.json").write_text(json.dumps(verdict.as_json(), indent=1), "utf-8")
    for line in verdict.lines():
        print(line)
    return 0 if verdict.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
