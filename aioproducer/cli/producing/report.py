"""Tells how a run of `aioproducer produce` ended: lines for people, JSON for programs."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from aioproducer.cli.producing.tally import Problem, Tally
from aioproducer.cli.producing.whole_input import Fate

MAX_RANGES_SHOWN = 8
"""Line ranges of one problem that people are shown; the JSON has all that are kept."""

MAX_PROBLEMS_SHOWN = 10

MIN_SPEED_S, MIN_SPEED_RECORDS = 1.0, 100
"""A shorter or smaller run says nothing about speed: connecting is most of it."""


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """How a run ended, besides its tally."""

    topic: str
    bootstrap_servers: str
    started_at: datetime
    elapsed_s: float
    bytes_read: int
    acks: int
    interrupted_by: str | None = None
    """Name of the signal."""

    error: str | None = None
    """What ended it early and is no matter of a line."""

    exit_code: int = 0

    transaction: Fate | None = None
    """What became of it; None without one."""


def report(ending: TransactionResult, tally: Tally) -> dict[str, object]:
    """The report as JSON values; see `docs/how-to/produce_files.md` for the meaning of each field."""
    input_name, line = tally.place(tally.complete_to)
    return {
        "topic": ending.topic,
        "bootstrap_servers": ending.bootstrap_servers,
        "started_at": ending.started_at.isoformat(timespec="milliseconds"),
        "elapsed_s": round(ending.elapsed_s, 3),
        "exit_code": ending.exit_code,
        "interrupted_by": ending.interrupted_by,
        "error": ending.error,
        "acks": ending.acks,
        "transaction": ending.transaction,
        "inputs": [{"name": source.name, "lines_read": source.lines} for source in tally.inputs],
        "bytes_read": ending.bytes_read,
        "lines_read": tally.lines,
        "delivered": tally.delivered,
        "not_delivered": tally.not_delivered,
        "complete_to": {"input": input_name, "line": line} if line and ending.transaction is not Fate.ABORTED else None,
        "partitions": {
            str(partition): {
                "records": count.records,
                "first_offset": count.first_offset,
                "last_offset": count.last_offset,
            }
            for partition, count in sorted(tally.partitions.items())
        },
        "problems": [_problem(problem, tally) for problem in tally.problems.values()],
    }


def summary(ending: TransactionResult, tally: Tally) -> Iterator[str]:
    """Lines for people: what was delivered, what was not and why, and how far it got."""
    if ending.error is not None:
        yield ending.error
    if not tally.inputs and ending.interrupted_by is None:
        return  # it never came to reading
    yield from _problem_lines(tally)
    yield f"{_delivered(ending, tally)} in {ending.elapsed_s:.1f} s{_speed(ending, tally)}"
    if ending.transaction is Fate.ABORTED:
        return
    if ending.interrupted_by is not None or tally.complete_to < tally.lines:
        yield _how_far(tally)


def _problem_lines(tally: Tally) -> Iterator[str]:
    problems = sorted(tally.problems.values(), key=lambda problem: next(iter(problem.lines)))
    for problem in problems[:MAX_PROBLEMS_SHOWN]:
        yield f"{_places(problem, tally)}: {_what(problem)}"
    if len(problems) > MAX_PROBLEMS_SHOWN:
        yield f"{len(problems) - MAX_PROBLEMS_SHOWN} more reasons; --report FILE has them all"


def _what(problem: Problem) -> str:
    """The problem in words; of several records the first is the example."""
    skipped = "skipped, " if problem.is_skipped else ""
    if problem.records == 1:
        return f"{skipped}{problem.example}"
    return f"{skipped}{problem.records:,} records: {problem.reason}; the first: {problem.example}"


def _places(problem: Problem, tally: Tally) -> str:
    """`a.csv:3-5,9 b.csv:1`, and how many lines more."""
    shown, name, parts = 0, None, []
    for source, first, last in islice(tally.places(problem.lines), MAX_RANGES_SHOWN):
        shown += last - first + 1
        lines = f"{first}" if first == last else f"{first}-{last}"
        parts.append(f",{lines}" if source == name else f"{' ' if name else ''}{source}:{lines}")
        name = source
    more = problem.lines.count - shown
    return "".join(parts) + (f" and {more:,} lines more" if more else "")


def _delivered(ending: TransactionResult, tally: Tally) -> str:
    if ending.transaction is Fate.ABORTED:
        count = f"the transaction is aborted: nothing of the input is in {ending.topic}"
        return count if ending.interrupted_by is None else f"interrupted: {count}"
    verb = "delivered" if ending.acks else "sent (acks=0: not acknowledged)"
    total = tally.delivered + tally.not_delivered
    count = f"{total:,} {'record' if total == 1 else 'records'}"
    if tally.not_delivered:
        count = f"{tally.delivered:,} of {total:,} records"
    text = f"{count} {verb} to {ending.topic}"
    return text if ending.interrupted_by is None else f"interrupted: {text}"


def _speed(ending: TransactionResult, tally: Tally) -> str:
    is_short = ending.elapsed_s < MIN_SPEED_S or tally.delivered < MIN_SPEED_RECORDS
    if is_short or ending.transaction is Fate.ABORTED:
        return ""
    records, megabytes = tally.delivered / ending.elapsed_s, ending.bytes_read / ending.elapsed_s / 1e6
    return f" ({records:,.0f} records/s, {megabytes:,.1f} MB/s read)"


def _how_far(tally: Tally) -> str:
    name, line = tally.place(tally.complete_to)
    if not line:
        return "the very first line is missing" if tally.delivered else "nothing was delivered"
    skipped = " or skipped" if any(problem.is_skipped for problem in tally.problems.values()) else ""
    return f"everything up to {name}:{line} was delivered{skipped}"


def _problem(problem: Problem, tally: Tally) -> dict[str, object]:
    return {
        "reason": problem.reason,
        "error": problem.error,
        "outcome": problem.outcome.value,
        "example": problem.example,
        "skipped": problem.is_skipped,
        "records": problem.records,
        "lines": problem.lines.count,
        "ranges": [
            {"input": name, "first_line": first, "last_line": last} for name, first, last in tally.places(problem.lines)
        ],
        "lines_left_out": problem.lines.left_out,
    }
