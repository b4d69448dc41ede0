"""Produce 3-13 as a broker sees it, by hand because every record passes here.

Since 9 the messages are flexible, since 13 topics go by id; 5 added the log's start to the response, 8 the errors of
single records, 10 the current leader of a partition that has moved (KIP-951).
"""

import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from aioproducer.testing.fake_broker.effects import Buffer
from aioproducer.testing.fake_broker.log.batch_checks import BatchRefusedError
from aioproducer.testing.fake_broker.wire.primitives import Reader, Writer

FIRST_WITH_LOG_START = 5
FIRST_WITH_RECORD_ERRORS = 8
FIRST_WITH_LEADER_HINT = 10
FIRST_WITH_TOPIC_IDS = 13

_RESULT = struct.Struct(">ihqq")
_LEADER = struct.Struct(">iib")
_NO_ERROR = b"\x01\x00\x00"  # no record errors, no message, no tagged fields; compact


_TopicKey: TypeAlias = tuple[str | None, uuid.UUID | None]


class ProducedPartition(NamedTuple):
    topic: str | None
    topic_id: uuid.UUID | None
    partition_index: int
    records: memoryview | None  # a slice of the frame


class DecodedProduce(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    partitions: list[ProducedPartition]  # each partition once, with its last batch in the request, topic by topic
    as_sent: list[ProducedPartition]  # all of them, in the order of the request


@dataclass(slots=True)
class ProduceResult:
    """The response for one partition; -1 where there is nothing to say."""

    topic: str | None
    topic_id: uuid.UUID | None
    index: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    error_message: str | None = None
    leader: tuple[int, int] | None = None  # node id and leader epoch, if another node leads the partition

    answered_instead: BatchRefusedError | None = None
    """The error of another batch of the same partition, which replaces this result."""

    def refuse(self, refusal: BatchRefusedError) -> None:
        self.error_code = refusal.code
        self.record_errors = refusal.record_errors
        self.error_message = refusal.message


class NodeEndpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


def decode_produce(reader: Reader, version: int) -> DecodedProduce:
    transactional_id, acks, timeout_ms = reader.string(), reader.int16(), reader.int32()
    as_sent: list[ProducedPartition] = []
    for _ in range(reader.count()):
        topic, topic_id = _topic(reader, version)
        for _ in range(reader.count()):
            as_sent.append(ProducedPartition(topic, topic_id, reader.int32(), reader.bytes_view()))
            reader.skip_tagged_fields()
        reader.skip_tagged_fields()
    reader.skip_tagged_fields()
    return DecodedProduce(transactional_id, acks, timeout_ms, _each_once(as_sent), as_sent)


def _each_once(as_sent: list[ProducedPartition]) -> list[ProducedPartition]:
    if len(as_sent) == 1:
        return as_sent
    by_topic: dict[_TopicKey, dict[int, ProducedPartition]] = {}
    for produced in as_sent:
        by_topic.setdefault((produced.topic, produced.topic_id), {})[produced.partition_index] = produced
    return [partition for of_topic in by_topic.values() for partition in of_topic.values()]


def _topic(reader: Reader, version: int) -> _TopicKey:
    if version >= FIRST_WITH_TOPIC_IDS:
        return None, _topic_id(reader.fixed(16))
    return reader.string(), None


@lru_cache
def _topic_id(data: bytes) -> uuid.UUID:
    return uuid.UUID(bytes=data)


def encode_produce(
    writer: Writer,
    version: int,
    results: Sequence[ProduceResult],
    *,
    throttle_ms: int = 0,
    endpoints: Sequence[NodeEndpoint] = (),
) -> list[Buffer]:
    """Encode a response; adjacent results of one topic share its name."""
    topics = _by_topic(results)
    writer.count(len(topics))
    for (topic, topic_id), of_topic in topics:
        if version >= FIRST_WITH_TOPIC_IDS:
            writer.fixed((topic_id or uuid.UUID(int=0)).bytes)
        else:
            writer.string(topic)
        writer.count(len(of_topic))
        for result in of_topic:
            _write_result(writer, version, result)
        writer.tagged_fields()
    writer.int32(throttle_ms)
    writer.tagged_fields([(0, encode_endpoints(endpoints))] if endpoints else None)
    return writer.finish()


def _by_topic(results: Sequence[ProduceResult]) -> list[tuple[_TopicKey, list[ProduceResult]]]:
    topics: list[tuple[_TopicKey, list[ProduceResult]]] = []
    for result in results:
        key = (result.topic, result.topic_id)
        if not topics or topics[-1][0] != key:
            topics.append((key, []))
        topics[-1][1].append(result)
    return topics


def _write_result(writer: Writer, version: int, result: ProduceResult) -> None:
    writer.pack(_RESULT, result.index, result.error_code, result.base_offset, result.log_append_time)
    if version >= FIRST_WITH_LOG_START:
        writer.int64(result.log_start_offset)
    if version >= FIRST_WITH_RECORD_ERRORS:
        if writer.flexible and result.leader is None and result.error_message is None and not result.record_errors:
            writer.open += _NO_ERROR
            return
        writer.count(len(result.record_errors))
        for index, message in result.record_errors:
            writer.int32(index)
            writer.string(message)
            writer.tagged_fields()
        writer.string(result.error_message)
    hint = result.leader if version >= FIRST_WITH_LEADER_HINT else None
    writer.tagged_fields([(0, _LEADER.pack(*hint, 0))] if hint else None)


def encode_endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """Encode the tagged field with the hinted leaders' addresses, for Produce and Fetch."""
    writer = Writer(flexible=True)
    writer.count(len(endpoints))
    for endpoint in endpoints:
        writer.int32(endpoint.node_id)
        writer.string(endpoint.host)
        writer.int32(endpoint.port)
        writer.string(endpoint.rack)
        writer.tagged_fields()
    return b"".join(writer.finish())
