"""Frames come out whole, however the bytes came in."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.testing.cluster_driver import FrameReader


def feed(reader: FrameReader, data: bytes, sizes: list[int]) -> list[bytes]:
    frames = []
    while data:
        room = reader.room()
        size = min(sizes.pop(0) if sizes else len(data), len(room), len(data))
        room[:size] = data[:size]
        frames += [bytes(frame) for frame in reader.received(size)]
        data = data[size:]
    return frames


@given(
    st.lists(st.integers(0, 40_000) | st.sampled_from([16_383, 16_384, 300_000]), max_size=6),
    st.lists(st.integers(1, 50_000), max_size=30),
)
def test_any_split_gives_the_same_frames(sizes: list[int], pieces: list[int]) -> None:
    frames = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)

    assert feed(FrameReader(1_000_000), stream, pieces) == frames


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
def test_impossible_size_is_refused_at_its_four_bytes(size: int) -> None:
    with pytest.raises(ValueError, match="a frame of"):
        feed(FrameReader(1000), struct.pack(">i", size), [])
