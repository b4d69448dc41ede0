"""What a bench found: per scenario its rows, bars and notes, and around them when, where and with what. Pure."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeVar

from aioproducer.cli.benchmark.bars import Bar
from aioproducer.cli.benchmark.figures import Row

Value = TypeVar("Value")


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

    def to_json(self) -> str:
        """The JSON document: the fields as they are, and for each row and bar what follows from it."""
        document: dict[str, object] = dataclasses.asdict(self)
        document["scenarios"] = [_scenario_document(scenario) for scenario in self.scenarios]
        return json.dumps(document, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote; what follows from rows and bars is found anew."""
        document = json.loads(text)
        for scenario in document["scenarios"]:
            scenario["rows"] = [Row(**_without(row, "medians")) for row in scenario["rows"]]
            scenario["bars"] = [Bar(**_without(bar, "verdict")) for bar in scenario["bars"]]
        document["scenarios"] = [ScenarioReport(**scenario) for scenario in document["scenarios"]]
        return cls(**document)


def _scenario_document(scenario: ScenarioReport) -> dict[str, object]:
    return dataclasses.asdict(scenario) | {
        "rows": [
            dataclasses.asdict(row) | {"medians": {name: row.median(name) for name in row.rounds}}
            for row in scenario.rows
        ],
        "bars": [dataclasses.asdict(bar) | {"verdict": bar.verdict.value} for bar in scenario.bars],
    }


def _without(fields: Mapping[str, Value], derived: str) -> dict[str, Value]:
    return {name: value for name, value in fields.items() if name != derived}
