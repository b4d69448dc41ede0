"""Draws a soak as SVG: memory, objects, the loop's lag and the rate over time, with a line for each fault."""

from collections.abc import Sequence
from xml.sax.saxutils import escape

from tests.programs.soak.samples import Sample

WIDTH, PANEL, LEFT, GAP = 900, 110, 80, 34
PANELS = {
    "rss_mib": "memory of the process, MiB",
    "objects": "objects of the garbage collector",
    "lag_ms": "latest turn of the loop in 5 s, ms",
    "rate": "acknowledged records a second",
}


def svg(samples: Sequence[Sample], faults: Sequence[tuple[float, str]], title: str) -> str:
    """Return the picture; `faults` are (seconds since the beginning, what)."""
    height = 40 + len(PANELS) * (PANEL + GAP)
    end = samples[-1].at_s
    size = f'width="{WIDTH}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        f'<rect {size} fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{escape(title)}</text>',
    ]
    for number, (field, label) in enumerate(PANELS.items()):
        top = 48 + number * (PANEL + GAP)
        parts += panel([(each.at_s, float(getattr(each, field))) for each in samples], label, top=top, end=end)
        parts += [fault_line(at, what, top=top, end=end) for at, what in faults]
    return "\n".join([*parts, "</svg>", ""])


def panel(points: Sequence[tuple[float, float]], label: str, *, top: int, end: float) -> list[str]:
    """One curve, from zero to its highest point."""
    most = max(value for _, value in points) or 1.0
    line = " ".join(f"{x_of(at, end):.1f},{top + PANEL - value / most * PANEL:.1f}" for at, value in points)
    bottom = top + PANEL
    return [
        f'<text x="{LEFT}" y="{top - 6}">{escape(label)}</text>',
        f'<text x="{LEFT - 6}" y="{top + 10}" text-anchor="end">{most:,.0f}</text>',
        f'<text x="{LEFT - 6}" y="{bottom}" text-anchor="end">0</text>',
        f'<rect x="{LEFT}" y="{top}" width="{WIDTH - LEFT - 20}" height="{PANEL}" fill="none" stroke="#ccc"/>',
        f'<polyline points="{line}" fill="none" stroke="#0057b8" stroke-width="1.5"/>',
    ]


def fault_line(at: float, what: str, *, top: int, end: float) -> str:
    """A red line where something was done to a broker."""
    x = x_of(at, end)
    title = f"<title>{escape(what)}</title>"
    return f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{top + PANEL}" stroke="#c00" opacity="0.4">{title}</line>'


def x_of(at: float, end: float) -> float:
    return LEFT + at / end * (WIDTH - LEFT - 20)
