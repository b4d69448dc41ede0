"""ListTransactions 0-2, DescribeTransactions 0, DescribeProducers 0, WriteTxnMarkers 1-2: for administrators.

`kafka-transactions.sh` uses them to find and end hanging transactions. The first two go to transaction coordinators,
which list the ids they coordinate. The others go to the leaders of partitions; a marker written by hand ends a
transaction that its coordinator has lost.
"""

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from aioproducer.records import TopicPartition
from aioproducer.testing.fake_broker.apis.find_coordinator import coordinator_error, place_error
from aioproducer.testing.fake_broker.apis.list_offsets import leader_error
from aioproducer.testing.fake_broker.exchange import Exchange
from aioproducer.testing.fake_broker.groups.consumer_groups import OFFSETS_TOPIC
from aioproducer.testing.fake_broker.log.control_batch import Marker
from aioproducer.testing.fake_broker.log.partition import Partition
from aioproducer.testing.fake_broker.transactions.coordinators import CoordinatorKind
from aioproducer.testing.fake_broker.transactions.transaction_entry import TransactionEntry, TransactionState
from aioproducer.testing.fake_broker.wire import codes
from aioproducer.testing.fake_broker.wire.messages import Tree

if TYPE_CHECKING:
    from kio.schema.describe_producers.v0.request import DescribeProducersRequest
    from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
    from kio.schema.list_transactions.v2.request import ListTransactionsRequest
    from kio.schema.write_txn_markers.v2.request import WritableTxnMarker, WriteTxnMarkersRequest

NOT_HOSTED = "This server does not host this topic-partition."
_NEVER_SEEN = ("PrepareEpochFence", "Dead")  # states of Kafka that do not last here


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


def _passes(entry: TransactionEntry, request: "ListTransactionsRequest", now: float) -> bool:
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
    partition = _partition(exchange, topic_partition)
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


def _partition(exchange: Exchange, topic_partition: TopicPartition) -> Partition | None:
    topic = exchange.cluster.topics.named(topic_partition.topic)
    return topic.partition(topic_partition.partition) if topic else None


def answer_write_txn_markers(exchange: Exchange) -> None:
    request = cast("WriteTxnMarkersRequest", exchange.request())
    answers: list[Tree] = []
    for each in request.markers:
        marker = Marker(each.producer_id, each.producer_epoch, each.transaction_result, each.coordinator_epoch)
        answers.append({"producer_id": each.producer_id, "topics": _marked(exchange, each, marker)})
    exchange.reply_tree({"markers": answers}, exchange.now)


def _marked(exchange: Exchange, asked: "WritableTxnMarker", marker: Marker) -> list[Tree]:
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
    topic, partition = exchange.cluster.topics.named(topic_partition.topic), _partition(exchange, topic_partition)
    error = error or leader_error(partition, exchange.broker.node_id, -1)
    if error or topic is None or partition is None:
        return error
    error = markers.error_of(marker, partition)
    if not error:
        markers.append(marker, topic, partition, now=exchange.now)
    return error
