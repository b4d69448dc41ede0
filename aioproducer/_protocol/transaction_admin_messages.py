"""Requests of administrators about transactions, which can also end abandoned ones.

    ListTransactions      0-2   transactions of a coordinator
    DescribeTransactions  0     details of some of them
    DescribeProducers     0     producers that write to a partition, from its leader
    WriteTxnMarkers       1     ends a transaction in a partition, as the coordinator does

All are flexible versions.

Source: the JSON descriptions of the messages in Apache Kafka 4.3; KIP-664 (tooling), KIP-994 (filter by duration),
KIP-1152 (by pattern).
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from aioproducer._protocol.messages import Api
from aioproducer._protocol.primitives import (
    NO_TAGGED_FIELDS,
    ResponseReader,
    array_length,
    decode,
    string,
    topic_partitions,
)

WRITE_TXN_MARKERS: Final = Api(27, "WriteTxnMarkers", 1, 1, 1, since="2.8")
DESCRIBE_PRODUCERS: Final = Api(61, "DescribeProducers", 0, 0, 0, since="2.8")
DESCRIBE_TRANSACTIONS: Final = Api(65, "DescribeTransactions", 0, 0, 0, since="3.0")
LIST_TRANSACTIONS: Final = Api(66, "ListTransactions", 0, 2, 0, since="3.0")

ONGOING: Final = "Ongoing"  # state of an open transaction
ABORTED: Final = "CompleteAbort"  # state after an abort
NO_TRANSACTION: Final = -1  # start offset of a producer without an open transaction in the partition
_ANY_DURATION: Final = -1
_FIRST_WITH_PATTERN: Final = 2

_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_MARKER = struct.Struct(">qh?")  # producer id, epoch, is it a commit


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str  # Kafka's name: Ongoing, PrepareCommit, CompleteAbort, Empty, ...


class TransactionsResponse(NamedTuple):
    error_code: int
    unknown_state_filters: list[str]
    transactions: list[ListedTransaction]
    throttle_time_ms: int = 0

    @property
    def error_codes(self) -> Collection[int]:
        return (self.error_code,)


class TransactionDescription(NamedTuple):
    """A coordinator's state of a transactional id."""

    error_code: int
    transactional_id: str
    state: str
    timeout_ms: int
    start_time_ms: int  # since 1970; -1 without an open transaction
    producer_id: int
    producer_epoch: int
    partitions: list[tuple[str, int]]  # (topic, partition) pairs that belong to the open transaction
    throttle_time_ms: int = 0

    @property
    def error_codes(self) -> Collection[int]:
        return (self.error_code,)


class TransactionDescriptions(NamedTuple):
    throttle_time_ms: int
    transactions: list[TransactionDescription]

    @property
    def error_codes(self) -> Collection[int]:
        return [each.error_code for each in self.transactions]


class ActiveProducer(NamedTuple):
    """A partition leader's state of one producer."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int  # of the coordinator that wrote its last marker; -1 for none
    transaction_start_offset: int  # `NO_TRANSACTION` if none is open


class PartitionProducers(NamedTuple):
    topic: str
    partition: int
    error_code: int
    producers: list[ActiveProducer]


class ProducersResponse(NamedTuple):
    throttle_time_ms: int
    partitions: list[PartitionProducers]

    @property
    def error_codes(self) -> Collection[int]:
        return [partition.error_code for partition in self.partitions]


class MarkersResponse(NamedTuple):
    """Response to WriteTxnMarkers, a request between brokers, which they do not throttle."""

    error_codes: list[int]  # one per partition
    throttle_time_ms: int = 0


class TransactionMarker(NamedTuple):
    """The end of one producer's transaction in one partition."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    topic: str
    partition: int
    is_commit: bool = False


# Listing


def encode_list_transactions_request(
    version: int, *, states: Sequence[str], producer_ids: Sequence[int], pattern: str | None = None
) -> bytes:
    """Ask for all transactions, or for those in some states (Kafka's names) or of some producers; versions 0-2.

    The pattern is of whole transactional ids, by RE2's rules; only version 2 sends it.
    """
    fields = [array_length(len(states), flexible=True)]
    fields += [string(state, flexible=True) for state in states]
    fields.append(array_length(len(producer_ids), flexible=True))
    fields += [_INT64.pack(producer_id) for producer_id in producer_ids]
    if version >= 1:
        fields.append(_INT64.pack(_ANY_DURATION))
    if version >= _FIRST_WITH_PATTERN:
        fields.append(string(pattern, flexible=True) if pattern is not None else b"\x00")
    fields.append(NO_TAGGED_FIELDS)
    return b"".join(fields)


def decode_list_transactions_response(version: int, payload: bytes | memoryview) -> TransactionsResponse:
    return decode(f"ListTransactions v{version}", payload, flexible=True, read=_transactions)


def _transactions(reader: ResponseReader) -> TransactionsResponse:
    throttle_time_ms, error_code = reader.int32(), reader.int16()
    unknown = [reader.string() or "" for _ in range(reader.array_length())]
    transactions = []
    for _ in range(reader.array_length()):
        transactional_id, producer_id = reader.string() or "", reader.int64()
        transactions.append(ListedTransaction(transactional_id, producer_id, reader.string() or ""))
        reader.skip_tagged_fields()
    reader.skip_tagged_fields()
    return TransactionsResponse(error_code, unknown, transactions, throttle_time_ms)


# Describing


def encode_describe_transactions_request(transactional_ids: Sequence[str]) -> bytes:
    """Ask a coordinator for the details of some transactional ids; version 0."""
    ids = [string(transactional_id, flexible=True) for transactional_id in transactional_ids]
    return b"".join([array_length(len(ids), flexible=True), *ids, NO_TAGGED_FIELDS])


def decode_describe_transactions_response(
    payload: bytes | memoryview, *, transactional_id: str
) -> TransactionDescription:
    """Read the description of one transactional id; version 0."""
    read = partial(_description_of, transactional_id=transactional_id)
    return decode("DescribeTransactions v0", payload, flexible=True, read=read)


def decode_all_descriptions(payload: bytes | memoryview) -> TransactionDescriptions:
    """Read the descriptions of all requested transactional ids; version 0."""
    return decode("DescribeTransactions v0", payload, flexible=True, read=_descriptions)


def _description_of(reader: ResponseReader, *, transactional_id: str) -> TransactionDescription:
    for described in _descriptions(reader).transactions:
        if described.transactional_id == transactional_id:
            return described
    raise IndexError(f"it says nothing of {transactional_id!r}")


def _descriptions(reader: ResponseReader) -> TransactionDescriptions:
    throttle_time_ms = reader.int32()
    described = [_description(reader, throttle_time_ms) for _ in range(reader.array_length())]
    reader.skip_tagged_fields()
    return TransactionDescriptions(throttle_time_ms, described)


def _description(reader: ResponseReader, throttle_time_ms: int) -> TransactionDescription:
    description = TransactionDescription(
        error_code=reader.int16(),
        transactional_id=reader.string() or "",
        state=reader.string() or "",
        timeout_ms=reader.int32(),
        start_time_ms=reader.int64(),
        producer_id=reader.int64(),
        producer_epoch=reader.int16(),
        partitions=reader.by_topic(lambda reader, topic: (topic, reader.int32())),
        throttle_time_ms=throttle_time_ms,
    )
    reader.skip_tagged_fields()
    return description


# Producers of partitions


def encode_describe_producers_request(partitions: Iterable[tuple[str, int]]) -> bytes:
    """Ask a leader for the producers of some of its (topic, partition) pairs; version 0."""
    return topic_partitions(partitions, flexible=True) + NO_TAGGED_FIELDS


def decode_describe_producers_response(payload: bytes | memoryview) -> ProducersResponse:
    return decode("DescribeProducers v0", payload, flexible=True, read=_producers)


def _producers(reader: ResponseReader) -> ProducersResponse:
    response = ProducersResponse(reader.int32(), reader.by_topic(_partition_producers))
    reader.skip_tagged_fields()
    return response


def _partition_producers(reader: ResponseReader, topic: str) -> PartitionProducers:
    partition, error_code = reader.int32(), reader.int16()
    reader.string()  # error message
    producers = [_active_producer(reader) for _ in range(reader.array_length())]
    reader.skip_tagged_fields()
    return PartitionProducers(topic, partition, error_code, producers)


def _active_producer(reader: ResponseReader) -> ActiveProducer:
    producer = ActiveProducer(
        producer_id=reader.int64(),
        producer_epoch=reader.int32(),
        last_sequence=reader.int32(),
        last_timestamp_ms=reader.int64(),
        coordinator_epoch=reader.int32(),
        transaction_start_offset=reader.int64(),
    )
    reader.skip_tagged_fields()
    return producer


# Markers


def encode_write_txn_markers_request(marker: TransactionMarker) -> bytes:
    """End a transaction in a partition; version 1. Needs the permission to alter the cluster."""
    return b"".join(
        [
            array_length(1, flexible=True),
            _MARKER.pack(marker.producer_id, marker.producer_epoch, marker.is_commit),
            topic_partitions([(marker.topic, marker.partition)], flexible=True),
            _INT32.pack(marker.coordinator_epoch),
            NO_TAGGED_FIELDS,
            NO_TAGGED_FIELDS,
        ]
    )


def decode_write_txn_markers_response(payload: bytes | memoryview) -> MarkersResponse:
    """Read the code of each partition; version 1."""
    return decode("WriteTxnMarkers v1", payload, flexible=True, read=_marker_codes)


def _marker_codes(reader: ResponseReader) -> MarkersResponse:
    codes: list[int] = []
    for _ in range(reader.array_length()):
        reader.int64()  # producer id
        codes += reader.by_topic(_marker_code)
        reader.skip_tagged_fields()
    reader.skip_tagged_fields()
    if not codes:
        raise IndexError("it says nothing of any partition")
    return MarkersResponse(codes)


def _marker_code(reader: ResponseReader, _topic: str) -> int:
    reader.int32()  # partition
    error_code = reader.int16()
    reader.skip_tagged_fields()
    return error_code
