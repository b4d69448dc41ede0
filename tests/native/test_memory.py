"""A chunk is lent read-only, and knows whether it is still read."""

import gc

import pytest

from aioproducer._native.memory import Chunk


def test_chunk_holds_what_was_filled_in() -> None:
    chunk = Chunk(10)

    chunk.fill(b"abc")
    chunk.fill(memoryview(b"XY"))
    chunk.fill(b"")

    assert bytes(memoryview(chunk)[:3]) == b"XYc"
    assert len(memoryview(chunk)) == chunk.capacity == 10


def test_chunk_takes_no_more_than_it_has_room_for() -> None:
    chunk = Chunk(2)
    chunk.fill(b"ab")

    with pytest.raises(ValueError, match="3 bytes do not fit a chunk of 2"):
        chunk.fill(b"xyz")

    assert bytes(chunk) == b"ab"


@pytest.mark.parametrize("capacity", [0, -1])
def test_chunk_of_nothing_is_refused(capacity: int) -> None:
    with pytest.raises(ValueError, match="at least 1 byte"):
        Chunk(capacity)


def test_chunk_that_cannot_be_allocated_says_so() -> None:
    with pytest.raises(MemoryError, match=str(2**62)):
        Chunk(2**62)


def test_views_are_read_only() -> None:
    """A transport must not change what is resent byte for byte."""
    view = memoryview(Chunk(4))

    with pytest.raises(TypeError, match="read-only"):
        view[0] = 1


def test_every_view_and_slice_counts_until_it_is_gone() -> None:
    chunk = Chunk(10)
    view = memoryview(chunk)
    part = view[2:4]
    other = memoryview(chunk)
    counted = [chunk.exports]

    other.release()
    counted.append(chunk.exports)
    view.release()
    counted.append(chunk.exports)
    part.release()

    assert [*counted, chunk.exports] == [2, 1, 1, 0]


def test_owner_is_notified_at_once_without_readers() -> None:
    told: list[Chunk] = []
    chunk = Chunk(1)

    chunk.when_returned(told.append)

    assert told == [chunk]


def test_owner_is_notified_once_by_the_last_reader() -> None:
    told: list[Chunk] = []
    chunk = Chunk(1)
    first, last = memoryview(chunk), memoryview(chunk)
    chunk.when_returned(told.append)

    first.release()
    assert told == []
    last.release()
    memoryview(chunk).release()

    assert told == [chunk]


def test_owner_is_notified_by_a_dropped_view() -> None:
    """Transports do not release their views, they drop them."""
    told: list[Chunk] = []
    chunk = Chunk(1)
    queue = [memoryview(chunk)]
    chunk.when_returned(told.append)

    queue.clear()
    gc.collect()

    assert told == [chunk]


def test_chunk_may_be_lent_again_from_within_its_return() -> None:
    chunk = Chunk(4)
    lent: list[memoryview] = []
    view = memoryview(chunk)
    chunk.when_returned(lambda returned: lent.append(memoryview(returned)))

    view.release()

    assert (len(lent), chunk.exports) == (1, 1)


def test_view_keeps_its_memory_alive() -> None:
    chunk = Chunk(3)
    chunk.fill(b"abc")
    view = memoryview(chunk)

    del chunk
    gc.collect()

    assert bytes(view) == b"abc"
