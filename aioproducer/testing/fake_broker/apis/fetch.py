"""Fetch 4-18: batches below the high watermark, or for readers of committed records below the last stable offset.

A read_committed consumer also gets the aborted transactions, and skips their records itself.

A response waits until there are `min_bytes`, a partition has an error, or `max_wait` is over. Fetch sessions (KIP-227)
are declined by session id 0, so every request names all its partitions.
"""

import uuid
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, Union, cast

from aioproducer.testing.fake_broker.apis.leader_epochs import endpoints_of, leader_hint
from aioproducer.testing.fake_broker.apis.list_offsets import leader_error
from aioproducer.testing.fake_broker.exchange import Exchange
from aioproducer.testing.fake_broker.log.partition import Partition
from aioproducer.testing.fake_broker.schedule import Appointment
from aioproducer.testing.fake_broker.wire import codes
from aioproducer.testing.fake_broker.wire.fetch_wire import (
    FIRST_WITH_SESSIONS,
    FIRST_WITH_TOPIC_IDS,
    FetchedPartition,
    encode_fetch,
)

if TYPE_CHECKING:
    from kio.schema.fetch.v12.request import FetchRequest as FetchByName
    from kio.schema.fetch.v18.request import FetchRequest as FetchById

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


def _asked_by_name(request: "FetchByName") -> list[_Asked]:
    return [
        _Asked(
            topic.topic, None, part.partition, part.fetch_offset, part.partition_max_bytes, part.current_leader_epoch
        )
        for topic in request.topics
        for part in topic.partitions
    ]


def _asked_by_id(request: "FetchById") -> list[_Asked]:
    return [
        _Asked(None, topic.topic_id, part.partition, part.fetch_offset, part.partition_max_bytes,
               part.current_leader_epoch)
        for topic in request.topics
        for part in topic.partitions
    ]  # fmt: skip


class _FetchJob:
    """One request, from the first read to its response."""

    def __init__(self, exchange: Exchange, request: AnyFetchRequest) -> None:
        self._exchange = exchange
        self._request = request
        by_id = exchange.version >= FIRST_WITH_TOPIC_IDS
        asked = _asked_by_id(cast("FetchById", request)) if by_id else _asked_by_name(cast("FetchByName", request))
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
        topic = self._exchange.cluster.topics.find(asked.topic, asked.topic_id)
        return topic.partition(asked.partition_index) if topic else None

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
            limit = fetched.last_stable_offset if is_committed_only else fetched.high_watermark
            fetched.log_start_offset = partition.log.start_offset
            fetched.batches = partition.log.read(
                asked.offset, limit=limit, max_bytes=max_bytes, at_least_one=at_least_one
            )
            if is_committed_only and asked.offset < limit:
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
