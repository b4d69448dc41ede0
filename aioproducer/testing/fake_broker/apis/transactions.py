"""InitProducerId 0-6 (KIP-360), AddPartitionsToTxn 0-5, AddOffsetsToTxn 0-4 and EndTxn 0-5, and those of tools.

Clients send AddPartitionsToTxn 0-3; 4 and 5, for several transactions at once, are for brokers. EndTxn 5 means
transactions version 2 (KIP-890) and returns the identity of the next transaction. The tools' are ListTransactions 0-2,
DescribeTransactions 0, DescribeProducers 0 and WriteTxnMarkers 1-2.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias, Union, cast

from aioproducer.records import TopicPartition
from aioproducer.testing.fake_broker.apis.find_coordinator import coordinator_error, place_error
from aioproducer.testing.fake_broker.apis.leadership import leader_error
from aioproducer.testing.fake_broker.consumer_groups import OFFSETS_TOPIC
from aioproducer.testing.fake_broker.coordinators import CoordinatorKind
from aioproducer.testing.fake_broker.log.producer_state import ProducerIdAndEpoch
from aioproducer.testing.fake_broker.log.record_batch import Marker
from aioproducer.testing.fake_broker.transaction_coordinator import Claim, Granted, TransactionEntry, TransactionState
from aioproducer.testing.fake_broker.wire import codes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest
    from kio.schema.add_partitions_to_txn.v3.request import AddPartitionsToTxnRequest as AddForOne
    from kio.schema.add_partitions_to_txn.v3.request import AddPartitionsToTxnTopic as OneTopic
    from kio.schema.add_partitions_to_txn.v5.request import AddPartitionsToTxnRequest as AddForMany
    from kio.schema.add_partitions_to_txn.v5.request import AddPartitionsToTxnTopic as ManyTopic
    from kio.schema.describe_producers.v0.request import DescribeProducersRequest
    from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
    from kio.schema.end_txn.v5.request import EndTxnRequest
    from kio.schema.init_producer_id.v6.request import InitProducerIdRequest
    from kio.schema.list_transactions.v2.request import ListTransactionsRequest
    from kio.schema.write_txn_markers.v2.request import WritableTxnMarker, WriteTxnMarkersRequest

    from aioproducer.testing.fake_broker.exchange import Exchange, SharedState
    from aioproducer.testing.fake_broker.wire.messages import Tree

_AnyTopic: TypeAlias = Union["OneTopic", "ManyTopic"]

_FIRST_FOR_MANY = 4
_FIRST_WITH_FENCED = 2
_FIRST_INIT_WITH_FENCED = 4
_FIRST_OF_VERSION_2 = 5
FIRST_PRODUCE_WITH_ABORTABLE = 11

FIRST_PRODUCE_THAT_ADDS = 12

NOT_ADDED = "Partition was not added to the transaction"

NOT_HOSTED = "This server does not host this topic-partition."

COORDINATOR_ERRORS = frozenset(
    {codes.COORDINATOR_LOAD_IN_PROGRESS, codes.COORDINATOR_NOT_AVAILABLE, codes.NOT_COORDINATOR}
)

_NEVER_SEEN = ("PrepareEpochFence", "Dead")  # states of Kafka that do not last here


def answered_to_old_clients(error: int, *, is_old: bool) -> int:
    """Replace PRODUCER_FENCED, which old clients do not know."""
    return codes.INVALID_PRODUCER_EPOCH if is_old and error == codes.PRODUCER_FENCED else error


def answer_add_partitions_to_txn(exchange: Exchange) -> None:
    """Add all of the partitions, or none of them."""
    if exchange.version < _FIRST_FOR_MANY:
        one = cast("AddForOne", exchange.request())
        claim = Claim(one.v3_and_below_transactional_id, one.v3_and_below_producer_id, one.v3_and_below_producer_epoch)
        results = _added(exchange, claim, _partitions(one.v3_and_below_topics))
        exchange.reply_tree({"results_by_topic_v3_and_below": _by_topic(results)}, exchange.now)
        return
    responses: list[Tree] = []
    for each in cast("AddForMany", exchange.request()).transactions:
        claim = Claim(each.transactional_id, each.producer_id, each.producer_epoch)
        results = _added(exchange, claim, _partitions(each.topics), verify_only=each.verify_only)
        responses.append({"transactional_id": each.transactional_id, "topic_results": _by_topic(results)})
    exchange.reply_tree({"error_code": 0, "results_by_transaction": responses}, exchange.now)


def _partitions(topics: Iterable[_AnyTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


def _by_topic(results: Mapping[TopicPartition, int]) -> list[Tree]:
    topics: dict[str, list[Tree]] = {}
    for partition, error in results.items():
        row: Tree = {"partition_index": partition.partition, "partition_error_code": error}
        topics.setdefault(partition.topic, []).append(row)
    return [{"name": name, "results_by_partition": rows} for name, rows in topics.items()]


def _added(
    exchange: Exchange, claim: Claim, partitions: Sequence[TopicPartition], *, verify_only: bool = False
) -> dict[TopicPartition, int]:
    refused = {partition: _refusal(exchange, partition) for partition in partitions}
    if any(refused.values()):
        return {partition: error or codes.OPERATION_NOT_ATTEMPTED for partition, error in refused.items()}
    if verify_only:
        return {
            topic_partition: exchange.cluster.transactions.verify_partition(claim, topic_partition)
            for topic_partition in partitions
        }
    error = _add(exchange, claim, partitions)
    code = answered_to_old_clients(error, is_old=exchange.version < _FIRST_WITH_FENCED)
    return dict.fromkeys(partitions, code)


def _refusal(exchange: Exchange, topic_partition: TopicPartition) -> int:
    is_there = exchange.cluster.topics.partition(*topic_partition) is not None
    fault = exchange.injected_error_of_partition(topic_partition.topic, topic_partition.partition)
    return fault or (0 if is_there else codes.UNKNOWN_TOPIC_OR_PARTITION)


def _add(exchange: Exchange, claim: Claim, partitions: Sequence[TopicPartition]) -> int:
    error = _coordinator_error(exchange, claim)
    return error or exchange.cluster.transactions.add_partitions(claim, partitions, now=exchange.now)


def _coordinator_error(exchange: Exchange, claim: Claim) -> int:
    if not claim.transactional_id:
        return exchange.injected_error() or codes.INVALID_REQUEST
    return coordinator_error(exchange, claim.transactional_id, CoordinatorKind.TRANSACTION)


def answer_add_offsets_to_txn(exchange: Exchange) -> None:
    request = cast("AddOffsetsToTxnRequest", exchange.request())
    claim = Claim(request.transactional_id, request.producer_id, request.producer_epoch)
    partition = exchange.cluster.groups.offsets_partition_of(request.group_id)
    error = _add(exchange, claim, [TopicPartition(OFFSETS_TOPIC, partition)])
    code = answered_to_old_clients(error, is_old=exchange.version < _FIRST_WITH_FENCED)
    exchange.reply_tree({"error_code": code}, exchange.now)


def answer_end_txn(exchange: Exchange) -> None:
    request = cast("EndTxnRequest", exchange.request())
    granted = _ended(exchange, request)
    code = answered_to_old_clients(granted.error, is_old=exchange.version < _FIRST_WITH_FENCED)
    tree = {"error_code": code, "producer_id": granted.producer_id, "producer_epoch": granted.epoch}
    exchange.reply_tree(tree, exchange.now)


def _ended(exchange: Exchange, request: EndTxnRequest) -> Granted:
    claim = Claim(request.transactional_id, request.producer_id, request.producer_epoch)
    if error := _coordinator_error(exchange, claim):
        return Granted(error)
    is_version_2 = exchange.version >= _FIRST_OF_VERSION_2
    return exchange.cluster.transactions.end(
        claim, is_commit=request.committed, is_version_2=is_version_2, now=exchange.now
    )


def answer_init_producer_id(exchange: Exchange) -> None:
    request = cast("InitProducerIdRequest", exchange.request())
    error = exchange.injected_error()
    if not request.transactional_id and request.transactional_id is not None:
        error = error or codes.INVALID_REQUEST
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        error = error or codes.INVALID_REQUEST
    granted = Granted(error) if error else _granted(exchange, request)
    code = answered_to_old_clients(granted.error, is_old=exchange.version < _FIRST_INIT_WITH_FENCED)
    tree = {"error_code": code, "producer_id": granted.producer_id, "producer_epoch": granted.epoch}
    exchange.reply_tree(tree, exchange.now)


def _granted(exchange: Exchange, request: InitProducerIdRequest) -> Granted:
    if request.transactional_id is None:
        producer_id = exchange.cluster.producer_ids.take(exchange.now)
        return Granted(codes.COORDINATOR_LOAD_IN_PROGRESS) if producer_id is None else Granted(0, producer_id, 0)
    if error := place_error(exchange, request.transactional_id, CoordinatorKind.TRANSACTION):
        return Granted(error)
    timeout_s = request.transaction_timeout.total_seconds()
    if not 0 < timeout_s <= exchange.cluster.settings.transaction_max_timeout_s:
        return Granted(codes.INVALID_TRANSACTION_TIMEOUT)
    expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch) if request.producer_id >= 0 else None
    return exchange.cluster.transactions.init_producer_id(
        request.transactional_id, timeout_s, expected, now=exchange.now
    )


def meets_markers(cluster: SharedState, claim: Claim, now: float) -> bool:
    """Whether the producer's last transaction still lacks markers, so that no partition can be added."""
    is_pending = cluster.transactions.refusal_to_add(claim, now) == codes.CONCURRENT_TRANSACTIONS
    return is_pending and not _error_of_coordinator(cluster, claim, now)


def admit(cluster: SharedState, claim: Claim, partition: TopicPartition, *, adds: bool, now: float) -> int:
    """Ask the coordinator whether a producer may write to a partition; returns its error."""
    if not claim.transactional_id:
        return codes.INVALID_REQUEST
    if error := _error_of_coordinator(cluster, claim, now):
        return error
    if adds:
        return cluster.transactions.add_partitions(claim, [partition], is_version_2=True, now=now)
    return cluster.transactions.verify_partition(claim, partition)


def _error_of_coordinator(cluster: SharedState, claim: Claim, now: float) -> int:
    """Return the error of the coordinator of a transactional id; 0 if it can be asked."""
    kind, key = CoordinatorKind.TRANSACTION, claim.transactional_id
    node_id = cluster.coordinators.node_of(kind, key, now)
    return cluster.coordinators.error_at(node_id, kind, key, now=now)


def produce_error(error: int, version: int) -> int:
    """Return the error of Produce for the coordinator's about a batch that is not in an open transaction yet.

    Until the first batch of a transaction is in a partition's log, its leader asks the transaction coordinator: up to
    Produce 11 whether the partition was added (KIP-890 part 1), since 12 to add it (part 2).

        asked                                Produce 3-10   11     12-
        another producer id, or none         49             49     49
        an old epoch                         47             47     47
        the partition was not added          48             120    (it is added)
        the transaction is completing        19             19     51, after 0.1 s of asking again
        the coordinator cannot be asked      19             19     19
        transaction.version is 0             -              -      35

    Source: ReplicaManager.handleProduceAppend and AddPartitionsToTxnManager in Apache Kafka.
    """
    if error in COORDINATOR_ERRORS or (error == codes.CONCURRENT_TRANSACTIONS and version < FIRST_PRODUCE_THAT_ADDS):
        return codes.NOT_ENOUGH_REPLICAS
    if error == codes.TRANSACTION_ABORTABLE and version < FIRST_PRODUCE_WITH_ABORTABLE:
        return codes.INVALID_TXN_STATE
    return codes.INVALID_PRODUCER_EPOCH if error == codes.PRODUCER_FENCED else error


def answer_list_transactions(exchange: Exchange) -> None:
    request = cast("ListTransactionsRequest", exchange.request())
    known = {*TransactionState, *_NEVER_SEEN}
    unknown = [name for name in request.state_filters if name not in known]
    error = exchange.injected_error()
    pattern = getattr(request, "transactional_id_pattern", None) or ""
    try:
        matches = re.compile(pattern).fullmatch
    except re.error:
        exchange.reply_tree({"error_code": codes.INVALID_REGULAR_EXPRESSION, "transaction_states": []}, exchange.now)
        return
    states: list[Tree] = [
        {"transactional_id": entry.transactional_id, "producer_id": entry.producer_id, "transaction_state": entry.state}
        for entry in exchange.cluster.transactions.entries()
        if not error
        and place_error(exchange, entry.transactional_id, CoordinatorKind.TRANSACTION) == 0
        and _passes(entry, request, exchange.now)
        and (not pattern or matches(entry.transactional_id))
    ]
    exchange.reply_tree(
        {"error_code": error, "unknown_state_filters": unknown, "transaction_states": states}, exchange.now
    )


def _passes(entry: TransactionEntry, request: ListTransactionsRequest, now: float) -> bool:
    if request.state_filters and entry.state not in request.state_filters:
        return False
    if request.producer_id_filters and entry.producer_id not in request.producer_id_filters:
        return False
    if request.duration_filter < 0:
        return True
    return entry.started_at is not None and (now - entry.started_at) * 1000 > request.duration_filter


def answer_describe_transactions(exchange: Exchange) -> None:
    request = cast("DescribeTransactionsRequest", exchange.request())
    states = [_described(exchange, transactional_id) for transactional_id in request.transactional_ids]
    exchange.reply_tree({"transaction_states": states}, exchange.now)


def _described(exchange: Exchange, transactional_id: str) -> Tree:
    error = coordinator_error(exchange, transactional_id, CoordinatorKind.TRANSACTION)
    entry = exchange.cluster.transactions.entry(transactional_id)
    if entry is None or error:
        return {
            "error_code": error or codes.TRANSACTIONAL_ID_NOT_FOUND,
            "transactional_id": transactional_id,
            "transaction_start_time": datetime.fromtimestamp(0, UTC),
        }
    topics: dict[str, list[int]] = {}
    for topic, index in entry.partitions:
        topics.setdefault(topic, []).append(index)
    started_ms = -1
    if entry.started_at is not None:
        started_ms = exchange.cluster.settings.wall_clock_ms(entry.started_at)
    return {
        "error_code": 0,
        "transactional_id": transactional_id,
        "transaction_state": entry.state,
        "transaction_timeout": round(entry.timeout_s * 1000),
        "transaction_start_time": datetime.fromtimestamp(started_ms / 1000, UTC),
        "producer_id": entry.producer_id,
        "producer_epoch": entry.epoch,
        "topics": [{"topic": topic, "partitions": indexes} for topic, indexes in topics.items()],
    }


def answer_describe_producers(exchange: Exchange) -> None:
    request = cast("DescribeProducersRequest", exchange.request())
    topics: list[Tree] = [
        {
            "name": topic.name,
            "partitions": [
                _producers(exchange, TopicPartition(topic.name, index)) for index in topic.partition_indexes
            ],
        }
        for topic in request.topics
    ]
    exchange.reply_tree({"topics": topics}, exchange.now)


def _producers(exchange: Exchange, topic_partition: TopicPartition) -> Tree:
    partition = exchange.cluster.topics.partition(*topic_partition)
    error = exchange.injected_error(*topic_partition) or leader_error(partition, exchange.broker.node_id, -1)
    active: list[Tree] = []
    if partition is not None and not error:
        for producer_id, entry in partition.producers.entries().items():
            first_offset = partition.transactions.first_offset(producer_id)
            active.append(
                {
                    "producer_id": producer_id,
                    "producer_epoch": entry.epoch,
                    "last_sequence": entry.batches[-1].last_sequence if entry.batches else -1,
                    "last_timestamp": entry.last_timestamp,
                    "coordinator_epoch": entry.coordinator_epoch,
                    "current_txn_start_offset": -1 if first_offset is None else first_offset,
                }
            )
    text = NOT_HOSTED if error == codes.UNKNOWN_TOPIC_OR_PARTITION else None
    return {
        "partition_index": topic_partition.partition,
        "error_code": error,
        "error_message": text,
        "active_producers": active,
    }


def answer_write_txn_markers(exchange: Exchange) -> None:
    request = cast("WriteTxnMarkersRequest", exchange.request())
    responses: list[Tree] = []
    for each in request.markers:
        marker = Marker(each.producer_id, each.producer_epoch, each.transaction_result, each.coordinator_epoch)
        responses.append({"producer_id": each.producer_id, "topics": _marked(exchange, each, marker)})
    exchange.reply_tree({"markers": responses}, exchange.now)


def _marked(exchange: Exchange, asked: WritableTxnMarker, marker: Marker) -> list[Tree]:
    return [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": index, "error_code": _mark(exchange, TopicPartition(topic.name, index), marker)}
                for index in topic.partition_indexes
            ],
        }
        for topic in asked.topics
    ]


def _mark(exchange: Exchange, topic_partition: TopicPartition, marker: Marker) -> int:
    markers = exchange.cluster.markers
    error = exchange.injected_error(*topic_partition)
    if topic_partition.topic == OFFSETS_TOPIC:
        return error or markers.finish_offsets(marker, offsets_partition=topic_partition.partition)
    topics = exchange.cluster.topics
    topic, partition = topics.named(topic_partition.topic), topics.partition(*topic_partition)
    error = error or leader_error(partition, exchange.broker.node_id, -1)
    if error or topic is None or partition is None:
        return error
    error = markers.error_of(marker, partition)
    if not error:
        markers.append(marker, topic, partition, now=exchange.now)
    return error
