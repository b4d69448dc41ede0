"""The checks of a record batch before a broker appends it.

A batch may be wrong in two ways, so the order is Kafka's: shape of the request, size, checksum, header, records, times,
and then sequences (`producer_state`).

Source: ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords and LogValidator in Apache Kafka.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple, NoReturn

from aioproducer._native.record_check import check_records
from aioproducer.testing.fake_broker.log.producer_state import ProducerIdAndEpoch
from aioproducer.testing.fake_broker.log.record_batch import (
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    BatchHeader,
    checksum,
    decompress,
    read_header,
    restamped,
)
from aioproducer.testing.fake_broker.topic_configs import TopicConfig, in_codec_of_topic
from aioproducer.testing.fake_broker.wire import codes
from aioproducer.testing.fake_broker.wire.primitives import MalformedRequestError, Reader


class RecordFault(NamedTuple):
    """The reason why one record is rejected."""

    batch_index: int
    code: int
    message: str


_ZERO_OFFSET = bytes(8)
_LENGTH = struct.Struct(">8xi")
_SHORTEST_WITH_MAGIC = 17
_SHORTEST_RECORD = 14
_LARGEST_SIZE = 2**31 - 1
_MAGIC_AT = 16
_ATTRIBUTES_AT = 22
_MAGIC = 2
_ZSTD = 4
_CODECS = 5
_FIRST_WITH_ZSTD = 7
_ERRORS_NAMED = 3
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


class BatchRefusedError(Exception):
    """A batch that is not appended; `record_errors` are index and message of each rejected record (KIP-467)."""

    def __init__(self, code: int, *, record_errors: Sequence[tuple[int, str]] = (), message: str | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.record_errors = record_errors
        self.message = message


def single_batch(records: memoryview | None, version: int) -> memoryview:
    """Cut the one batch out of a partition's records; a remainder too short for a batch is ignored."""
    size = _complete_batch(records)
    if records is None or size is None:
        raise BatchRefusedError(codes.INVALID_RECORD)
    if records[_MAGIC_AT] != _MAGIC:
        raise BatchRefusedError(codes.INVALID_RECORD)
    if version < _FIRST_WITH_ZSTD and size > _ATTRIBUTES_AT and records[_ATTRIBUTES_AT] & 0x07 == _ZSTD:
        raise BatchRefusedError(codes.UNSUPPORTED_COMPRESSION_TYPE)
    if size < len(records) and _begins_another(records[size:]):
        raise BatchRefusedError(codes.INVALID_RECORD)
    return records[:size]


def _begins_another(rest: memoryview) -> bool:
    """Whether there is a second batch; a malformed one is refused without its text."""
    try:
        return _complete_batch(rest) is not None
    except BatchRefusedError as refusal:
        raise BatchRefusedError(refusal.code) from refusal


def breaks_request(records: memoryview, version: int) -> bool:
    """Whether Kafka fails on this batch before it checks single partitions, so that all of them get -1.

    Kafka checks the codecs of request versions before zstd early, and does not expect an unknown codec there.
    """
    is_looked_at = version < _FIRST_WITH_ZSTD and len(records) >= HEADER_SIZE and records[_MAGIC_AT] == _MAGIC
    return is_looked_at and records[_ATTRIBUTES_AT] & 0x07 >= _CODECS


def begins_transactional(records: memoryview) -> bool:
    """Whether the first batch, valid otherwise or not, is marked as transactional."""
    size = _complete_batch(records)
    return size is not None and size > _ATTRIBUTES_AT and bool(records[_ATTRIBUTES_AT] & _TRANSACTIONAL)


def transactional_producer(records: memoryview) -> ProducerIdAndEpoch | None:
    """Return the producer of the first batch; None if it is not transactional, or its header is cut off."""
    if len(records) < HEADER_SIZE or not records[_ATTRIBUTES_AT] & _TRANSACTIONAL:
        return None
    header = read_header(records)
    is_one = header.magic == _MAGIC and header.producer_id >= 0
    return ProducerIdAndEpoch(header.producer_id, header.producer_epoch) if is_one else None


def _complete_batch(records: memoryview | None) -> int | None:
    """Return the size of the batch that begins here; None if it is incomplete."""
    if records is None or len(records) < _SHORTEST_WITH_MAGIC:
        return None
    (length,) = _LENGTH.unpack_from(records)
    if length < _SHORTEST_RECORD:
        text = f"Record size {length} is less than the minimum record overhead ({_SHORTEST_RECORD})"
        raise BatchRefusedError(codes.CORRUPT_MESSAGE, message=text)
    if records[_MAGIC_AT] > _MAGIC:
        magic = int.from_bytes(records[_MAGIC_AT : _MAGIC_AT + 1], signed=True)
        raise BatchRefusedError(codes.CORRUPT_MESSAGE, message=f"Invalid magic found in record: {magic}")
    size = length + LENGTH_OVERHEAD
    if size > _LARGEST_SIZE:  # it overflows in Java, and then nothing is as expected
        raise BatchRefusedError(codes.UNKNOWN_SERVER_ERROR)
    return int(size) if size <= len(records) else None


def accepted_batch(batch: memoryview, config: TopicConfig, *, wall_clock_ms: int, partition_name: str) -> memoryview:
    """Check one batch as the log of a topic does, and return the log's form of it; `partition_name` is for messages."""
    header = _checked_header(batch, config)
    highest = _check_records(batch, header, config, wall_clock_ms=wall_clock_ms, partition_name=partition_name)
    if config.codec is not None and config.codec != header.codec:
        batch = in_codec_of_topic(batch, header, config.codec)
        header = read_header(batch)
        if header.size > config.max_message_bytes:
            raise BatchRefusedError(codes.MESSAGE_TOO_LARGE)
    if header.size > config.segment_bytes:
        raise BatchRefusedError(codes.RECORD_LIST_TOO_LARGE)
    if config.is_log_append_time:
        attributes = header.attributes | _LOG_APPEND_TIME
        return memoryview(restamped(batch, attributes=attributes, max_timestamp=wall_clock_ms))
    if header.is_log_append_time or highest != header.max_timestamp:
        attributes = header.attributes & ~_LOG_APPEND_TIME
        return memoryview(restamped(batch, attributes=attributes, max_timestamp=highest))
    return batch


def _checked_header(batch: memoryview, config: TopicConfig) -> BatchHeader:
    if batch[0:8] != _ZERO_OFFSET:
        raise BatchRefusedError(codes.INVALID_RECORD)
    if len(batch) > config.max_message_bytes:
        raise BatchRefusedError(codes.MESSAGE_TOO_LARGE)
    if len(batch) < HEADER_SIZE:
        raise BatchRefusedError(codes.CORRUPT_MESSAGE)
    header = read_header(batch)
    if checksum(batch) != header.crc:
        raise BatchRefusedError(codes.CORRUPT_MESSAGE)
    if (error := _header_error(header)) != 0:
        raise BatchRefusedError(error)
    return header


def _header_error(header: BatchHeader) -> int:
    if header.record_count <= 0 or header.last_offset_delta + 1 != header.record_count:
        return codes.INVALID_RECORD
    if header.is_control or (header.producer_id >= 0 and header.base_sequence < 0):
        return codes.INVALID_RECORD
    return codes.UNKNOWN_SERVER_ERROR if header.codec >= _CODECS else 0


def _check_records(
    batch: memoryview, header: BatchHeader, config: TopicConfig, *, wall_clock_ms: int, partition_name: str
) -> int:
    """Check the records and return their highest timestamp, in ms."""
    section = _uncompressed(batch, header)
    low, high = _times_allowed(config, wall_clock_ms)
    try:
        highest, _, late, _, keyless, _ = check_records(
            section,
            header.record_count,
            base_timestamp=header.base_timestamp,
            low=low,
            high=high,
            keys_required=config.is_compacted,
        )
        has_times = not config.is_log_append_time and header.max_timestamp != NO_TIMESTAMP
        if not late and not keyless and (has_times or not header.is_log_append_time):
            return highest
    except ValueError:
        """The slow walk finds out whether Kafka refuses it."""
    return _walk_slowly(memoryview(section), header, config, wall_clock_ms=wall_clock_ms, partition_name=partition_name)


def _walk_slowly(
    section: memoryview, header: BatchHeader, config: TopicConfig, *, wall_clock_ms: int, partition_name: str
) -> int:
    try:
        records = walk_records(section, header)
    except EndlessLengthError as error:
        raise BatchRefusedError(codes.UNKNOWN_SERVER_ERROR) from error
    except ValueError as error:
        raise BatchRefusedError(codes.INVALID_RECORD) from error
    faults = list(record_faults(records, header, config, wall_clock_ms=wall_clock_ms, partition_name=partition_name))
    if faults:
        _refuse(faults)
    if header.codec and any(record.offset_delta != record.batch_index for record in records):
        # Kafka starts to rewrite the batch, from records whose keys and values it has skipped, and fails.
        raise BatchRefusedError(codes.UNKNOWN_SERVER_ERROR)
    return max((record.timestamp for record in records), default=-1)


def _uncompressed(batch: memoryview, header: BatchHeader) -> bytes | memoryview:
    """Return the records; Kafka does not expect that uncompressing fails, and answers -1."""
    body = batch[HEADER_SIZE:]
    if header.codec == 0:
        return body
    try:
        return decompress(header.codec, body)
    except ValueError as error:
        raise BatchRefusedError(codes.UNKNOWN_SERVER_ERROR) from error


def _times_allowed(config: TopicConfig, wall_clock_ms: int) -> tuple[int, int]:
    """Return lowest and highest timestamp a topic takes, in ms; any where the broker writes its own."""
    if config.is_log_append_time:
        return _LOWEST, _HIGHEST
    low = max(_LOWEST, wall_clock_ms - config.timestamp_before_max_ms)
    return low, min(_HIGHEST, wall_clock_ms + config.timestamp_after_max_ms)


def _refuse(faults: Sequence[RecordFault]) -> NoReturn:
    """Name the rejected records, and count them in a message like Kafka's."""
    message = "One or more records have been rejected due to "
    code = (
        codes.INVALID_TIMESTAMP
        if any(fault.code == codes.INVALID_TIMESTAMP for fault in faults)
        else codes.INVALID_RECORD
    )
    if code == codes.INVALID_TIMESTAMP:
        message += "invalid timestamp"
    else:
        named = [f"RecordError(batchIndex={at}, message='{text}')" for at, _, text in faults[:_ERRORS_NAMED]]
        message += f"{len(faults)} record errors in total, and only showing the first three errors at most: "
        message += f"[{', '.join(named)}]"
    raise BatchRefusedError(code, record_errors=[(at, text) for at, _, text in faults], message=message)


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


def walk_records(section: memoryview, header: BatchHeader) -> list[WalkedRecord]:
    """Walk the uncompressed records of a batch, field by field; ValueError if lengths do not match.

    Slow and rare: the native walk finds that something is wrong, this finds what, and whether Kafka minds. In
    compressed records it never looks at the length that a record claims, so it takes a batch that no consumer can read.

    Source: DefaultRecord.readPartiallyFrom in Apache Kafka.
    """
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
    """Yield each record that the topic does not take, with the first reason (LogValidator.validateRecord)."""
    low, high = wall_clock_ms - config.timestamp_before_max_ms, wall_clock_ms + config.timestamp_after_max_ms
    shown = f"[{low}, {(high + _LONG_MAX + 1) % _LONG_RANGE - _LONG_MAX - 1}]"  # Java's sum, which may overflow
    for record in records:
        if config.is_compacted and record.key_size < 0:
            text = f"Compacted topic cannot accept message without key in topic partition {partition_name}"
            yield RecordFault(record.batch_index, codes.INVALID_RECORD, text)
        elif config.is_log_append_time or record.timestamp == NO_TIMESTAMP:
            if header.is_log_append_time:
                text = f"Invalid timestamp type in message {record.text(is_compressed=header.codec != 0)}. "
                text += "Producer should not set timestamp type to LogAppendTime."
                yield RecordFault(record.batch_index, codes.INVALID_TIMESTAMP, text)
        elif not low <= record.timestamp <= high:
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
