"""Serializers with the same bytes as Java's, for numbers, booleans and UUIDs.

Consumers in Java read them with `LongDeserializer` and the like. Those for text and bytes are in
`aioproducer.serializers`.

Source: org.apache.kafka.common.serialization.
"""

from __future__ import annotations

import struct
from numbers import Real
from typing import NoReturn, TypeAlias
from uuid import UUID

from aioproducer._shown_values import shown

Number: TypeAlias = float
"""A float or an int, by PEP 484's numeric tower; numpy's numbers are accepted at run time."""


class _Named:
    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _Whole(_Named):
    """Serializer of integers of one size, big-endian and signed."""

    _struct: struct.Struct
    _java: str

    def serialize(self, _topic: str, value: int, /) -> bytes:
        """Return the number's bytes, big-endian.

        Raises:
            TypeError: not an int, or a bool.
            ValueError: outside the range of the Java type.
        """
        if isinstance(value, bool):
            self._refuse(value)
        try:
            return self._struct.pack(value)
        except struct.error:
            self._refuse(value)

    def _refuse(self, value: object) -> NoReturn:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"expected int, not {type(value).__name__}")
        bits = 8 * self._struct.size
        raise ValueError(f"{shown(value)} is not a Java {self._java}: -2**{bits - 1} to 2**{bits - 1} - 1")


class ShortSerializer(_Whole):
    """Writes an `int` as Java's ShortSerializer does: 2 bytes, big-endian, -32768 to 32767."""

    _struct = struct.Struct(">h")
    _java = "short"


class IntegerSerializer(_Whole):
    """Writes an `int` as Java's IntegerSerializer does: 4 bytes, big-endian, -2**31 to 2**31 - 1."""

    _struct = struct.Struct(">i")
    _java = "int"


class LongSerializer(_Whole):
    """Writes an `int` as Java's LongSerializer does: 8 bytes, big-endian, -2**63 to 2**63 - 1."""

    _struct = struct.Struct(">q")
    _java = "long"


class _Floating(_Named):
    """Serializer of IEEE 754 numbers of one size, big-endian."""

    _struct: struct.Struct
    _java: str
    _largest: str

    def serialize(self, _topic: str, value: Number, /) -> bytes:
        """Return the number's bytes in IEEE 754, big-endian, rounded to the nearest number of that size.

        Raises:
            TypeError: not a float or int, or a bool.
            ValueError: finite, and beyond the largest number of the Java type.
        """
        if type(value) is not float:
            _check_real(value)
        try:
            return self._struct.pack(value)
        except (OverflowError, struct.error):
            text = f"{shown(value)} is not a Java {self._java}: -{self._largest} to {self._largest}"
            raise ValueError(text) from None


class FloatSerializer(_Floating):
    """Writes a `float` as Java's FloatSerializer does: 4 bytes of IEEE 754, rounded to single precision."""

    _struct = struct.Struct(">f")
    _java = "float"
    _largest = "3.4028235e38"


class DoubleSerializer(_Floating):
    """Writes a `float` as Java's DoubleSerializer does: 8 bytes of IEEE 754."""

    _struct = struct.Struct(">d")
    _java = "double"
    _largest = "1.7976931348623157e308"


class BooleanSerializer(_Named):
    """Writes a `bool` as Java's BooleanSerializer does: one byte, 1 or 0."""

    def serialize(self, _topic: str, value: bool, /) -> bytes:  # noqa: FBT001  # the record's value
        """Return one byte: 1 for True, 0 for False.

        Raises:
            TypeError: not a bool.
        """
        if not isinstance(value, bool):
            raise TypeError(f"expected bool, not {type(value).__name__}")
        return b"\x01" if value else b"\x00"


class UUIDSerializer(_Named):
    """Writes a `uuid.UUID` as Java's UUIDSerializer does: its 36 characters of text in UTF-8."""

    def serialize(self, _topic: str, value: UUID, /) -> bytes:
        """Return the UUID's text, lower case with hyphens.

        Raises:
            TypeError: not a `uuid.UUID`.
        """
        if not isinstance(value, UUID):
            raise TypeError(f"expected uuid.UUID, not {type(value).__name__}")
        return str(value).encode()


class VoidSerializer(_Named):
    """Accepts nothing but null, as Java's VoidSerializer does: for topics without keys, or without values."""

    def serialize(self, _topic: str, value: None, /) -> None:
        """Never called for a null, which stays null.

        Raises:
            TypeError: always.
        """
        raise TypeError(f"expected None, not {type(value).__name__}")


def _check_real(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"expected float, not {type(value).__name__}")
