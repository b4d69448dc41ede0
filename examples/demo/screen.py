"""The demo as people see it: rich's progress bars on a terminal, else a line every two seconds."""

import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

LINE_EVERY_S = 2.0
RATE_WINDOW_S = 2.0


class Screen:
    """Shows phases, figures and events; used in a `with` block."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._is_live = console.is_terminal and not console.is_dumb_terminal
        self._bars = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            console=console,
            disable=not self._is_live,
            expand=True,
            speed_estimate_period=RATE_WINDOW_S,
        )
        self._task = self._bars.add_task("starting", total=None, figures="")
        self._began_at = time.monotonic()
        self._line_due = 0.0

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def begin(self, phase: str, total: int) -> None:
        """Begin a phase with a bar of its own."""
        self._bars.update(self._task, visible=self._bars.tasks[-1].total is not None)  # not "starting"
        self._task = self._bars.add_task(phase, total=total, figures="")
        self._line_due = 0.0
        self.show(0)

    def show(self, done: int, figures: str = "") -> None:
        """Show how much of the phase is done, with its rate and other figures."""
        speed = next(task.speed for task in self._bars.tasks if task.id == self._task)
        figures = f"{speed or 0:,.0f}/s {figures}".rstrip()
        self._bars.update(self._task, completed=done, figures=figures)
        if not self._is_live and time.monotonic() >= self._line_due:
            self._line_due = time.monotonic() + LINE_EVERY_S
            task = self._bars.tasks[-1]
            self._console.print(
                f"{task.description}: {done:,} of {task.total:,}, {figures}", highlight=False, soft_wrap=True
            )

    def say(self, event: str) -> None:
        """Print an event with its time, above the bars."""
        elapsed_s = time.monotonic() - self._began_at
        self._console.print(f"{elapsed_s:5.1f} s  {event}", highlight=False, soft_wrap=not self._is_live)
