"""The performance page matches the JSON beside it."""

from docs.generate_performance import FIGURES_FILE, PAGE, PLOT, page, plot
from tests.benchmarks.report import BenchReport


def test_performance_page_and_plot_are_current() -> None:
    measured = BenchReport.from_json(FIGURES_FILE.read_text("utf-8"))

    assert PAGE.read_text("utf-8") == page(measured)
    assert PLOT.read_text("utf-8") == plot(measured)
