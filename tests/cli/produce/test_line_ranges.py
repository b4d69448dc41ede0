"""Line numbers are kept as ranges, the lowest first when there are too many."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from aioproducer.cli.produce.report import LineRanges


@given(st.permutations(range(1, 15)), st.integers(0, 14))
def test_neighbours_become_one_range(order: list[int], count: int) -> None:
    ranges = LineRanges()
    for line in order[:count]:
        ranges.add(line, line)

    kept = list(ranges)
    assert [line for first, last in kept for line in range(first, last + 1)] == sorted(order[:count])
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(kept))
    assert ranges.count == count


def test_highest_are_left_out_and_counted() -> None:
    ranges = LineRanges(max_ranges=2)
    for first in (9, 1, 5):
        ranges.add(first, first + 1)

    assert list(ranges) == [(1, 2), (5, 6)]
    assert ranges.count == 6
