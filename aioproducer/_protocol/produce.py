"""Produce, the only message whose cost is paid per batch of records.

A request is a list of buffers, in which every batch's records section stays where the accumulator built it:

    [glue + header] [records] [glue + header] [records] ... [end of the request]

so `writelines` of a transport sends a request without copying a record; up to 1 KiB of records is copied behind its
header, which is cheaper. What is paid per batch, and the response that nearly every request with one batch gets, are
encoded and decoded by `_native/produce.pyx`. Layout, with the first version of each field:

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
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache, partial
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from aioproducer._native.produce import append_batches, plain_response
from aioproducer._protocol.cluster_text import printable_message
from aioproducer._protocol.messages import SMALL_RESPONSE
from aioproducer._protocol.primitives import (
    NO_TAGGED_FIELDS,
    ResponseReader,
    array_length,
    decode,
    string,
)

if TYPE_CHECKING:
    from aioproducer._native.append import RecordBatchBuilder

TOPIC_ID_VERSION: Final = 13  # first version that names topics by their id
_PER_BATCH: Final = 4 * 1024  # bytes of a response to Produce: offsets, and an error with its text
_PER_RECORD: Final = 1024  # bytes of it for a record that was refused, with the reason
_FIRST_FLEXIBLE: Final = 9
_FIRST_WITH_LOG_START: Final = 5
_FIRST_WITH_RECORD_ERRORS: Final = 8
_FIRST_WITH_LEADER: Final = 10

_INT32 = struct.Struct(">i")
_ACKS_TIMEOUT = struct.Struct(">hi")
_PARTITION_V3 = struct.Struct(">ihqq")  # index, error code, base offset, log append time
_PARTITION_V5 = struct.Struct(">ihqqq")  # and log start offset
_PLAIN_END: Final = b"\x01\x00\x00"  # no record errors, null message, no tagged fields
_TOPIC_ID_BYTES: Final = 16

Buffer: TypeAlias = bytes | bytearray | memoryview
TopicName: TypeAlias = tuple[str | None, bytes | None]
"""Topic in a response: (name, None), from version 13 on (None, id)."""
PartitionEnd: TypeAlias = tuple[tuple[tuple[int, str | None], ...], str | None, int, int]
"""Fields after a partition's offsets: record errors, message, leader id, leader epoch."""

_NOTHING_MORE: Final[PartitionEnd] = ((), None, -1, -1)

_new = tuple.__new__  # a named tuple's own is Python code


class PartitionResponse(NamedTuple):
    """Response to the batch of one partition."""

    topic: str | None  # None from version 13 on, where `topic_id` names it
    topic_id: bytes | None
    partition: int
    error_code: int
    base_offset: int  # offset of the batch's first record; -1 if the broker assigned none
    log_append_time: int  # milliseconds since 1970; -1 if the topic keeps the producer's own timestamps
    log_start_offset: int  # first offset still in the log, -1 unknown
    record_errors: tuple[tuple[int, str | None], ...]  # (index in the batch, reason) of each refused record; KIP-467
    error_message: str | None
    leader_id: int  # current leader of the partition; -1 if not given; KIP-951
    leader_epoch: int


class NodeEndpoint(NamedTuple):
    """Address of a leader named in a response; not validated."""

    host: str
    port: int
    rack: str | None


class ProduceResponse(NamedTuple):
    throttle_time_ms: int
    partitions: list[PartitionResponse]
    nodes: dict[int, NodeEndpoint]  # by node id; empty unless the response names new leaders

    @property
    def error_codes(self) -> Collection[int]:
        return [response.error_code for response in self.partitions]


def request_is_flexible(version: int) -> bool:
    """Whether this version has compact lengths and tagged fields."""
    return version >= _FIRST_FLEXIBLE


def encode_produce_request(  # one per field, and the ids of topics
    version: int,
    *,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None,
    batches: Mapping[str, Sequence[RecordBatchBuilder]],
    topic_ids: Mapping[str, bytes],
) -> list[bytes | memoryview]:
    """Encode a request around the batches; versions 3-13.

    Args:
        timeout_ms: how long the broker may wait for its replicas.
        batches: by topic, at most one per partition.
        topic_ids: by topic, 16 bytes each; used from version 13 on.

    Returns:
        The request's body in pieces, to be sent in this order after the request header. Some are views of batches'
        records, which must not change until the request was answered.
    """
    flexible = version >= _FIRST_FLEXIBLE
    glue = _start_of_request(flexible, transactional_id, acks, timeout_ms, len(batches))
    pieces: list[bytes | memoryview] = []
    for name, of_topic in batches.items():
        topic = topic_ids[name] if version >= TOPIC_ID_VERSION else name
        glue += _start_of_topic(flexible, topic, len(of_topic))
        glue = append_batches(pieces, glue, of_topic, flexible)
    pieces.append(glue + NO_TAGGED_FIELDS if flexible else glue)
    return pieces


def largest_produce_response(batches: int, records: int) -> int:
    return SMALL_RESPONSE + _PER_BATCH * batches + _PER_RECORD * records


def decode_produce_response(version: int, payload: bytes | memoryview) -> ProduceResponse:
    """Read a response.

    Raises:
        ProtocolError: the bytes are invalid: too short, too long, a bad length or count, text that is not UTF-8, or an
            offset below -1.
    """
    flexible = version >= _FIRST_FLEXIBLE
    if flexible and (plain := plain_response(payload, version >= TOPIC_ID_VERSION)) is not None:
        throttle_time_ms, fields = plain
        return _new(ProduceResponse, (throttle_time_ms, [_new(PartitionResponse, fields)], {}))
    return decode(f"Produce v{version}", bytes(payload), flexible=flexible, read=partial(_response, version=version))


@lru_cache(maxsize=64)
def _start_of_request(  # noqa: PLR0917  # positional arguments make the cache faster
    flexible: bool,  # noqa: FBT001  # as above
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
    topics: int,
) -> bytes:
    return (
        string(transactional_id, flexible=flexible)
        + _ACKS_TIMEOUT.pack(acks, timeout_ms)
        + array_length(topics, flexible=flexible)
    )


@lru_cache(maxsize=256)
def _start_of_topic(flexible: bool, topic: str | bytes, batches: int) -> bytes:  # noqa: FBT001  # as above
    named = topic if isinstance(topic, bytes) else string(topic, flexible=flexible)
    return named + array_length(batches, flexible=flexible)


def _response(reader: ResponseReader, version: int) -> ProduceResponse:
    partitions: list[PartitionResponse] = []
    for _ in range(reader.array_length()):
        topic = (None, reader.take(_TOPIC_ID_BYTES)) if version >= TOPIC_ID_VERSION else (reader.string(), None)
        partitions.extend([_partition(reader, version, topic) for _ in range(reader.array_length())])
        reader.skip_tagged_fields()
    throttle_time_ms = reader.int32()
    return ProduceResponse(throttle_time_ms, partitions, _nodes(reader, version))


def _partition(reader: ResponseReader, version: int, topic: TopicName) -> PartitionResponse:
    if version >= _FIRST_WITH_LOG_START:
        index, code, offset, append_time, log_start = _PARTITION_V5.unpack_from(reader.payload, reader.position)
        reader.position += _PARTITION_V5.size
    else:
        index, code, offset, append_time = _PARTITION_V3.unpack_from(reader.payload, reader.position)
        reader.position += _PARTITION_V3.size
        log_start = -1
    if offset < -1:
        raise IndexError(f"base offset {offset} of partition {index}")
    errors, message, leader_id, leader_epoch = _partition_end(reader, version)
    return PartitionResponse(
        *topic, index, code, offset, append_time, log_start, errors, message, leader_id, leader_epoch
    )


def _partition_end(reader: ResponseReader, version: int) -> PartitionEnd:
    if version < _FIRST_WITH_RECORD_ERRORS:
        return _NOTHING_MORE
    end = reader.position + len(_PLAIN_END)
    if version >= _FIRST_FLEXIBLE and reader.payload[reader.position : end] == _PLAIN_END:
        reader.position = end
        return _NOTHING_MORE
    errors: list[tuple[int, str | None]] = []
    left = reader.array_length()
    while left > len(errors):
        start = reader.position
        errors.append(_record_error(reader))
        errors += [(index, errors[-1][1]) for index in _alike(reader, start, left - len(errors))]
    return tuple(errors), printable_message(reader.string()), *_leader(reader, version)


def _alike(reader: ResponseReader, start: int, most: int) -> list[int]:
    """Read the indexes of records refused with the same text as the one at `start`: there may be thousands."""
    size = reader.position - start
    words = reader.payload[start + _INT32.size : reader.position]
    end = reader.position + min(most, (len(reader.payload) - reader.position) // size) * size
    rows = struct.iter_unpack(f">i{len(words)}s", memoryview(reader.payload)[reader.position : end])
    alike = [index for index, _ in takewhile(lambda row: row[1] == words, rows)]
    reader.position += len(alike) * size
    return alike


def _record_error(reader: ResponseReader) -> tuple[int, str | None]:
    index, message = reader.int32(), printable_message(reader.string())
    reader.skip_tagged_fields()
    return index, message


def _leader(reader: ResponseReader, version: int) -> tuple[int, int]:
    leader = -1, -1
    for tag in reader.tagged_fields():
        if tag == 0 and version >= _FIRST_WITH_LEADER:
            leader = reader.int32(), reader.int32()
            reader.skip_tagged_fields()
    return leader


def _nodes(reader: ResponseReader, version: int) -> dict[int, NodeEndpoint]:
    nodes: dict[int, NodeEndpoint] = {}
    for tag in reader.tagged_fields():
        if tag == 0 and version >= _FIRST_WITH_LEADER:
            nodes = dict(_node(reader) for _ in range(reader.array_length()))
    return nodes


def _node(reader: ResponseReader) -> tuple[int, NodeEndpoint]:
    node_id, host, port, rack = reader.int32(), reader.string(), reader.int32(), reader.string()
    reader.skip_tagged_fields()
    return node_id, NodeEndpoint(host or "", port, rack)
