"""The header is the bytes that its drawing says."""

import re

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from aioproducer._accumulator.producer_identity import MAX_SEQUENCE, NO_IDENTITY, BatchIdentity
from aioproducer._native import produce
from aioproducer._native.append import HEADER_SIZE
from aioproducer._native.produce import encode_header
from tests.native.prepared_batches import prepared_batch, reference_batch
from tests.reference.record_batch import Record, encode_batch, encode_records

RECORDS = b"some records"
HEADER = encode_header(
    prepared_batch(
        RECORDS, 3, base_timestamp=1_000, max_timestamp=2_000, identity=BatchIdentity(77, 5, 9), compression=4
    )
)
EXPECTED = {
    "baseOffset": 0,
    "batchLength": HEADER_SIZE - 12 + len(RECORDS),
    "partitionLeaderEpoch": -1,
    "magic": 2,
    "attributes": 4,
    "lastOffsetDelta": 2,
    "baseTimestamp": 1_000,
    "maxTimestamp": 2_000,
    "producerId": 77,
    "producerEpoch": 5,
    "baseSequence": 9,
    "recordsCount": 3,
}


def drawn_layout() -> dict[str, tuple[int, int]]:
    """(offset, size) of each field, read from the module's own drawing."""
    drawing = produce.__doc__
    assert drawing is not None
    rows = re.findall(r"^ +(\d+) +(\d+)  (\w+)", drawing, re.MULTILINE)
    return {name: (int(offset), int(size)) for offset, size, name in rows}


def test_drawing_leaves_no_gap_and_ends_where_the_records_begin() -> None:
    layout = drawn_layout()

    end = 0
    for offset, size in layout.values():
        assert offset == end
        end += size

    assert end == HEADER_SIZE == len(HEADER)
    assert layout.keys() == EXPECTED.keys() | {"crc"}


@pytest.mark.parametrize("field", EXPECTED)
def test_field_stands_where_it_is_drawn(field: str) -> None:
    offset, size = drawn_layout()[field]

    assert int.from_bytes(HEADER[offset : offset + size], "big", signed=True) == EXPECTED[field]


def test_checksum_covers_everything_from_the_attributes_on() -> None:
    offset, size = drawn_layout()["crc"]
    covered = HEADER[drawn_layout()["attributes"][0] :] + RECORDS

    assert int.from_bytes(HEADER[offset : offset + size], "big") == crc32c(covered)


@given(
    st.lists(
        st.builds(Record, key=st.none(), value=st.binary(max_size=9), timestamp=st.integers(0, 2**62)), min_size=1
    ),
    st.just(NO_IDENTITY)
    | st.builds(
        BatchIdentity, st.integers(0, 2**63 - 1), st.integers(0, 32767), st.integers(0, MAX_SEQUENCE), st.booleans()
    ),
)
def test_header_equals_the_references(records: list[Record], identity: BatchIdentity) -> None:
    section = encode_records(records)
    header = encode_header(
        prepared_batch(
            section,
            len(records),
            base_timestamp=records[0].timestamp,
            max_timestamp=max(record.timestamp for record in records),
            identity=identity,
        )
    )

    assert header + section == encode_batch(reference_batch(records, identity))


@pytest.mark.parametrize("start, size", [(0, 13), (1, 12), (-1, 3), (0, -1)])
def test_records_outside_of_their_chunk_are_not_read(start: int, size: int) -> None:
    batch = prepared_batch(RECORDS, 3)
    batch.start, batch.size = start, size

    with pytest.raises(ValueError, match="of 12 bytes"):
        encode_header(batch)


@pytest.mark.parametrize("identity", [None, (1, 2, 3), 7])
def test_header_without_an_identity_is_refused(identity: object) -> None:
    batch = prepared_batch(RECORDS, 3)
    batch.identity = identity  # type: ignore[assignment]

    with pytest.raises(TypeError, match="identity must be a BatchIdentity"):
        encode_header(batch)


@pytest.mark.parametrize("identity", [BatchIdentity(1, 2**15, 0, False), BatchIdentity(1, 0, 2**31, False)])
def test_epoch_or_sequence_beyond_its_field_is_refused(identity: BatchIdentity) -> None:
    """The four bytes of another sequence would be sent."""
    batch = prepared_batch(RECORDS, 3)
    batch.identity = identity

    with pytest.raises(OverflowError):
        encode_header(batch)
