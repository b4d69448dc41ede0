"""Offsets of a read: from where to where, cut to a limit, as ranges that tasks read. No I/O."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

EARLIEST: Final = -2
"""Stands for the earliest offset of a partition."""
LATEST: Final = -1
"""Stands for the latest."""

Place: TypeAlias = tuple[str, int]
"""A topic and the number of a partition."""

Offsets: TypeAlias = dict[Place, int]


Side: TypeAlias = Literal["starting", "ending"]


@dataclass(frozen=True, slots=True)
class OffsetsChoice:
    """Offsets to begin or to end at: the earliest, the latest, given ones, or the first of a time."""

    word: Literal["earliest", "latest", "json", "time", "times"]
    offsets: Mapping[str, Mapping[int, int]]
    """Topic -> partition -> offset; -2 is the earliest, -1 the latest. Of `times`: milliseconds since 1970."""
    time: int = 0
    """Of `time`: milliseconds since 1970, for all partitions."""

    def option(self, side: Side) -> str:
        """Return the name of the option that makes this choice."""
        return {"time": f"{side}Timestamp", "times": f"{side}OffsetsByTimestamp"}.get(self.word, f"{side}Offsets")

    def places(self) -> Offsets:
        """Return each partition that is given, with its offset or time."""
        return {(topic, number): given for topic, numbers in self.offsets.items() for number, given in numbers.items()}

    def times_of(self, places: Iterable[Place]) -> Offsets:
        """Return the time to look for in each partition; none if this is not a choice by time.

        Raises:
            ValueError: partitions are left out, or are not there.
        """
        if self.word == "time":
            return dict.fromkeys(places, self.time)
        if self.word == "times":
            check_complete(self.places(), places)
            return self.places()
        return {}


class Bounds(NamedTuple):
    """First and next offset of each partition."""

    earliest: Offsets
    latest: Offsets
    """The next offset; as far as a reader may see."""


class OffsetRange(NamedTuple):
    """Records of a partition that one task reads."""

    topic: str
    partition: int
    start: int
    end: int
    """The first offset that is not read."""


def check_complete(given: Collection[Place], places: Iterable[Place], *, hint: str = "") -> None:
    """Raise a ValueError unless just these partitions are given."""
    there = set(places)
    for topic, number in sorted(set(given) - there):
        raise ValueError(f"topic {topic!r} has no partition {number} that is read")
    if left_out := sorted(there - set(given)):
        named = ", ".join(f"{topic}-{number}" for topic, number in left_out)
        raise ValueError(f"all partitions must be given{hint}; left out: {named}")


def chosen(choice: OffsetsChoice, bounds: Bounds, at_times: Mapping[Place, int | None]) -> Offsets:
    """Return the offset of each partition that a choice means.

    Args:
        choice: made by the options.
        bounds: of each partition.
        at_times: of a choice by time, the first offset of that time; None where a partition has nothing so late,
            which then means the latest offset.

    Raises:
        ValueError: it names a partition that is not there, or leaves one out.
    """
    match choice.word:
        case "earliest":
            return dict(bounds.earliest)
        case "latest":
            return dict(bounds.latest)
        case "json":
            given: Mapping[Place, int | None] = choice.places()
            check_complete(given, bounds.latest, hint=" (-1: latest, -2: earliest)")
        case _:
            given = at_times
    return {place: _resolved(given[place], place, bounds) for place in bounds.latest}


def check_matched(choice: OffsetsChoice, at_times: Mapping[Place, int | None]) -> None:
    """Raise a ValueError if a partition has nothing that is as late as a choice by time."""
    for (topic, number), offset in sorted(at_times.items()):
        if offset is None:
            given = choice.times_of(at_times)[topic, number]
            raise ValueError(
                f"{topic}-{number} has no record of the time {given} or later; "
                "startingOffsetsByTimestampStrategy=latest begins at the end of such partitions"
            )


def _resolved(offset: int | None, place: Place, bounds: Bounds) -> int:
    if offset is None or offset == LATEST:
        return bounds.latest[place]
    return bounds.earliest[place] if offset == EARLIEST else offset


def check_order(start: Mapping[Place, int], end: Mapping[Place, int]) -> None:
    """Raise a ValueError if a partition would be read backwards."""
    for (topic, number), first in sorted(start.items()):
        last = end[topic, number]
        if first > last:
            raise ValueError(f"{topic}-{number} begins at offset {first}, which is behind its end, {last}")


def to_json(offsets: Mapping[Place, int]) -> dict[str, dict[str, int]]:
    """Return offsets as Spark keeps them: `{"orders": {"0": 23}}`, as its own source does."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(number)] = offset
    return topics


def from_json(kept: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Return offsets from what `to_json` made of them."""
    return {(topic, int(number)): offset for topic, numbers in kept.items() for number, offset in numbers.items()}


def cut_to_rows(start: Mapping[Place, int], latest: Mapping[Place, int], rows: int | None) -> Offsets:
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


def split(ranges: Sequence[OffsetRange], min_partitions: int | None, max_records: int | None) -> list[OffsetRange]:
    """Return ranges cut into parts as Spark's own source cuts them.

    Args:
        ranges: none is empty.
        min_partitions: so many parts, about, if there are fewer ranges: larger ranges have more parts.
        max_records: most offsets of a part.
    """
    parts = list(ranges)
    if max_records is not None:
        parts = [part for each in parts for part in _divided(each, -(-(each.end - each.start) // max_records))]
    if min_partitions is None or len(parts) >= min_partitions or not parts:
        return parts
    total = sum(each.end - each.start for each in parts)
    small = {each for each in parts if _share(each, total, min_partitions) == 1}
    left = total - sum(each.end - each.start for each in small)
    wanted = max(min_partitions - len(small), 1)
    return [part for each in parts for part in _divided(each, 1 if each in small else _share(each, left, wanted))]


def _share(each: OffsetRange, total: int, parts: int) -> int:
    """Return how many of the parts a range has; at least one."""
    return max(1, int((each.end - each.start) / total * parts + 0.5))


def _divided(each: OffsetRange, parts: int) -> Iterator[OffsetRange]:
    start = each.start
    for part in range(parts):
        end = start + (each.end - start) // (parts - part)
        if end > start:
            yield each._replace(start=start, end=end)
        start = end
