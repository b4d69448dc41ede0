"""The slow implementations equal Kafka's own: record batches, which are also read back, and murmur2."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference.murmur2 import murmur2, partition_for_key
from tests.reference.record_batch import Batch, Record, decode_batch, encode_batch, encode_varint

GOLDEN = json.loads((Path(__file__).parents[1] / "protocol" / "golden" / "golden.json").read_text())
BATCHES = {each["name"]: bytes.fromhex(each["bytes"]) for each in GOLDEN["batches"]}

NULLABLE = st.none() | st.binary(max_size=40)
RECORDS = st.builds(
    Record,
    key=NULLABLE,
    value=NULLABLE,
    timestamp=st.integers(0, 2**62),
    headers=st.lists(st.tuples(st.text(max_size=5), NULLABLE), max_size=3).map(tuple),
)


@pytest.mark.parametrize("name", BATCHES)
def test_encoder_writes_kafkas_own_bytes(name: str) -> None:
    assert encode_batch(decode_batch(BATCHES[name])) == BATCHES[name]


def test_decoder_reads_kafkas_headers() -> None:
    (record,) = decode_batch(BATCHES["headers"]).records

    assert record.headers == (("trace", b"1"), ("trace", None), ("", b""), ("é", b"2"))


def test_decoder_reads_kafkas_identity() -> None:
    idempotent = decode_batch(BATCHES["idempotent"])
    transactional = decode_batch(BATCHES["transactional"])

    assert (idempotent.producer_id, idempotent.producer_epoch, idempotent.base_sequence) == (4711, 3, 2**31 - 1)
    assert transactional.transactional


@given(st.lists(RECORDS, min_size=1, max_size=5).map(tuple))
def test_decoder_reads_what_encoder_wrote(records: tuple[Record, ...]) -> None:
    batch = Batch(records, producer_id=1, producer_epoch=2, base_sequence=3)

    assert decode_batch(encode_batch(batch)) == batch


@pytest.mark.parametrize("at", [8, 16, 17, 24, 40, 60, 65])
def test_decoder_refuses_a_changed_byte(at: int) -> None:
    data = bytearray(BATCHES["plain"])
    data[at] ^= 1

    with pytest.raises(ValueError, match="wrong"):
        decode_batch(bytes(data))


@pytest.mark.parametrize(
    "number, expected",
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (2**63 - 1, "feffffffffffffffff01")],
)
def test_encode_varint_gives_kafkas_bytes(number: int, expected: str) -> None:
    assert encode_varint(number).hex() == expected


HASHES = [(bytes.fromhex(each["key"]), each["murmur2"], each["partition_of_7"]) for each in GOLDEN["hashes"]]


@pytest.mark.parametrize("key, expected, partition", HASHES)
def test_murmur2_equals_javas(key: bytes, expected: int, partition: int) -> None:
    assert murmur2(key) == expected
    assert partition_for_key(key, 7) == partition
