"""Kafka's primitive types, read from and written to bytes: what the messages written by hand are made of.

`Reader` walks one frame; `Writer` collects parts and passes large buffers through uncopied. Both know whether they
are in a flexible message (compact lengths, tagged fields; KIP-482).
"""

import struct
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_MAX_VARINT_BYTES = 5


class MalformedRequestError(Exception):
    """The bytes are not a valid request; a broker closes the connection."""


class Reader:
    """Reads one message from front to back; the slices of `bytes_view` share its memory."""

    __slots__ = ("data", "flexible", "position")

    def __init__(self, data: memoryview, *, flexible: bool = False) -> None:
        self.data: memoryview[int] = data
        self.flexible: bool = flexible
        self.position: int = 0

    def skip(self, size: int) -> int:
        """Skip bytes, and return where they begin."""
        start = self.position
        if size < 0 or start + size > len(self.data):
            raise MalformedRequestError(f"{size} bytes wanted at {start} of {len(self.data)}")
        self.position = start + size
        return start

    def _number(self, layout: struct.Struct) -> int:
        start = self.position
        try:
            value: int = layout.unpack_from(self.data, start)[0]
        except struct.error as error:
            raise MalformedRequestError(f"{layout.size} bytes wanted at {start} of {len(self.data)}") from error
        self.position = start + layout.size
        return value

    def int8(self) -> int:
        return self._number(_INT8)

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def uvarint(self) -> int:
        value = 0
        data, position = self.data, self.position
        try:
            byte = data[position]
            if byte < 0x80:  # noqa: PLR2004 - the continuation bit; most have but one byte
                self.position = position + 1
                return byte
            for shift in range(0, 7 * _MAX_VARINT_BYTES, 7):
                byte = data[position]
                position += 1
                if byte < 0x80:  # noqa: PLR2004 - the continuation bit
                    self.position = position
                    return value | byte << shift
                value |= (byte & 0x7F) << shift
        except IndexError as error:
            raise MalformedRequestError(f"a varint ends at {position} of {len(data)}") from error
        raise MalformedRequestError("a varint of more than five bytes")

    def count(self) -> int:
        """Read the length of an array; -1 for null. More elements than bytes left are refused."""
        length = self.uvarint() - 1 if self.flexible else self._number(_INT32)
        if length > len(self.data) - self.position:
            raise MalformedRequestError(f"an array of {length} in a message of {len(self.data)} bytes")
        return length

    def string(self) -> str | None:
        length = self.uvarint() - 1 if self.flexible else self._number(_INT16)
        if length < 0:
            return None
        start, data = self.position, self.data
        self.position = end = start + length
        if end > len(data):
            raise MalformedRequestError(f"{length} bytes wanted at {start} of {len(data)}")
        try:
            return str(data[start:end], "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedRequestError(f"a string at {start} is not UTF-8") from error

    def fixed(self, size: int) -> bytes:
        start = self.skip(size)
        return bytes(self.data[start : start + size])

    def bytes_view(self) -> memoryview | None:
        """Read nullable bytes as a slice of the message's own memory."""
        length = self.uvarint() - 1 if self.flexible else self.int32()
        if length < 0:
            return None
        start = self.skip(length)
        return self.data[start : start + length]

    def skip_tagged_fields(self) -> None:
        """Skip the tagged fields that end every structure of a flexible message."""
        if not self.flexible:
            return
        data, position = self.data, self.position
        if position < len(data) and not data[position]:
            self.position = position + 1  # there are none, as almost everywhere
            return
        for _ in range(self.uvarint()):
            self.uvarint()
            self.skip(self.uvarint())

    def rest(self) -> memoryview:
        return self.data[self.position :]


class Writer:
    """Collects one message; `parts` are its bytes in order."""

    __slots__ = ("flexible", "open", "parts")

    def __init__(self, *, flexible: bool = False) -> None:
        self.flexible: bool = flexible
        self.open: bytearray = bytearray()
        self.parts: list[Buffer] = []

    def pack(self, layout: struct.Struct, *values: float) -> None:
        self.open += layout.pack(*values)

    def int16(self, value: int) -> None:
        self.open += _INT16.pack(value)

    def int32(self, value: int) -> None:
        self.open += _INT32.pack(value)

    def int64(self, value: int) -> None:
        self.open += _INT64.pack(value)

    def uvarint(self, value: int) -> None:
        while value > 0x7F:  # noqa: PLR2004 - seven bits a byte
            self.open.append(value & 0x7F | 0x80)
            value >>= 7
        self.open.append(value)

    def count(self, length: int) -> None:
        """Write the length of an array; -1 for null."""
        if not self.flexible:
            self.open += _INT32.pack(length)
        elif length < 0x7F:  # noqa: PLR2004 - one byte
            self.open.append(length + 1)
        else:
            self.uvarint(length + 1)

    def string(self, value: str | None) -> None:
        encoded = b"" if value is None else value.encode()
        length = -1 if value is None else len(encoded)
        if not self.flexible:
            self.open += _INT16.pack(length)
        elif length < 0x7F:  # noqa: PLR2004 - one byte
            self.open.append(length + 1)
        else:
            self.uvarint(length + 1)
        self.open += encoded

    def fixed(self, value: bytes) -> None:
        self.open += value

    def large(self, buffers: list[Buffer], size: int) -> None:
        """Write bytes with their length, passing the buffers through uncopied."""
        self.count(size)
        self.parts.append(bytes(self.open))
        self.parts.extend(buffers)
        self.open = bytearray()

    def tagged_fields(self, fields: list[tuple[int, bytes]] | None = None) -> None:
        """End a structure of a flexible message: (tag, encoded value) in ascending order."""
        if not self.flexible:
            return
        if not fields:
            self.open.append(0)
            return
        self.uvarint(len(fields))
        for tag, value in fields:
            self.uvarint(tag)
            self.uvarint(len(value))
            self.open += value

    def finish(self) -> list[Buffer]:
        self.parts.append(bytes(self.open))
        return self.parts
