"""The records of a batch that a topic refuses, and the walk through records whose lengths are wrong.

Both are slow and rare: the native walk finds that something is wrong, this finds what, and whether Kafka minds. The
offsets of records are not looked at. Of compressed records Kafka skips keys and values one after the other and never
looks at the length that a record claims for itself, so such a batch is taken although no consumer can read it.

Source: LogValidator.validateRecord and DefaultRecord.readPartiallyFrom in Apache Kafka.
"""

from collections.abc import Iterator
from typing import NamedTuple

from aioproducer.testing.fake_broker.log.record_batch import BatchHeader
from aioproducer.testing.fake_broker.topics.topic_configs import TopicConfig
from aioproducer.testing.fake_broker.wire import codes
from aioproducer.testing.fake_broker.wire.primitives import MalformedRequestError, Reader

NO_TIMESTAMP = -1

_LONG_RANGE = 2**64
_LONG_MAX = 2**63 - 1
_VARINT_BYTES = 5
_VARLONG_BYTES = 10


class EndlessLengthError(ValueError):
    """A record length without an end; Kafka does not expect that, and answers -1."""


class WalkedRecord(NamedTuple):
    """A record without its key and value; sizes are -1 for null."""

    batch_index: int
    offset_delta: int
    timestamp: int
    key_size: int
    value_size: int

    def text(self, *, is_compressed: bool) -> str:
        """Return the record as Kafka prints it."""
        kind, null = ("PartialDefaultRecord", -1) if is_compressed else ("DefaultRecord", 0)
        sizes = f"key={max(null, self.key_size)} bytes, value={max(null, self.value_size)} bytes"
        return f"{kind}(offset={self.offset_delta}, timestamp={self.timestamp}, {sizes})"


class RecordFault(NamedTuple):
    """The reason why one record is rejected."""

    batch_index: int
    code: int
    message: str


def walk_records(section: memoryview, header: BatchHeader) -> list[WalkedRecord]:
    """Walk the uncompressed records of a batch, field by field; ValueError if lengths do not match."""
    reader = Reader(section)
    try:
        found = [_walk_record(reader, header, index) for index in range(header.record_count)]
    except MalformedRequestError as error:
        raise ValueError(str(error)) from error
    if reader.position != len(section):
        raise ValueError(f"{len(section) - reader.position} bytes after the last record")
    return found


def record_faults(
    records: list[WalkedRecord], header: BatchHeader, config: TopicConfig, *, wall_clock_ms: int, partition_name: str
) -> Iterator[RecordFault]:
    """Yield each record that the topic does not take, with the first reason."""
    low, high = wall_clock_ms - config.timestamp_before_max_ms, wall_clock_ms + config.timestamp_after_max_ms
    shown = f"[{low}, {(high + _LONG_MAX + 1) % _LONG_RANGE - _LONG_MAX - 1}]"  # Java's sum, which may overflow
    for record in records:
        if config.is_compacted and record.key_size < 0:
            text = f"Compacted topic cannot accept message without key in topic partition {partition_name}"
            yield RecordFault(record.batch_index, codes.INVALID_RECORD, text)
        elif config.is_log_append_time:
            if header.is_log_append_time:
                text = f"Invalid timestamp type in message {record.text(is_compressed=header.codec != 0)}. "
                text += "Producer should not set timestamp type to LogAppendTime."
                yield RecordFault(record.batch_index, codes.INVALID_TIMESTAMP, text)
        elif record.timestamp != NO_TIMESTAMP and not low <= record.timestamp <= high:
            text = f"Timestamp {record.timestamp} of message with offset {record.offset_delta} is out of range. "
            text += f"The timestamp should be within {shown}"
            yield RecordFault(record.batch_index, codes.INVALID_TIMESTAMP, text)


def _walk_record(reader: Reader, header: BatchHeader, index: int) -> WalkedRecord:
    claimed, start = _length(reader), reader.position
    reader.int8()  # its attributes
    timestamp = header.base_timestamp + _varint(reader, max_bytes=_VARLONG_BYTES)
    offset_delta = _varint(reader)
    key_size, value_size = _skip_bytes(reader), _skip_bytes(reader)
    for _ in range(_count(_varint(reader))):
        _count(_skip_bytes(reader))
        _skip_bytes(reader)
    if header.codec == 0 and reader.position != start + claimed:
        raise ValueError(f"record {index} claims {claimed} bytes and has {reader.position - start}")
    timestamp = header.max_timestamp if header.is_log_append_time else timestamp
    return WalkedRecord(index, offset_delta, timestamp, key_size, value_size)


def _length(reader: Reader) -> int:
    try:
        return _varint(reader)
    except ValueError as error:
        raise EndlessLengthError(str(error)) from error


def _count(number: int) -> int:
    if number < 0:
        raise ValueError(f"a count of {number}")
    return number


def _skip_bytes(reader: Reader) -> int:
    size = _varint(reader)
    if size > 0:
        reader.fixed(size)
    return size


def _varint(reader: Reader, *, max_bytes: int = _VARINT_BYTES) -> int:
    value = 0
    for shift in range(0, 7 * max_bytes, 7):
        byte = reader.int8()
        value |= (byte & 0x7F) << shift
        if byte >= 0:
            return (value >> 1) ^ -(value & 1)
    raise ValueError(f"a varint of more than {max_bytes} bytes")
