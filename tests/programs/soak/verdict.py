"""Whether a soak has shown what it is for: nothing grows, and nothing is lost, doubled or out of order."""

import statistics
from collections.abc import Mapping, Sequence
from typing import TypedDict

from tests.programs.soak.samples import Sample

WARM_UP = 0.25  # the part of the run in which caches and free lists may fill
MOST_MEMORY_MIB = 16.0  # most that memory may grow after the warm-up, by a line through all samples

MOST_OBJECTS = 0.05


class Log(TypedDict):
    """One partition, as `tests/programs/soak/read_back.py` prints it."""

    end_offset: int
    read: int
    disorder: list[str]
    last_number: int


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


def wrong(logs: Mapping[int, Log], accepted: Sequence[int], failed: int) -> list[str]:
    """Compare the log with the accepted records."""
    found = []
    for partition, given in enumerate(accepted):
        log = logs[partition]
        if not failed and log["end_offset"] != given:
            found.append(f"partition {partition}: {given} acknowledged, {log['end_offset']} in the log")
        if not failed and log["last_number"] != given - 1:
            found.append(f"partition {partition}: ends with number {log['last_number']} instead of {given - 1}")
        if not failed:
            found += [f"partition {partition}: {each}" for each in log["disorder"]]
    written = sum(log["end_offset"] for log in logs.values())
    if not sum(accepted) - failed <= written <= sum(accepted):
        found.append(f"{sum(accepted)} accepted, {failed} failed, {written} in the log")
    if failed:
        found.append(f"{failed} records failed although no fault lasts as long as their deadline")
    return found
