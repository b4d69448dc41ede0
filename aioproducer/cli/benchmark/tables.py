"""The report as tables for people: machine and settings, then for each scenario its rows, bars and notes."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from aioproducer.cli.benchmark.bars import Bar
from aioproducer.cli.benchmark.bench_run import OURS
from aioproducer.cli.benchmark.figures import FIGURES, Row, figure_text, find_row, ratio
from aioproducer.cli.benchmark.report import BenchReport, ScenarioReport

LEFT_COLUMNS = 2
"""The names; figures are on the right."""

WIDTH = 130
"""Columns of the terminal that the widest table needs; a narrower one wraps lines, which is readable too."""


def print_report(console: Console, report: BenchReport) -> None:
    """Print everything."""
    console.print(f"\naioproducer bench {report.command} · {report.started} · {report.broker}", highlight=False)
    for facts in (report.machine, report.versions, report.settings):
        console.print(_facts(facts), highlight=False)
    for scenario in report.scenarios:
        _print_scenario(console, scenario)


def row_cells(rows: Sequence[Row], row: Row, figures: Sequence[str]) -> list[str]:
    """One line of a scenario's table: client, variant, medians with their ranges, ratio to ours of the first figure."""
    cells = [row.client, row.variant]
    cells += [_median_and_range(row, name) for name in figures]
    ours = find_row(rows, OURS, row.variant)
    times = ratio(ours.median(figures[0]), row.median(figures[0])) if ours and figures else None
    return [*cells, "" if times is None or row.client == OURS else f"{times:.2f}"]


def bar_cells(bar: Bar) -> list[str]:
    """Measure and value of one bar; the project's own marks for it are in the JSON document only."""
    return [bar.measure, "not measured" if bar.value is None else f"{_short(bar.value)} {bar.unit}"]


def _short(value: float) -> str:
    """Three digits that matter, or all before the point."""
    return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"  # noqa: PLR2004 - three digits


def _print_scenario(console: Console, scenario: ScenarioReport) -> None:
    if scenario.rows:
        console.print(_rows_table(scenario))
    if scenario.bars:
        table = _table(f"{scenario.name}: compared", ["measure", "measured"], left=1)
        for bar in scenario.bars:
            table.add_row(*bar_cells(bar))
        console.print(table)
    for line in (*scenario.notes, *_configurations(scenario.rows)):
        console.print(f"  {line}", style="dim", highlight=False)


def _rows_table(scenario: ScenarioReport) -> Table:
    """The rows; the column of ratios is left out where there is nobody to compare with."""
    figures = [name for name in FIGURES if any(name in row.rounds for row in scenario.rows)]
    lines = [row_cells(scenario.rows, row, figures) for row in scenario.rows]
    headings = [FIGURES[name].heading for name in figures]
    columns = ["client", "settings", *headings, f"ours / it, {headings[0]}"]
    width = len(columns) if any(line[-1] for line in lines) else len(columns) - 1
    table = _table(scenario.title, columns[:width])
    for line in lines:
        table.add_row(*line[:width])
    return table


def _table(title: str, columns: Sequence[str], *, left: int = LEFT_COLUMNS) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < left else "right")
    return table


def _median_and_range(row: Row, figure: str) -> str:
    values = row.rounds.get(figure)
    middle = row.median(figure)
    if not values or middle is None:
        return ""
    if len(values) == 1:
        return figure_text(figure, middle)
    return f"{figure_text(figure, middle)} ({figure_text(figure, min(values))} - {figure_text(figure, max(values))})"


def _configurations(rows: Sequence[Row]) -> list[str]:
    """What each client was configured with, one line a client and variant."""
    return [f"{row.client}, {row.variant}: {_facts(row.configuration)}" for row in rows if row.configuration]


def _facts(facts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())
