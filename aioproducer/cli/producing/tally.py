"""Counts what becomes of each line, in memory that does not grow with the input.

Lines are numbered through all inputs, from 1. Kept are the lines under way, the lines that failed (as a bounded set
of ranges for each reason), and totals.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from aioproducer._protocol.error_codes import ErrorCode
from aioproducer.cli.producing.formats import BadLineError
from aioproducer.cli.producing.line_ranges import LineRanges
from aioproducer.errors import BrokerError, KafkaError, Outcome, ProducerClosedError
from aioproducer.records import RecordMetadata

MAX_PROBLEMS = 50
"""Reasons that are kept apart."""

OTHER_REASONS = "other reasons"
NOT_ACKNOWLEDGED = "not acknowledged before the command ended"


class InputLines(NamedTuple):
    """One input, as far as it was read."""

    name: str
    before: int
    """Lines of the inputs before it."""

    lines: int
    """Lines read of it."""


@dataclass(slots=True)
class Problem:
    """Lines that were not delivered, for one reason."""

    reason: str
    example: str
    """What was said of the first such line."""

    error: str
    """Name of the error class."""

    outcome: Outcome
    is_skipped: bool
    """Passed over on request."""

    records: int = 0
    lines: LineRanges = field(default_factory=LineRanges)


@dataclass(slots=True)
class PartitionCount:
    """Records delivered to one partition."""

    records: int
    first_offset: int
    last_offset: int


class Tally:
    """What became of the lines so far."""

    def __init__(self) -> None:
        self.under_way: dict[int, int] = {}
        """First line -> last line of each record that was handed over and has no answer; ascending."""

        self.problems: dict[tuple[str, str, Outcome], Problem] = {}
        self.partitions: dict[int, PartitionCount] = {}
        self.lines = 0
        """Lines read."""

        self.delivered = 0
        """Records delivered."""

        self._inputs: list[tuple[str, int]] = []  # name, lines before it
        self._done_to = 0  # the last line that is under way, delivered, bad or blank
        self._first_missing: int | None = None

    # Reading

    def open_input(self, name: str) -> None:
        """The next lines are of this input."""
        self._inputs.append((name, self.lines))

    def read_line(self) -> int:
        """Count one line; returns its number."""
        self.lines += 1
        return self.lines

    def bad(self, first: int, error: BadLineError, *, is_skipped: bool) -> None:
        """The lines from `first` to the last one read are no record."""
        self._done_to = self.lines
        problem = self._problem(error.reason, error, Outcome.NOT_WRITTEN, is_skipped=is_skipped)
        self._count(problem, first, self.lines)

    def blank(self) -> None:
        """The last line read is nothing, on purpose."""
        self._done_to = self.lines

    # Sending

    def sent(self, first: int) -> None:
        """The record from `first` to the last line read was handed over."""
        self._done_to = self.lines
        self.under_way[first] = self.lines

    def withdrawn(self, first: int) -> None:
        """The record that was handed over last was taken back: it is as if its lines were not read."""
        if self.under_way.pop(first, None) is not None:
            self._done_to = first - 1

    def delivered_at(self, first: int, metadata: RecordMetadata) -> None:
        """The record that begins at this line is in the log."""
        if self.under_way.pop(first, None) is None:
            return
        self.delivered += 1
        count = self.partitions.get(metadata.partition)
        if count is None:
            self.partitions[metadata.partition] = PartitionCount(1, metadata.offset, metadata.offset)
        else:
            count.records += 1
            count.last_offset = metadata.offset

    def failed(self, first: int, error: KafkaError, *, is_skipped: bool) -> None:
        """The record that begins at this line was not delivered."""
        last = self.under_way.pop(first, None)
        if last is None:
            return
        reason = NOT_ACKNOWLEDGED if isinstance(error, ProducerClosedError) else _reason(error)
        problem = self._problem(reason, error, error.outcome or Outcome.UNKNOWN, is_skipped=is_skipped)
        self._count(problem, first, last)

    # Looking

    @property
    def inputs(self) -> list[InputLines]:
        """Those that were opened."""
        ends = [*(before for _, before in self._inputs[1:]), self.lines][: len(self._inputs)]
        return [InputLines(name, before, end - before) for (name, before), end in zip(self._inputs, ends, strict=True)]

    @property
    def not_delivered(self) -> int:
        """Records, and lines that are none, that were not delivered; those under way are not among them."""
        return sum(problem.records for problem in self.problems.values())

    @property
    def is_complete(self) -> bool:
        """Whether every record read was delivered."""
        return not self.problems and not self.under_way

    @property
    def complete_to(self) -> int:
        """The last line up to which nothing is missing; skipped and blank lines do not count as missing."""
        first_missing = min(
            next(iter(self.under_way), self._done_to + 1),
            self._done_to + 1 if self._first_missing is None else self._first_missing,
        )
        return first_missing - 1

    def place(self, line: int) -> tuple[str, int]:
        """The input of a line and its number there, from 1; number 0 of the first input is before everything."""
        for source in reversed(self.inputs):
            if line > source.before or source.before == 0:
                return source.name, line - source.before
        return "", 0

    def places(self, lines: LineRanges) -> Iterator[tuple[str, int, int]]:
        """Input, first and last line there, of each range that is kept; a range over two inputs is two."""
        inputs = self.inputs
        for first, last in lines:
            for source in inputs:
                low, high = max(first, source.before + 1), min(last, source.before + source.lines)
                if low <= high:
                    yield source.name, low - source.before, high - source.before

    def _problem(self, reason: str, error: Exception, outcome: Outcome, *, is_skipped: bool) -> Problem:
        name = type(error).__name__
        problem = self.problems.get((reason, name, outcome))
        if problem is None:
            if len(self.problems) >= MAX_PROBLEMS:
                reason, name = OTHER_REASONS, KafkaError.__name__
            problem = self.problems.setdefault(
                (reason, name, outcome), Problem(reason, str(error), name, outcome, is_skipped)
            )
        return problem

    def _count(self, problem: Problem, first: int, last: int) -> None:
        problem.records += 1
        problem.lines.add(first, last)
        if not problem.is_skipped:
            self._first_missing = min(first, self._first_missing or first)


def _reason(error: KafkaError) -> str:
    """What errors of one kind have in common; their messages differ in numbers."""
    if not isinstance(error, BrokerError):
        return type(error).__name__
    row = ErrorCode.of(error.code)
    return f"error {error.code} of the broker" if row is None else row.name
