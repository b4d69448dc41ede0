"""The demo without a terminal: a line every two seconds, and one for each event."""

import asyncio
from typing import TextIO

from aioproducer.cli.demonstration.figures import megabytes, milliseconds
from aioproducer.cli.demonstration.progress import Phase, Progress

EVERY_S = 2.0
LOOK_EVERY_S = 0.1


class PlainLines:
    """Writes what a progress says to a file or a pipe."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._events_said = 0

    async def follow(self, progress: Progress) -> None:
        """Write until cancelled."""
        clock = asyncio.get_running_loop().time
        phase, said_at = None, clock()
        while True:
            self._say_events(progress)
            if progress.phase != phase or clock() - said_at >= EVERY_S:
                phase, said_at = progress.phase, clock()
                self._say(plain_line(progress))
            await asyncio.sleep(LOOK_EVERY_S)

    def finish(self, progress: Progress) -> None:
        """Say what happened last."""
        self._say_events(progress)

    def _say_events(self, progress: Progress) -> None:
        for event in progress.events[self._events_said :]:
            self._say(event)
        self._events_said = len(progress.events)

    def _say(self, line: str) -> None:
        print(line, file=self._output, flush=True)


def plain_line(progress: Progress) -> str:
    """One line for where a demo is now."""
    if progress.phase is Phase.PREPARING:
        loaded = f"; {progress.done:,} records loaded" if progress.done else ""
        return f"preparing: {progress.cluster}{loaded}"
    line = f"{progress.phase}: {progress.done:,} of {progress.total:,} {progress.noun}, {progress.records_per_s:,.0f}/s"
    if progress.phase is Phase.TRANSFERRING:
        return f"{line}; {progress.source}"
    line += f", {megabytes(progress.bytes_per_s)}/s"
    statistics = progress.statistics
    if progress.phase is Phase.READING or statistics is None:
        return line
    p50, p99 = (milliseconds(progress.latency.quantile_s(fraction)) for fraction in (0.5, 0.99))
    in_flight = " ".join(f"{node_id}:{count}" for node_id, count in progress.in_flight.items())
    leads = " ".join(f"{number}:{leader}" for number, leader in progress.leaders.items())
    used = statistics.buffer_total_bytes - statistics.buffer_available_bytes
    return (
        f"{progress.elapsed_s:5.1f} s  {line}, p50 {p50}, p99 {p99}, {megabytes(used)} buffered, "
        f"in flight {in_flight or 0}, leaders {leads or 'unknown'}"
    )
