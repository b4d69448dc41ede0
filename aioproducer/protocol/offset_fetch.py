"""OffsetFetch: how far a group has come, with no answer while a transaction may still change it.

    request v7     group_id string | topics: [name | partitions: [int32]] | require_stable boolean
    answer v7      throttle_time_ms int32 | topics: [name | partitions: [int32, offset int64, leader epoch int32,
                   metadata string, error_code int16]] | error_code int16

Version 7 is the first that has `require_stable`, and every broker line since has it.

Source: OffsetFetchRequest.json of Apache Kafka 4.3; KIP-447.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from aioproducer.protocol.messages import Api
from aioproducer.protocol.request_fields import NO_TAGGED_FIELDS, array_length, string
from aioproducer.protocol.response_reader import ResponseReader, decode

OFFSET_FETCH: Final = Api(9, "OffsetFetch", 7, 7, 6, since="2.5")

NO_OFFSET: Final = -1
"""What the answer says of a partition for which the group has committed nothing."""

_INT32 = struct.Struct(">i")
_OFFSET = struct.Struct(">iqi")  # partition, offset, leader epoch


class FetchedOffset(NamedTuple):
    """What the coordinator knows of one partition."""

    topic: str
    partition: int
    offset: int
    """The next to read; `NO_OFFSET` for none."""
    metadata: str
    error_code: int


class OffsetsAnswer(NamedTuple):
    """The answer to OffsetFetch."""

    throttle_time_ms: int
    error_code: int
    offsets: list[FetchedOffset]

    @property
    def error_codes(self) -> Collection[int]:
        """Of the answer and of its partitions."""
        return {self.error_code, *(offset.error_code for offset in self.offsets)}


def encode_offset_fetch_request(group_id: str, partitions: Iterable[tuple[str, int]], *, require_stable: bool) -> bytes:
    """Ask how far a group has come; version 7. `partitions`: (topic, partition) pairs."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    fields = [string(group_id, flexible=True), array_length(len(topics), flexible=True)]
    for topic, numbers in topics.items():
        fields += [string(topic, flexible=True), array_length(len(numbers), flexible=True)]
        fields += [_INT32.pack(number) for number in numbers]
        fields.append(NO_TAGGED_FIELDS)
    fields += [b"\x01" if require_stable else b"\x00", NO_TAGGED_FIELDS]
    return b"".join(fields)


def decode_offset_fetch_response(payload: bytes | memoryview) -> OffsetsAnswer:
    """Read offsets and codes; version 7.

    Raises:
        ProtocolError: not such an answer.
    """
    return decode("OffsetFetch v7", payload, flexible=True, read=_offsets)


def _offsets(reader: ResponseReader) -> OffsetsAnswer:
    throttle_time_ms = reader.int32()
    offsets: list[FetchedOffset] = []
    for _ in range(reader.array_length()):
        topic = reader.string() or ""
        offsets += [_offset(reader, topic) for _ in range(reader.array_length())]
        reader.skip_tagged_fields()
    error_code = reader.int16()
    reader.skip_tagged_fields()
    return OffsetsAnswer(throttle_time_ms, error_code, offsets)


def _offset(reader: ResponseReader, topic: str) -> FetchedOffset:
    partition, offset, _ = _OFFSET.unpack_from(reader.payload, reader.position)
    reader.position += _OFFSET.size
    metadata = reader.string() or ""
    fetched = FetchedOffset(topic, partition, offset, metadata, reader.int16())
    reader.skip_tagged_fields()
    return fetched
