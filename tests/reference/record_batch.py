"""The slow, obvious encoder and decoder of record batches, version 2: what the native one must equal.

A batch on the wire::

    offset  bytes  field
         0      8  base offset            0 from a producer; the broker writes the real one
         8      4  batch length           bytes that follow this field
        12      4  partition leader epoch -1 from a producer
        16      1  magic                  2
        17      4  CRC-32C                of everything from offset 21 to the end
        21      2  attributes             bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control
        23      4  last offset delta      number of records - 1
        27      8  base timestamp         of the first record, ms
        35      8  max timestamp          of all records, ms
        43      8  producer id            -1 without idempotence
        51      2  producer epoch         -1 without
        53      4  base sequence          -1 without
        57      4  number of records
        61      -  records, compressed as one piece if the codec is not 0

A record; every number but the attributes is a zigzag varint::

    length           bytes that follow
    attributes       one byte, 0
    timestamp delta  to the base timestamp
    offset delta     0, 1, 2, ...
    key length       -1 for null; then the key
    value length     -1 for null; then the value
    header count     then for each: name length, name, value length (-1 for null), value

Source: org.apache.kafka.common.record.{DefaultRecordBatch,DefaultRecord}.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import crc32c

HEADER_BYTES = 61
CRC_STARTS_AT = 21

_BEFORE_CRC = struct.Struct(">qiib")  # base offset, batch length, leader epoch, magic
_AFTER_CRC = struct.Struct(">hiqqqhii")


@dataclass(frozen=True)
class Record:
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class Batch:
    records: tuple[Record, ...]
    codec: int = 0
    base_offset: int = 0
    leader_epoch: int = -1
    timestamp_type: int = 0
    transactional: bool = False
    control: bool = False
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1


def encode_batch(batch: Batch, compress: Callable[[bytes], bytes] = bytes) -> bytes:
    """Return the batch's bytes."""
    base_timestamp = batch.records[0].timestamp
    body = compress(encode_records(batch.records))
    after_crc = (
        _AFTER_CRC.pack(
            _attributes(batch),
            len(batch.records) - 1,
            base_timestamp,
            max(record.timestamp for record in batch.records),
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            len(batch.records),
        )
        + body
    )
    length = 4 + 1 + 4 + len(after_crc)
    before_crc = _BEFORE_CRC.pack(batch.base_offset, length, batch.leader_epoch, 2)
    return before_crc + struct.pack(">I", crc32c.crc32c(after_crc)) + after_crc


def encode_records(records: Sequence[Record]) -> bytes:
    base_timestamp = records[0].timestamp
    return b"".join(
        _encode_record(record, timestamp_delta=record.timestamp - base_timestamp, offset_delta=index)
        for index, record in enumerate(records)
    )


def decode_batch(data: bytes, decompress: Callable[[bytes], bytes] = bytes) -> Batch:
    base_offset, length, leader_epoch, magic = _BEFORE_CRC.unpack_from(data)
    (crc,) = struct.unpack_from(">I", data, 17)
    attributes, last_delta, base_timestamp, max_timestamp, producer_id, epoch, sequence, count = _AFTER_CRC.unpack_from(
        data, CRC_STARTS_AT
    )
    _require(length == len(data) - 12, "batch length")
    _require(magic == 2, "magic")
    _require(crc == crc32c.crc32c(data[CRC_STARTS_AT:]), "CRC")
    records = decode_records(decompress(data[HEADER_BYTES:]), count=count, base_timestamp=base_timestamp)
    _require(last_delta == count - 1, "last offset delta")
    _require(max_timestamp == max(record.timestamp for record in records), "max timestamp")
    return Batch(
        records=records,
        codec=attributes & 7,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        timestamp_type=attributes >> 3 & 1,
        transactional=bool(attributes & 16),
        control=bool(attributes & 32),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def decode_records(section: bytes, *, count: int, base_timestamp: int) -> tuple[Record, ...]:
    """Return the records of a section that is not compressed."""
    reader = _Reader(section)
    records = tuple(_decode_record(reader, index, base_timestamp) for index in range(count))
    _require(reader.at == len(section), "bytes after the last record")
    return records


def encode_varint(number: int) -> bytes:
    """Return a zigzag varint: 0, -1, 1, -2, ... become 0, 1, 2, 3, ..., seven bits a byte, low first."""
    rest = number * 2 if number >= 0 else -number * 2 - 1
    encoded = []
    while rest >= 128:
        encoded.append(rest % 128 + 128)
        rest //= 128
    return bytes([*encoded, rest])


def _encode_record(record: Record, *, timestamp_delta: int, offset_delta: int) -> bytes:
    content = b"".join(
        [
            b"\0",
            encode_varint(timestamp_delta),
            encode_varint(offset_delta),
            _encode_nullable(record.key),
            _encode_nullable(record.value),
            encode_varint(len(record.headers)),
            *(_encode_nullable(name.encode()) + _encode_nullable(value) for name, value in record.headers),
        ]
    )
    return encode_varint(len(content)) + content


def _encode_nullable(data: bytes | None) -> bytes:
    return encode_varint(-1) if data is None else encode_varint(len(data)) + data


def _decode_record(reader: _Reader, index: int, base_timestamp: int) -> Record:
    length = reader.varint()
    end = reader.at + length
    _require(reader.take(1) == b"\0", "record attributes")
    timestamp = base_timestamp + reader.varint()
    _require(reader.varint() == index, "offset delta")
    key = reader.nullable()
    value = reader.nullable()
    headers = tuple((_name(reader), reader.nullable()) for _ in range(reader.varint()))
    _require(reader.at == end, "record length")
    return Record(key, value, timestamp, headers)


def _name(reader: _Reader) -> str:
    name = reader.nullable()
    if name is None:
        raise ValueError("header name is null")
    return name.decode()


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        _require(0 <= count <= len(self.data) - self.at, "length")
        self.at += count
        return self.data[self.at - count : self.at]

    def varint(self) -> int:
        total: int = 0
        for place in range(10):
            (byte,) = self.take(1)
            total += byte % 128 * 128**place
            if byte < 128:
                return total // 2 if total % 2 == 0 else -(total + 1) // 2
        raise ValueError("varint longer than ten bytes")

    def nullable(self) -> bytes | None:
        length = self.varint()
        return None if length == -1 else self.take(length)


def _attributes(batch: Batch) -> int:
    return batch.codec | batch.timestamp_type << 3 | batch.transactional << 4 | batch.control << 5


def _require(condition: bool, what: str) -> None:  # noqa: FBT001  # an assertion by another name
    if not condition:
        raise ValueError(f"wrong {what}")
