"""Offsets of a read: chosen, limited, and cut into ranges."""

import pytest

from aioproducer.spark._offsets import (
    Bounds,
    OffsetRange,
    OffsetsChoice,
    check_matched,
    check_order,
    chosen,
    cut_to_rows,
    from_json,
    ranges,
    split,
    to_json,
)

EARLIEST = {("t", 0): 5, ("t", 1): 0}
LATEST = {("t", 0): 10, ("t", 1): 100}


BOUNDS = Bounds(EARLIEST, LATEST)


def test_words_and_numbers() -> None:
    """With two numbers that have a meaning."""
    assert chosen(OffsetsChoice("earliest", {}), BOUNDS, {}) == EARLIEST
    assert chosen(OffsetsChoice("latest", {}), BOUNDS, {}) == LATEST
    assert chosen(OffsetsChoice("json", {"t": {0: 7, 1: -1}}), BOUNDS, {}) == {("t", 0): 7, ("t", 1): 100}
    assert chosen(OffsetsChoice("json", {"t": {0: -2, 1: 3}}), BOUNDS, {}) == {("t", 0): 5, ("t", 1): 3}


@pytest.mark.parametrize(
    "given, said",
    [
        ({"t": {0: 7}}, r"all partitions must be given \(-1: latest, -2: earliest\); left out: t-1"),
        ({"t": {0: 7, 1: 1, 2: 0}}, "topic 't' has no partition 2"),
        ({"other": {0: 7}}, "topic 'other' has no partition 0"),
    ],
)
def test_partitions_must_be_those_that_are_read(given: dict[str, dict[int, int]], said: str) -> None:
    """One that is left out would begin at a place that nobody chose."""
    with pytest.raises(ValueError, match=said):
        chosen(OffsetsChoice("json", given), BOUNDS, {})


def test_time_without_a_record_is_the_latest_offset() -> None:
    """A start may not rely on it unasked."""
    choice, found = OffsetsChoice("time", {}, 9), {("t", 0): 7, ("t", 1): None}
    assert choice.times_of(LATEST) == {("t", 0): 9, ("t", 1): 9}
    assert chosen(choice, BOUNDS, found) == {("t", 0): 7, ("t", 1): 100}
    with pytest.raises(ValueError, match="t-1 has no record of the time 9 or later"):
        check_matched(choice, found)


def test_times_must_be_of_all_partitions() -> None:
    with pytest.raises(ValueError, match="all partitions must be given; left out: t-1"):
        OffsetsChoice("times", {"t": {0: 9}}).times_of(LATEST)


def test_start_behind_the_end_is_refused() -> None:
    with pytest.raises(ValueError, match="t-0 begins at offset 10, which is behind its end, 5"):
        check_order(LATEST, EARLIEST)
    check_order(LATEST, LATEST)


def test_kept_as_spark_keeps_them() -> None:
    """As its own source does, so the numbers of partitions are text."""
    assert to_json(LATEST) == {"t": {"0": 10, "1": 100}}
    assert from_json(to_json(LATEST)) == LATEST


def test_limit_is_shared_by_what_partitions_have() -> None:
    """Each that has records gives one at least."""
    start = {("t", 0): 9, ("t", 1): 0}
    assert cut_to_rows(start, LATEST, None) == LATEST
    assert cut_to_rows(start, LATEST, 1_000) == LATEST
    assert cut_to_rows(start, LATEST, 50) == {("t", 0): 10, ("t", 1): 49}
    assert cut_to_rows(LATEST, LATEST, 50) == LATEST


def test_ranges() -> None:
    """None for a partition without new records; a new partition is read from its earliest offset."""
    assert ranges({("t", 0): 10}, LATEST, EARLIEST) == [OffsetRange("t", 1, 0, 100)]


SIZES = [OffsetRange("t", 0, 0, 100), OffsetRange("t", 1, 10, 20), OffsetRange("t", 2, 0, 1)]


@pytest.mark.parametrize(
    "least, most, sizes",
    [
        (None, None, [100, 10, 1]),
        (2, None, [100, 10, 1]),
        (5, None, [33, 33, 34, 10, 1]),
        (None, 40, [33, 33, 34, 10, 1]),
        (3, 60, [50, 50, 10, 1]),
        (6, 60, [25, 25, 25, 25, 10, 1]),
    ],
)
def test_ranges_are_split_as_by_spark(least: int | None, most: int | None, sizes: list[int]) -> None:
    """Larger ones into more parts, without a gap."""
    parts = split(SIZES, least, most)
    assert [part.end - part.start for part in parts] == sizes
    assert ranges_of(parts) == ranges_of(SIZES)


def ranges_of(parts: list[OffsetRange]) -> list[tuple[int, int]]:
    """Return each partition and offset."""
    return [(part.partition, offset) for part in parts for offset in range(part.start, part.end)]


def test_times_are_looked_for_in_each_partition() -> None:
    choice = OffsetsChoice("times", {"t": {0: 5, 1: 7}})
    check_matched(choice, {("t", 0): 3, ("t", 1): 4})  # no error: each has a record so late

    assert choice.times_of([("t", 0), ("t", 1)]) == {("t", 0): 5, ("t", 1): 7}
    assert OffsetsChoice("time", {}, 9).times_of([("t", 0)]) == {("t", 0): 9}
    assert OffsetsChoice("latest", {}).times_of([("t", 0)]) == {}
    assert choice.option("ending") == "endingOffsetsByTimestamp"


def test_range_has_no_more_parts_than_offsets() -> None:
    parts = split([OffsetRange("t", 0, 0, 2)], 5, None)

    assert [(part.start, part.end) for part in parts] == [(0, 1), (1, 2)]
