"""Fetch 4-18 and ListOffsets 1-11: what consumers read of a log, and its first and last offsets.

They read below the high watermark, or below the last stable offset if they want committed records only: then they also
get the aborted transactions, and skip their records themselves. Batches go out as they are, uncopied and undecoded.

A response of Fetch waits until there are `min_bytes`, a partition has an error, or `max_wait` is over. Fetch sessions
(KIP-227) are declined by session id 0, so every request names all its partitions.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, Union, cast

from aioproducer.testing.fake_broker.apis.leadership import (
    NodeEndpoint,
    encode_endpoints,
    endpoints_of,
    leader_error,
    leader_hint,
)
from aioproducer.testing.fake_broker.wire import codes
from aioproducer.testing.fake_broker.wire.primitives import Buffer, Writer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kio.schema.fetch.v12.request import FetchRequest as FetchByName
    from kio.schema.fetch.v18.request import FetchRequest as FetchById
    from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest

    from aioproducer.testing.fake_broker.exchange import Exchange
    from aioproducer.testing.fake_broker.log.partition import Partition
    from aioproducer.testing.fake_broker.log.producer_state import AbortedTransaction
    from aioproducer.testing.fake_broker.schedule import Appointment
    from aioproducer.testing.fake_broker.wire.messages import Tree

AnyFetchRequest: TypeAlias = Union["FetchByName", "FetchById"]
_READ_COMMITTED = 1
_PLACES = {codes.UNKNOWN_TOPIC_ID: 1, codes.UNKNOWN_TOPIC_OR_PARTITION: 2}
"""Place of partitions with these errors in a response: after all that exist, in any order of the request."""


def answer_fetch(exchange: Exchange) -> None:
    request = cast("AnyFetchRequest", exchange.request())
    error = exchange.injected_error() if exchange.version >= FIRST_WITH_SESSIONS else 0
    if error == 0 and request.session_id != 0 and request.session_epoch > 0:
        error = codes.FETCH_SESSION_ID_NOT_FOUND
    if error:
        parts = encode_fetch(exchange.version, [], flexible=exchange.is_flexible, error_code=error)
        exchange.reply(parts, exchange.now)
        return
    _FetchJob(exchange, request).start()


class _Asked(NamedTuple):
    topic: str | None
    topic_id: uuid.UUID | None
    partition_index: int
    offset: int
    max_bytes: int
    leader_epoch: int


class _FetchJob:
    """One request, from the first read to its response."""

    def __init__(self, exchange: Exchange, request: AnyFetchRequest) -> None:
        self._exchange = exchange
        self._request = request
        asked = [
            _Asked(
                getattr(topic, "topic", None),
                getattr(topic, "topic_id", None),
                part.partition,
                part.fetch_offset,
                part.partition_max_bytes,
                part.current_leader_epoch,
            )
            for topic in request.topics
            for part in topic.partitions
        ]
        self._asked = list({(each.topic, each.topic_id, each.partition_index): each for each in asked}.values())
        self._is_over = False
        self._deadline: Appointment | None = None

    def start(self) -> None:
        self._look(self._exchange.now)
        if not self._is_over:
            deadline = self._exchange.now + self._request.max_wait.total_seconds()
            self._deadline = self._exchange.cluster.schedule.at(deadline, self._time_out)

    def _look(self, now: float) -> None:
        if self._is_over:
            return
        found = self._read()
        enough = sum(partition.size_bytes for partition in found) >= self._request.min_bytes
        failed = any(partition.error_code for partition in found)
        if enough or failed or not found or self._request.max_wait.total_seconds() <= 0:
            self._answer(found, now)
            return
        for partition in self._partitions():
            partition.watch(self._look)

    def _time_out(self, now: float) -> None:
        if not self._is_over:
            self._answer(self._read(), now)

    def _answer(self, found: list[FetchedPartition], now: float) -> None:
        self._is_over = True
        self._stop_waiting()
        exchange = self._exchange
        parts = encode_fetch(
            exchange.version,
            found,
            flexible=exchange.is_flexible,
            throttle_ms=exchange.throttle_ms,
            endpoints=endpoints_of(exchange, [part.leader for part in found if part.leader is not None]),
        )
        exchange.reply(parts, now)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            for partition in self._partitions():
                partition.unwatch(self._look)

    def _partitions(self) -> list[Partition]:
        found = [self._partition(asked) for asked in self._asked]
        return [partition for partition in found if partition is not None]

    def _partition(self, asked: _Asked) -> Partition | None:
        return self._exchange.cluster.topics.partition(asked.topic, asked.partition_index, asked.topic_id)

    def _read(self) -> list[FetchedPartition]:
        room = int(self._request.max_bytes)
        found: list[FetchedPartition] = []
        for asked in self._asked:
            first = room == self._request.max_bytes
            fetched = self._read_one(asked, min(room, asked.max_bytes), at_least_one=first)
            room -= fetched.size_bytes
            found.append(fetched)
        return sorted(found, key=lambda fetched: _PLACES.get(fetched.error_code, 0))

    def _read_one(self, asked: _Asked, max_bytes: int, *, at_least_one: bool) -> FetchedPartition:
        partition = self._partition(asked)
        fetched = FetchedPartition(asked.topic, asked.topic_id, asked.partition_index)
        fetched.error_code = self._error(asked, partition)
        is_committed_only = self._request.isolation_level == _READ_COMMITTED
        if fetched.error_code in _PLACES or (fetched.error_code == 0 and is_committed_only):
            fetched.aborted = ()
        if partition is None:
            return fetched
        if fetched.error_code in {codes.NOT_LEADER_OR_FOLLOWER, codes.FENCED_LEADER_EPOCH}:
            fetched.leader = leader_hint(partition, self._exchange.broker)
        if fetched.error_code == 0:
            fetched.high_watermark, fetched.last_stable_offset = partition.high_watermark, partition.last_stable_offset
            end_offset = fetched.last_stable_offset if is_committed_only else fetched.high_watermark
            fetched.log_start_offset = partition.log.start_offset
            fetched.batches = partition.log.read(
                asked.offset, end_offset=end_offset, max_bytes=max_bytes, at_least_one=at_least_one
            )
            if is_committed_only and asked.offset < end_offset:
                end = partition.log.end_of_segment_with(asked.offset)
                fetched.aborted = partition.transactions.aborted_between(asked.offset, end)
        return fetched

    def _error(self, asked: _Asked, partition: Partition | None) -> int:
        topic = self._exchange.cluster.topics.find(asked.topic, asked.topic_id)
        if topic is not None and (injected := self._exchange.injected_error(topic.name, asked.partition_index)):
            return injected
        if partition is None:
            return codes.UNKNOWN_TOPIC_ID if asked.topic is None and topic is None else codes.UNKNOWN_TOPIC_OR_PARTITION
        error = leader_error(partition, self._exchange.broker.node_id, asked.leader_epoch)
        if error == 0 and not partition.log.start_offset <= asked.offset <= partition.log.end_offset:
            return codes.OFFSET_OUT_OF_RANGE
        return error


LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

FIRST_WITH = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""First version of each special timestamp."""


class _Found(NamedTuple):
    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1


def answer_list_offsets(exchange: Exchange) -> None:
    request = cast("ListOffsetsRequest", exchange.request())
    topics: list[Tree] = [
        {
            "name": topic.name,
            "partitions": [
                _partition(exchange, topic.name, asked, is_committed_only=request.isolation_level == _READ_COMMITTED)
                for asked in topic.partitions
            ],
        }
        for topic in request.topics
    ]
    exchange.reply_tree({"topics": topics}, exchange.now)


def _partition(exchange: Exchange, topic_name: str, asked: ListOffsetsPartition, *, is_committed_only: bool) -> Tree:
    partition = exchange.cluster.topics.partition(topic_name, asked.partition_index)
    error = exchange.injected_error(topic_name, asked.partition_index)
    if asked.timestamp < 0 and exchange.version < FIRST_WITH.get(asked.timestamp, exchange.version + 1):
        error = error or codes.UNSUPPORTED_VERSION
    error = error or leader_error(partition, exchange.broker.node_id, asked.current_leader_epoch)
    found = _Found()
    if partition is not None and not error:
        end = partition.last_stable_offset if is_committed_only else partition.high_watermark
        found = _find(partition, asked.timestamp, end)
    return {
        "partition_index": asked.partition_index,
        "error_code": error,
        "timestamp": found.timestamp,
        "offset": found.offset,
        "leader_epoch": found.leader_epoch,
    }


def _find(partition: Partition, timestamp: int, end: int) -> _Found:
    match timestamp:
        case _ if timestamp == LATEST:
            return _Found(end, -1, partition.leader_epoch)
        case _ if timestamp in {EARLIEST, EARLIEST_LOCAL}:
            return _Found(partition.log.start_offset, -1, partition.leader_epoch)
        case _ if timestamp == MAX_TIMESTAMP:
            highest = partition.log.highest_timestamp()
            record = highest if highest is not None and highest.offset < end else None
        case _ if timestamp >= 0:
            record = partition.log.find_time(timestamp, end_offset=end)
        case _:
            record = None
    return _Found(record.offset, record.timestamp, record.leader_epoch) if record else _Found()


FIRST_WITH_LOG_START = 5
FIRST_WITH_SESSIONS = 7
FIRST_WITH_PREFERRED_REPLICA = 11
FIRST_WITH_LEADER_HINT = 12
FIRST_WITH_TOPIC_IDS = 13
FIRST_WITH_ENDPOINTS = 16

_FRONT = struct.Struct(">ihqq")
_ABORTED = struct.Struct(">qq")
_LEADER = struct.Struct(">iib")
_CURRENT_LEADER_TAG = 1


@dataclass(slots=True)
class FetchedPartition:
    topic: str | None
    topic_id: uuid.UUID | None
    index: int
    error_code: int = 0
    high_watermark: int = -1
    log_start_offset: int = -1
    batches: Sequence[Buffer] = field(default_factory=list)
    last_stable_offset: int = -1
    aborted: Sequence[AbortedTransaction] | None = None
    """Aborted transactions that may have records here; None for read_uncommitted."""

    leader: tuple[int, int] | None = None  # node id and leader epoch, if another node leads the partition

    @property
    def size_bytes(self) -> int:
        return sum(len(batch) for batch in self.batches)


def encode_fetch(
    version: int,
    partitions: Sequence[FetchedPartition],
    *,
    flexible: bool,
    throttle_ms: int = 0,
    error_code: int = 0,
    endpoints: Sequence[NodeEndpoint] = (),
) -> list[Buffer]:
    """Encode a response; session id 0 declines a fetch session."""
    writer = Writer(flexible=flexible)
    writer.int32(throttle_ms)
    if version >= FIRST_WITH_SESSIONS:
        writer.int16(error_code)
        writer.int32(0)
    topics = [(key, list(group)) for key, group in groupby(partitions, key=lambda part: (part.topic, part.topic_id))]
    writer.count(len(topics))
    for (topic, topic_id), of_topic in topics:
        if version >= FIRST_WITH_TOPIC_IDS:
            writer.fixed((topic_id or uuid.UUID(int=0)).bytes)
        else:
            writer.string(topic)
        writer.count(len(of_topic))
        for partition in of_topic:
            _write_partition(writer, version, partition)
        writer.tagged_fields()
    has_endpoints = bool(endpoints) and version >= FIRST_WITH_ENDPOINTS
    writer.tagged_fields([(0, encode_endpoints(endpoints))] if has_endpoints else None)
    return writer.finish()


def _write_partition(writer: Writer, version: int, partition: FetchedPartition) -> None:
    offsets = (partition.high_watermark, partition.last_stable_offset)
    writer.pack(_FRONT, partition.index, partition.error_code, *offsets)
    if version >= FIRST_WITH_LOG_START:
        writer.int64(partition.log_start_offset)
    writer.count(-1 if partition.aborted is None else len(partition.aborted))
    for aborted in partition.aborted or ():
        writer.pack(_ABORTED, aborted.producer_id, aborted.first_offset)
        writer.tagged_fields()
    if version >= FIRST_WITH_PREFERRED_REPLICA:
        writer.int32(-1)
    writer.large(list(partition.batches), partition.size_bytes)
    hint = partition.leader if version >= FIRST_WITH_LEADER_HINT else None
    writer.tagged_fields([(_CURRENT_LEADER_TAG, _LEADER.pack(*hint, 0))] if hint else None)
