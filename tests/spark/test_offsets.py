"""Offsets of a read: chosen, limited, and cut into ranges."""

import pytest

from aioproducer.spark._offsets import (
    OffsetRange,
    OffsetsChoice,
    chosen,
    from_json,
    limited,
    lost_ranges,
    ranges,
    to_json,
)

EARLIEST = {("t", 0): 5, ("t", 1): 0}
LATEST = {("t", 0): 10, ("t", 1): 100}


def test_words_and_numbers() -> None:
    """A partition that JSON leaves out is read from its latest offset."""
    assert chosen(OffsetsChoice("earliest", {}), EARLIEST, LATEST) == EARLIEST
    assert chosen(OffsetsChoice("latest", {}), EARLIEST, LATEST) == LATEST
    assert chosen(OffsetsChoice("json", {"t": {0: -2}}), EARLIEST, LATEST) == {("t", 0): 5, ("t", 1): 100}
    assert chosen(OffsetsChoice("json", {"t": {0: 7, 1: -1}}), EARLIEST, LATEST) == {("t", 0): 7, ("t", 1): 100}


def test_partition_that_is_not_there() -> None:
    """Is named."""
    with pytest.raises(ValueError, match="topic 't' has no partition 2"):
        chosen(OffsetsChoice("json", {"t": {2: 0}}), EARLIEST, LATEST)


def test_kept_as_spark_keeps_them() -> None:
    """As its own source does, so the numbers of partitions are text."""
    assert to_json(LATEST) == {"t": {"0": 10, "1": 100}}
    assert from_json(to_json(LATEST)) == LATEST


def test_limit_is_shared_by_what_partitions_have() -> None:
    """Each that has records gives one at least."""
    start = {("t", 0): 9, ("t", 1): 0}
    assert limited(start, LATEST, None) == LATEST
    assert limited(start, LATEST, 1_000) == LATEST
    assert limited(start, LATEST, 50) == {("t", 0): 10, ("t", 1): 49}
    assert limited(LATEST, LATEST, 50) == LATEST


def test_ranges() -> None:
    """None for a partition without new records; a new partition is read from its earliest offset."""
    assert ranges({("t", 0): 10}, LATEST, EARLIEST) == [OffsetRange("t", 1, 0, 100)]


def test_deleted_records() -> None:
    """Are found where a range begins before the earliest offset."""
    planned = [OffsetRange("t", 0, 3, 10), OffsetRange("t", 1, 0, 5)]
    assert list(lost_ranges(planned, EARLIEST)) == [(planned[0], 5)]
