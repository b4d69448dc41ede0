"""Requests for offsets of consumer groups.

TxnOffsetCommit commits offsets with a transaction.

OffsetFetch reads committed offsets; with `require_stable` it returns none that an open transaction may change.

    request v7     group_id string | topics: [name | partitions: [int32]] | require_stable boolean
    response v7    throttle_time_ms int32 | topics: [name | partitions: [int32, offset int64, leader epoch int32,
                   metadata string, error_code int16]] | error_code int16

Version 7 is the first with `require_stable`, and brokers still support it.

Source: TxnOffsetCommitRequest.json and OffsetFetchRequest.json of Apache Kafka 4.3; KIP-98, KIP-447, KIP-890.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple, Protocol, TypeVar

from aioproducer._protocol.messages import Api
from aioproducer._protocol.primitives import NO_TAGGED_FIELDS, ResponseReader, array_length, decode, string
from aioproducer._protocol.transaction_messages import PartitionsResponse, TransactionIdentity, partition_results

TXN_OFFSET_COMMIT: Final = Api(28, "TxnOffsetCommit", 0, 5, 3)

_FIRST_WITH_LEADER_EPOCH: Final = 2
_FIRST_WITH_MEMBER: Final = 3
_NO_LEADER_EPOCH: Final = -1

_INT32 = struct.Struct(">i")
_ID_AND_EPOCH = struct.Struct(">qh")
_OFFSET = struct.Struct(">iq")
PartitionT = TypeVar("PartitionT", bound=tuple[str, int])


class GroupMember(Protocol):
    """The fields of a `ConsumerGroupMetadata`."""

    @property
    def group_id(self) -> str: ...

    @property
    def generation_id(self) -> int: ...

    @property
    def member_id(self) -> str: ...

    @property
    def group_instance_id(self) -> str | None: ...


class Position(Protocol):
    """The fields of an `OffsetAndMetadata`."""

    @property
    def offset(self) -> int: ...

    @property
    def metadata(self) -> str: ...


def encode_txn_offset_commit_request(
    version: int, *, identity: TransactionIdentity, member: GroupMember, offsets: Mapping[PartitionT, Position]
) -> bytes:
    """Commit offsets with the transaction.

    Args:
        version: 0 to 5.
        offsets: (topic, partition) -> the next offset to read.
    """
    flexible = TXN_OFFSET_COMMIT.is_flexible(version)
    topics: dict[str, list[tuple[int, Position]]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, []).append((partition, offset))
    fields = [
        string(identity.transactional_id, flexible=flexible),
        string(member.group_id, flexible=flexible),
        _ID_AND_EPOCH.pack(identity.producer_id, identity.producer_epoch),
        _member_fields(version, member),
        array_length(len(topics), flexible=flexible),
    ]
    for topic, partitions in topics.items():
        fields += [string(topic, flexible=flexible), array_length(len(partitions), flexible=flexible)]
        fields += [_offset_fields(version, partition, offset) for partition, offset in partitions]
        fields.append(NO_TAGGED_FIELDS if flexible else b"")
    fields.append(NO_TAGGED_FIELDS if flexible else b"")
    return b"".join(fields)


def decode_txn_offset_commit_response(version: int, payload: bytes | memoryview) -> PartitionsResponse:
    flexible = TXN_OFFSET_COMMIT.is_flexible(version)
    return decode(f"TxnOffsetCommit v{version}", payload, flexible=flexible, read=partition_results)


def _member_fields(version: int, member: GroupMember) -> bytes:
    if version < _FIRST_WITH_MEMBER:
        return b""
    generation = _INT32.pack(member.generation_id)
    return generation + string(member.member_id, flexible=True) + string(member.group_instance_id, flexible=True)


def _offset_fields(version: int, partition: int, offset: Position) -> bytes:
    flexible = TXN_OFFSET_COMMIT.is_flexible(version)
    fields = _OFFSET.pack(partition, offset.offset)
    if version >= _FIRST_WITH_LEADER_EPOCH:
        fields += _INT32.pack(_NO_LEADER_EPOCH)
    fields += string(offset.metadata, flexible=flexible)
    return fields + NO_TAGGED_FIELDS if flexible else fields


OFFSET_FETCH: Final = Api(9, "OffsetFetch", 7, 7, 6, since="2.5")

NO_OFFSET: Final = -1
"""Offset of a partition without a committed offset."""

_NO_ARRAY: Final = b"\x00"
"""A null array where the message is flexible."""

_FETCHED_OFFSET = struct.Struct(">iqi")  # partition, offset, leader epoch


class FetchedOffset(NamedTuple):
    topic: str
    partition: int
    offset: int  # next offset to read; `NO_OFFSET` for none
    metadata: str
    error_code: int


class OffsetsResponse(NamedTuple):
    throttle_time_ms: int
    error_code: int
    offsets: list[FetchedOffset]

    @property
    def error_codes(self) -> Collection[int]:
        return {self.error_code, *(offset.error_code for offset in self.offsets)}


def encode_offset_fetch_request(
    group_id: str, partitions: Iterable[tuple[str, int]] | None, *, require_stable: bool
) -> bytes:
    """Ask for a group's committed offsets of (topic, partition) pairs, or of all with None; version 7."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions or ():
        topics.setdefault(topic, []).append(partition)
    count = _NO_ARRAY if partitions is None else array_length(len(topics), flexible=True)
    fields = [string(group_id, flexible=True), count]
    for topic, numbers in topics.items():
        fields += [string(topic, flexible=True), array_length(len(numbers), flexible=True)]
        fields += [_INT32.pack(number) for number in numbers]
        fields.append(NO_TAGGED_FIELDS)
    fields += [b"\x01" if require_stable else b"\x00", NO_TAGGED_FIELDS]
    return b"".join(fields)


def decode_offset_fetch_response(payload: bytes | memoryview) -> OffsetsResponse:
    return decode("OffsetFetch v7", payload, flexible=True, read=_offsets)


def _offsets(reader: ResponseReader) -> OffsetsResponse:
    throttle_time_ms = reader.int32()
    offsets: list[FetchedOffset] = []
    for _ in range(reader.array_length()):
        topic = reader.string() or ""
        offsets += [_offset(reader, topic) for _ in range(reader.array_length())]
        reader.skip_tagged_fields()
    error_code = reader.int16()
    reader.skip_tagged_fields()
    return OffsetsResponse(throttle_time_ms, error_code, offsets)


def _offset(reader: ResponseReader, topic: str) -> FetchedOffset:
    partition, offset, _ = _FETCHED_OFFSET.unpack_from(reader.payload, reader.position)
    reader.position += _FETCHED_OFFSET.size
    metadata = reader.string() or ""
    fetched = FetchedOffset(topic, partition, offset, metadata, reader.int16())
    reader.skip_tagged_fields()
    return fetched
