"""Produce, written by hand: the one message whose cost is paid once a batch of records.

A request is not one block of bytes but a list of buffers in which every batch's record section stays where the
accumulator built it:

    [glue + header] [body] [glue + header] [body] ... [end of the request]

so that a transport that can gather (`writelines`) sends a request without copying a record. Layout, with the
fields that only some versions have:

    request    transactional_id nullable string
               acks             int16
               timeout_ms       int32
               topics           array of: name string (v3-12) | topic_id 16 bytes (v13)
                                          partitions array of: index int32, records nullable bytes
    response   topics           array of: name | topic_id, partitions array of:
                                          index int32, error_code int16, base_offset int64,
                                          log_append_time int64, log_start_offset int64 (v5),
                                          record_errors array of (batch_index int32, message) (v8),
                                          error_message nullable string (v8),
                                          tag 0: leader_id int32, leader_epoch int32 (v10, KIP-951)
               throttle_time_ms int32
               tag 0            nodes: array of (id int32, host, port int32, rack) (v10, KIP-951)

From version 9 on strings, arrays and bytes have a varint length (plus one; zero is null) and every structure ends
with tagged fields; before, lengths are int16 for strings and int32 for the rest, with -1 for null.

Source: ProduceRequest.json and ProduceResponse.json of Apache Kafka 4.3, KIP-467, KIP-482, KIP-516, KIP-951.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from aioproducer.errors import ProtocolError

API_KEY: Final = 0
MIN_VERSION: Final = 3
MAX_VERSION: Final = 13
TOPIC_ID_VERSION: Final = 13
"""From this version on topics are named by their id."""

NO_TOPIC_ID: Final = bytes(16)

_FIRST_FLEXIBLE: Final = 9
_FIRST_WITH_LOG_START: Final = 5
_FIRST_WITH_RECORD_ERRORS: Final = 8
_FIRST_WITH_LEADER: Final = 10
_VARINT_MORE: Final = 0x80  # set in every byte of a varint but its last
_VARINT_LAST_SHIFT: Final = 28  # five bytes hold 32 bits

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_TWO_INT32 = struct.Struct(">ii")
_ACKS_TIMEOUT = struct.Struct(">hi")
_PARTITION_V3 = struct.Struct(">ihqq")  # index, error code, base offset, log append time
_PARTITION_V5 = struct.Struct(">ihqqq")  # and log start offset
_PLAIN_END: Final = b"\x01\x00\x00"  # no record errors, null message, no tagged fields

Buffer: TypeAlias = bytes | bytearray | memoryview
PartitionEnd: TypeAlias = tuple[tuple[tuple[int, str | None], ...], str | None, int, int]
"""What follows a partition's offsets: record errors, message, leader id, leader epoch."""

_NOTHING_MORE: Final[PartitionEnd] = ((), None, -1, -1)


class BatchToSend(NamedTuple):
    """One record batch on its way into a request."""

    topic: str
    topic_id: bytes
    """16 bytes; `NO_TOPIC_ID` while unknown. Used from version 13 on."""
    partition: int
    header: bytes
    """The 61 bytes of the batch's v2 header."""
    body: Buffer
    """The batch's records section. Not copied here: it must not change until the request has been answered."""


class PartitionAnswer(NamedTuple):
    """What the broker says about the one batch of a partition."""

    topic: str | None
    """None from version 13 on, where `topic_id` names it."""
    topic_id: bytes | None
    partition: int
    error_code: int
    base_offset: int
    """Offset of the batch's first record, -1 where the broker assigned none."""
    log_append_time: int
    """Milliseconds since 1970, -1 when the topic keeps the producer's own timestamps."""
    log_start_offset: int
    """First offset still in the log, -1 unknown."""
    record_errors: tuple[tuple[int, str | None], ...]
    """(index in the batch, reason) of each record the broker refused; KIP-467."""
    error_message: str | None
    leader_id: int
    """The broker that leads the partition now, -1 when the answer does not say; KIP-951."""
    leader_epoch: int


class NodeEndpoint(NamedTuple):
    """Where a leader named by an answer listens; not validated yet."""

    host: str
    port: int
    rack: str | None


class ProduceResponse(NamedTuple):
    """A whole answer."""

    throttle_time_ms: int
    partitions: list[PartitionAnswer]
    nodes: dict[int, NodeEndpoint]
    """By node id; empty unless the answer names new leaders."""


def request_is_flexible(version: int) -> bool:
    """Tell whether requests and responses of this version have compact lengths and tagged fields."""
    return version >= _FIRST_FLEXIBLE


def encode_produce_request(
    version: int, *, acks: int, timeout_ms: int, transactional_id: str | None, batches: Sequence[BatchToSend]
) -> list[Buffer]:
    """Lay out a request around the batches, without copying their bodies.

    Args:
        version: 3 to 13.
        acks: 0, 1 or -1.
        timeout_ms: how long the broker may wait for its replicas.
        transactional_id: None outside transactions.
        batches: at most one of each partition; those of one topic need not be neighbours.

    Returns:
        The request's body in pieces: glue and header as bytes, then the batch's body as given, and so on. They
        go out in this order; the request header goes before the first.
    """
    topics: dict[str, list[BatchToSend]] = {}
    for batch in batches:
        topics.setdefault(batch.topic, []).append(batch)
    flexible = version >= _FIRST_FLEXIBLE
    glue = (
        _nullable_string(transactional_id, flexible=flexible)
        + _ACKS_TIMEOUT.pack(acks, timeout_ms)
        + _array_length(len(topics), flexible=flexible)
    )
    pieces: list[Buffer] = []
    for name, of_topic in topics.items():
        glue += of_topic[0].topic_id if version >= TOPIC_ID_VERSION else _string(name, flexible=flexible)
        glue += _array_length(len(of_topic), flexible=flexible)
        glue = _append_batches(pieces, glue, of_topic, flexible=flexible)
    pieces.append(glue + b"\x00" if flexible else glue)
    return pieces


def decode_produce_response(version: int, payload: bytes | memoryview) -> ProduceResponse:
    """Read an answer.

    Args:
        version: the version of the request that it answers.
        payload: the frame after its response header, complete.

    Raises:
        ProtocolError: the bytes are not such an answer: too short, too long, lengths past the end, a negative
            count, text that is not UTF-8, an offset below -1.
    """
    content = bytes(payload)  # an answer is short, and bytes are read faster than a view
    reader = _FlexibleReader(content) if version >= _FIRST_FLEXIBLE else _Reader(content)
    try:
        response = reader.response(version)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"the answer to Produce v{version} cannot be read: {error}") from error
    if reader.position != len(content):
        extra = len(content) - reader.position
        raise ProtocolError(f"the answer to Produce v{version} has {extra} bytes too many")
    return response


def _append_batches(pieces: list[Buffer], glue: bytes, batches: list[BatchToSend], *, flexible: bool) -> bytes:
    # Returns what must come before whatever follows: the end of this topic's structures.
    for batch in batches:
        size = len(batch.header) + len(batch.body)
        length = unsigned_varint(size + 1) if flexible else _INT32.pack(size)
        pieces.append(b"".join((glue, _INT32.pack(batch.partition), length, batch.header)))
        pieces.append(batch.body)
        glue = b"\x00" if flexible else b""
    return glue + b"\x00" if flexible else glue


def unsigned_varint(value: int) -> bytes:
    """Encode a length or a count, seven bits a byte, lowest first."""
    encoded = bytearray()
    while value >= _VARINT_MORE:
        encoded.append(value & 0x7F | _VARINT_MORE)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _array_length(count: int, *, flexible: bool) -> bytes:
    return unsigned_varint(count + 1) if flexible else _INT32.pack(count)


def _string(text: str, *, flexible: bool) -> bytes:
    encoded = text.encode()
    return (unsigned_varint(len(encoded) + 1) if flexible else _INT16.pack(len(encoded))) + encoded


def _nullable_string(text: str | None, *, flexible: bool) -> bytes:
    if text is None:
        return b"\x00" if flexible else b"\xff\xff"
    return _string(text, flexible=flexible)


class _Reader:
    """Walks over an answer of versions 3 to 8; every read is checked against the end."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self.position = 0

    def response(self, version: int) -> ProduceResponse:
        partitions: list[PartitionAnswer] = []
        for _ in range(self.array_length()):
            topic, topic_id = self._topic(version)
            partitions.extend([self._partition(version, topic, topic_id) for _ in range(self.array_length())])
            self.skip_tagged_fields()
        throttle_time_ms = self.int32()
        return ProduceResponse(throttle_time_ms, partitions, self._nodes(version))

    def int32(self) -> int:
        (value,) = _INT32.unpack_from(self._payload, self.position)
        self.position += 4
        return int(value)

    def array_length(self) -> int:
        return self._checked(self.int32())

    def string(self) -> str | None:
        (size,) = _INT16.unpack_from(self._payload, self.position)
        self.position += 2
        return None if size < 0 else str(self.take(size), "utf-8")

    def take(self, size: int) -> bytes:
        start = self.position
        taken = bytes(self._payload[start : start + size])
        if len(taken) != size:
            raise IndexError(f"{size} bytes expected at {start}, {len(taken)} left")
        self.position = start + size
        return taken

    def skip_tagged_fields(self) -> None:
        """Do nothing: there are none before version 9."""

    def _checked(self, count: int) -> int:
        # An element takes at least one byte, so that a count cannot make us loop or allocate beyond the frame.
        if not 0 <= count <= len(self._payload) - self.position:
            raise IndexError(f"count {count} at {self.position}")
        return count

    def _topic(self, version: int) -> tuple[str | None, bytes | None]:
        if version >= TOPIC_ID_VERSION:
            return None, self.take(16)
        return self.string(), None

    def _partition(self, version: int, topic: str | None, topic_id: bytes | None) -> PartitionAnswer:
        if version >= _FIRST_WITH_LOG_START:
            index, code, offset, append_time, log_start = _PARTITION_V5.unpack_from(self._payload, self.position)
            self.position += _PARTITION_V5.size
        else:
            index, code, offset, append_time = _PARTITION_V3.unpack_from(self._payload, self.position)
            self.position += _PARTITION_V3.size
            log_start = -1
        if offset < -1:
            raise IndexError(f"base offset {offset} of partition {index}")
        errors, message, leader, epoch = self._partition_end(version)
        return PartitionAnswer(
            topic, topic_id, index, code, offset, append_time, log_start, errors, message, leader, epoch
        )

    def _partition_end(self, version: int) -> PartitionEnd:
        if version < _FIRST_WITH_RECORD_ERRORS:
            return _NOTHING_MORE
        errors = tuple(self._record_error() for _ in range(self.array_length()))
        return errors, self.string(), -1, -1

    def _record_error(self) -> tuple[int, str | None]:
        index, message = self.int32(), self.string()
        self.skip_tagged_fields()
        return index, message

    def _nodes(self, version: int) -> dict[int, NodeEndpoint]:  # noqa: ARG002  # the flexible reader has them
        return {}


class _FlexibleReader(_Reader):
    """Walks over an answer of versions 9 to 13: compact lengths, tagged fields."""

    def array_length(self) -> int:
        return self._checked(self._varint() - 1)

    def string(self) -> str | None:
        size = self._varint() - 1
        return None if size < 0 else str(self.take(size), "utf-8")

    def skip_tagged_fields(self) -> None:
        for _ in self._tagged_fields():
            """Unknown fields are what newer brokers add; they are skipped by their size."""

    def _tagged_fields(self) -> Iterator[int]:
        # Yields each tag with the position at its content, and goes on behind the content, read or not.
        for _ in range(self._checked(self._varint())):
            tag, size = self._varint(), self._varint()
            end = self.position + self._checked(size)
            yield tag
            if self.position > end:
                raise IndexError(f"tagged field {tag} is longer than its size {size}")
            self.position = end

    def _partition_end(self, version: int) -> PartitionEnd:
        end = self.position + len(_PLAIN_END)
        if self._payload[self.position : end] == _PLAIN_END:
            self.position = end
            return _NOTHING_MORE
        errors = tuple(self._record_error() for _ in range(self.array_length()))
        return errors, self.string(), *self._leader(version)

    def _leader(self, version: int) -> tuple[int, int]:
        leader = -1, -1
        for tag in self._tagged_fields():
            if tag == 0 and version >= _FIRST_WITH_LEADER:
                leader = _TWO_INT32.unpack_from(self._payload, self.position)
                self.position += _TWO_INT32.size
                self.skip_tagged_fields()
        return leader

    def _nodes(self, version: int) -> dict[int, NodeEndpoint]:
        nodes: dict[int, NodeEndpoint] = {}
        for tag in self._tagged_fields():
            if tag == 0 and version >= _FIRST_WITH_LEADER:
                nodes = dict(self._node() for _ in range(self.array_length()))
        return nodes

    def _node(self) -> tuple[int, NodeEndpoint]:
        node_id, host, port, rack = self.int32(), self.string(), self.int32(), self.string()
        self.skip_tagged_fields()
        return node_id, NodeEndpoint(host or "", port, rack)

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._payload[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < _VARINT_MORE:
                return value
            shift += 7
            if shift > _VARINT_LAST_SHIFT:
                raise IndexError(f"varint longer than five bytes at {self.position}")
