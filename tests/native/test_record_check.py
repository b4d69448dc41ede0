"""The broker's native check takes what the oracle writes, and nothing that is broken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer._native.record_check import check_records
from tests.reference.record_batch import Record, encode_records, encode_varint

ANY_TIME = {"base_timestamp": 0, "low": -(2**63), "high": 2**63 - 1}

maybe_bytes = st.none() | st.binary(max_size=300)
records = st.builds(
    Record,
    key=maybe_bytes,
    value=maybe_bytes,
    timestamp=st.integers(0, 2**40),
    headers=st.lists(st.tuples(st.text(max_size=20), maybe_bytes), max_size=4).map(tuple),
)


@given(st.lists(records, min_size=1, max_size=20))
def test_what_the_oracle_writes_is_taken(batch: list[Record]) -> None:
    base = batch[0].timestamp
    times = [record.timestamp for record in batch]

    found = check_records(encode_records(batch), len(batch), base_timestamp=base, low=0, high=2**62)

    assert found == (max(times), times.index(max(times)), 0, [], 0, [])


@given(st.lists(records, min_size=1, max_size=5), st.data())
def test_bytes_cut_off_are_noticed(batch: list[Record], data: st.DataObject) -> None:
    whole = encode_records(batch)
    cut = data.draw(st.integers(0, len(whole) - 1))

    with pytest.raises(ValueError, match="record"):
        check_records(whole[:cut], len(batch), **ANY_TIME)


@given(st.binary(max_size=200), st.integers(-5, 50))
def test_garbage_is_an_error_or_a_batch(garbage: bytes, count: int) -> None:
    """The check never reads past the end, and never takes a batch of another length."""
    try:
        check_records(garbage, count, **ANY_TIME)
    except ValueError:
        return

    assert count >= 1 or not garbage


def record(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


KEY_AND_VALUE = encode_varint(-1) * 2
NO_HEADERS = encode_varint(0)


@pytest.mark.parametrize(
    "records_section, complaint",
    [
        (record(b"\0" + encode_varint(0) + encode_varint(1) + KEY_AND_VALUE + NO_HEADERS), "offset deltas"),
        (record(b"\0" + encode_varint(0) + encode_varint(0) + KEY_AND_VALUE + NO_HEADERS + b"x"), "do not add up"),
        (record(b"\0" + encode_varint(0) + encode_varint(0) + encode_varint(-2)), "do not add up"),
        (record(b"\0" + encode_varint(0) + encode_varint(0) + KEY_AND_VALUE + encode_varint(-1)), "headers"),
        (record(b"\0" + b"\xff" * 11), "varint"),
        (record(b"\0" + encode_varint(0) + encode_varint(0) + KEY_AND_VALUE + NO_HEADERS) + b"x", "bytes are left"),
        (encode_varint(-3), "do not add up"),
        (b"", "ends inside"),
    ],
)
def test_fault_is_named(records_section: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        check_records(records_section, 1, **ANY_TIME)


def test_times_out_of_range_are_listed() -> None:
    """The first sixteen are listed; all are counted; -1 means no time."""
    times = [100, -1, *[500] * 20]
    section = encode_records([Record(b"", b"", time) for time in times])

    _, _, late, late_at, _, _ = check_records(section, len(times), base_timestamp=100, low=50, high=400)

    assert (late, late_at) == (20, list(range(2, 18)))


def test_missing_keys_are_listed() -> None:
    section = encode_records([Record(None, b"", 0), Record(b"k", b"", 0), Record(None, b"", 0)])

    *_, missing, missing_at = check_records(section, 3, keys_required=True, **ANY_TIME)

    assert (missing, missing_at) == (2, [0, 2])
