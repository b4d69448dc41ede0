"""The partitions of a topic are read the same, whether together or one by one."""

import struct
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer._protocol.partition_views import NO_EPOCH, Partitions, PartitionView, read_partitions
from aioproducer._protocol.primitives import FlexibleResponseReader, ResponseReader

VERSIONS = (4, 5, 7, 9, 13)


class Entry(NamedTuple):
    number: int
    leader_id: int = 1
    epoch: int = 5
    nodes: tuple[int, int, int] = (3, 3, 0)
    tag: bytes = b""


def encoded(entries: Sequence[Entry], version: int) -> bytes:
    """An array of them; lengths stay below 127, so that varints take a byte."""
    flexible = version >= 9
    parts = [varint(len(entries) + 1) if flexible else struct.pack(">i", len(entries))]
    for entry in entries:
        parts.append(struct.pack(">hii", 0, entry.number, entry.leader_id))
        if version >= 7:
            parts.append(struct.pack(">i", entry.epoch))
        lengths = entry.nodes[: 3 if version >= 5 else 2]
        parts.extend((varint(n + 1) if flexible else struct.pack(">i", n)) + bytes(4 * n) for n in lengths)
        if flexible:
            parts.append(b"\x01\x00" + varint(len(entry.tag)) + entry.tag if entry.tag else b"\x00")
    return b"".join(parts)


def varint(value: int) -> bytes:
    data = b""
    while value > 0x7F:
        data += bytes((value & 0x7F | 0x80,))
        value >>= 7
    return data + bytes((value,))


def read(data: bytes, version: int) -> Partitions:
    reader = (FlexibleResponseReader if version >= 9 else ResponseReader)(data)
    found = read_partitions(reader, version)
    assert reader.position == len(data)
    return found


def described(entries: Sequence[Entry], version: int) -> tuple[PartitionView, ...]:
    views = [PartitionView()] * len(entries)
    for entry in entries:
        if 0 <= entry.number < len(entries):
            views[entry.number] = PartitionView(entry.leader_id, entry.epoch if version >= 7 else NO_EPOCH)
    return tuple(views)


LAYOUTS = st.tuples(st.sampled_from([(3, 3, 0), (3, 2, 1), (0, 0, 0), (126, 1, 0)]), st.sampled_from([b"", b"tag"]))


@pytest.mark.parametrize("version", VERSIONS)
@given(
    runs=st.lists(st.tuples(st.integers(1, 200), LAYOUTS), max_size=5),
    random=st.randoms(use_true_random=False),
    is_shuffled=st.booleans(),
)
def test_partitions_are_read_in_any_layout(
    version: int, runs: list[tuple[int, tuple[tuple[int, int, int], bytes]]], random: object, *, is_shuffled: bool
) -> None:
    numbers = list(range(-1, sum(count for count, _ in runs)))
    if is_shuffled:
        random.shuffle(numbers)  # type: ignore[attr-defined]  # a random.Random
    layouts = [layout for count, layout in runs for _ in range(count)]
    entries = [
        Entry(number, number * 7 % 1000, number % 5, nodes, tag)
        for number, (nodes, tag) in zip(numbers, layouts, strict=False)
    ]

    found = read(encoded(entries, version), version)

    assert found == described(entries, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_array_that_is_cut_short_is_refused(version: int) -> None:
    """At each of its bytes, also between entries that are read together."""
    data = encoded([Entry(number) for number in range(40)], version)

    for size in range(len(data)):
        with pytest.raises((IndexError, struct.error)):
            read_partitions((FlexibleResponseReader if version >= 9 else ResponseReader)(data[:size]), version)


def test_many_partitions_are_read_in_few_calls() -> None:
    entries = [Entry(number, nodes=(3, 2, 1) if number % 10_000 == 0 else (3, 3, 0)) for number in range(100_000)]
    data = encoded(entries, 13)
    calls = 0

    def count(_frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(count)
    found = read(data, 13)
    sys.setprofile(None)

    assert found == described(entries, 13)
    assert calls < 20_000


def test_views_behave_like_a_tuple() -> None:
    partitions = Partitions.of([PartitionView(1, 5), PartitionView(2, 6), PartitionView()])

    assert partitions[1] == PartitionView(2, 6)
    assert partitions[1:] == (PartitionView(2, 6), PartitionView())
    assert list(partitions) == [PartitionView(1, 5), PartitionView(2, 6), PartitionView()]
    assert (partitions.lacks_leader, partitions[:2].lacks_leader) == (True, False)
    assert partitions.with_views([(2, PartitionView(3, 7))])[2] == PartitionView(3, 7)
    assert partitions[2] == PartitionView()
    assert partitions != partitions[:2]
    assert partitions != "other"
