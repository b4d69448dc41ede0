"""Draws the delays by hour of the day and carrier as SVG."""

from collections import defaultdict
from collections.abc import Mapping
from xml.sax.saxutils import escape

CARRIERS = 6
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 820, 440, 60, 90, 60, 50
UTC_TO_NEW_YORK = -5
"""As in winter: hours of summer time stand one hour early."""


def svg(last: Mapping[str, Mapping[str, object]], subtitle: str) -> str:
    """Return the drawing.

    Args:
        last: carrier and hour (`UA 2013-01-01T10`) -> departed flights and the sum of their delays.
        subtitle: below the title.
    """
    lines = mean_delays(last)
    highest = max((delay for points in lines.values() for delay in points.values()), default=1.0)
    top = max(10, 10 * (int(highest) // 10 + 1))

    def x(hour: float) -> float:
        return LEFT + (hour - 5) / 18 * (WIDTH - LEFT - RIGHT)

    def y(delay: float) -> float:
        return HEIGHT - BOTTOM - max(delay, -5) / top * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="17">Delay at departure from New York, 2013</text>',
        f'<text x="{LEFT}" y="44" font-size="12" fill="#555">{escape(subtitle)}</text>',
    ]
    for delay in range(0, top + 1, 10):
        parts.append(f'<path d="M{LEFT},{y(delay):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(delay) + 4:.1f}" font-size="12" text-anchor="end">{delay} min</text>')
    parts.extend(
        f'<text x="{x(hour):.1f}" y="{HEIGHT - BOTTOM + 24}" font-size="12" text-anchor="middle">{hour}:00</text>'
        for hour in range(5, 24, 2)
    )
    labels: list[float] = []
    by_end = sorted(lines.items(), key=lambda line: line[1][max(line[1])], reverse=True)
    for colour, (carrier, points) in zip(COLOURS, by_end, strict=False):
        path = " ".join(f"{x(hour):.1f},{y(delay):.1f}" for hour, delay in sorted(points.items()))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        end = y(points[max(points)]) + 4
        labels.append(max(end, labels[-1] + 15) if labels else end)  # none on top of another
        parts.append(
            f'<text x="{x(max(points)) + 8:.1f}" y="{labels[-1]:.1f}" font-size="13" fill="{colour}">'
            f"{escape(carrier)}</text>"
        )
    return "\n".join([*parts, "</svg>", ""])


def mean_delays(last: Mapping[str, Mapping[str, object]]) -> dict[str, dict[int, float]]:
    """Return the mean delay by hour of the day, of the carriers with the most flights."""
    departed: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    minutes: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for key, record in last.items():
        carrier, _, moment = key.partition(" ")
        hour = (int(moment[-2:]) + UTC_TO_NEW_YORK) % 24
        departed[carrier][hour] += float(str(record["departed"]))
        minutes[carrier][hour] += float(str(record["minutes"]))
    largest = sorted(departed, key=lambda carrier: sum(departed[carrier].values()), reverse=True)[:CARRIERS]
    means = {
        carrier: {
            hour: minutes[carrier][hour] / flights
            for hour, flights in departed[carrier].items()
            if flights >= 50 and 5 <= hour <= 23  # noqa: PLR2004  # a mean of fewer flights says little
        }
        for carrier in largest
    }
    return {carrier: points for carrier, points in means.items() if points}
