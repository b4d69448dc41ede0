"""Samples of the process, every few seconds: memory, objects, tasks, files, threads, and the loop's lag."""

import asyncio
import gc
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from aioproducer import Producer

EVERY_S = 5.0
TICK_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    at_s: float
    rss_mib: float
    objects: int  # known to the garbage collector, after a collection
    tasks: int
    files: int
    threads: int
    lag_ms: float  # the latest that the loop was since the sample before
    rate: float  # acknowledged records a second since the sample before
    buffer_mib: float  # used part of `buffer_memory`
    retried: int
    failed: int


class Sampler:
    """Writes a line of JSON for each sample."""

    def __init__(self, producer: Producer, file: Path) -> None:
        self.samples: list[Sample] = []
        self._producer = producer
        self._file = file
        self._process = psutil.Process()
        self._lag_s = 0.0

    async def run(self, show: Callable[[Sample], None]) -> None:
        ticking = asyncio.create_task(self._tick(), name="soak-ticks")
        began, before, last = time.monotonic(), self._producer.statistics().records_acknowledged, time.monotonic()
        try:
            while True:
                await asyncio.sleep(EVERY_S)
                now, acknowledged = time.monotonic(), self._producer.statistics().records_acknowledged
                sample = self._take(now - began, (acknowledged - before) / (now - last))
                before, last = acknowledged, now
                self._keep(sample)
                show(sample)
        finally:
            ticking.cancel()

    async def _tick(self) -> None:
        while True:
            due = time.monotonic() + TICK_S
            await asyncio.sleep(TICK_S)
            self._lag_s = max(self._lag_s, time.monotonic() - due)

    def _take(self, at_s: float, rate: float) -> Sample:
        statistics = self._producer.statistics()
        lag_s = self._lag_s
        gc.collect()
        sample = Sample(
            at_s=round(at_s, 1),
            rss_mib=round(self._process.memory_info().rss / 2**20, 2),
            objects=len(gc.get_objects()),
            tasks=len(asyncio.all_tasks()),
            files=self._process.num_fds(),
            threads=self._process.num_threads(),
            lag_ms=round(lag_s * 1000, 2),
            rate=round(rate),
            buffer_mib=round((statistics.buffer_total_bytes - statistics.buffer_available_bytes) / 2**20, 2),
            retried=statistics.records_retried,
            failed=statistics.records_failed,
        )
        asyncio.get_running_loop().call_soon(self._forget_lag)  # the collection above was ours
        return sample

    def _forget_lag(self) -> None:
        self._lag_s = 0.0

    def _keep(self, sample: Sample) -> None:
        self.samples.append(sample)
        with self._file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(asdict(sample)) + "\n")
