"""Metadata 0-13, ApiVersions 0-4 and InitProducerId 0-6 by hand: what every client asks first and again and again.

Everything else goes through the schemas (`messages.py`), which say the same of these three; a test compares.
"""

import struct
import uuid
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple, TypeAlias, TypedDict, cast

from aioproducer.testing.fake_broker.wire.primitives import MalformedRequestError, Reader, Writer

_Tree: TypeAlias = Mapping[str, object]
_VERSIONS = struct.Struct(">hhh")
_LEVELS = struct.Struct(">hh")
_EPOCH = struct.Struct(">q")
_PRODUCER_ID = struct.Struct(">qh")
_NO_OPERATIONS = -(2**31)
"""Nobody asked what the client may do."""

_LISTED = itemgetter("api_key", "min_version", "max_version")
_NO_PRODUCER = (-1, -1)
_FIRST_WITH_PRODUCER = 3
_FIRST_OF_TWO_PHASES = 6
_FIRST_WITH_SOFTWARE = 3


class ApiVersionsRequest(NamedTuple):
    """ApiVersions."""

    client_software_name: str = ""
    client_software_version: str = ""


class InitProducerIdRequest(NamedTuple):
    """InitProducerId."""

    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int
    producer_epoch: int


class MetadataRequestTopic(NamedTuple):
    """One topic that is asked for."""

    topic_id: uuid.UUID | None
    """None for the id of zeros, which means that the name counts."""

    name: str | None


class MetadataRequest(NamedTuple):
    """Metadata; what a version does not have is as if it were not asked for."""

    topics: Sequence[MetadataRequestTopic] | None
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False


class _ProducerIdTree(TypedDict):
    throttle_time: int
    error_code: int
    producer_id: int
    producer_epoch: int


class _ListedTree(TypedDict):
    api_key: int
    min_version: int
    max_version: int


class _SupportedTree(TypedDict):
    name: str
    min_version: int
    max_version: int


class _FinalizedTree(TypedDict):
    name: str
    max_version_level: int
    min_version_level: int


class _ApiVersionsTree(TypedDict, total=False):
    throttle_time: int
    error_code: int
    api_keys: Sequence[_ListedTree]
    supported_features: Sequence[_SupportedTree]
    finalized_features_epoch: int
    finalized_features: Sequence[_FinalizedTree]


class _BrokerTree(TypedDict):
    node_id: int
    host: str
    port: int
    rack: str | None


class _PartitionTree(TypedDict):
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: Sequence[int]
    isr_nodes: Sequence[int]
    offline_replicas: Sequence[int]


class _TopicTree(TypedDict, total=False):
    error_code: int
    name: str | None
    topic_id: uuid.UUID | None
    is_internal: bool
    partitions: Sequence[_PartitionTree]
    topic_authorized_operations: int


class _MetadataTree(TypedDict, total=False):
    throttle_time: int
    error_code: int
    brokers: Sequence[_BrokerTree]
    cluster_id: str | None
    controller_id: int
    topics: Sequence[_TopicTree]
    cluster_authorized_operations: int


# Requests


def decode_api_versions(reader: Reader, version: int) -> ApiVersionsRequest:
    """Read a request.

    Raises:
        MalformedRequestError: the bytes are not that request.
    """
    if version < _FIRST_WITH_SOFTWARE:
        return ApiVersionsRequest()
    request = ApiVersionsRequest(_text(reader), _text(reader))
    reader.skip_tagged_fields()
    return request


def decode_init_producer_id(reader: Reader, version: int) -> InitProducerIdRequest:
    """Read a request.

    Raises:
        MalformedRequestError: the bytes are not that request.
    """
    transactional_id, timeout_ms = reader.string(), reader.int32()
    producer = (reader.int64(), reader.int16()) if version >= _FIRST_WITH_PRODUCER else _NO_PRODUCER
    if version >= _FIRST_OF_TWO_PHASES:
        reader.fixed(2)  # whether the transaction is prepared by somebody else, and is to be kept
    reader.skip_tagged_fields()
    return InitProducerIdRequest(transactional_id, timeout_ms, *producer)


def decode_metadata(reader: Reader, version: int) -> MetadataRequest:
    """Read a request.

    Raises:
        MalformedRequestError: the bytes are not that request.
    """
    count = reader.count()
    if count < 0 and version == 0:
        raise MalformedRequestError("no topics at all")
    topics = None if count < 0 else [_requested_topic(reader, version) for _ in range(count)]
    may_create = reader.int8() != 0 if version >= 4 else True  # noqa: PLR2004  # field by field, as the schema says
    of_cluster = reader.int8() != 0 if 8 <= version <= 10 else False  # noqa: PLR2004  # as above
    of_topics = reader.int8() != 0 if version >= 8 else False  # noqa: PLR2004  # as above
    reader.skip_tagged_fields()
    return MetadataRequest(topics, may_create, of_cluster, of_topics)


def _requested_topic(reader: Reader, version: int) -> MetadataRequestTopic:
    has_id = version >= 10  # noqa: PLR2004  # as above
    topic_id = reader.fixed(16) if has_id else b""
    name = reader.string() if has_id else _text(reader)
    reader.skip_tagged_fields()
    return MetadataRequestTopic(uuid.UUID(bytes=topic_id) if any(topic_id) else None, name)


def _text(reader: Reader) -> str:
    text = reader.string()
    if text is None:
        raise MalformedRequestError(f"null before {reader.position} where a string is needed")
    return text


# Answers


def encode_init_producer_id(writer: Writer, version: int, answer: _Tree) -> bytes:
    """Write an answer."""
    tree = cast("_ProducerIdTree", answer)
    writer.int32(tree["throttle_time"])
    writer.int16(tree["error_code"])
    writer.pack(_PRODUCER_ID, tree["producer_id"], tree["producer_epoch"])
    if version >= _FIRST_OF_TWO_PHASES:
        writer.pack(_PRODUCER_ID, *_NO_PRODUCER)  # of a prepared transaction
    writer.tagged_fields()
    return bytes(writer.open)


def encode_api_versions(writer: Writer, version: int, answer: _Tree) -> bytes:
    """Write an answer."""
    tree = cast("_ApiVersionsTree", answer)
    listed = tuple(map(_LISTED, tree["api_keys"]))
    writer.int16(tree["error_code"])
    writer.fixed(_listed_versions(listed, flexible=writer.flexible))
    if version >= 1:
        writer.int32(tree["throttle_time"])
    writer.tagged_fields(_features(tree) if writer.flexible else None)
    return bytes(writer.open)


def _features(tree: _ApiVersionsTree) -> list[tuple[int, bytes]]:
    """The tagged fields; those that say nothing are left out."""
    supported = tuple((it["name"], it["min_version"], it["max_version"]) for it in tree.get("supported_features", ()))
    finalized = tuple(
        (it["name"], it["max_version_level"], it["min_version_level"]) for it in tree.get("finalized_features", ())
    )
    epoch = tree.get("finalized_features_epoch", -1)
    fields = [(0, _levels(supported) if supported else b""), (1, _EPOCH.pack(epoch) if epoch >= 0 else b"")]
    return [(tag, value) for tag, value in (*fields, (2, _levels(finalized) if finalized else b"")) if value]


@lru_cache
def _levels(features: tuple[tuple[str, int, int], ...]) -> bytes:
    writer = Writer(flexible=True)
    writer.count(len(features))
    for name, *levels in features:
        writer.string(name)
        writer.pack(_LEVELS, *levels)
        writer.tagged_fields()
    return bytes(writer.open)


@lru_cache
def _listed_versions(listed: tuple[tuple[int, int, int], ...], *, flexible: bool) -> bytes:
    writer = Writer(flexible=flexible)
    writer.count(len(listed))
    for each in listed:
        writer.pack(_VERSIONS, *each)
        writer.tagged_fields()
    return bytes(writer.open)


def encode_metadata(writer: Writer, version: int, answer: _Tree) -> bytes:
    """Write an answer."""
    tree = cast("_MetadataTree", answer)
    if version >= 3:  # noqa: PLR2004  # field by field, as the schema says
        writer.int32(tree["throttle_time"])
    _write_brokers(writer, version, tree["brokers"])
    if version >= 2:  # noqa: PLR2004  # as above
        writer.string(tree["cluster_id"])
    if version >= 1:
        writer.int32(tree["controller_id"])
    writer.count(len(tree["topics"]))
    for topic in tree["topics"]:
        _write_topic(writer, version, topic)
    if 8 <= version <= 10:  # noqa: PLR2004  # as above
        writer.int32(tree.get("cluster_authorized_operations", _NO_OPERATIONS))
    if version >= 13:  # noqa: PLR2004  # as above
        writer.int16(tree.get("error_code", 0))
    writer.tagged_fields()
    return bytes(writer.open)


def _write_brokers(writer: Writer, version: int, brokers: Sequence[_BrokerTree]) -> None:
    writer.count(len(brokers))
    for broker in brokers:
        writer.int32(broker["node_id"])
        writer.string(broker["host"])
        writer.int32(broker["port"])
        if version >= 1:
            writer.string(broker["rack"])
        writer.tagged_fields()


def _write_topic(writer: Writer, version: int, topic: _TopicTree) -> None:
    name, topic_id = topic["name"], topic["topic_id"]
    writer.int16(topic["error_code"])
    writer.string(name if name is not None or version >= 12 else "")  # noqa: PLR2004  # as above
    if version >= 10:  # noqa: PLR2004  # as above
        writer.fixed(topic_id.bytes if topic_id is not None else bytes(16))
    if version >= 1:
        writer.open.append(topic["is_internal"])
    writer.count(len(topic["partitions"]))
    for partition in topic["partitions"]:
        _write_partition(writer, version, partition)
    if version >= 8:  # noqa: PLR2004  # as above
        writer.int32(topic.get("topic_authorized_operations", _NO_OPERATIONS))
    writer.tagged_fields()


_PARTITION = struct.Struct(">hii")
_PARTITION_WITH_EPOCH = struct.Struct(">hiii")


def _write_partition(writer: Writer, version: int, partition: _PartitionTree) -> None:
    place = (partition["error_code"], partition["partition_index"], partition["leader_id"])
    if version >= 7:  # noqa: PLR2004  # as above
        writer.pack(_PARTITION_WITH_EPOCH, *place, partition["leader_epoch"])
    else:
        writer.pack(_PARTITION, *place)
    offline = (partition["offline_replicas"],) if version >= 5 else ()  # noqa: PLR2004  # as above
    for nodes in (partition["replica_nodes"], partition["isr_nodes"], *offline):
        writer.count(len(nodes))
        writer.open += struct.pack(f">{len(nodes)}i", *nodes)
    writer.tagged_fields()
