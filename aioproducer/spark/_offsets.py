"""Offsets of a read: from where to where, cut to a limit, as ranges that tasks read. No I/O."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

EARLIEST: Final = -2
"""Stands for the earliest offset of a partition; -1, the other negative one, for the latest."""

Place: TypeAlias = tuple[str, int]
"""A topic and the number of a partition."""

Offsets: TypeAlias = dict[Place, int]


@dataclass(frozen=True, slots=True)
class OffsetsChoice:
    """Offsets to begin or to end at: the earliest, the latest, or given ones."""

    word: Literal["earliest", "latest", "json"]
    offsets: Mapping[str, Mapping[int, int]]
    """Topic -> partition -> offset; -2 is the earliest, -1 the latest."""


class OffsetRange(NamedTuple):
    """Records of a partition that one task reads."""

    topic: str
    partition: int
    start: int
    end: int
    """The first offset that is not read."""


def chosen(choice: OffsetsChoice, earliest: Mapping[Place, int], latest: Mapping[Place, int]) -> Offsets:
    """Return the offset of each partition that a choice means; partitions it leaves out are as `latest`.

    Raises:
        ValueError: it names a partition that is not there.
    """
    offsets = dict(earliest if choice.word == "earliest" else latest)
    for topic, partitions in choice.offsets.items():
        for number, offset in partitions.items():
            place = topic, number
            if place not in latest:
                raise ValueError(f"topic {topic!r} has no partition {number}")
            offsets[place] = offset if offset >= 0 else (earliest if offset == EARLIEST else latest)[place]
    return offsets


def to_json(offsets: Mapping[Place, int]) -> dict[str, dict[str, int]]:
    """Return offsets as Spark keeps them: `{"orders": {"0": 23}}`, as its own source does."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(number)] = offset
    return topics


def from_json(kept: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Return offsets from what `to_json` made of them."""
    return {(topic, int(number)): offset for topic, numbers in kept.items() for number, offset in numbers.items()}


def limited(start: Mapping[Place, int], latest: Mapping[Place, int], rows: int | None) -> Offsets:
    """Return where a batch ends: at the latest offsets, or after so many rows, shared by what each partition has.

    A partition that has records gives one at least, so that none is left behind.
    """
    waiting = {place: max(0, end - start.get(place, 0)) for place, end in latest.items()}
    total = sum(waiting.values())
    if rows is None or total <= rows:
        return {place: max(end, start.get(place, 0)) for place, end in latest.items()}
    ends = {}
    for place, count in waiting.items():
        share = max(1, count * rows // total) if count else 0
        ends[place] = start.get(place, 0) + share
    return ends


def ranges(start: Mapping[Place, int], end: Mapping[Place, int], earliest: Mapping[Place, int]) -> list[OffsetRange]:
    """Return what each task reads; a partition that appeared since the start is read from its earliest offset."""
    found = []
    for (topic, number), last in sorted(end.items()):
        first = start.get((topic, number), earliest.get((topic, number), 0))
        if first < last:
            found.append(OffsetRange(topic, number, first, last))
    return found


def lost_ranges(planned: Iterable[OffsetRange], earliest: Mapping[Place, int]) -> Iterator[tuple[OffsetRange, int]]:
    """Yield the ranges whose first records the broker has deleted, each with the earliest offset left."""
    for each in planned:
        left = earliest.get((each.topic, each.partition), each.start)
        if left > each.start:
            yield each, left
