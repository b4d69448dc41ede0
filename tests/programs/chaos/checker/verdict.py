"""Verdict on one cell: violations by check, and figures."""

import dataclasses
from collections import Counter
from collections.abc import Iterator

from tests.programs.invariants import INVARIANTS

TOLD_AT_MOST = 20  # violations of one check that are printed; all are counted


@dataclasses.dataclass(slots=True)
class Verdict:
    """Collects while a cell is checked."""

    violations: Counter[str] = dataclasses.field(default_factory=Counter)
    told: list[str] = dataclasses.field(default_factory=list)
    figures: dict[str, object] = dataclasses.field(default_factory=dict)

    def add(self, check: str, text: str) -> None:
        self.violations[check] += 1
        if self.violations[check] <= TOLD_AT_MOST:
            self.told.append(f"{check}: {text}")

    @property
    def is_clean(self) -> bool:
        return not self.violations

    def as_json(self) -> dict[str, object]:
        return {"violations": dict(sorted(self.violations.items())), "told": self.told, "figures": self.figures}

    def lines(self) -> Iterator[str]:
        for check, count in sorted(self.violations.items()):
            yield f"{check} violated {count} times ({INVARIANTS[check]})"
        yield from self.told
