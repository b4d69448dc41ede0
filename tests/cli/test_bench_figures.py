"""Medians, percentiles, ratios: the arithmetic of the bench."""

import pytest

from aioproducer.cli.benchmark.figures import Row, figures_text, find_row, median_of, ratio, relative_range
from aioproducer.cli.benchmark.latencies import lag_figures, latency_figures, percentile


@pytest.mark.parametrize("percent, expected", [(1, 1.0), (50, 2.0), (51, 3.0), (75, 3.0), (99, 4.0), (100, 4.0)])
def test_percentile_is_the_nearest_rank(percent: float, expected: float) -> None:
    """A value that was measured, never one in between."""
    actual = percentile([4.0, 1.0, 3.0, 2.0], percent)

    assert actual == expected


@pytest.mark.parametrize("values, percent", [([], 50), ([1.0], 0), ([1.0], 101)])
def test_percentile_refuses_what_has_none(values: list[float], percent: float) -> None:
    """No values, or no percentage."""
    with pytest.raises(ValueError, match="percentile"):
        percentile(values, percent)


def test_latency_figures_are_microseconds() -> None:
    """From seconds."""
    figures = latency_figures([0.001] * 98 + [0.002] * 2)

    assert figures == {"p50_us": pytest.approx(1000), "p99_us": pytest.approx(2000)}


def test_lag_figures_are_milliseconds() -> None:
    """From seconds, with the worst."""
    figures = lag_figures([0.001, 0.001, 0.004])

    assert figures == {"lag_p50_ms": 1.0, "lag_p99_ms": 4.0, "lag_max_ms": 4.0}


def test_row_has_the_median_of_its_rounds() -> None:
    """Of each figure apart; nothing for what was not measured."""
    row = Row("aioproducer", "defaults")
    for rate, cost in [(3.0, 0.5), (1.0, 0.7), (100.0, 0.6)]:
        row.add({"records_per_s": rate, "cpu_us_per_record": cost})

    assert row.median("records_per_s") == 3.0
    assert row.median("cpu_us_per_record") == 0.6
    assert row.median("p50_us") is None


def test_rows_are_found_by_client_and_variant() -> None:
    """Neither alone is enough."""
    rows = [Row("a", "x", {"p50_us": [1.0]}), Row("a", "y", {"p50_us": [2.0]})]

    assert find_row(rows, "a", "y") is rows[1]
    assert find_row(rows, "b", "x") is None
    assert median_of(rows, "a", "x", "p50_us") == 1.0
    assert median_of(rows, "b", "x", "p50_us") is None


@pytest.mark.parametrize(
    "value, other, expected", [(6.0, 3.0, 2.0), (6.0, 0.0, None), (None, 3.0, None), (6.0, None, None)]
)
def test_ratio_needs_both(value: float | None, other: float | None, expected: float | None) -> None:
    """And something to divide by."""
    assert ratio(value, other) == expected


@pytest.mark.parametrize("values, expected", [([], 0.0), ([5.0], 0.0), ([8.0, 10.0, 12.0], 0.4), ([3.0, 3.0], 0.0)])
def test_relative_range_is_the_width_over_the_median(values: list[float], expected: float) -> None:
    """One round has no range."""
    assert relative_range(values) == pytest.approx(expected)


def test_figures_are_shown_with_their_headings() -> None:
    """With as many digits as they are worth."""
    shown = figures_text({"records_per_s": 1_234_567.8, "cpu_us_per_record": 0.5678})

    assert shown == "1,234,568 records/s, 0.57 CPU us/record"
