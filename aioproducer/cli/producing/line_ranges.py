"""A bounded set of line numbers, kept as ranges."""

from bisect import bisect_left
from collections.abc import Iterator

MAX_RANGES = 1_000


class LineRanges:
    """Line numbers, the lowest kept, the others only counted once there are too many ranges.

    Args:
        max_ranges: how many are kept.
    """

    __slots__ = ("_max_ranges", "_ranges", "count")

    def __init__(self, max_ranges: int = MAX_RANGES) -> None:
        self._max_ranges = max_ranges
        self._ranges: list[tuple[int, int]] = []  # (first, last), both included; ascending, never adjacent
        self.count = 0
        """Lines added, kept or not."""

    def add(self, first: int, last: int) -> None:
        """Add lines that are not in it yet, in any order."""
        self.count += last - first + 1
        ranges = self._ranges
        at = bisect_left(ranges, (first, last))
        start, end = at, at
        if at > 0 and ranges[at - 1][1] == first - 1:
            start, first = at - 1, ranges[at - 1][0]
        if at < len(ranges) and ranges[at][0] == last + 1:
            end, last = at + 1, ranges[at][1]
        ranges[start:end] = [(first, last)]
        del ranges[self._max_ranges :]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """The (first, last) line of each range that is kept, ascending."""
        return iter(self._ranges)

    @property
    def left_out(self) -> int:
        """Lines that are counted but not kept."""
        return self.count - sum(last - first + 1 for first, last in self._ranges)
