"""The slow murmur2 equals Java's."""

import json
from pathlib import Path

import pytest

from tests.reference.murmur2 import murmur2, partition_for_key

GOLDEN = json.loads((Path(__file__).parents[1] / "protocol" / "golden" / "golden.json").read_text())
HASHES = [(bytes.fromhex(each["key"]), each["murmur2"], each["partition_of_7"]) for each in GOLDEN["hashes"]]


@pytest.mark.parametrize("key, expected, partition", HASHES)
def test_murmur2_equals_javas(key: bytes, expected: int, partition: int) -> None:
    assert murmur2(key) == expected
    assert partition_for_key(key, 7) == partition
