"""The time that Kafka's `-avg`, `-max` and `-rate` are about: the last `metrics_num_samples` sample windows.

Nothing is done per record: all totals are read `_MARKS` times per sample window, and a metric is the difference between
now and the newest reading before its time.

Source: SampledStat, Avg, Max and Rate in Apache Kafka, which keep a sum per metric and sample window. Values count for
that long after they were recorded, in Kafka up to a sample window longer.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MARKS: Final = 15
_SHORTEST_S: Final = 0.01  # between two readings

Key: TypeAlias = "str | tuple[str, int | None] | tuple[str, str]"  # of a row: the producer, a node or a topic
Totals: TypeAlias = "array[float]"
"""Of one row: its totals, then sum, number and recent maximum of each of its samples."""


class Mark(NamedTuple):
    """A reading of all rows."""

    at: float  # monotonic seconds
    rows: Mapping[Key, Totals]


class Window:
    """The time until now, whose first reading is `begin`."""

    def __init__(self, begin: Mark, later: tuple[Mark, ...], elapsed_s: float) -> None:
        self._begin = begin.rows
        self._later = later
        self._elapsed_s = elapsed_s

    def rate(self, key: Key, place: int, total: float) -> float:
        """Return the growth per second of the total at a place of its row."""
        return self._growth(key, place, total) / self._elapsed_s

    def mean(self, key: Key, place: int, sample: tuple[float, float, float]) -> float:
        """Return the mean of the values of a sample; NaN without a value."""
        count = self._growth(key, place + 1, sample[1])
        return self._growth(key, place, sample[0]) / count if count else math.nan

    def largest(self, key: Key, place: int, sample: tuple[float, float, float]) -> float:
        """Return the largest value of a sample; NaN without a value."""
        if not self._growth(key, place + 1, sample[1]):
            return math.nan
        rows = (mark.rows.get(key) for mark in self._later)
        return max(sample[2], *(row[place + 2] for row in rows if row is not None), 0.0)

    def _growth(self, key: Key, place: int, now: float) -> float:
        row = self._begin.get(key)
        return now if row is None else now - row[place]


class MetricWindows:
    """Reads the totals now and then, on the event loop; any thread may ask for the window.

    Args:
        window_s: length of a sample window.
        samples: number of sample windows.
        read: returns all rows.
        forget_recent: begins the next recent maxima.
    """

    def __init__(
        self,
        window_s: float,
        samples: int,
        *,
        read: Callable[[], dict[Key, Totals]],
        forget_recent: Callable[[], object],
    ) -> None:
        self._window_s = window_s
        self._samples = samples
        self._length_s = window_s * samples
        self._interval_s = self._pause_s = max(window_s / _MARKS, _SHORTEST_S)
        self._read = read
        self._forget_recent = forget_recent
        self._marks: deque[Mark] = deque()
        self._ended_at = math.inf

    def mark(self, now: float) -> float:
        """Read all rows; return the time of the next reading."""
        rows, is_idle = self._read(), False
        if self._marks:
            last = self._marks[-1].rows
            rows = {key: row if (same := last.get(key)) != row else same for key, row in rows.items()}
            is_idle = len(rows) == len(last) and all(row is last.get(key) for key, row in rows.items())
        self._marks.append(Mark(now, rows))
        self._forget_recent()
        while len(self._marks) > 1 and self._marks[1].at <= now - self._length_s:
            self._marks.popleft()
        # An idle producer is woken less and less: its next values may count a sample window longer, as in Kafka.
        self._pause_s = min(2 * self._pause_s, self._window_s) if is_idle else self._interval_s
        return now + self._pause_s

    def end(self, now: float) -> None:
        """Let the window end here: the producer has closed."""
        self._ended_at = min(self._ended_at, now)

    def until(self, now: float) -> Window:
        """Return the window that ends now."""
        marks, now = tuple(self._marks), min(now, self._ended_at)
        if not marks:
            return Window(Mark(now, {}), (), self._elapsed_s(0.0))
        first = max((index for index, mark in enumerate(marks) if mark.at <= now - self._length_s), default=0)
        begin, later = marks[first], marks[first + 1 :]
        return Window(begin, later, self._elapsed_s(min(now - begin.at, self._length_s)))

    def _elapsed_s(self, passed_s: float) -> float:
        """Return what rates are divided by: with empty sample windows before the first, as Rate.windowSize in Kafka."""
        missing = max(self._samples - 1 - int(passed_s / self._window_s), 0)
        return max(passed_s + missing * self._window_s, _SHORTEST_S)
