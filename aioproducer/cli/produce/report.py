"""Counts the results of `aioproducer produce`, and describes them for people."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import NamedTuple

from aioproducer._protocol.error_codes import ErrorCode
from aioproducer.cli.produce.input import BadLineError
from aioproducer.errors import BrokerError, KafkaError, Outcome, ProducerClosedError

MAX_RANGES = 1_000
MAX_RANGES_SHOWN = 8
MAX_PROBLEMS = 50
MAX_PROBLEMS_SHOWN = 10
MIN_SPEED_S, MIN_SPEED_RECORDS = 1.0, 100
"""A shorter or smaller run has no meaningful speed: connecting takes most of its time."""

OTHER_REASONS = "other reasons"
NOT_ACKNOWLEDGED = "not acknowledged before the command ended"


class TransactionOutcome(Enum):
    """The state of the transaction around the input."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"  # a commit was requested, and no broker answered


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended, besides its tally."""

    topic: str
    elapsed_s: float
    bytes_read: int
    acks: int
    interrupted_by: str | None = None  # name of the signal
    error: str | None = None  # an error that concerns no single line
    exit_code: int = 0
    transaction: TransactionOutcome | None = None  # None without a transaction


class LineRanges:
    """A set of line numbers; beyond `max_ranges` ranges, the highest lines are only counted."""

    __slots__ = ("_max_ranges", "_ranges", "count")

    def __init__(self, max_ranges: int = MAX_RANGES) -> None:
        self._max_ranges = max_ranges
        self._ranges: list[tuple[int, int]] = []  # (first, last), both included; ascending, never adjacent
        self.count: int = 0  # all added lines

    def add(self, first: int, last: int) -> None:
        self.count += last - first + 1
        ranges = self._ranges
        at = bisect_left(ranges, (first, last))
        start, end = at, at
        if at > 0 and ranges[at - 1][1] == first - 1:
            start, first = at - 1, ranges[at - 1][0]
        if at < len(ranges) and ranges[at][0] == last + 1:
            end, last = at + 1, ranges[at][1]
        ranges[start:end] = [(first, last)]
        del ranges[self._max_ranges :]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._ranges)


class InputLines(NamedTuple):
    """The lines of one input that were read."""

    name: str
    before: int  # number of lines in the inputs before it
    lines: int


@dataclass(slots=True)
class Problem:
    """Lines that were not delivered for the same reason."""

    reason: str
    example: str  # the message for the first line
    is_skipped: bool

    records: int = 0
    lines: LineRanges = field(default_factory=LineRanges)


class Tally:
    """Counts the results of all lines, in memory that does not grow with the input.

    Lines are numbered through all inputs, from 1. Lines in flight and, for each reason, a bounded set of failed lines
    are kept; others are only counted.
    """

    def __init__(self) -> None:
        self.in_flight: dict[int, int] = {}  # first line -> last line of each record in flight; ascending
        self.problems: dict[tuple[str, str, Outcome], Problem] = {}
        self.lines: int = 0
        self.delivered: int = 0
        self._inputs: list[tuple[str, int]] = []  # name, lines before it
        self._done_to = 0  # the last line whose record is in flight or ended
        self._first_missing: int | None = None

    def open_input(self, name: str) -> None:
        self._inputs.append((name, self.lines))

    def read_line(self) -> int:
        self.lines += 1
        return self.lines

    def bad(self, first: int, error: BadLineError, *, is_skipped: bool) -> None:
        self._done_to = self.lines
        problem = self._problem(error.reason, error, Outcome.NOT_WRITTEN, is_skipped=is_skipped)
        self._count(problem, first, self.lines)

    def blank(self) -> None:
        self._done_to = self.lines

    def sent(self, first: int) -> None:
        self._done_to = self.lines
        self.in_flight[first] = self.lines

    def withdrawn(self, first: int) -> None:
        """Forget the last record, whose `enqueue` was cancelled: its lines count as unread."""
        if self.in_flight.pop(first, None) is not None:
            self._done_to = first - 1

    def delivered_at(self, first: int) -> None:
        if self.in_flight.pop(first, None) is not None:
            self.delivered += 1

    def failed(self, first: int, error: KafkaError, *, is_skipped: bool) -> None:
        last = self.in_flight.pop(first, None)
        if last is None:
            return
        reason = NOT_ACKNOWLEDGED if isinstance(error, ProducerClosedError) else _reason(error)
        problem = self._problem(reason, error, error.outcome or Outcome.UNKNOWN, is_skipped=is_skipped)
        self._count(problem, first, last)

    @property
    def inputs(self) -> list[InputLines]:
        ends = [*(before for _, before in self._inputs[1:]), self.lines][: len(self._inputs)]
        return [InputLines(name, before, end - before) for (name, before), end in zip(self._inputs, ends, strict=True)]

    @property
    def not_delivered(self) -> int:
        """Failed records and invalid lines."""
        return sum(problem.records for problem in self.problems.values())

    @property
    def is_complete(self) -> bool:
        return not self.problems and not self.in_flight

    @property
    def complete_to(self) -> int:
        """The last line before the first missing one; skipped and blank lines are not missing."""
        first_missing = min(
            next(iter(self.in_flight), self._done_to + 1),
            self._done_to + 1 if self._first_missing is None else self._first_missing,
        )
        return first_missing - 1

    def position(self, line: int) -> tuple[str, int]:
        """Return the input of a line and its number there, from 1; line 0 belongs to the first input."""
        for source in reversed(self.inputs):
            if line > source.before or source.before == 0:
                return source.name, line - source.before
        return "", 0

    def ranges(self, lines: LineRanges) -> Iterator[tuple[str, int, int]]:
        """Yield input, first and last line there of each range; a range over two inputs is two."""
        inputs = self.inputs
        for first, last in lines:
            for source in inputs:
                low, high = max(first, source.before + 1), min(last, source.before + source.lines)
                if low <= high:
                    yield source.name, low - source.before, high - source.before

    def _problem(self, reason: str, error: Exception, outcome: Outcome, *, is_skipped: bool) -> Problem:
        key = (reason, type(error).__name__, outcome)
        if key not in self.problems and len(self.problems) >= MAX_PROBLEMS:
            key = (OTHER_REASONS, KafkaError.__name__, outcome)
        return self.problems.setdefault(key, Problem(key[0], str(error), is_skipped))

    def _count(self, problem: Problem, first: int, last: int) -> None:
        problem.records += 1
        problem.lines.add(first, last)
        if not problem.is_skipped:
            self._first_missing = min(first, self._first_missing or first)


def _reason(error: KafkaError) -> str:
    """Return a description that similar errors share; their messages differ in numbers."""
    if not isinstance(error, BrokerError):
        return type(error).__name__
    row = ErrorCode.of(error.code)
    return f"error {error.code} of the broker" if row is None else row.name


def summary(result: RunResult, tally: Tally) -> Iterator[str]:
    """Yield lines on what was delivered, what was not and why, and how far the run got."""
    if result.error is not None:
        yield result.error
    if not tally.inputs and result.interrupted_by is None:
        return  # nothing was read
    yield from _problem_lines(tally)
    if result.transaction is TransactionOutcome.ABORTED:
        yield _aborted(result)
        return
    yield f"{_delivered(result, tally)} in {result.elapsed_s:.1f} s{_speed(result, tally)}"
    if result.interrupted_by is not None or tally.complete_to < tally.lines:
        yield _how_far(tally)


def _problem_lines(tally: Tally) -> Iterator[str]:
    problems = sorted(tally.problems.values(), key=lambda problem: next(iter(problem.lines)))
    for problem in problems[:MAX_PROBLEMS_SHOWN]:
        yield f"{_ranges(problem, tally)}: {_what(problem)}"
    if len(problems) > MAX_PROBLEMS_SHOWN:
        yield f"{len(problems) - MAX_PROBLEMS_SHOWN} more reasons"


def _what(problem: Problem) -> str:
    skipped = "skipped, " if problem.is_skipped else ""
    if problem.records == 1:
        return f"{skipped}{problem.example}"
    return f"{skipped}{problem.records:,} records: {problem.reason}; the first: {problem.example}"


def _ranges(problem: Problem, tally: Tally) -> str:
    """Return `a.csv:3-5,9 b.csv:1`, and the number of other lines."""
    shown, name, parts = 0, None, []
    for source, first, last in islice(tally.ranges(problem.lines), MAX_RANGES_SHOWN):
        shown += last - first + 1
        lines = f"{first}" if first == last else f"{first}-{last}"
        parts.append(f",{lines}" if source == name else f"{' ' if name else ''}{source}:{lines}")
        name = source
    more = problem.lines.count - shown
    return "".join(parts) + (f" and {more:,} lines more" if more else "")


def _aborted(result: RunResult) -> str:
    text = f"the transaction is aborted: nothing of the input is in {result.topic}"
    return text if result.interrupted_by is None else f"interrupted after {result.elapsed_s:.1f} s: {text}"


def _delivered(result: RunResult, tally: Tally) -> str:
    action = "delivered" if result.acks else "sent (acks=0: not acknowledged)"
    total = tally.delivered + tally.not_delivered
    count = f"{total:,} {'record' if total == 1 else 'records'}"
    if tally.not_delivered:
        count = f"{tally.delivered:,} of {total:,} records"
    text = f"{count} {action} to {result.topic}"
    return text if result.interrupted_by is None else f"interrupted: {text}"


def _speed(result: RunResult, tally: Tally) -> str:
    if result.elapsed_s < MIN_SPEED_S or tally.delivered < MIN_SPEED_RECORDS:
        return ""
    records, megabytes = tally.delivered / result.elapsed_s, result.bytes_read / result.elapsed_s / 1e6
    return f" ({records:,.0f} records/s, {megabytes:,.1f} MB/s read)"


def _how_far(tally: Tally) -> str:
    name, line = tally.position(tally.complete_to)
    if not line:
        return "the very first line is missing" if tally.delivered else "nothing was delivered"
    skipped = " or skipped" if any(problem.is_skipped for problem in tally.problems.values()) else ""
    return f"everything up to {name}:{line} was delivered{skipped}"
