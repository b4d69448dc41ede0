"""The demo on a terminal: one picture, drawn eight times a second, that fits into 60 columns and 20 lines."""

import asyncio
from collections.abc import Iterable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from aioproducer.cli.demonstration.figures import megabytes, milliseconds
from aioproducer.cli.demonstration.progress import Phase, Progress
from aioproducer.metrics import ProducerStatistics

DRAW_EVERY_S = 0.125
MAX_WIDTH = 100
EVENTS_SHOWN = 4
FIGURE_WIDTHS = (12, 19, 20)
"""Least widths, so that figures do not jump sideways while they change."""

_NO_LEADER = -1


class LiveScreen:
    """Draws a progress on a console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False)

    async def follow(self, progress: Progress) -> None:
        """Draw until cancelled; on the event loop itself, so that the picture is never between two states."""
        with self._live:
            while True:
                self._draw(progress)
                await asyncio.sleep(DRAW_EVERY_S)

    def finish(self, progress: Progress) -> None:
        """Leave the last picture where it is."""
        with self._live:
            self._draw(progress)

    def _draw(self, progress: Progress) -> None:
        self._live.update(picture(progress, min(self._console.width, MAX_WIDTH)), refresh=True)


def picture(progress: Progress, width: int) -> RenderableType:
    """What the audience sees now, `width` columns wide."""
    parts: list[RenderableType] = [
        Text.assemble(("aioproducer demo", "bold"), f"  {progress.cluster}", no_wrap=True, overflow="ellipsis"),
        Text(f"{progress.total:,} {progress.source}", style="dim", no_wrap=True, overflow="ellipsis"),
        _bar(progress),
        _figures(progress),
    ]
    if progress.nodes:
        parts += [Text(""), _brokers(progress)]
    if progress.events:
        parts += [Text(""), *_events(progress.events)]
    frame = Table.grid(padding=0)
    frame.add_column(width=width - 1)
    for part in parts:
        frame.add_row(part)
    return Group(Text(""), frame)


def _bar(progress: Progress) -> RenderableType:
    """What is being done, how far it is."""
    bar = Table.grid(padding=(0, 1), expand=True)
    bar.add_column(width=12)
    bar.add_column(ratio=1)
    bar.add_column(justify="right", width=5)
    share = progress.done / progress.total if progress.total else 0.0
    bar.add_row(progress.phase.value, ProgressBar(total=1.0, completed=share), f"{share:.0%}")
    return bar


def _figures(progress: Progress) -> RenderableType:
    """Rates, latencies, buffer: two lines of three."""
    figures = Table.grid(padding=(0, 2))
    for width in FIGURE_WIDTHS:
        figures.add_column(min_width=width, no_wrap=True)
    if progress.phase is Phase.TRANSFERRING:
        figures.add_row(f"{progress.done:,}", f"{progress.records_per_s:,.0f} {progress.noun}/s", "")
        return figures
    figures.add_row(
        f"{progress.done:,}", f"{progress.records_per_s:,.0f} records/s", f"{megabytes(progress.bytes_per_s)}/s"
    )
    statistics = progress.statistics
    if progress.phase is Phase.SENDING and statistics is not None:
        figures.add_row(
            f"p50 {milliseconds(progress.latency.quantile_s(0.5))}",
            f"p99 {milliseconds(progress.latency.quantile_s(0.99))}",
            _buffer(statistics),
        )
    return figures


def _buffer(statistics: ProducerStatistics) -> str:
    """How full the producer's buffer is."""
    total = statistics.buffer_total_bytes
    used = total - statistics.buffer_available_bytes
    return f"buffer {used / total:.0%} of {total / 2**20:.0f} MiB" if total else ""


def _brokers(progress: Progress) -> RenderableType:
    """Which broker leads what, and how many requests are on their way to it."""
    brokers = Table.grid(padding=(0, 2), expand=True)
    brokers.add_column(width=10)
    brokers.add_column(ratio=1)
    brokers.add_column(justify="right", width=10)
    brokers.add_row(Text("broker", "dim"), Text("leads partitions", "dim"), Text("in flight", "dim"))
    for node_id in progress.nodes:
        is_dead = node_id == progress.killed
        style = "red" if is_dead else ""
        led = _led_by(progress, node_id)
        requests = "" if is_dead else str(progress.in_flight.get(node_id, 0))
        brokers.add_row(Text(f"{node_id} killed" if is_dead else f"{node_id}", style), Text(led, style), requests)
    without = _led_by(progress, _NO_LEADER)
    if without:
        brokers.add_row(Text("none", "yellow"), Text(without, "yellow"), "")
    return brokers


def _led_by(progress: Progress, node_id: int) -> str:
    """Partitions a broker leads: "0 3 5"."""
    return " ".join(str(number) for number, leader in sorted(progress.leaders.items()) if leader == node_id)


def _events(events: list[str]) -> Iterable[RenderableType]:
    """What happened last."""
    return [Text(event, style="yellow", no_wrap=True, overflow="ellipsis") for event in events[-EVENTS_SHOWN:]]
