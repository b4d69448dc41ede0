"""Samples of the process every few seconds, and whether a soak has shown what it is for.

Nothing grows (memory, objects, tasks, files, threads), and nothing is lost, doubled or out of order.
"""

import asyncio
import gc
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from aioproducer import Producer
from tests.programs.soak.read_back import PartitionLog

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


WARM_UP = 0.25  # the part of the run in which caches and free lists may fill
MOST_MEMORY_MIB = 16.0  # most that memory may grow after the warm-up, by a line through all samples

MOST_OBJECTS = 0.05


def growth(samples: Sequence[Sample], field: str) -> float:
    """Return a figure's growth after the warm-up: the slope of a line through the samples, times their time."""
    counted = [each for each in samples if each.at_s >= samples[-1].at_s * WARM_UP]
    if len(counted) < 3:
        return 0.0
    times = [each.at_s for each in counted]
    slope, _ = statistics.linear_regression(times, [float(getattr(each, field)) for each in counted])
    return slope * (times[-1] - times[0])


def grown(samples: Sequence[Sample]) -> list[str]:
    middle = samples[len(samples) // 2]
    found = []
    if (memory := growth(samples, "rss_mib")) > MOST_MEMORY_MIB:
        found.append(f"memory grew by {memory:.1f} MiB")
    if (objects := growth(samples, "objects")) > MOST_OBJECTS * middle.objects:
        found.append(f"objects grew by {objects:.0f} of {middle.objects}")
    for field, spare in (("tasks", 2), ("files", 4), ("threads", 0)):
        more = getattr(samples[-1], field) - getattr(middle, field)
        if more > spare:
            found.append(f"{field}: {more} more at the end than in the middle")
    return found


def wrong(logs: Mapping[int, PartitionLog], accepted: Sequence[int], failed: int) -> list[str]:
    found = []
    for partition, given in enumerate(accepted):
        log = logs[partition]
        if not failed and log.end_offset != given:
            found.append(f"partition {partition}: {given} acknowledged, {log.end_offset} in the log")
        if not failed and log.last_number != given - 1:
            found.append(f"partition {partition}: ends with number {log.last_number} instead of {given - 1}")
        if not failed:
            found += [f"partition {partition}: {each}" for each in log.disorder]
    written = sum(log.end_offset for log in logs.values())
    if not sum(accepted) - failed <= written <= sum(accepted):
        found.append(f"{sum(accepted)} accepted, {failed} failed, {written} in the log")
    if failed:
        found.append(f"{failed} records failed although no fault lasts as long as their deadline")
    return found
