"""What a check of one cell comes to: violations by check, and figures."""

import dataclasses
from collections import Counter
from collections.abc import Iterator

TOLD_AT_MOST = 20
"""How many violations of one check are told; all are counted."""

CHECKS = {
    "I2": "every record ends exactly once, and in time",
    "C1": "acknowledged records are in the log",
    "C2": "first copies of acknowledged records are in the order of sending, by client and partition",
    "C3": "records said to be NOT_WRITTEN are not in the log",
    "C4": "no record is in the log twice",
    "C5": "nothing else is in the log",
    "C6": "offsets, timestamps and partitions that were told are those of the log",
    "C7": "transactions are visible whole or not at all, committed ones are, aborted ones never",
    "C8": "offsets are committed if and only if what was made of their records is visible",
    "C9": "nothing that a fenced producer wrote becomes visible",
    "C10": "the first acknowledgement comes soon after healing",
    "C11": "close ends within its timeout",
    "C12": "no error is logged without a cause",
}
"""The checks, by their names in the plan."""


@dataclasses.dataclass(slots=True)
class Verdict:
    """Collects while a cell is checked."""

    violations: Counter[str] = dataclasses.field(default_factory=Counter)
    """How many, by check."""

    told: list[str] = dataclasses.field(default_factory=list)
    """The first of each check, in words."""

    figures: dict[str, object] = dataclasses.field(default_factory=dict)
    """Counts and times."""

    def add(self, check: str, text: str) -> None:
        """One violation."""
        self.violations[check] += 1
        if self.violations[check] <= TOLD_AT_MOST:
            self.told.append(f"{check}: {text}")

    @property
    def is_clean(self) -> bool:
        """Whether nothing was violated."""
        return not self.violations

    def as_json(self) -> dict[str, object]:
        """For a file."""
        return {
            "violations": dict(sorted(self.violations.items())),
            "told": self.told,
            "figures": self.figures,
        }

    def lines(self) -> Iterator[str]:
        """For people."""
        for check, count in sorted(self.violations.items()):
            yield f"{check} violated {count} times ({CHECKS[check]})"
        yield from self.told
