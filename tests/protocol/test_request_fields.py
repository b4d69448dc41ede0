"""The lengths of what is written into requests: looked up where they are short, worked out where they are not."""

import pytest

from aioproducer._protocol.primitives import array_length, unsigned_varint


@pytest.mark.parametrize(
    "value, encoded",
    [(0, b"\x00"), (127, b"\x7f"), (128, b"\x80\x01"), (16_384, b"\x80\x80\x01"), (2**32 - 1, b"\xff\xff\xff\xff\x0f")],
)
def test_number_takes_a_byte_for_each_seven_bits(value: int, encoded: bytes) -> None:
    """On both sides of each step; an array's length is written plus one."""
    assert unsigned_varint(value) == encoded
    assert array_length(value - 1, flexible=True) == encoded


@pytest.mark.parametrize("value", [-1, -128])
def test_number_below_zero_is_a_defect_and_no_other_number(value: int) -> None:
    """A table indexed by a negative number would write a wrong frame."""
    with pytest.raises(ValueError, match="byte"):
        unsigned_varint(value)
    with pytest.raises(ValueError, match="byte"):
        array_length(value - 1, flexible=True)
