"""TxnOffsetCommit: the offsets of a group that become valid with a transaction.

Source: TxnOffsetCommitRequest.json of Apache Kafka 4.3; KIP-98, KIP-447 (who in the group says it), KIP-890.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from aioproducer.protocol.messages import Api
from aioproducer.protocol.request_fields import NO_TAGGED_FIELDS, array_length, string
from aioproducer.protocol.response_reader import decode
from aioproducer.protocol.transaction_messages import PartitionsAnswer, TransactionIdentity, partition_results
from aioproducer.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

TXN_OFFSET_COMMIT: Final = Api(28, "TxnOffsetCommit", 0, 5, 3)

_FIRST_WITH_LEADER_EPOCH: Final = 2
_FIRST_WITH_MEMBER: Final = 3
_NO_LEADER_EPOCH: Final = -1

_INT32 = struct.Struct(">i")
_ID_AND_EPOCH = struct.Struct(">qh")
_OFFSET = struct.Struct(">iq")


def encode_txn_offset_commit_request(
    version: int,
    *,
    identity: TransactionIdentity,
    member: ConsumerGroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> bytes:
    """Commit offsets with the transaction; versions 0-5. The member is told from version 3 on.

    Args:
        version: 0 to 5.
        identity: of the transaction.
        member: of the group.
        offsets: (topic, partition) -> the next offset to read.
    """
    flexible = TXN_OFFSET_COMMIT.is_flexible(version)
    topics: dict[str, list[tuple[int, OffsetAndMetadata]]] = {}
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


def decode_txn_offset_commit_response(version: int, payload: bytes | memoryview) -> PartitionsAnswer:
    """Read the code of each partition.

    Raises:
        ProtocolError: not such an answer.
    """
    flexible = TXN_OFFSET_COMMIT.is_flexible(version)
    return decode(f"TxnOffsetCommit v{version}", payload, flexible=flexible, read=partition_results)


def _member_fields(version: int, member: ConsumerGroupMetadata) -> bytes:
    if version < _FIRST_WITH_MEMBER:
        return b""
    generation = _INT32.pack(member.generation_id)
    return generation + string(member.member_id, flexible=True) + string(member.group_instance_id, flexible=True)


def _offset_fields(version: int, partition: int, offset: OffsetAndMetadata) -> bytes:
    flexible = TXN_OFFSET_COMMIT.is_flexible(version)
    fields = _OFFSET.pack(partition, offset.offset)
    if version >= _FIRST_WITH_LEADER_EPOCH:
        fields += _INT32.pack(_NO_LEADER_EPOCH)
    fields += string(offset.metadata, flexible=flexible)
    return fields + NO_TAGGED_FIELDS if flexible else fields
