"""Percentiles of a list of times; pure, used by workers and reports alike."""

import math
from collections.abc import Sequence


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` % of the values do not exceed (nearest rank).

    Raises:
        ValueError: there are no values, or `percent` is not in 0 < percent <= 100.
    """
    if not values or not 0 < percent <= 100:  # noqa: PLR2004 - percent
        raise ValueError(f"no {percent} % percentile of {len(values)} values")
    rank = math.ceil(len(values) * percent / 100)
    return sorted(values)[rank - 1]


def latency_figures(latencies_s: Sequence[float]) -> dict[str, float]:
    """Median and 99th percentile, in microseconds."""
    return {"p50_us": percentile(latencies_s, 50) * 1e6, "p99_us": percentile(latencies_s, 99) * 1e6}


def lag_figures(lags_s: Sequence[float]) -> dict[str, float]:
    """Median, 99th percentile and largest, in milliseconds."""
    return {
        "lag_p50_ms": percentile(lags_s, 50) * 1e3,
        "lag_p99_ms": percentile(lags_s, 99) * 1e3,
        "lag_max_ms": max(lags_s) * 1e3,
    }
