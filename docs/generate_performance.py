"""Writes `explanation/performance.md` and its plot from the figures of `nox -s bench`.

nox -s bench -- --json docs/explanation/performance.json
python docs/generate_performance.py

No figure is typed by hand: a test fails while page or plot are not those of the JSON beside them.
"""
# ruff: noqa: INP001  # a script beside the pages, not a package

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from tests.benchmarks.report import OURS, BenchReport, Row, ScenarioReport, comparison_cells, facts_text, table_of

FOLDER = Path(__file__).parent / "explanation"
FIGURES_FILE = FOLDER / "performance.json"
PAGE = FOLDER / "performance.md"
PLOT = FOLDER / "performance.svg"

_INTRODUCTION = """\
<!-- Written by docs/generate_performance.py from performance.json: run `nox -s bench`, not an editor. -->

# Performance

Rates, costs and behaviour of this producer, beside other clients on the same broker.
Figures of such runs differ by a factor of two from one machine to the next and from one hour to the next:
compare only within one run, as the ratios here do.

```
nox -s bench                                                 # about 25 minutes; `-- --quick` shows that it runs
nox -s bench -- --json docs/explanation/performance.json     # the figures of this page
python docs/generate_performance.py
```
"""

_METHOD = """\
## How it is measured

- Every run of a client is a new process.
  It connects, sends a warm-up and flushes it; then the clock starts, and it stops when the flush after the last
  record has returned.
  Connection, metadata and producer id are not in the figures of any client.
- Clients run one after another, never two at a time, all of them once per round;
  each round begins with another client. Tables show the median of the rounds, with the lowest and the highest.
- Only acknowledged records count.
  Each run has topics of its own, and its client's count must equal the end offsets that aiokafka's consumer reads;
  a client with another count has no figure.
- A client should learn the result of each record: confluent-kafka by its callback, aiokafka by its futures,
  ours and the others by default. Without that, confluent-kafka and aiokafka have a row of their own.
- The raw socket is a blocking socket that sends prepared record batches: the highest rate of the broker.
  It does the same work in every round: where its own range is wide, other work disturbed the machine.
- CPU is the process time of the client, all threads, from the same start to the same end.
  Java's is that of the whole JVM, with its start and the compiling of its warm-up;
  its rate is that of its load generator's "steady state", after that warm-up.
- Every client has `acks=all`, is idempotent and lingers for 5 ms, where its settings do not say otherwise.
  With *defaults* it otherwise keeps its own defaults; with *256 KiB* that is every client's batch size.
  Ours, aiokafka and *confluent-kafka in asyncio* run on uvloop; the last is awaited by futures, which its callbacks
  settle from a thread that polls. The configuration of each is at the end of this page.
"""


def page(report: BenchReport) -> str:
    """Return the whole page."""
    return "\n".join(
        [
            _INTRODUCTION,
            f"Measured {report.started} on {report.broker}.\n",
            *(f"- {facts_text(facts)}" for facts in (report.machine, report.versions, report.settings)),
            f"\n![Acknowledged records a second by client]({PLOT.name})\n",
            "## In short\n",
            _compared(report.scenarios),
            _METHOD,
            *(_scenario(scenario) for scenario in report.scenarios),
            "## Configurations\n",
            *_configurations(report.scenarios),
            "",
        ]
    )


def _compared(scenarios: Sequence[ScenarioReport]) -> str:
    cells = [[scenario.name, *comparison_cells(each)] for scenario in scenarios for each in scenario.comparisons]
    return _table(["scenario", "measure", "measured"], cells) + "\n"


def _scenario(scenario: ScenarioReport) -> str:
    table = _table(*table_of(scenario))
    notes = "".join(f"\n- {note}\n" for note in scenario.notes)
    return f"## {scenario.title}\n\n{table}\n{notes}"


def _configurations(scenarios: Sequence[ScenarioReport]) -> Iterator[str]:
    """Yield each distinct configuration of a client once."""
    seen: dict[str, None] = {}
    for scenario in scenarios:
        for row in scenario.rows:
            given = ", ".join(f"`{name}={value}`" for name, value in row.configuration.items())
            if given:
                seen[f"- {row.client}, {row.variant}: {given}"] = None
    yield from seen


def _table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table: the two columns of names are on the left, figures on the right."""
    rule = ["---" if number < 2 else "--:" for number in range(len(headings))]  # noqa: PLR2004 - two columns of names
    return "\n".join("| " + " | ".join(line) + " |" for line in [headings, rule, *lines])


# The plot: one panel per variant, one bar per client, a whisker from the lowest to the highest round.

_WIDTH, _LABELS, _BAR, _GAP, _HEAD = 860, 220, 22, 8, 44
_SCALE = _WIDTH - _LABELS - 130
_COLOURS = {OURS: "#0b6e4f", "raw socket": "#9aa5b1"}
_OTHERS = "#3b6fb6"


def plot(report: BenchReport) -> str:
    """Return the plot as SVG: acknowledged records per second of every client and variant."""
    rows = [row for scenario in report.scenarios if scenario.name == "enqueue" for row in scenario.rows]
    most = max((max(row.rounds["records_per_s"]) for row in rows), default=1.0)
    variants = list(dict.fromkeys(row.variant for row in rows))
    parts, top = [], 0
    for variant in variants:
        panel = sorted((row for row in rows if row.variant == variant), key=_rate, reverse=True)
        parts.append(_text(8, top + 28, f"acknowledged records/s, {variant}", weight="bold"))
        parts += [_bar(row, top + _HEAD + number * (_BAR + _GAP), most) for number, row in enumerate(panel)]
        top += _HEAD + len(panel) * (_BAR + _GAP)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top + 8}" font-family="sans-serif">'
    background = f'<rect width="{_WIDTH}" height="{top + 8}" fill="#ffffff"/>'
    return "\n".join([head, background, *parts, "</svg>", ""])


def _rate(row: Row) -> float:
    return row.median("records_per_s") or 0.0


def _bar(row: Row, y: int, most: float) -> str:
    rates = row.rounds["records_per_s"]
    length, low, high = (_SCALE * rate / most for rate in (_rate(row), min(rates), max(rates)))
    middle = y + _BAR // 2
    colour = _COLOURS.get(row.client, _OTHERS)
    return "\n".join(
        [
            _text(_LABELS - 8, middle + 5, row.client, anchor="end"),
            f'<rect x="{_LABELS}" y="{y}" width="{length:.1f}" height="{_BAR}" fill="{colour}"/>',
            f'<path d="M{_LABELS + low:.1f} {middle}H{_LABELS + high:.1f}" stroke="#222222" stroke-width="1.5"/>',
            _text(_LABELS + int(max(length, high)) + 8, middle + 5, f"{_rate(row):,.0f}"),
        ]
    )


def _text(x: int, y: int, text: str, *, anchor: str = "start", weight: str = "normal") -> str:
    style = f'font-size="14" text-anchor="{anchor}" font-weight="{weight}" fill="#222222"'
    return f'<text x="{x}" y="{y}" {style}>{escape(text)}</text>'


if __name__ == "__main__":
    measured = BenchReport.from_json(FIGURES_FILE.read_text("utf-8"))
    PAGE.write_text(page(measured), "utf-8")
    PLOT.write_text(plot(measured), "utf-8")
