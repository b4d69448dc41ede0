"""The progress bar of `aioproducer produce`, on a terminal only."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from aioproducer.cli.producing.tally import Tally

REFRESH_S = 0.2


@asynccontextmanager
async def shown_progress(tally: Tally, bytes_read: Callable[[], int], total_bytes: int | None) -> AsyncIterator[None]:
    """Show how far it is, until the body ends.

    Args:
        tally: what became of the lines.
        bytes_read: of all inputs, so far.
        total_bytes: of all inputs; `None` when nobody knows.
    """
    columns = [
        BarColumn(bar_width=None),
        DownloadColumn(),
        TextColumn("{task.fields[delivered]:,} delivered"),
        TextColumn("{task.fields[rate]:,.0f}/s"),
        TimeRemainingColumn(),
    ]
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, auto_refresh=False, expand=True) as progress:
        task = progress.add_task("", total=total_bytes, delivered=0, rate=0)
        async with anyio.create_task_group() as group:
            group.start_soon(_refresh, progress, task, tally, bytes_read)
            yield
            group.cancel_scope.cancel()


async def _refresh(progress: Progress, task: TaskID, tally: Tally, bytes_read: Callable[[], int]) -> None:
    started_at = anyio.current_time()
    while True:
        rate = tally.delivered / max(anyio.current_time() - started_at, REFRESH_S)
        progress.update(task, completed=bytes_read(), delivered=tally.delivered, rate=rate, refresh=True)
        await anyio.sleep(REFRESH_S)
