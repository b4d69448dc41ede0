"""Records taken out of a batch, rewritten where they stand, are what the slow encoder writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer._native.memory import Chunk
from aioproducer._native.renumber import record_starts, renumber_records
from tests.reference.record_batch import Record, decode_records, encode_records, encode_varint

NULLABLE = st.none() | st.binary(max_size=20)
RECORDS = st.lists(
    st.builds(
        Record,
        key=NULLABLE,
        value=NULLABLE,
        timestamp=st.integers(0, 2**62),
        headers=st.lists(st.tuples(st.text(max_size=3), NULLABLE), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=8,
)
MANY = [Record(None, b"v", 1_000 + index) for index in range(300)]
"""Enough records that the later offset deltas take two bytes, and get shorter."""


def chunk_of(data: bytes) -> Chunk:
    chunk = Chunk(len(data))
    chunk.fill(data)
    return chunk


def section(chunk: Chunk, start: int, size: int) -> bytes:
    return bytes(memoryview(chunk)[start : start + size])


@given(RECORDS)
def test_starts_are_where_the_records_are(records: list[Record]) -> None:
    starts = record_starts(encode_records(records), len(records))

    assert starts == [len(encode_records(records[:index])) if index else 0 for index in range(len(records) + 1)]


@given(RECORDS, st.data())
def test_rewritten_records_are_the_same_records_from_zero(records: list[Record], data: st.DataObject) -> None:
    """For any range of records; timestamps stay relative to the batch's first."""
    first = data.draw(st.integers(0, len(records) - 1))
    stop = data.draw(st.integers(first + 1, len(records)))
    body = encode_records(records)
    chunk, starts = chunk_of(body), record_starts(body, len(records))

    size, latest = renumber_records(chunk, starts[first], first, stop - first)

    base = records[0].timestamp
    rewritten = decode_records(section(chunk, starts[first], size), count=stop - first, base_timestamp=base)
    assert rewritten == tuple(records[first:stop])
    assert base + latest == max(record.timestamp for record in records[first:stop])


@pytest.mark.parametrize("first, count", [(0, 300), (150, 150), (299, 1), (60, 10)])
def test_rewritten_records_are_never_longer(first: int, count: int) -> None:
    body = encode_records(MANY)
    chunk, starts = chunk_of(body), record_starts(body, len(MANY))
    start, end = starts[first], starts[first + count]

    size, _ = renumber_records(chunk, start, first, count)

    assert size <= end - start
    assert (section(chunk, 0, start), section(chunk, end, len(body) - end)) == (body[:start], body[end:])
    rewritten = decode_records(section(chunk, start, size), count=count, base_timestamp=1_000)
    assert rewritten == tuple(MANY[first : first + count])


def test_records_already_from_zero_stay_as_they_are() -> None:
    body = encode_records(MANY)
    chunk = chunk_of(body)

    size, _ = renumber_records(chunk, 0, 0, len(MANY))

    assert section(chunk, 0, size) == body


def test_records_that_are_not_where_the_batch_says_are_refused() -> None:
    """A bug of our own must not send something else."""
    body = encode_records(MANY[:3])
    starts = record_starts(body, 3)

    with pytest.raises(ValueError, match="record 2 is not where its batch says"):
        renumber_records(chunk_of(body), starts[1], 2, 1)


@pytest.mark.parametrize(
    "body",
    [
        b"\x80",
        encode_varint(50) + b"\0",
        encode_varint(-1),
        encode_varint(0),
        encode_varint(2) + b"\0\x80",
        b"\xff" * 11,
    ],
    ids=["cut length", "too long", "negative", "empty", "cut inside", "endless number"],
)
def test_bytes_that_are_no_records_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="record 0"):
        renumber_records(chunk_of(body), 0, 0, 1)


@pytest.mark.parametrize("count", [2, 100])
def test_more_records_than_there_are_have_no_starts(count: int) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        record_starts(encode_records(MANY[:1]), count)
