"""Requests of administrators about topics.

    CreateTopics      2-7   makes topics
    DeleteTopics      1-5   deletes topics by name
    DescribeConfigs   1-4   the settings of a topic
    Metadata                as in `messages.py`, with the replicas of each partition, which producers do not need

Source: the JSON descriptions of the messages in Apache Kafka 4.4; KIP-464 (the cluster's own number of partitions).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

from aioproducer._protocol.messages import METADATA, Api
from aioproducer._protocol.primitives import NO_TAGGED_FIELDS, ResponseReader, array_length, decode, string

CREATE_TOPICS: Final = Api(19, "CreateTopics", 2, 7, 5)
DELETE_TOPICS: Final = Api(20, "DeleteTopics", 1, 5, 4)
DESCRIBE_CONFIGS: Final = Api(32, "DescribeConfigs", 1, 4, 4)

OF_CLUSTER: Final = -1
"""As many partitions or replicas as the cluster gives a topic by itself."""

OF_TOPIC: Final = 1
"""The source of a setting that was given to the topic itself."""

_TOPIC: Final = 2  # the type of a resource
_ID_BYTES: Final = 16
_OF_SETTING = struct.Struct(">?b?")  # read only, source, sensitive
_PARTITION = struct.Struct(">hii")  # error, number, leader
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class NewTopic(NamedTuple):
    """A topic to make."""

    name: str
    partitions: int = OF_CLUSTER
    replicas: int = OF_CLUSTER
    settings: Mapping[str, str] = MappingProxyType({})


class TopicResult(NamedTuple):
    name: str
    error_code: int
    message: str | None = None


class TopicResults(NamedTuple):
    throttle_time_ms: int
    results: list[TopicResult]

    @property
    def error_codes(self) -> Collection[int]:
        return [result.error_code for result in self.results]


class Setting(NamedTuple):
    name: str
    value: str | None  # None if it is sensitive
    source: int


class SettingsResponse(NamedTuple):
    """The settings of one topic."""

    throttle_time_ms: int
    error_code: int
    message: str | None
    settings: list[Setting]

    @property
    def error_codes(self) -> Collection[int]:
        return (self.error_code,)


class DescribedPartition(NamedTuple):
    partition: int
    leader: int  # -1 if there is none
    replicas: list[int]
    in_sync: list[int]


class DescribedTopic(NamedTuple):
    name: str
    error_code: int
    is_internal: bool
    partitions: list[DescribedPartition]


class TopicsResponse(NamedTuple):
    throttle_time_ms: int
    error_code: int
    topics: list[DescribedTopic]

    @property
    def error_codes(self) -> Collection[int]:
        return {self.error_code, *(topic.error_code for topic in self.topics)}


def encode_create_topics_request(version: int, topic: NewTopic, *, timeout_ms: int) -> bytes:
    """Ask for one topic."""
    flexible = CREATE_TOPICS.is_flexible(version)
    end = NO_TAGGED_FIELDS if flexible else b""
    fields = [
        array_length(1, flexible=flexible),
        string(topic.name, flexible=flexible),
        _INT32.pack(topic.partitions),
        _INT16.pack(topic.replicas),
        array_length(0, flexible=flexible),  # the controller places the replicas
        array_length(len(topic.settings), flexible=flexible),
    ]
    for name, value in topic.settings.items():
        fields += [string(name, flexible=flexible), string(value, flexible=flexible), end]
    return b"".join([*fields, end, _INT32.pack(timeout_ms), b"\x00", end])


def decode_create_topics_response(version: int, payload: bytes | memoryview) -> TopicResults:
    flexible = CREATE_TOPICS.is_flexible(version)
    read = partial(_topic_results, read=partial(_created, version=version))
    return decode(f"CreateTopics v{version}", payload, flexible=flexible, read=read)


def encode_delete_topics_request(version: int, names: Sequence[str], *, timeout_ms: int) -> bytes:
    flexible = DELETE_TOPICS.is_flexible(version)
    fields = [array_length(len(names), flexible=flexible), *(string(name, flexible=flexible) for name in names)]
    return b"".join([*fields, _INT32.pack(timeout_ms), NO_TAGGED_FIELDS if flexible else b""])


def decode_delete_topics_response(version: int, payload: bytes | memoryview) -> TopicResults:
    flexible = DELETE_TOPICS.is_flexible(version)
    read = partial(_topic_results, read=partial(_deleted, version=version))
    return decode(f"DeleteTopics v{version}", payload, flexible=flexible, read=read)


def encode_describe_configs_request(version: int, topic: str) -> bytes:
    """Ask for all settings of one topic."""
    flexible = DESCRIBE_CONFIGS.is_flexible(version)
    end = NO_TAGGED_FIELDS if flexible else b""
    every = b"\x00" if flexible else _INT32.pack(-1)
    without_synonyms_and_texts = b"\x00\x00" if version >= 3 else b"\x00"  # noqa: PLR2004
    fields = [array_length(1, flexible=flexible), bytes([_TOPIC]), string(topic, flexible=flexible), every, end]
    return b"".join([*fields, without_synonyms_and_texts, end])


def decode_describe_configs_response(version: int, payload: bytes | memoryview) -> SettingsResponse:
    flexible = DESCRIBE_CONFIGS.is_flexible(version)
    read = partial(_settings, version=version)
    return decode(f"DescribeConfigs v{version}", payload, flexible=flexible, read=read)


def decode_topics_response(version: int, payload: bytes | memoryview) -> TopicsResponse:
    """Read the topics of a Metadata response."""
    flexible = METADATA.is_flexible(version)
    return decode(f"Metadata v{version}", payload, flexible=flexible, read=partial(_topics, version=version))


def _topic_results(reader: ResponseReader, read: Callable[[ResponseReader], TopicResult]) -> TopicResults:
    throttle_time_ms = reader.int32()
    results = [read(reader) for _ in range(reader.array_length())]
    reader.skip_tagged_fields()
    return TopicResults(throttle_time_ms, results)


def _created(reader: ResponseReader, version: int) -> TopicResult:
    name = reader.string() or ""
    if version >= 7:  # noqa: PLR2004
        reader.skip(_ID_BYTES)
    result = TopicResult(name, reader.int16(), reader.string())
    if version >= 5:  # noqa: PLR2004
        reader.skip(_INT32.size + _INT16.size)  # how many partitions and replicas
        for _ in range(reader.array_length()):
            _setting(reader)
            reader.skip_tagged_fields()
        reader.skip_tagged_fields()
    return result


def _deleted(reader: ResponseReader, version: int) -> TopicResult:
    name, code = reader.string() or "", reader.int16()
    result = TopicResult(name, code, reader.string() if version >= 5 else None)  # noqa: PLR2004
    reader.skip_tagged_fields()
    return result


def _setting(reader: ResponseReader) -> Setting:
    name, value = reader.string() or "", reader.string()
    _, source, is_sensitive = _OF_SETTING.unpack(reader.take(_OF_SETTING.size))
    return Setting(name, None if is_sensitive else value, source)


def _settings(reader: ResponseReader, version: int) -> SettingsResponse:
    throttle_time_ms = reader.int32()
    code, message, settings = 0, None, list[Setting]()
    for _ in range(reader.array_length()):
        code, message = reader.int16(), reader.string()
        reader.skip(1)  # the type
        reader.string()
        settings = [_described_setting(reader, version) for _ in range(reader.array_length())]
        reader.skip_tagged_fields()
    reader.skip_tagged_fields()
    return SettingsResponse(throttle_time_ms, code, message, settings)


def _described_setting(reader: ResponseReader, version: int) -> Setting:
    setting = _setting(reader)
    for _ in range(reader.array_length()):  # synonyms
        reader.string()
        reader.string()
        reader.skip(1)
        reader.skip_tagged_fields()
    if version >= 3:  # noqa: PLR2004
        reader.skip(1)  # the type
        reader.string()
    reader.skip_tagged_fields()
    return setting


def _topics(reader: ResponseReader, version: int) -> TopicsResponse:
    throttle_time_ms = reader.int32()
    for _ in range(reader.array_length()):
        _skip_node(reader)
    reader.string()  # the cluster's id
    reader.skip(_INT32.size)  # the controller
    topics = [_topic(reader, version) for _ in range(reader.array_length())]
    if 8 <= version <= 10:  # noqa: PLR2004
        reader.skip(_INT32.size)  # operations
    code = reader.int16() if version >= 13 else 0  # noqa: PLR2004
    reader.skip_tagged_fields()
    return TopicsResponse(throttle_time_ms, code, topics)


def _skip_node(reader: ResponseReader) -> None:
    reader.skip(_INT32.size)
    reader.string()
    reader.skip(_INT32.size)
    reader.string()
    reader.skip_tagged_fields()


def _topic(reader: ResponseReader, version: int) -> DescribedTopic:
    code, name = reader.int16(), reader.string() or ""
    if version >= 10:  # noqa: PLR2004
        reader.skip(_ID_BYTES)
    is_internal = reader.boolean()
    partitions = [_partition(reader, version) for _ in range(reader.array_length())]
    if version >= 8:  # noqa: PLR2004
        reader.skip(_INT32.size)  # operations
    reader.skip_tagged_fields()
    return DescribedTopic(name, code, is_internal, partitions)


def _partition(reader: ResponseReader, version: int) -> DescribedPartition:
    _, number, leader = _PARTITION.unpack(reader.take(_PARTITION.size))
    if version >= 7:  # noqa: PLR2004
        reader.skip(_INT32.size)  # the leader's epoch
    replicas, in_sync = _nodes(reader), _nodes(reader)
    if version >= 5:  # noqa: PLR2004
        _nodes(reader)  # those that are offline
    reader.skip_tagged_fields()
    return DescribedPartition(number, leader, replicas, in_sync)


def _nodes(reader: ResponseReader) -> list[int]:
    return [reader.int32() for _ in range(reader.array_length())]
