"""The fields of a request as bytes, in the plain and the flexible dialect (see `response_reader`)."""

from __future__ import annotations

import struct
from typing import Final

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_VARINT_MORE: Final = 0x80  # set in every byte of a varint but its last
_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(_VARINT_MORE))

NO_TAGGED_FIELDS: Final = b"\x00"
"""The end of every structure of a flexible version."""


def unsigned_varint(value: int) -> bytes:
    """Encode a number, seven bits a byte, lowest first."""
    if 0 <= value < _VARINT_MORE:  # of nearly every string and array
        return _ONE_BYTE[value]
    if value < _VARINT_MORE * _VARINT_MORE and value > 0:  # of nearly every batch
        return bytes((value & 0x7F | _VARINT_MORE, value >> 7))
    encoded = bytearray()
    while value >= _VARINT_MORE:
        encoded.append(value & 0x7F | _VARINT_MORE)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def array_length(count: int, *, flexible: bool) -> bytes:
    """Encode how many elements follow."""
    return unsigned_varint(count + 1) if flexible else _INT32.pack(count)


def bytes_length(size: int, *, flexible: bool) -> bytes:
    """Encode how many bytes follow."""
    return unsigned_varint(size + 1) if flexible else _INT32.pack(size)


def string(text: str | None, *, flexible: bool) -> bytes:
    """Encode text with its length; None as null."""
    if text is None:
        return b"\x00" if flexible else b"\xff\xff"
    encoded = text.encode()
    return (unsigned_varint(len(encoded) + 1) if flexible else _INT16.pack(len(encoded))) + encoded
