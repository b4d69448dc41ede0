"""What is shown and written: bars, lines of tables, the JSON document."""

import json

import pytest
from rich.console import Console

from aioproducer.cli.benchmark.bars import Bar, ErrorAction
from aioproducer.cli.benchmark.figures import Row
from aioproducer.cli.benchmark.report import BenchReport, ScenarioReport
from aioproducer.cli.benchmark.tables import bar_cells, print_report, row_cells

OURS = Row("aioproducer", "defaults", {"records_per_s": [900_000.0, 1_000_000.0, 1_100_000.0]}, {"linger_ms": "5"})
PEER = Row("peer", "defaults", {"records_per_s": [250_000.0]})
REPORT = BenchReport(
    started="2026-01-01T00:00:00+00:00",
    command="--quick",
    machine={"cores": "2"},
    versions={"peer": "1.0"},
    broker="a broker",
    scenarios=[ScenarioReport("enqueue", "How many", [OURS, PEER], [Bar("rate / peer", 4.0, 3.0, 5.0)], ["a note"])],
)


@pytest.mark.parametrize(
    "value, verdict",
    [
        (None, ErrorAction.NOT_MEASURED),
        (2.9, ErrorAction.MISSED),
        (3.0, ErrorAction.REACHED),
        (4.9, ErrorAction.REACHED),
        (5.0, ErrorAction.AIM_REACHED),
    ],
)
def test_bar_says_where_a_figure_stands(value: float | None, verdict: ErrorAction) -> None:
    """More is better."""
    assert Bar("rate", value, must=3.0, aim=5.0).verdict is verdict


@pytest.mark.parametrize(
    "value, verdict", [(1.6, ErrorAction.MISSED), (1.5, ErrorAction.REACHED), (1.2, ErrorAction.AIM_REACHED)]
)
def test_upper_limit_turns_the_bar_round(value: float, verdict: ErrorAction) -> None:
    """Less is better."""
    assert Bar("cost", value, must=1.5, aim=1.2, is_upper_limit=True).verdict is verdict


@pytest.mark.parametrize("value, verdict", [(0.69, ErrorAction.BELOW_AIM), (0.7, ErrorAction.AIM_REACHED)])
def test_bar_with_an_aim_alone_is_never_missed(value: float, verdict: ErrorAction) -> None:
    """It is only below its aim."""
    assert Bar("rate", value, must=None, aim=0.7).verdict is verdict


def test_bar_without_an_aim_is_reached() -> None:
    """There is nothing beyond."""
    assert Bar("lag", 4.0, must=5.0, is_upper_limit=True).verdict is ErrorAction.REACHED


def test_line_of_a_row_has_median_range_and_ratio() -> None:
    """Ours has no ratio to itself; one round has no range."""
    rows = [OURS, PEER]

    assert row_cells(rows, OURS, ["records_per_s"]) == [
        "aioproducer",
        "defaults",
        "1,000,000 (900,000 - 1,100,000)",
        "",
    ]
    assert row_cells(rows, PEER, ["records_per_s"]) == ["peer", "defaults", "250,000", "4.00"]


def test_line_of_a_bar_has_value_and_unit() -> None:
    """The project's own marks are not for users; they are in the document."""
    assert bar_cells(Bar("lag", 4.25, must=5.0, unit="ms", is_upper_limit=True)) == ["lag", "4.25 ms"]
    assert bar_cells(Bar("rate / peer", None, must=3.0, aim=5.0)) == ["rate / peer", "not measured"]


def test_document_has_rounds_medians_and_verdicts() -> None:
    """For scripts, which need not find them."""
    document = json.loads(REPORT.to_json())

    (scenario,) = document["scenarios"]
    assert document["versions"] == {"peer": "1.0"}
    assert scenario["rows"][0]["rounds"] == {"records_per_s": [900_000.0, 1_000_000.0, 1_100_000.0]}
    assert scenario["rows"][0]["medians"] == {"records_per_s": 1_000_000.0}
    assert scenario["bars"][0]["verdict"] == "reached"


def test_document_can_be_read_again() -> None:
    """The page of figures is made from it."""
    assert BenchReport.from_json(REPORT.to_json()) == REPORT


def test_print_names_machine_settings_and_configurations() -> None:
    """A table without them says nothing."""
    console = Console(width=130)
    with console.capture() as captured:
        print_report(console, REPORT)

    shown = captured.get()
    assert all(part in shown for part in ["cores 2", "peer 1.0", "a broker", "a note", "linger_ms 5", "rate / peer"])
    assert not any(word in shown for word in ("must", "aim", "verdict", "reached", ">="))
