"""Produce 3-13: check, append, wait for the copies, respond.

The messages are read and written by hand because every record passes here. Since 9 they are flexible, since 13 topics
go by id; 5 added the log's start to the response, 8 the errors of single records, 10 the current leader (KIP-951).

acks=0    no response; if any partition failed, the connection closes
acks=1    a response after the append
acks=all  a response when the high watermark has passed the batch, or 7 when `timeout_ms` is over,
20 when the ISR has become too small meanwhile, 6 when the leader has moved; all three after the append
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from aioproducer.records import TopicPartition
from aioproducer.testing.fake_broker.apis.leadership import NodeEndpoint, encode_endpoints, endpoints_of, leader_hint
from aioproducer.testing.fake_broker.apis.transactions import (
    FIRST_PRODUCE_THAT_ADDS,
    NOT_ADDED,
    admit,
    meets_markers,
    produce_error,
)
from aioproducer.testing.fake_broker.faults import FaultKind
from aioproducer.testing.fake_broker.log.batch_checks import (
    BatchRefusedError,
    accepted_batch,
    begins_transactional,
    breaks_request,
    single_batch,
    transactional_producer,
)
from aioproducer.testing.fake_broker.log.record_batch import BatchHeader, LoggedBatch, placed, read_header
from aioproducer.testing.fake_broker.transaction_coordinator import Claim
from aioproducer.testing.fake_broker.wire import codes
from aioproducer.testing.fake_broker.wire.primitives import Buffer, Reader, Writer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer.testing.fake_broker.exchange import Exchange
    from aioproducer.testing.fake_broker.log.partition import Partition
    from aioproducer.testing.fake_broker.schedule import Appointment
    from aioproducer.testing.fake_broker.topics import Topic

_ALL = -1

_LOOK_FOR_MARKERS_S = 0.020  # `add.partitions.to.txn.retry.backoff.ms`
_LOOKS_FOR_MARKERS = 5  # so many fit into `add.partitions.to.txn.retry.backoff.max.ms`
_SILENT_ABOUT_LOG_START = frozenset({2, 3, 6, 10, 18, 53, 76, 100})


def answer_produce(exchange: Exchange) -> None:
    request = decode_produce(exchange.reader(), exchange.version)
    _ProduceJob(exchange, request).start(exchange.now)


@dataclass(slots=True)
class _Waiting:
    """An appended batch that is not on all copies yet."""

    result: ProduceResult
    partition: Partition
    end: int
    min_insync_replicas: int

    def is_done(self, node_id: int) -> bool:
        if self.partition.is_deleted:
            self.result.error_code = codes.UNKNOWN_TOPIC_OR_PARTITION
        elif self.partition.leader != node_id:
            self.result.error_code = codes.NOT_LEADER_OR_FOLLOWER
        elif self.partition.high_watermark < self.end:
            return False
        elif len(self.partition.isr) < self.min_insync_replicas:
            self.result.error_code = codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return True


class _ProduceJob:
    """One request, from its first append to its response."""

    def __init__(self, exchange: Exchange, request: DecodedProduce) -> None:
        self._exchange = exchange
        self._request = request
        self._results: list[ProduceResult] = []
        self._waiting: list[_Waiting] = []
        self._is_over = False
        self._deadline: Appointment | None = None
        self._looks_left = _LOOKS_FOR_MARKERS

    def start(self, now: float) -> None:
        """Append everything once no markers are missing; respond then, or when the batches are on all copies."""
        exchange = self._exchange
        if exchange.incarnation != exchange.broker.incarnation:
            return
        exchange.now = now
        if any(produced.records is None and self._finds(produced) for produced in self._request.partitions):
            return  # Kafka fails on null records so badly that it neither answers nor closes the connection
        failure = self._failure()
        if self._looks_left and failure is None and any(map(self._meets_markers, self._request.partitions)):
            self._looks_left -= 1
            exchange.cluster.schedule.at(now + _LOOK_FOR_MARKERS_S, self.start)
            return
        for produced in self._request.partitions:
            result = ProduceResult(produced.topic, produced.topic_id, produced.partition_index)
            self._results.append(result)
            try:
                self._append(produced, result, failure)
            except BatchRefusedError as refusal:
                result.refuse(refusal)
        self._look_again(self._exchange.now)
        if not self._is_over:
            deadline = self._exchange.now + self._request.timeout_ms / 1000
            self._deadline = self._exchange.cluster.schedule.at(deadline, self._time_out)

    def _failure(self) -> BatchRefusedError | None:
        """Return the error that one partition causes for all of them; None if each is checked on its own."""
        is_transactional = breaks = False
        brought = []
        for part in self._request.as_sent:
            if not part.records:
                continue
            brought.append(part.records)
            try:
                is_transactional = is_transactional or begins_transactional(part.records)
            except BatchRefusedError as refusal:
                return refusal
            breaks = breaks or (breaks_request(part.records, self._exchange.version) and self._finds(part))
        if is_transactional and self._request.transactional_id is None:
            return BatchRefusedError(codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if is_transactional and len({transactional_producer(records) for records in brought} - {None}) > 1:
            return BatchRefusedError(codes.INVALID_PRODUCER_ID_MAPPING)
        return BatchRefusedError(codes.UNKNOWN_SERVER_ERROR) if breaks else None

    def _finds(self, produced: ProducedPartition) -> bool:
        topics = self._exchange.cluster.topics
        return topics.partition(produced.topic, produced.partition_index, produced.topic_id) is not None

    def _meets_markers(self, produced: ProducedPartition) -> bool:
        """Whether a partition cannot be added to the transaction yet; since Produce 12 the leader retries that."""
        exchange, cluster = self._exchange, self._exchange.cluster
        if exchange.version < FIRST_PRODUCE_THAT_ADDS or not produced.records or not self._request.transactional_id:
            return False
        partition = cluster.topics.partition(produced.topic, produced.partition_index, produced.topic_id)
        producer = transactional_producer(produced.records)
        if producer is None or partition is None or partition.leader != exchange.broker.node_id:
            return False
        claim = Claim(self._request.transactional_id, *producer)
        return not partition.is_in_transaction(*producer) and meets_markers(cluster, claim, exchange.now)

    # Appending

    def _append(self, produced: ProducedPartition, result: ProduceResult, failure: BatchRefusedError | None) -> None:
        if failure is not None:
            raise failure
        topic = self._exchange.cluster.topics.find(produced.topic, produced.topic_id)
        name = topic.name if topic else produced.topic
        if self._is_refused_by_fault(name, result):
            return
        partition = topic.partition(produced.partition_index) if topic else None
        if topic is None or partition is None:
            is_unknown_id = topic is None and produced.topic is None
            raise BatchRefusedError(codes.UNKNOWN_TOPIC_ID if is_unknown_id else codes.UNKNOWN_TOPIC_OR_PARTITION)
        batch = self._batch_of(produced, result)
        self._check_transaction(batch, topic, partition, index=result.index)
        if self._request.acks not in {0, 1, _ALL}:
            raise BatchRefusedError(codes.INVALID_REQUIRED_ACKS)
        self._check_leadership(topic, partition, result)
        self._log(batch, topic, partition, result=result)
        self._apply_fault_after_append(name, result)

    def _batch_of(self, produced: ProducedPartition, result: ProduceResult) -> memoryview:
        """Return the batch to append: the last valid one if a partition appears more than once.

        If any of the others is none, that is answered, though the batch is appended; so Kafka does.
        """
        version = self._exchange.version
        if len(self._request.as_sent) == len(self._request.partitions):
            return single_batch(produced.records, version)
        batch, refusal = None, None
        for other in self._request.as_sent:
            if other[:3] == produced[:3]:
                try:
                    batch = single_batch(other.records, version)
                except BatchRefusedError as error:
                    refusal = error
        if batch is None:
            raise refusal or BatchRefusedError(codes.UNKNOWN_SERVER_ERROR)
        result.answered_instead = refusal
        return batch

    def _check_transaction(self, batch: memoryview, topic: Topic, partition: Partition, *, index: int) -> None:
        producer = transactional_producer(batch)
        is_leader = partition.leader == self._exchange.broker.node_id
        if producer is None or not is_leader or partition.is_in_transaction(*producer):
            return
        cluster, version = self._exchange.cluster, self._exchange.version
        adds = version >= FIRST_PRODUCE_THAT_ADDS
        settings = cluster.settings
        if adds or (settings.transaction_partition_verification and settings.profile.verifies_transactions):
            if settings.profile.verifies_epochs and partition.producers.is_before(*producer):
                raise BatchRefusedError(codes.INVALID_PRODUCER_EPOCH)
            topic_partition = TopicPartition(topic.name, index)
            partition.verifications.ask(producer, read_header(batch).base_sequence, is_version_2=adds)
            claim = Claim(self._request.transactional_id or "", *producer)
            error = admit(cluster, claim, topic_partition, adds=adds, now=self._exchange.now)
            if error:
                code = produce_error(error, version)
                raise BatchRefusedError(code, message=NOT_ADDED if code == codes.INVALID_TXN_STATE else None)

    def _is_refused_by_fault(self, name: str | None, result: ProduceResult) -> bool:
        if not self._exchange.cluster.faults._kinds:
            return False
        topic_partition = (name, result.index)
        fault = self._exchange.fault(FaultKind.ERROR, *topic_partition) or self._exchange.fault(
            FaultKind.RECORD_ERRORS, *topic_partition
        )
        if fault is None:
            return False
        result.error_code, result.error_message = fault.code, fault.message
        result.record_errors = sorted(fault.records.items())
        result.base_offset = -1 if fault.base_offset is None else fault.base_offset
        return True

    def _apply_fault_after_append(self, name: str | None, result: ProduceResult) -> None:
        fault = self._exchange.fault(FaultKind.ERROR_AFTER_APPEND, name, result.index)
        if fault is not None:
            result.error_code = fault.code
            result.base_offset = result.base_offset if fault.base_offset is None else fault.base_offset

    def _check_leadership(self, topic: Topic, partition: Partition, result: ProduceResult) -> None:
        if topic.is_internal:
            raise BatchRefusedError(codes.INVALID_TOPIC_EXCEPTION)
        if partition.leader != self._exchange.broker.node_id:
            result.leader = leader_hint(partition, self._exchange.broker)
            raise BatchRefusedError(codes.NOT_LEADER_OR_FOLLOWER)
        result.log_start_offset = partition.log.start_offset
        if self._request.acks == _ALL and len(partition.isr) < _copies_needed(topic, partition):
            raise BatchRefusedError(codes.NOT_ENOUGH_REPLICAS)

    def _log(self, batch: memoryview, topic: Topic, partition: Partition, *, result: ProduceResult) -> None:
        wall_clock_ms = self._exchange.cluster.settings.wall_clock_ms(self._exchange.now)
        partition_name = f"{topic.name}-{result.index}"
        batch = accepted_batch(batch, topic.config, wall_clock_ms=wall_clock_ms, partition_name=partition_name)
        header = read_header(batch)
        duplicate = partition.producers.duplicate_of(header) if header.producer_id >= 0 else None
        if duplicate is not None:
            result.base_offset, result.log_append_time = duplicate.base_offset, duplicate.max_timestamp
            end = duplicate.last_offset + 1
        else:
            if header.producer_id >= 0 and (error := self._rejection(partition, header)):
                raise BatchRefusedError(error)
            result.base_offset = partition.log.end_offset
            result.log_append_time = wall_clock_ms if topic.config.is_log_append_time else -1
            logged = _logged(batch, header, base_offset=result.base_offset, leader_epoch=partition.leader_epoch)
            partition.append(logged, topic.config, now=self._exchange.now)
            end = partition.log.end_offset
        result.log_start_offset = partition.log.start_offset
        if self._request.acks == _ALL:
            needed = _copies_needed(topic, partition)
            self._waiting.append(_Waiting(result, partition, end=end, min_insync_replicas=needed))

    def _rejection(self, partition: Partition, header: BatchHeader) -> int:
        """Return the error for a batch that is out of sequence, or outside of its producer's open transaction."""
        producers, producer_id = partition.producers, header.producer_id
        known = producers.entry(producer_id)
        if known is None or header.producer_epoch >= known.epoch:
            has_batches = known is not None and bool(known.batches)
            if partition.verifications.is_out_of_order(producer_id, header.base_sequence, has_batches=has_batches):
                return codes.OUT_OF_ORDER_SEQUENCE_NUMBER
        is_left_out = not header.is_transactional and partition.transactions.first_offset(producer_id) is not None
        return producers.rejection_of(header) or (codes.INVALID_TXN_STATE if is_left_out else 0)

    # Waiting and answering

    def _look_again(self, now: float) -> None:
        if self._is_over:
            return
        node_id = self._exchange.broker.node_id
        unfinished = [waiting for waiting in self._waiting if not waiting.is_done(node_id)]
        self._waiting = unfinished
        if not unfinished:
            self._answer(now)
            return
        unfinished[0].partition.watch(self._look_again)

    def _time_out(self, now: float) -> None:
        if not self._is_over:
            for waiting in self._waiting:
                waiting.result.error_code = codes.REQUEST_TIMED_OUT
            self._answer(now)

    def _answer(self, now: float) -> None:
        self._is_over = True
        if self._deadline is not None:
            self._deadline.cancel()
        self._exchange.cluster.observe(self._exchange, self._results, now)
        if self._request.acks == 0:
            failed = next((result for result in self._results if result.error_code), None)
            if failed is None:
                self._exchange.finish_silently(now)
            else:
                self._exchange.hang_up(f"acks=0 and error {failed.error_code}")
            return
        answered = self._results
        if FaultKind.OMIT_PARTITION in self._exchange.cluster.faults._kinds:
            answered = [result for result in self._results if not self._is_omitted(result)]
        for result in answered:
            if result.answered_instead is not None:
                result.base_offset = result.log_append_time = result.log_start_offset = -1
                result.refuse(result.answered_instead)
            self._complete(result)
        hints = [result.leader for result in answered if result.leader is not None]
        parts = encode_produce(
            Writer(flexible=self._exchange.is_flexible),
            self._exchange.version,
            answered,
            throttle_ms=self._exchange.throttle_ms,
            endpoints=endpoints_of(self._exchange, hints) if hints else (),
        )
        self._exchange.reply(parts, now)

    def _complete(self, result: ProduceResult) -> None:
        """Add the fields that go with an error found after the append, or injected by a test."""
        if result.error_code in _SILENT_ABOUT_LOG_START and result.base_offset < 0:
            result.log_start_offset = -1
        if result.error_code == codes.NOT_LEADER_OR_FOLLOWER and result.leader is None:
            partition = self._exchange.cluster.topics.partition(result.topic, result.index, result.topic_id)
            result.leader = leader_hint(partition, self._exchange.broker) if partition else None

    def _is_omitted(self, result: ProduceResult) -> bool:
        topic = self._exchange.cluster.topics.find(result.topic, result.topic_id)
        name = topic.name if topic else result.topic
        return self._exchange.fault(FaultKind.OMIT_PARTITION, name, result.index) is not None


def _copies_needed(topic: Topic, partition: Partition) -> int:
    """Return how many copies must be in sync for `acks=all`: at most as many as there are."""
    return min(topic.config.min_insync_replicas, len(partition.replicas))


def _logged(batch: memoryview, header: BatchHeader, *, base_offset: int, leader_epoch: int) -> LoggedBatch:
    return LoggedBatch(
        base_offset=base_offset,
        last_offset=base_offset + header.last_offset_delta,
        max_timestamp=header.max_timestamp,
        leader_epoch=leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        last_sequence=header.last_sequence,
        data=placed(batch, base_offset=base_offset, leader_epoch=leader_epoch),
        attributes=header.attributes,
    )


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
    topics = [(key, list(group)) for key, group in groupby(results, key=lambda result: (result.topic, result.topic_id))]
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
