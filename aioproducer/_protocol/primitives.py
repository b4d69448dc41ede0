"""Fields of requests and responses, in both dialects of the protocol.

Plain versions have int16 and int32 lengths with -1 for null; flexible ones (KIP-482) have varint lengths plus one, 0
for null, and tagged fields at the end of every structure.

Lengths, counts and text of a response are not trusted. The reader never allocates more than the frame holds, nor
loops more often than it has bytes; `decode` raises `ProtocolError` for any invalid field.

Source: AbstractResponse in Apache Kafka (`throttleTimeMs`, `errorCounts`); KIP-219.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, Protocol, TypeVar

from aioproducer.errors import ProtocolError

AnswerT = TypeVar("AnswerT")

NO_TAGGED_FIELDS: Final = b"\x00"  # the end of every structure of a flexible version
NO_TOPIC_ID: Final = bytes(16)

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_VARINT_MORE: Final = 0x80  # set in every byte of a varint but its last
_VARINT_LAST_SHIFT: Final = 28  # five bytes hold 32 bits
_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(_VARINT_MORE))


class ResponseReader:
    """Reads a response in a plain version.

    Errors are raised as `struct.error`, `IndexError` or `UnicodeDecodeError`, which `decode` translates: one place that
    names the message, instead of a `try` at every field.
    """

    __slots__ = ("payload", "position")

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.position = 0  # start of the next field; code that unpacks a fixed block itself advances it

    def boolean(self) -> bool:
        self.position += 1
        return self.payload[self.position - 1] != 0

    def int16(self) -> int:
        (value,) = _INT16.unpack_from(self.payload, self.position)
        self.position += 2
        return int(value)

    def int32(self) -> int:
        (value,) = _INT32.unpack_from(self.payload, self.position)
        self.position += 4
        return int(value)

    def int64(self) -> int:
        (value,) = _INT64.unpack_from(self.payload, self.position)
        self.position += 8
        return int(value)

    def take(self, size: int) -> bytes:
        start = self.position
        taken = self.payload[start : start + size]
        if size < 0 or len(taken) != size:
            raise IndexError(f"{size} bytes expected at {start}, {len(self.payload) - start} left")
        self.position = start + size
        return taken

    def skip(self, size: int) -> None:
        self.position += self.checked(size)

    def array_length(self) -> int:
        """Read the number of elements; 0 for null."""
        count = self.int32()
        return 0 if count == -1 else self.checked(count)

    def string(self) -> str | None:
        size = self.int16()
        return None if size == -1 else str(self.take(size), "utf-8")

    def by_topic(self, read: Callable[[ResponseReader, str], AnswerT]) -> list[AnswerT]:
        """Read an array of topics, each a name with an array of partitions; `read` is for one of those."""
        found: list[AnswerT] = []
        for _ in range(self.array_length()):
            topic = self.string() or ""
            found += [read(self, topic) for _ in range(self.array_length())]
            self.skip_tagged_fields()
        return found

    def skip_tagged_fields(self) -> None:
        """Do nothing: plain versions have none."""

    def tagged_fields(self) -> Iterator[int]:
        yield from ()

    def checked(self, count: int) -> int:
        # a count of elements or bytes; an element takes at least one byte
        if not 0 <= count <= len(self.payload) - self.position:
            raise IndexError(f"count {count} at {self.position} of {len(self.payload)} bytes")
        return count


class FlexibleResponseReader(ResponseReader):
    """Reads a response in a flexible version."""

    __slots__ = ()

    def array_length(self) -> int:
        count = self.varint() - 1
        return 0 if count == -1 else self.checked(count)

    def string(self) -> str | None:
        size = self.varint() - 1
        return None if size == -1 else str(self.take(size), "utf-8")

    def skip_tagged_fields(self) -> None:
        if self.payload[self.position] == 0:
            self.position += 1
            return
        for _ in self.tagged_fields():
            """Each is passed over by its size."""

    def tagged_fields(self) -> Iterator[int]:
        # yields each tag, positioned at its content, and continues after the content, read or not
        for _ in range(self.checked(self.varint())):
            tag = self.varint()
            size = self.varint()
            end = self.position + self.checked(size)
            yield tag
            if self.position > end:
                raise IndexError(f"tagged field {tag} is longer than its size {size}")
            self.position = end

    def varint(self) -> int:
        # unsigned, up to 32 bits, seven bits per byte, lowest first
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
    """Read a whole response, the frame after its header; `read` raises IndexError for an invalid value."""
    content = bytes(payload)  # responses are short, and bytes are read faster than a view
    reader = FlexibleResponseReader(content) if flexible else ResponseReader(content)
    try:
        response = read(reader)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"the answer to {what} cannot be read: {error}") from error
    if reader.position != len(content):
        raise ProtocolError(f"the answer to {what} has {len(content) - reader.position} bytes too many")
    return response


class Response(Protocol):
    """A decoded response; `NodeConnection.apply_throttle_and_versions` acts on it."""

    @property
    def throttle_time_ms(self) -> int:
        """Time during which the broker does not read from this connection; 0 if the message has no such field."""

    @property
    def error_codes(self) -> Collection[int]:
        """All codes in the response, for the whole, topics and partitions; may include 0."""


def unsigned_varint(value: int) -> bytes:
    """Encode a number, seven bits per byte, lowest first."""
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
    return unsigned_varint(count + 1) if flexible else _INT32.pack(count)


def bytes_length(size: int, *, flexible: bool) -> bytes:
    return unsigned_varint(size + 1) if flexible else _INT32.pack(size)


def string(text: str | None, *, flexible: bool) -> bytes:
    """Encode text with its length; None as null."""
    if text is None:
        return b"\x00" if flexible else b"\xff\xff"
    encoded = text.encode()
    return (unsigned_varint(len(encoded) + 1) if flexible else _INT16.pack(len(encoded))) + encoded


def topic_partitions(pairs: Iterable[tuple[str, int]], *, flexible: bool) -> bytes:
    """Encode (topic, partition) pairs as an array of topics, each with an array of its partitions."""
    topics: dict[str, list[int]] = {}
    for topic, partition in pairs:
        topics.setdefault(topic, []).append(partition)
    fields = [array_length(len(topics), flexible=flexible)]
    for topic, partitions in topics.items():
        fields += [string(topic, flexible=flexible), array_length(len(partitions), flexible=flexible)]
        fields += [_INT32.pack(partition) for partition in partitions]
        fields.append(NO_TAGGED_FIELDS if flexible else b"")
    return b"".join(fields)
