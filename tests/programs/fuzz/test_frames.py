"""Hostile streams: answers, cut anywhere into pieces, with damage in sizes, correlation ids and tags."""

import contextlib
import timeit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer.testing.cluster_driver import FrameReader
from tests.programs.fuzz.mutations import (
    MAX_FRAME_BYTES,
    STREAM,
    Step,
    check_stream,
    damaged,
    frame,
    heard,
    in_pieces,
    talking,
)
from tests.programs.fuzz.test_decoders import STEPS, peak_bytes

PIECES = st.lists(st.integers(1, 50), min_size=1, max_size=20)


@pytest.mark.slow
@settings(max_examples=300)
@given(steps=STEPS, sizes=PIECES)
def test_damaged_stream_means_the_same_however_it_is_cut(steps: list[Step], sizes: list[int]) -> None:
    check_stream(steps, sizes)


@settings(max_examples=200)
@given(stream=st.binary(max_size=200), sizes=PIECES)
def test_garbage_means_the_same_however_it_is_cut(stream: bytes, sizes: list[int]) -> None:
    assert heard(in_pieces(stream, sizes)) == heard([stream])


@pytest.mark.parametrize("piece", [1, 7, 1000, MAX_FRAME_BYTES])
def test_memory_of_a_frame_is_bounded_by_its_size(piece: int) -> None:
    stream = frame(0, bytes(100_000))
    pieces = in_pieces(stream, [piece])
    conversation = talking(1)

    def hear() -> list[int]:
        return [number for each in pieces for number, _ in conversation.receive(each)]

    assert peak_bytes(hear) <= 4 * len(stream)


@pytest.mark.timing
def test_time_is_bounded_by_the_pieces() -> None:
    """Twice as many bytes take about twice as long: no piece is looked at again."""
    small, large = (in_pieces(frame(0, bytes(size)), [1]) for size in (100_000, 200_000))

    def seconds(pieces: list[bytes]) -> float:
        return min(timeit.repeat(lambda: heard(pieces), number=1, repeat=3))

    assert seconds(large) <= 3 * seconds(small)


@pytest.mark.slow
@settings(max_examples=200)
@given(steps=STEPS, sizes=PIECES)
def test_embedded_broker_cuts_a_damaged_stream_the_same_way(steps: list[Step], sizes: list[int]) -> None:
    """Frames up to an invalid size; frames before it in the same piece are dropped, too."""
    stream = damaged(STREAM, steps)
    finest, coarser = cut(in_pieces(stream, [1])), cut(in_pieces(stream, sizes))

    assert finest[: len(coarser)] == coarser


def cut(pieces: list[bytes]) -> list[bytes]:
    reader = FrameReader(MAX_FRAME_BYTES)
    frames: list[bytes] = []
    with contextlib.suppress(ValueError):
        for piece in pieces:
            left = memoryview(piece)
            while left:
                room = reader.room()
                size = min(len(room), len(left))
                room[:size] = left[:size]
                room.release()
                frames.extend(map(bytes, reader.received(size)))
                left = left[size:]
    return frames
