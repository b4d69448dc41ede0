"""The result of a benchmark: rows and ratios of each scenario, as JSON and as tables."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Self

from rich.console import Console
from rich.table import Table

OURS = "aioproducer"

WIDTH = 130
"""Columns of the terminal that the widest table needs; a narrower one wraps lines."""

FIGURES = {
    # name in an Outcome -> heading, digits after the point
    "records_per_s": ("records/s", 0),
    "cpu_us_per_record": ("CPU us/record", 2),
    "sent_bytes_per_record": ("bytes sent/record", 0),
    "p50_us": ("p50 us", 0),
    "p99_us": ("p99 us", 0),
    "rss_growth_mib": ("RSS growth MiB", 1),
    "accepted": ("accepted", 0),
    "refused": ("refused", 0),
    "import_ms": ("import ms", 1),
    "explain_us": ("explain us", 0),
    "pass_us": ("pass us", 0),
    "jvm_us_per_record": ("JVM us/record", 2),
    "python_us_per_record": ("Python us/record", 2),
    "batch_ms": ("p50 ms/batch", 0),
    "slow_batch_ms": ("p90 ms/batch", 0),
    "commit_ms": ("commit ms", 0),
    "call_us": ("us/call", 0),
    "claim_ms": ("claim ms", 1),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One client with one variant of the settings, over all rounds."""

    client: str
    variant: str
    """"defaults", "256 KiB", "100 tasks", ..."""

    rounds: dict[str, list[float]] = field(default_factory=dict)
    """Figure -> one value per round, oldest first."""

    configuration: dict[str, str] = field(default_factory=dict)

    def add(self, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self.rounds.setdefault(name, []).append(value)

    def median(self, figure: str) -> float | None:
        """Return the median of all rounds, or None if the figure was not measured."""
        values = self.rounds.get(figure)
        return median(values) if values else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A figure that compares two rows, or a limit that was observed."""

    measure: str
    """In words: "defaults: rate / confluent-kafka"."""

    value: float | None
    """None if one of the rows is missing."""

    unit: str = "x"


@dataclass(frozen=True, slots=True)
class ScenarioReport:
    name: str
    """As in `--only`."""

    title: str
    rows: Sequence[Row] = ()
    comparisons: Sequence[Comparison] = ()
    notes: Sequence[str] = ()


@dataclass(slots=True)
class BenchReport:
    """All results; grows during the run."""

    started: str
    """Date and time with zone, ISO 8601."""

    command: str
    machine: dict[str, str]
    versions: dict[str, str]
    broker: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    """Settings that all runs share."""

    scenarios: list[ScenarioReport] = field(default_factory=list)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        document = json.loads(text)
        for scenario in document["scenarios"]:
            scenario["rows"] = [Row(**row) for row in scenario["rows"]]
            scenario["comparisons"] = [Comparison(**each) for each in scenario["comparisons"]]
        document["scenarios"] = [ScenarioReport(**scenario) for scenario in document["scenarios"]]
        return cls(**document)


def ratio(value: float | None, other: float | None) -> float | None:
    """Return `value / other`, or None if either is missing or `other` is 0."""
    return value / other if value is not None and other else None


def median_of(rows: Sequence[Row], client: str, variant: str, figure: str = "records_per_s") -> float | None:
    """Return the median of a client's figure, or None if it was not measured."""
    return next((row.median(figure) for row in rows if (row.client, row.variant) == (client, variant)), None)


def figure_text(name: str, value: float) -> str:
    """Return a figure as text without its heading, such as "1,234,567"."""
    return f"{value:,.{FIGURES[name][1]}f}"


def figures_text(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{figure_text(name, value)} {FIGURES[name][0]}" for name, value in figures.items())


def comparison_cells(comparison: Comparison) -> list[str]:
    """Return measure and value of one comparison, with three significant digits."""
    value = comparison.value
    if value is None:
        return [comparison.measure, "not measured"]
    return [
        comparison.measure,
        f"{value:.3g} {comparison.unit}" if abs(value) < 100 else f"{value:,.0f} {comparison.unit}",
    ]


def table_of(scenario: ScenarioReport) -> tuple[list[str], list[list[str]]]:
    """Return the headings and lines of a scenario's rows: medians with their ranges, and the ratio of the first figure.

    The column of ratios is left out if no client is compared.
    """
    figures = [name for name in FIGURES if any(name in row.rounds for row in scenario.rows)]
    lines = [_row_cells(scenario.rows, row, figures) for row in scenario.rows]
    headings = ["client", "settings", *(FIGURES[name][0] for name in figures), "ours / it"]
    width = len(headings) if any(line[-1] for line in lines) else len(headings) - 1
    return headings[:width], [line[:width] for line in lines]


def print_report(console: Console, report: BenchReport) -> None:
    console.print(f"\n{report.command} · {report.started} · {report.broker}", highlight=False)
    for facts in (report.machine, report.versions, report.settings):
        console.print(facts_text(facts), highlight=False)
    for scenario in report.scenarios:
        if scenario.rows:
            _print_table(console, scenario.title, *table_of(scenario), names=2)
        if scenario.comparisons:
            lines = [comparison_cells(each) for each in scenario.comparisons]
            _print_table(console, f"{scenario.name}: compared", ["measure", "measured"], lines, names=1)
        configurations = [
            f"{row.client}, {row.variant}: {facts_text(row.configuration)}"
            for row in scenario.rows
            if row.configuration
        ]
        for line in (*scenario.notes, *configurations):
            console.print(f"  {line}", style="dim", highlight=False)


def facts_text(facts: Mapping[str, str]) -> str:
    """Return names and values on one line."""
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def _row_cells(rows: Sequence[Row], row: Row, figures: Sequence[str]) -> list[str]:
    times = ratio(median_of(rows, OURS, row.variant, figures[0]), row.median(figures[0])) if figures else None
    last = "" if times is None or row.client == OURS else f"{times:.2f}"
    return [row.client, row.variant, *(_median_and_range(row, name) for name in figures), last]


def _median_and_range(row: Row, figure: str) -> str:
    values, middle = row.rounds.get(figure), row.median(figure)
    if not values or middle is None:
        return ""
    if len(values) == 1:
        return figure_text(figure, middle)
    return f"{figure_text(figure, middle)} ({figure_text(figure, min(values))} - {figure_text(figure, max(values))})"


def _print_table(
    console: Console, title: str, headings: Sequence[str], lines: Sequence[Sequence[str]], *, names: int
) -> None:
    """Print a table whose first columns are names, on the left, and whose others are figures, on the right."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < names else "right")
    for line in lines:
        table.add_row(*line)
    console.print(table)
