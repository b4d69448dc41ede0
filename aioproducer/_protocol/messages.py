"""Requests besides Produce that every producer sends, and the used fields of their responses.

    ApiVersions      0-4    versions of requests that the broker supports
    Metadata         4-13   nodes, topics, leaders
    InitProducerId   0-6    an identity for idempotent writes, or of a transactional id

Requests name their topics; Metadata returns ids from version 10 on.

Why not the `kio` library, which has all messages: its decoder reserves memory for as many elements as an array claims
to have, so five bytes of a hostile or confused server end the whole process (seen with kio 0.6.5: "memory allocation
of 202006987688 bytes failed", then abort, which no `except` can catch); it refuses a whole response for one error code
newer than itself; and importing it blocks the event loop for a third of a second. The tests compare these encoders and
decoders with it, byte for byte, in every version.

Source: the JSON descriptions of the messages in Apache Kafka 4.3.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

from aioproducer._protocol.partition_views import Partitions, read_partitions
from aioproducer._protocol.primitives import NO_TAGGED_FIELDS, NO_TOPIC_ID, ResponseReader, array_length, decode, string


class Api(NamedTuple):
    """One of Kafka's requests, with the versions that this client supports."""

    key: int
    name: str
    min_version: int
    max_version: int
    first_flexible: int
    since: str = "2.1"  # oldest Kafka with a supported version, from 2.1 on

    def is_flexible(self, version: int) -> bool:
        """Whether this version has compact lengths and tagged fields."""
        return version >= self.first_flexible


class HandshakeRequest(NamedTuple):
    """A request of a connection that is not ready yet, or renews its session."""

    api: Api
    version: int
    body: bytes


PRODUCE: Final = Api(0, "Produce", 3, 13, 9)
METADATA: Final = Api(3, "Metadata", 4, 13, 9)
API_VERSIONS: Final = Api(18, "ApiVersions", 0, 4, 3)
INIT_PRODUCER_ID: Final = Api(22, "InitProducerId", 0, 6, 2)

SMALL_RESPONSE: Final = 64 * 1024
"""Bytes allowed for any response: ApiVersions of Kafka 4.3.1 has less than 1 KiB, an error message up to 32 KiB."""

_PER_REQUEST_BYTE: Final = 64  # a response repeats the names in the request, each with an error code or text
_BY_REQUEST: Final = {
    API_VERSIONS.key: 0,
    9: 2048,  # OffsetFetch: a partition takes four bytes there, and 4 KiB here (`offset.metadata.max.bytes`)
    10: _PER_REQUEST_BYTE,  # FindCoordinator
    INIT_PRODUCER_ID.key: _PER_REQUEST_BYTE,
    24: _PER_REQUEST_BYTE,  # AddPartitionsToTxn
    25: _PER_REQUEST_BYTE,  # AddOffsetsToTxn
    26: _PER_REQUEST_BYTE,  # EndTxn
    28: _PER_REQUEST_BYTE,  # TxnOffsetCommit
    71: _PER_REQUEST_BYTE,  # GetTelemetrySubscriptions
    72: 0,  # PushTelemetry
}
"""Response bytes per request byte, by api key; other requests describe any number of topics, nodes or transactions."""

_LAST_PORT: Final = 65_535
_LONGEST_HOST: Final = 255

_FEATURES_EPOCH: Final = 1  # tags of the response to ApiVersions
_FEATURES: Final = 2

_INT32 = struct.Struct(">i")
_ID_AND_EPOCH = struct.Struct(">qh")


class ApiVersionsResponse(NamedTuple):
    """Versions and features of a broker."""

    error_code: int
    versions: dict[int, tuple[int, int]]  # lowest and highest version by api key; not validated
    features_epoch: int = -1  # epoch of `features`: a larger one is newer; -1 if the broker reports no features
    features: Mapping[str, int] = MappingProxyType({})  # level by name of the cluster's finalized features


class Node(NamedTuple):
    """A broker in metadata."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def is_valid(self) -> bool:
        """Whether it is safe to connect to, and to log: brokers are not trusted."""
        return (
            self.id >= 0
            and 0 < self.port <= _LAST_PORT
            and 0 < len(self.host) <= _LONGEST_HOST
            and self.host.isprintable()
            and " " not in self.host
        )


class TopicView(NamedTuple):
    """Latest known state of a topic."""

    name: str
    topic_id: bytes  # 16 bytes; `NO_TOPIC_ID` if unknown
    partitions: Partitions  # by partition number; a partition missing in the response has no leader
    error_code: int = 0  # code of the last response; after an error, the partitions are the earlier ones


class MetadataResponse(NamedTuple):
    """The used fields of a Metadata response."""

    from_node: int  # broker that sent it; negative if known only by its bootstrap address
    nodes: tuple[Node, ...]
    topics: tuple[TopicView, ...]
    cluster_id: str | None = None
    controller_id: int = -1
    error_code: int = 0
    throttle_time_ms: int = 0

    @property
    def error_codes(self) -> Collection[int]:
        """Codes of the response and its topics: older brokers refuse a version per topic."""
        return {self.error_code, *(view.error_code for view in self.topics)}


class ProducerIdResponse(NamedTuple):
    throttle_time_ms: int
    error_code: int
    producer_id: int  # -1 with an error
    producer_epoch: int

    @property
    def error_codes(self) -> Collection[int]:
        return (self.error_code,)


def largest_response(api_key: int, request_bytes: int) -> int | None:
    """Return the largest valid size of a response; None for the largest frame.

    A response is held in memory until its frame is complete: without this bound, a hostile server could make the client
    hold a hundred megabytes per connection. For Produce see `largest_produce_response`.
    """
    per_byte = _BY_REQUEST.get(api_key)
    return None if per_byte is None else SMALL_RESPONSE + per_byte * request_bytes


def encode_api_versions_request(version: int, *, software_version: str) -> bytes:
    """Ask for the supported versions; versions 0-4. The software's name and version are for the broker's metrics."""
    if not API_VERSIONS.is_flexible(version):
        return b""
    return string("aioproducer", flexible=True) + string(software_version, flexible=True) + NO_TAGGED_FIELDS


def decode_api_versions_response(version: int, payload: bytes | memoryview) -> ApiVersionsResponse:
    """Read the supported versions, and the cluster's finalized features (KIP-584)."""
    return decode(
        f"ApiVersions v{version}",
        payload,
        flexible=API_VERSIONS.is_flexible(version),
        read=partial(_api_versions, version=version),
    )


def encode_metadata_request(version: int, topics: Sequence[str], *, allow_auto_topic_creation: bool = True) -> bytes:
    """Ask for nodes and some topics by name; versions 4-13. Without topics: only nodes."""
    flexible = METADATA.is_flexible(version)
    fields = [array_length(len(topics), flexible=flexible)]
    for name in topics:
        if version >= 10:  # noqa: PLR2004  # by name, without id
            fields.append(NO_TOPIC_ID)
        fields.append(string(name, flexible=flexible))
        if flexible:
            fields.append(NO_TAGGED_FIELDS)
    fields.append(b"\x01" if allow_auto_topic_creation else b"\x00")
    fields.append(_no_authorized_operations(version))
    return b"".join(fields)


def decode_metadata_response(version: int, payload: bytes | memoryview, *, from_node: int) -> MetadataResponse:
    """Read nodes, topics and leaders. They are not validated here, but by `cluster_updates.merge`."""
    return decode(
        f"Metadata v{version}",
        payload,
        flexible=METADATA.is_flexible(version),
        read=partial(_metadata, version=version, from_node=from_node),
    )


def encode_init_producer_id_request(
    version: int,
    *,
    transactional_id: str | None = None,
    transaction_timeout_ms: int = 2**31 - 1,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> bytes:
    """Ask for a producer id; versions 0-6. Without a transactional id any broker answers, and ignores the rest."""
    flexible = INIT_PRODUCER_ID.is_flexible(version)
    body = string(transactional_id, flexible=flexible) + _INT32.pack(transaction_timeout_ms)
    if version >= 3:  # noqa: PLR2004  # KIP-360
        body += _ID_AND_EPOCH.pack(producer_id, producer_epoch)
    if version >= 6:  # noqa: PLR2004  # KIP-939: neither two-phase commit, nor a prepared transaction to keep
        body += b"\x00\x00"
    return body + NO_TAGGED_FIELDS if flexible else body


def decode_init_producer_id_response(version: int, payload: bytes | memoryview) -> ProducerIdResponse:
    return decode(
        f"InitProducerId v{version}",
        payload,
        flexible=INIT_PRODUCER_ID.is_flexible(version),
        read=partial(_producer_id, version=version),
    )


def _api_versions(reader: ResponseReader, version: int) -> ApiVersionsResponse:
    error_code = reader.int16()
    versions: dict[int, tuple[int, int]] = {}
    for _ in range(reader.array_length()):
        key = reader.int16()
        versions[key] = reader.int16(), reader.int16()
        reader.skip_tagged_fields()
    if version >= 1:
        reader.int32()  # throttle time: brokers do not throttle this request
    epoch, features = -1, {}
    for tag in reader.tagged_fields():
        if tag == _FEATURES_EPOCH:
            epoch = reader.int64()
        elif tag == _FEATURES:
            features = dict(_feature(reader) for _ in range(reader.array_length()))
    return ApiVersionsResponse(error_code, versions, epoch, features)


def _feature(reader: ResponseReader) -> tuple[str, int]:
    name, level = reader.string() or "", reader.int16()
    reader.int16()  # lowest supported level
    reader.skip_tagged_fields()
    return name, level


def _no_authorized_operations(version: int) -> bytes:
    # Version 8 brought two flags, for the cluster's and the topics' operations; version 11 took the first away.
    if version >= 11:  # noqa: PLR2004
        return b"\x00" + NO_TAGGED_FIELDS
    if version >= 8:  # noqa: PLR2004
        return b"\x00\x00" + (NO_TAGGED_FIELDS if METADATA.is_flexible(version) else b"")
    return b""


def _metadata(reader: ResponseReader, version: int, from_node: int) -> MetadataResponse:
    throttle_time_ms = reader.int32()
    nodes = tuple(_node(reader) for _ in range(reader.array_length()))
    cluster_id = reader.string()
    controller_id = reader.int32()
    topics = tuple(_topic(reader, version) for _ in range(reader.array_length()))
    if 8 <= version <= 10:  # noqa: PLR2004
        reader.int32()  # the cluster's authorized operations, not asked for
    error_code = reader.int16() if version >= 13 else 0  # noqa: PLR2004
    reader.skip_tagged_fields()
    return MetadataResponse(from_node, nodes, topics, cluster_id, controller_id, error_code, throttle_time_ms)


def _node(reader: ResponseReader) -> Node:
    node = Node(reader.int32(), reader.string() or "", reader.int32(), reader.string())
    reader.skip_tagged_fields()
    return node


def _topic(reader: ResponseReader, version: int) -> TopicView:
    error_code = reader.int16()
    name = reader.string() or ""
    topic_id = reader.take(16) if version >= 10 else NO_TOPIC_ID  # noqa: PLR2004
    reader.boolean()  # internal
    partitions = read_partitions(reader, version)
    if version >= 8:  # noqa: PLR2004
        reader.int32()  # authorized operations, not asked for
    reader.skip_tagged_fields()
    return TopicView(name, topic_id, partitions, error_code)


def _producer_id(reader: ResponseReader, version: int) -> ProducerIdResponse:
    response = ProducerIdResponse(reader.int32(), reader.int16(), reader.int64(), reader.int16())
    if version >= 6:  # noqa: PLR2004
        reader.skip(_ID_AND_EPOCH.size)  # of a prepared transaction (KIP-939), which this client never makes
    reader.skip_tagged_fields()
    return response
