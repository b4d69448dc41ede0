"""Requests of transactions, and the used fields of their responses.

    FindCoordinator      0-6   coordinator of a transactional id, or of a group
    AddPartitionsToTxn   0-3   before the first Produce to a partition (transactions V1; later versions are for brokers)
    AddOffsetsToTxn      0-4   before the offsets of a group (transactions V1)
    EndTxn               0-5   commit or abort; from version 5 on it returns the identity of the next transaction
    TxnOffsetCommit      0-5   offsets that become valid with the transaction
    OffsetFetch          7     committed offsets of a group; with `require_stable` none that a transaction may change
    InitProducerId       0-6   the identity of a transactional id (`messages.py`)

Source: the JSON descriptions of the messages in Apache Kafka 4.3; KIP-98, KIP-447, KIP-699, KIP-890.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar

from aioproducer._protocol.messages import Api, Node
from aioproducer._protocol.primitives import (
    NO_TAGGED_FIELDS,
    ResponseReader,
    array_length,
    decode,
    string,
    topic_partitions,
)

FIND_COORDINATOR: Final = Api(10, "FindCoordinator", 0, 6, 3)
ADD_PARTITIONS_TO_TXN: Final = Api(24, "AddPartitionsToTxn", 0, 3, 3)
ADD_OFFSETS_TO_TXN: Final = Api(25, "AddOffsetsToTxn", 0, 4, 3)
END_TXN: Final = Api(26, "EndTxn", 0, 5, 3)
TXN_OFFSET_COMMIT: Final = Api(28, "TxnOffsetCommit", 0, 5, 3)
OFFSET_FETCH: Final = Api(9, "OffsetFetch", 7, 7, 6, since="2.5")  # the first version with `require_stable`

NO_OFFSET: Final = -1  # offset of a partition without a committed one

_FIRST_WITH_KEY_TYPE: Final = 1
_FIRST_BATCHED: Final = 4
_FIRST_WITH_NEXT_IDENTITY: Final = 5
_FIRST_WITH_LEADER_EPOCH: Final = 2
_FIRST_WITH_MEMBER: Final = 3
_NO_LEADER_EPOCH: Final = -1
_NO_ARRAY: Final = b"\x00"  # null, where the message is flexible

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


class CoordinatorType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


class TransactionIdentity(NamedTuple):
    """First fields of every request of a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class CoordinatorResponse(NamedTuple):
    throttle_time_ms: int
    error_code: int
    node_id: int
    host: str
    port: int

    @property
    def node(self) -> Node:
        """The coordinator, with its own address."""
        return Node(self.node_id, self.host, self.port)

    @property
    def error_codes(self) -> Collection[int]:
        return (self.error_code,)


class CoordinatorsResponse(NamedTuple):
    """Coordinators by key."""

    throttle_time_ms: int
    coordinators: Mapping[str, CoordinatorResponse]

    @property
    def error_codes(self) -> Collection[int]:
        return [each.error_code for each in self.coordinators.values()]


class PartitionResult(NamedTuple):
    topic: str
    partition: int
    error_code: int


class PartitionsResponse(NamedTuple):
    throttle_time_ms: int
    results: list[PartitionResult]

    @property
    def error_codes(self) -> Collection[int]:
        return [result.error_code for result in self.results]


class CodeResponse(NamedTuple):
    throttle_time_ms: int
    error_code: int

    @property
    def error_codes(self) -> Collection[int]:
        return (self.error_code,)


class EndTxnResponse(NamedTuple):
    throttle_time_ms: int
    error_code: int
    producer_id: int = -1  # of the next transaction; -1 before version 5, and after an error
    producer_epoch: int = -1

    @property
    def error_codes(self) -> Collection[int]:
        return (self.error_code,)


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


# FindCoordinator


def encode_find_coordinator_request(version: int, key: str, kind: CoordinatorType) -> bytes:
    """Ask for the coordinator of a transactional id or a group; versions 0-6. Version 0 only knows groups."""
    flexible = FIND_COORDINATOR.is_flexible(version)
    name = string(key, flexible=flexible)
    if version >= _FIRST_BATCHED:
        return bytes((kind,)) + array_length(1, flexible=True) + name + NO_TAGGED_FIELDS
    body = name + bytes((kind,)) if version >= _FIRST_WITH_KEY_TYPE else name
    return body + NO_TAGGED_FIELDS if flexible else body


def encode_find_coordinators_request(keys: Collection[str], kind: CoordinatorType) -> bytes:
    """Ask for the coordinators of transactional ids or groups; versions 4-6."""
    names = [string(key, flexible=True) for key in keys]
    return b"".join([bytes((kind,)), array_length(len(names), flexible=True), *names, NO_TAGGED_FIELDS])


def decode_find_coordinators_response(payload: bytes | memoryview) -> CoordinatorsResponse:
    """Read the coordinators of several keys; versions 4-6."""
    return decode("FindCoordinator v4", payload, flexible=True, read=_coordinators_of)


def _coordinators_of(reader: ResponseReader) -> CoordinatorsResponse:
    throttle_time_ms = reader.int32()
    found = dict(_named_coordinator(reader, throttle_time_ms) for _ in range(reader.array_length()))
    reader.skip_tagged_fields()
    return CoordinatorsResponse(throttle_time_ms, found)


def decode_find_coordinator_response(version: int, payload: bytes | memoryview, *, key: str) -> CoordinatorResponse:
    """Read the coordinator of `key`."""
    return decode(
        f"FindCoordinator v{version}",
        payload,
        flexible=FIND_COORDINATOR.is_flexible(version),
        read=partial(_coordinator_of, version=version, key=key),
    )


def _coordinator_of(reader: ResponseReader, version: int, key: str) -> CoordinatorResponse:
    if version < _FIRST_BATCHED:
        throttle_time_ms = reader.int32() if version >= _FIRST_WITH_KEY_TYPE else 0
        response = _one_coordinator(reader, version, throttle_time_ms)
        reader.skip_tagged_fields()
        return response
    found = _coordinators_of(reader).coordinators
    if key not in found:
        raise IndexError(f"it says nothing of {key!r}")
    return found[key]


def _one_coordinator(reader: ResponseReader, version: int, throttle_time_ms: int) -> CoordinatorResponse:
    error_code = reader.int16()
    if version >= _FIRST_WITH_KEY_TYPE:
        reader.string()  # error message
    return CoordinatorResponse(throttle_time_ms, error_code, reader.int32(), reader.string() or "", reader.int32())


def _named_coordinator(reader: ResponseReader, throttle_time_ms: int) -> tuple[str, CoordinatorResponse]:
    key, node_id, host, port = reader.string() or "", reader.int32(), reader.string() or "", reader.int32()
    error_code = reader.int16()
    reader.string()  # error message
    reader.skip_tagged_fields()
    return key, CoordinatorResponse(throttle_time_ms, error_code, node_id, host, port)


# AddPartitionsToTxn


def encode_add_partitions_request(
    version: int, identity: TransactionIdentity, partitions: Collection[tuple[str, int]]
) -> bytes:
    """Add (topic, partition) pairs to the transaction; versions 0-3."""
    flexible = ADD_PARTITIONS_TO_TXN.is_flexible(version)
    body = identity_fields(identity, flexible=flexible) + topic_partitions(partitions, flexible=flexible)
    return body + NO_TAGGED_FIELDS if flexible else body


def decode_add_partitions_response(version: int, payload: bytes | memoryview) -> PartitionsResponse:
    return decode(
        f"AddPartitionsToTxn v{version}",
        payload,
        flexible=ADD_PARTITIONS_TO_TXN.is_flexible(version),
        read=partition_results,
    )


def partition_results(reader: ResponseReader) -> PartitionsResponse:
    response = PartitionsResponse(reader.int32(), reader.by_topic(_partition_result))
    reader.skip_tagged_fields()
    return response


def _partition_result(reader: ResponseReader, topic: str) -> PartitionResult:
    result = PartitionResult(topic, reader.int32(), reader.int16())
    reader.skip_tagged_fields()
    return result


# AddOffsetsToTxn


def encode_add_offsets_request(version: int, identity: TransactionIdentity, group_id: str) -> bytes:
    """Add a group to the transaction; versions 0-4."""
    flexible = ADD_OFFSETS_TO_TXN.is_flexible(version)
    body = identity_fields(identity, flexible=flexible) + string(group_id, flexible=flexible)
    return body + NO_TAGGED_FIELDS if flexible else body


def decode_add_offsets_response(version: int, payload: bytes | memoryview) -> CodeResponse:
    flexible = ADD_OFFSETS_TO_TXN.is_flexible(version)
    return decode(f"AddOffsetsToTxn v{version}", payload, flexible=flexible, read=_code)


def _code(reader: ResponseReader) -> CodeResponse:
    response = CodeResponse(reader.int32(), reader.int16())
    reader.skip_tagged_fields()
    return response


# EndTxn


def encode_end_txn_request(version: int, identity: TransactionIdentity, *, is_commit: bool) -> bytes:
    flexible = END_TXN.is_flexible(version)
    body = identity_fields(identity, flexible=flexible) + (b"\x01" if is_commit else b"\x00")
    return body + NO_TAGGED_FIELDS if flexible else body


def decode_end_txn_response(version: int, payload: bytes | memoryview) -> EndTxnResponse:
    """Read the code and, from version 5 on, the identity of the next transaction."""
    return decode(
        f"EndTxn v{version}", payload, flexible=END_TXN.is_flexible(version), read=partial(_end_txn, version=version)
    )


def _end_txn(reader: ResponseReader, version: int) -> EndTxnResponse:
    response = EndTxnResponse(reader.int32(), reader.int16())
    if version >= _FIRST_WITH_NEXT_IDENTITY:
        response = response._replace(producer_id=reader.int64(), producer_epoch=reader.int16())
    reader.skip_tagged_fields()
    return response


def identity_fields(identity: TransactionIdentity, *, flexible: bool) -> bytes:
    name = string(identity.transactional_id, flexible=flexible)
    return name + _ID_AND_EPOCH.pack(identity.producer_id, identity.producer_epoch)


# TxnOffsetCommit


def encode_txn_offset_commit_request(
    version: int,
    *,
    identity: TransactionIdentity,
    member: GroupMember,
    offsets: Mapping[PartitionT, Position],
) -> bytes:
    """Commit the next offsets to read with the transaction; versions 0-5."""
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


# OffsetFetch


def encode_offset_fetch_request(
    group_id: str, partitions: Iterable[tuple[str, int]] | None, *, require_stable: bool
) -> bytes:
    """Ask for a group's committed offsets of (topic, partition) pairs, or of all with None; version 7."""
    topics = _NO_ARRAY if partitions is None else topic_partitions(partitions, flexible=True)
    stable = b"\x01" if require_stable else b"\x00"
    return string(group_id, flexible=True) + topics + stable + NO_TAGGED_FIELDS


def decode_offset_fetch_response(payload: bytes | memoryview) -> OffsetsResponse:
    return decode("OffsetFetch v7", payload, flexible=True, read=_offsets)


def _offsets(reader: ResponseReader) -> OffsetsResponse:
    throttle_time_ms, offsets, error_code = reader.int32(), reader.by_topic(_offset), reader.int16()
    reader.skip_tagged_fields()
    return OffsetsResponse(throttle_time_ms, error_code, offsets)


def _offset(reader: ResponseReader, topic: str) -> FetchedOffset:
    partition, offset = reader.int32(), reader.int64()
    reader.int32()  # leader epoch
    fetched = FetchedOffset(topic, partition, offset, reader.string() or "", reader.int16())
    reader.skip_tagged_fields()
    return fetched
