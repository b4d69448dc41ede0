"""The figures that are measured: how each is called and written; medians, spreads and ratios of rounds. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True, slots=True)
class FigureKind:
    """How a figure is shown."""

    heading: str
    digits: int
    """After the point."""


FIGURES = {
    "records_per_s": FigureKind("records/s", 0),
    "cpu_us_per_record": FigureKind("CPU us/record", 2),
    "p50_us": FigureKind("p50 us", 0),
    "p99_us": FigureKind("p99 us", 0),
    "rss_growth_mib": FigureKind("RSS growth MiB", 1),
    "accepted": FigureKind("accepted", 0),
    "refused": FigureKind("refused", 0),
    "lag_p50_ms": FigureKind("lag p50 ms", 2),
    "lag_p99_ms": FigureKind("lag p99 ms", 2),
    "lag_max_ms": FigureKind("lag max ms", 2),
    "import_ms": FigureKind("import ms", 1),
}
"""By the name in an `Outcome`."""


def figure_text(name: str, value: float) -> str:
    """A figure as it is shown, without its heading: "1,234,567"."""
    return f"{value:,.{FIGURES[name].digits}f}"


def figures_text(figures: Mapping[str, float]) -> str:
    """Figures on one line, each with its heading."""
    return ", ".join(f"{figure_text(name, value)} {FIGURES[name].heading}" for name, value in figures.items())


@dataclass(frozen=True, slots=True)
class Row:
    """One client under one variant of the settings, over all rounds."""

    client: str
    variant: str
    """"defaults", "256 KiB", "100 tasks", ..."""

    rounds: dict[str, list[float]] = field(default_factory=dict)
    """Figure -> one value a round, oldest first."""

    configuration: dict[str, str] = field(default_factory=dict)
    """As the client was given it."""

    def add(self, figures: dict[str, float]) -> None:
        """Take the figures of one more round."""
        for name, value in figures.items():
            self.rounds.setdefault(name, []).append(value)

    def median(self, figure: str) -> float | None:
        """Of all rounds; `None` where nothing was measured."""
        values = self.rounds.get(figure)
        return median(values) if values else None


def relative_range(values: Sequence[float]) -> float:
    """How far apart the smallest and the largest value are, relative to the median; 0 for fewer than two."""
    if len(values) < 2:  # noqa: PLR2004 - one value has no range
        return 0.0
    return (max(values) - min(values)) / median(values)


def ratio(value: float | None, other: float | None) -> float | None:
    """`value / other`; `None` where either is missing or `other` is 0."""
    return value / other if value is not None and other else None


def find_row(rows: Sequence[Row], client: str, variant: str) -> Row | None:
    """The row of a client under a variant, if it was measured."""
    return next((row for row in rows if (row.client, row.variant) == (client, variant)), None)


def median_of(rows: Sequence[Row], client: str, variant: str, figure: str) -> float | None:
    """A median by names; `None` where it was not measured."""
    row = find_row(rows, client, variant)
    return row.median(figure) if row else None
