"""What a bench found: per scenario its rows, bars and notes, and around them when, where and with what. Pure."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from aioproducer.cli.benchmark.bars import Bar
from aioproducer.cli.benchmark.figures import Row


@dataclass(frozen=True, slots=True)
class ScenarioReport:
    """One scenario."""

    name: str
    """As in `--only`."""

    title: str
    rows: Sequence[Row] = ()
    bars: Sequence[Bar] = ()
    notes: Sequence[str] = ()
    """What a reader must know: a peer that is missing, a run that was repeated."""


@dataclass(slots=True)
class BenchReport:
    """Everything; grows while it is measured."""

    started: str
    """Date and time, ISO 8601, with zone."""

    command: str
    """The arguments it was started with."""

    machine: dict[str, str]
    versions: dict[str, str]
    broker: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    """What all runs have in common."""

    scenarios: list[ScenarioReport] = field(default_factory=list)

    def to_document(self) -> dict[str, object]:
        """The JSON document: the fields as they are, and for each row and bar what follows from it."""
        document: dict[str, object] = dataclasses.asdict(self)
        document["scenarios"] = [_scenario_document(scenario) for scenario in self.scenarios]
        return document


def _scenario_document(scenario: ScenarioReport) -> dict[str, object]:
    return dataclasses.asdict(scenario) | {
        "rows": [
            dataclasses.asdict(row) | {"medians": {name: row.median(name) for name in row.rounds}}
            for row in scenario.rows
        ],
        "bars": [dataclasses.asdict(bar) | {"verdict": bar.verdict.value} for bar in scenario.bars],
    }
