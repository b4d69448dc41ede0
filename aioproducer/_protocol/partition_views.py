"""Partitions of a topic in Metadata: leader and leader epoch of each.

A topic may have a hundred thousand partitions, so there is no object and no call per partition: leaders and epochs
are kept in two arrays, and entries of the response with the same layout are read together, by slices.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, overload

from aioproducer._shown_values import in_any_state

if TYPE_CHECKING:
    from aioproducer._protocol.primitives import ResponseReader

NO_LEADER: Final = -1
NO_EPOCH: Final = -1

_PARTITION_V4 = struct.Struct(">hii")  # error code, index, leader id
_PARTITION_V7 = struct.Struct(">hiii")  # and leader epoch
_INDEX_AT: Final = 2  # bytes from the begin of an entry
_LEADER_AT: Final = 6
_EPOCH_AT: Final = 10
_PLACES: Final = (0, 1, 2, 3) if sys.byteorder == "big" else (3, 2, 1, 0)
"""Positions in memory of the bytes of an int32 on the wire."""
_FEW: Final = 32
"""Entries compared at once after a change of layout; four times as many after each success. So a response whose
layout changes all the time costs no more than reading its entries individually."""


class PartitionView(NamedTuple):
    """Leader of a partition, if known."""

    leader_id: int = NO_LEADER
    leader_epoch: int = NO_EPOCH


class Partitions(Sequence[PartitionView]):
    """Immutable sequence of the views of a topic's partitions."""

    __slots__ = ("leader_epochs", "leader_ids")

    def __init__(self, leader_ids: array[int], leader_epochs: array[int]) -> None:
        self.leader_ids: array[int] = leader_ids
        self.leader_epochs: array[int] = leader_epochs

    @classmethod
    def of(cls, views: Iterable[PartitionView]) -> Partitions:
        views = tuple(views)
        leader_ids = array("i", [view.leader_id for view in views])
        return cls(leader_ids, array("i", [view.leader_epoch for view in views]))

    @classmethod
    def undescribed(cls, count: int) -> Partitions:
        return cls(array("i", [NO_LEADER]) * count, array("i", [NO_EPOCH]) * count)

    @property
    def lacks_leader(self) -> bool:
        return NO_LEADER in self.leader_ids

    def with_views(self, views: Iterable[tuple[int, PartitionView]]) -> Partitions:
        """Return a copy with new views by partition number."""
        changed = Partitions(self.leader_ids[:], self.leader_epochs[:])
        for number, view in views:
            changed.leader_ids[number], changed.leader_epochs[number] = view
        return changed

    @overload
    def __getitem__(self, index: int) -> PartitionView: ...

    @overload
    def __getitem__(self, index: slice[int | None]) -> Partitions: ...

    def __getitem__(self, index: int | slice[int | None]) -> PartitionView | Partitions:
        if isinstance(index, slice):
            return Partitions(self.leader_ids[index], self.leader_epochs[index])
        return PartitionView(self.leader_ids[index], self.leader_epochs[index])

    def __len__(self) -> int:
        return len(self.leader_ids)

    def __iter__(self) -> Iterator[PartitionView]:
        return map(PartitionView, self.leader_ids, self.leader_epochs)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Partitions):
            return self.leader_ids == other.leader_ids and self.leader_epochs == other.leader_epochs
        return isinstance(other, tuple) and tuple(self) == other

    __hash__: None = None  # type: ignore[assignment]  # it holds arrays

    @in_any_state
    def __repr__(self) -> str:
        return f"<Partitions {len(self)}>"


def read_partitions(reader: ResponseReader, version: int) -> Partitions:
    """Read the partitions of one topic in a Metadata response; versions 4-13.

    A partition missing in the response has no leader; an invalid partition number is ignored.
    """
    count = reader.array_length()
    reader.checked(count * (_fixed(version).size + _lists_of(version)))  # their smallest size
    found = Partitions.undescribed(count)
    done, at_most = 0, _FEW
    while done < count:
        start = reader.position
        number, view = _read_one(reader, version)
        if 0 <= number < count:  # the numbers of a topic are 0 to count - 1
            found.leader_ids[number], found.leader_epochs[number] = view
        done += 1
        stride = reader.position - start
        wanted = min(count - done, at_most, (len(reader.payload) - reader.position) // stride)
        alike = _count_alike(reader, stride, layout=_layout(reader, stride, version), wanted=wanted)
        _read_alike(reader, found, stride=stride, alike=alike)
        done += alike
        at_most = at_most * 4 if alike == wanted else _FEW
    if _fixed(version) is _PARTITION_V4:
        return Partitions(found.leader_ids, Partitions.undescribed(count).leader_epochs)
    return found


def _read_one(reader: ResponseReader, version: int) -> tuple[int, PartitionView]:
    # A partition's error code is not needed: it has no leader then, or one on a broken listener.
    _, number, *view = _fixed(version).unpack_from(reader.payload, reader.position)
    reader.position += _fixed(version).size
    for _ in range(_lists_of(version)):
        reader.skip(4 * reader.array_length())
    reader.skip_tagged_fields()
    return number, PartitionView(*view)


def _fixed(version: int) -> struct.Struct:
    """Return the first fields of an entry."""
    return _PARTITION_V7 if version >= 7 else _PARTITION_V4  # noqa: PLR2004


def _lists_of(version: int) -> int:
    """Return the number of node id lists of an entry: replicas, in-sync replicas and (from 5 on) offline ones."""
    return 3 if version >= 5 else 2  # noqa: PLR2004


def _count_alike(reader: ResponseReader, stride: int, *, layout: list[int], wanted: int) -> int:
    """Return how many of the next entries, up to `wanted`, have the lengths of the previous one of `stride` bytes."""
    payload, begin, alike = reader.payload, reader.position, wanted
    for offset in layout:
        expected = payload[begin - stride + offset : begin - stride + offset + 1]
        seen = payload[begin + offset : begin + alike * stride : stride]
        alike = len(seen) - len(seen.lstrip(expected))
    return alike


def _layout(reader: ResponseReader, stride: int, version: int) -> list[int]:
    """Return the offsets of the bytes of the previous entry that determine its length."""
    start = reader.position - stride
    probe = type(reader)(reader.payload)
    probe.position = start + _fixed(version).size
    offsets: list[int] = []
    for _ in range(_lists_of(version)):
        before = probe.position
        length = probe.array_length()
        offsets += range(before - start, probe.position - start)
        probe.skip(4 * length)
    offsets += range(probe.position - start, stride)  # tagged fields, nearly always a single zero
    return offsets


def _read_alike(reader: ResponseReader, found: Partitions, *, stride: int, alike: int) -> None:
    """Read the next entries of equal length; versions without epochs ignore the epochs read here."""
    begin = reader.position
    reader.position += alike * stride
    numbers = _column(reader.payload, stride, begin=begin + _INDEX_AT, count=alike)
    leader_ids = _column(reader.payload, stride, begin=begin + _LEADER_AT, count=alike)
    epochs = _column(reader.payload, stride, begin=begin + _EPOCH_AT, count=alike)
    first = numbers[0] if alike else 0
    if first >= 0 and first + alike <= len(found) and numbers == array("i", range(first, first + alike)):
        found.leader_ids[first : first + alike] = leader_ids
        found.leader_epochs[first : first + alike] = epochs
        return
    count = len(found)
    for number, leader_id, epoch in zip(numbers, leader_ids, epochs, strict=True):
        if 0 <= number < count:
            found.leader_ids[number], found.leader_epochs[number] = leader_id, epoch


def _column(payload: bytes, stride: int, *, begin: int, count: int) -> array[int]:
    """Return one int32 of each of `count` entries, the first at `begin`."""
    mixed = bytearray(4 * count)
    end = begin + count * stride
    for byte, place in enumerate(_PLACES):
        mixed[place::4] = payload[begin + byte : end : stride]
    return array("i", bytes(mixed))
