"""The v2 record batch from the broker's side: its header, what a broker writes into it, its records, and markers.

Layout, big-endian, offsets in bytes:

     0  baseOffset            int64   a broker's
     8  batchLength           int32   bytes after this field
    12  partitionLeaderEpoch  int32   a broker's
    16  magic                 int8    2
    17  crc                   uint32  CRC-32C of everything from 21 on
    21  attributes            int16   0-2 codec, 3 timestamp type, 4 transactional, 5 control
    23  lastOffsetDelta       int32
    27  baseTimestamp         int64   ms
    35  maxTimestamp          int64   ms
    43  producerId            int64   -1: not idempotent
    51  producerEpoch         int16
    53  baseSequence          int32
    57  recordCount           int32
    61  records

A broker may change the first 16 bytes freely, since the checksum does not cover them.
"""

import struct
from typing import NamedTuple

import cramjam
from crc32c import crc32c

from aioproducer.testing.fake_broker.wire.primitives import Buffer

HEADER_SIZE = 61
LENGTH_OVERHEAD = 12
"""A batch is this much longer than its batchLength says."""

CRC_COVERS_FROM = 21
MAX_SEQUENCE = 2**31 - 1
_CODEC_BITS = 0x07
_MORE = 0x80
"""A byte of a varint that is not its last is at least this."""

_NULL = 1
"""The varint -1, a length where there is nothing."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_PLACED = struct.Struct(">qii")


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return self.length + LENGTH_OVERHEAD

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & _CODEC_BITS

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & 0x08)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & 0x10)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & 0x20)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; 0 follows 2^31 - 1."""
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE


def read_header(batch: Buffer, offset: int = 0) -> BatchHeader:
    return BatchHeader(*_HEADER.unpack_from(batch, offset))


def checksum(batch: Buffer) -> int:
    return int(crc32c(memoryview(batch)[CRC_COVERS_FROM:]))


def batch_of(records: Buffer, *, count: int, base_timestamp: int, max_timestamp: int) -> bytes:
    """Return a batch without identity, offset and checksum around encoded records."""
    data = bytes(records)
    length = HEADER_SIZE - LENGTH_OVERHEAD + len(data)
    return _HEADER.pack(0, length, -1, 2, 0, 0, count - 1, base_timestamp, max_timestamp, -1, -1, -1, count) + data


def placed(batch: memoryview, *, base_offset: int, leader_epoch: int) -> bytes:
    """Copy a batch with its base offset and leader epoch."""
    front = _PLACED.pack(base_offset, len(batch) - LENGTH_OVERHEAD, leader_epoch)
    return b"".join((front, batch[16:]))


def restamped(batch: memoryview, *, attributes: int, max_timestamp: int) -> bytes:
    """Copy a batch with other attributes and another highest timestamp; the checksum matches."""
    changed = bytearray(batch)
    struct.pack_into(">h", changed, 21, attributes)
    struct.pack_into(">q", changed, 35, max_timestamp)
    struct.pack_into(">I", changed, 17, checksum(changed))
    return bytes(changed)


def repacked(batch: memoryview, *, codec: int, records: bytes) -> bytes:
    """Copy a batch with its records in another codec; length and checksum match."""
    changed = bytearray(batch[:HEADER_SIZE]) + records
    (attributes,) = struct.unpack_from(">h", changed, 21)
    struct.pack_into(">h", changed, 21, attributes & ~_CODEC_BITS | codec)
    struct.pack_into(">i", changed, 8, len(changed) - LENGTH_OVERHEAD)
    struct.pack_into(">I", changed, 17, checksum(changed))
    return bytes(changed)


def decompress(codec: int, data: Buffer) -> bytes:
    """Uncompress the records of a batch; ValueError if the codec is unknown or the bytes are not valid."""
    try:
        match codec:
            case 0:
                return bytes(data)
            case 1:
                return bytes(cramjam.gzip.decompress(data))
            case 2:
                return _decompress_snappy(data)
            case 3:
                return bytes(cramjam.lz4.decompress(data))
            case 4:
                return bytes(cramjam.zstd.decompress(data)) if len(data) else b""
            case _:
                raise ValueError(f"unknown codec {codec}")
    except cramjam.DecompressionError as error:
        raise ValueError(f"the records are not valid for codec {codec}: {error}") from error


_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16


def _decompress_snappy(data: Buffer) -> bytes:
    """Raw snappy, or the blocks of Java's SnappyOutputStream: a 16-byte header, then (int32 size, raw snappy) each."""
    if bytes(data[:8]) != _XERIAL_MAGIC:
        return bytes(cramjam.snappy.decompress_raw(data))
    view = memoryview(data)
    if len(view) < _XERIAL_HEADER:
        raise ValueError("a snappy stream ends in its header")
    position, blocks = _XERIAL_HEADER, []
    while position < len(view):
        if position + 4 > len(view):
            raise ValueError("a snappy block ends in its size")
        (size,) = struct.unpack_from(">i", view, position)
        position += 4
        blocks.append(bytes(cramjam.snappy.decompress_raw(view[position : position + size])))
        position += size
    return b"".join(blocks)


class LoggedRecord(NamedTuple):
    """One record as it stands in a log; what a consumer of that offset would get."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int
    """In ms; the broker's own when the topic keeps the time of appending."""

    leader_epoch: int
    producer_id: int
    """-1 when the record was sent without idempotence."""

    producer_epoch: int
    sequence: int


def decode_records(batch: Buffer) -> list[LoggedRecord]:
    """Decode all records of a batch that passed the checks."""
    header = read_header(batch)
    data = decompress(header.codec, memoryview(batch)[HEADER_SIZE:])
    is_log_time = header.is_log_append_time
    records: list[LoggedRecord] = []
    at = 0
    for _ in range(header.record_count):
        while data[at] >= _MORE:  # the record's length
            at += 1
        at += 2  # behind its attributes
        time_delta, at = _varint(data, at) if data[at] else (0, at + 1)
        delta, at = _varint(data, at) if data[at] else (0, at + 1)
        key, at = _nullable_bytes(data, at) if data[at] != _NULL else (None, at + 1)
        value, at = _nullable_bytes(data, at)
        headers, at = _headers(data, at) if data[at] else ((), at + 1)
        record = LoggedRecord(
            header.base_offset + delta,
            key,
            value,
            headers,
            header.max_timestamp if is_log_time else header.base_timestamp + time_delta,
            header.leader_epoch,
            header.producer_id,
            header.producer_epoch,
            (header.base_sequence + delta) & MAX_SEQUENCE if header.base_sequence >= 0 else -1,
        )
        records.append(record)
    return records


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < _MORE:
        return (byte >> 1) ^ -(byte & 1), at
    value, shift = byte & 0x7F, 7
    while (byte := data[at]) >= _MORE:
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
    value |= byte << shift
    return (value >> 1) ^ -(value & 1), at + 1


def _nullable_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _varint(data, at)
    return (None, at) if length < 0 else (data[at : at + length], at + length)


def _headers(data: bytes, at: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, at = _varint(data, at)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _nullable_bytes(data, at)
        value, at = _nullable_bytes(data, at)
        headers.append(
            ((name or b"").decode(errors="replace"), value)
        )  # as Java's consumers read bytes that are not UTF-8
    return tuple(headers), at


_FRONT = struct.Struct(">qiibI")
_BEHIND_CRC = struct.Struct(">hiqqqhii")
_RECORD = struct.Struct(">5shh1shi1s")
_KEY_LENGTH, _VALUE_LENGTH, _NO_HEADERS = b"\x20\x00\x00\x00\x08", b"\x0c", b"\x00"
_TRANSACTIONAL_CONTROL = 0x30
_SIZE = HEADER_SIZE + _RECORD.size


class LoggedBatch(NamedTuple):
    """One batch as the log holds it."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    data: bytes  # the whole batch, its base offset and leader epoch written in
    attributes: int = 0  # of its header: codec, timestamp type, transactional, control

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & 0x10)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & 0x20)


class Marker(NamedTuple):
    """The end of one producer's transaction, a control batch of one record, which consumers never show.

    Its key is (int16 version 0, int16 type: 0 abort, 1 commit), its value (int16 version 0, int32 epoch of the
    coordinator).

    Source: EndTransactionMarker and ControlRecordType in Apache Kafka.
    """

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int


def logged_marker(marker: Marker, *, base_offset: int, leader_epoch: int, timestamp: int) -> LoggedBatch:
    """Return the batch of a marker at its place in a log; `timestamp` in ms since 1970."""
    record = _RECORD.pack(
        _KEY_LENGTH, 0, int(marker.is_commit), _VALUE_LENGTH, 0, marker.coordinator_epoch, _NO_HEADERS
    )
    behind = _BEHIND_CRC.pack(
        _TRANSACTIONAL_CONTROL, 0, timestamp, timestamp, marker.producer_id, marker.producer_epoch, -1, 1
    )
    crc = checksum(bytes(CRC_COVERS_FROM) + behind + record)
    return LoggedBatch(
        base_offset=base_offset,
        last_offset=base_offset,
        max_timestamp=timestamp,
        leader_epoch=leader_epoch,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        base_sequence=-1,
        last_sequence=-1,
        data=_FRONT.pack(base_offset, _SIZE - 12, leader_epoch, 2, crc) + behind + record,
        attributes=_TRANSACTIONAL_CONTROL,
    )


def marker_of(batch: LoggedBatch) -> Marker:
    _, _, kind, _, _, coordinator_epoch, _ = _RECORD.unpack_from(batch.data, HEADER_SIZE)
    return Marker(batch.producer_id, batch.producer_epoch, kind == 1, coordinator_epoch)
