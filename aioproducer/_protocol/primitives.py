"""Reads the fields of an answer, each checked against the end of the frame.

Answers come from the other side of a network: lengths, counts and text in them are claims. Nothing here
allocates more than the frame holds, loops more often than it has bytes, or lets a bad field pass for a good one;
whatever is wrong comes out of `decode` as a `ProtocolError`.

Two dialects: plain versions have int16 and int32 lengths with -1 for null; flexible ones (KIP-482) have varint
lengths plus one, 0 for null, and tagged fields at the end of every structure.

What every answer says besides what was asked: how long to leave the broker alone, and which codes stand in it.

Source: AbstractResponse in Apache Kafka (`throttleTimeMs`, `errorCounts`); KIP-219.

The fields of a request as bytes, in the plain and the flexible dialect (see `response_reader`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator
from typing import Final, Protocol, TypeVar

from aioproducer.errors import ProtocolError

AnswerT = TypeVar("AnswerT")

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_VARINT_MORE: Final = 0x80  # set in every byte of a varint but its last
_VARINT_LAST_SHIFT: Final = 28  # five bytes hold 32 bits


class ResponseReader:
    """Walks over an answer in a plain version.

    Errors are raised as `struct.error`, `IndexError` or `UnicodeDecodeError`, which `decode` translates: one
    place that names the message, instead of a `try` at every field.
    """

    __slots__ = ("payload", "position")

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.position = 0
        """Where the next field begins; a reader of a fixed block may read it itself and move on."""

    def boolean(self) -> bool:
        """Read one byte, not zero = True."""
        self.position += 1
        return self.payload[self.position - 1] != 0

    def int16(self) -> int:
        """Read a signed 16-bit number."""
        (value,) = _INT16.unpack_from(self.payload, self.position)
        self.position += 2
        return int(value)

    def int32(self) -> int:
        """Read a signed 32-bit number."""
        (value,) = _INT32.unpack_from(self.payload, self.position)
        self.position += 4
        return int(value)

    def take(self, size: int) -> bytes:
        """Read that many bytes.

        Raises:
            IndexError: the answer ends before.
        """
        start = self.position
        taken = self.payload[start : start + size]
        if size < 0 or len(taken) != size:
            raise IndexError(f"{size} bytes expected at {start}, {len(self.payload) - start} left")
        self.position = start + size
        return taken

    def skip(self, size: int) -> None:
        """Pass over that many bytes.

        Raises:
            IndexError: the answer ends before.
        """
        self.position += self.checked(size)

    def array_length(self) -> int:
        """Read how many elements follow; null counts as none."""
        count = self.int32()
        return 0 if count == -1 else self.checked(count)

    def string(self) -> str | None:
        """Read text, or None for null."""
        size = self.int16()
        return None if size == -1 else str(self.take(size), "utf-8")

    def skip_tagged_fields(self) -> None:
        """Do nothing: plain versions have none."""

    def tagged_fields(self) -> Iterator[int]:
        """Yield nothing: plain versions have none."""
        yield from ()

    def checked(self, count: int) -> int:
        """Return a count of elements or bytes that may follow here.

        Raises:
            IndexError: negative, or more than the bytes that are left; an element takes at least one.
        """
        if not 0 <= count <= len(self.payload) - self.position:
            raise IndexError(f"count {count} at {self.position} of {len(self.payload)} bytes")
        return count


class FlexibleResponseReader(ResponseReader):
    """Walks over an answer in a flexible version."""

    __slots__ = ()

    def array_length(self) -> int:
        """Read how many elements follow; null counts as none."""
        count = self.varint() - 1
        return 0 if count == -1 else self.checked(count)

    def string(self) -> str | None:
        """Read text, or None for null."""
        size = self.varint() - 1
        return None if size == -1 else str(self.take(size), "utf-8")

    def skip_tagged_fields(self) -> None:
        """Pass over fields that newer brokers add."""
        if self.payload[self.position] == 0:
            self.position += 1
            return
        for _ in self.tagged_fields():
            """Each is passed over by its size."""

    def tagged_fields(self) -> Iterator[int]:
        """Yield each tag with the position at its content; go on behind the content, read or not.

        Raises:
            IndexError: the content that was read is longer than the size of the field.
        """
        for _ in range(self.checked(self.varint())):
            tag = self.varint()
            size = self.varint()
            end = self.position + self.checked(size)
            yield tag
            if self.position > end:
                raise IndexError(f"tagged field {tag} is longer than its size {size}")
            self.position = end

    def varint(self) -> int:
        """Read an unsigned number, seven bits a byte, lowest first.

        Raises:
            IndexError: longer than the five bytes that 32 bits take.
        """
        value = shift = 0
        while True:
            byte = self.payload[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < _VARINT_MORE:
                return value
            shift += 7
            if shift > _VARINT_LAST_SHIFT:
                raise IndexError(f"varint longer than five bytes at {self.position}")


def decode(
    what: str, payload: bytes | memoryview, *, flexible: bool, read: Callable[[ResponseReader], AnswerT]
) -> AnswerT:
    """Read a whole answer.

    Args:
        what: the message and its version, for the error.
        payload: the frame after its response header, complete.
        flexible: which dialect.
        read: reads all fields.

    Raises:
        ProtocolError: the bytes are too short or too long, a length is past the end or negative, text is not
            UTF-8, or `read` refused a value by IndexError.
    """
    content = bytes(payload)  # answers to a producer are short, and bytes are read faster than a view
    reader = FlexibleResponseReader(content) if flexible else ResponseReader(content)
    try:
        answer = read(reader)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"the answer to {what} cannot be read: {error}") from error
    if reader.position != len(content):
        raise ProtocolError(f"the answer to {what} has {len(content) - reader.position} bytes too many")
    return answer


class Response(Protocol):
    """A decoded answer to any request; `NodeConnection.apply_throttle_and_versions` acts on it, whoever asked."""

    @property
    def throttle_time_ms(self) -> int:
        """How long the broker reads nothing from this connection; 0 also where the message has no such field."""

    @property
    def error_codes(self) -> Collection[int]:
        """Every code in it, of whatever it speaks: the whole answer, topics, partitions. 0 may be among them or not."""


_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(_VARINT_MORE))

NO_TAGGED_FIELDS: Final = b"\x00"

NO_TOPIC_ID: Final = bytes(16)
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
