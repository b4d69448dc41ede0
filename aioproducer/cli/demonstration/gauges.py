"""Reads the figures of a running producer for those who watch."""

import asyncio

from aioproducer import Producer
from aioproducer.cli.demonstration.progress import WINDOW_S, Progress, RateMeter
from aioproducer.metrics import LatencyHistogram

LOOK_EVERY_S = 0.02
SHOW_EVERY_S = 0.5
"""A request is on its way for a millisecond or two: shown is the most that was seen at once in so long a time."""


class Gauges:
    """Keeps the figures of one progress up to date while the producer sends."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._meter = RateMeter()
        self._peaks: dict[int, int] = {}
        self._latency = LatencyHistogram()

    def took(self, latency_s: float) -> None:
        """Take how long one delivery took."""
        self._latency.record(latency_s)

    async def watch(self, producer: Producer, began_at: float) -> None:
        """Look until cancelled; `began_at` is when the sending began, on the loop's clock."""
        clock = asyncio.get_running_loop().time
        shown_at = latency_shown_at = began_at
        while True:
            now = clock()
            self._look(producer, now, began_at)
            if now - shown_at >= SHOW_EVERY_S:
                shown_at = now
                self._progress.in_flight, self._peaks = self._peaks, {}
            if now - latency_shown_at >= WINDOW_S or self._progress.latency.count == 0:
                latency_shown_at = now
                self._progress.latency, self._latency = self._latency, LatencyHistogram()
            await asyncio.sleep(LOOK_EVERY_S)

    def _look(self, producer: Producer, now: float, began_at: float) -> None:
        progress, statistics = self._progress, producer.statistics()
        progress.elapsed_s = now - began_at
        progress.statistics = statistics
        progress.done = statistics.records_acknowledged
        progress.records_per_s, progress.bytes_per_s = self._meter.rates(
            now, statistics.records_acknowledged, statistics.batch_bytes
        )
        for node_id, count in statistics.requests_in_flight_by_node.items():
            self._peaks[node_id] = max(count, self._peaks.get(node_id, 0))
