"""InitProducerId 0-6 (KIP-360), AddPartitionsToTxn 0-5, AddOffsetsToTxn 0-4 and EndTxn 0-5.

Clients send AddPartitionsToTxn 0-3; 4 and 5, for several transactions at once, are for brokers. EndTxn 5 means
transactions version 2 (KIP-890) and returns the identity of the next transaction.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, Union, cast

from aioproducer.records import TopicPartition
from aioproducer.testing.fake_broker.apis.find_coordinator import coordinator_error, place_error
from aioproducer.testing.fake_broker.exchange import Exchange
from aioproducer.testing.fake_broker.groups.consumer_groups import OFFSETS_TOPIC
from aioproducer.testing.fake_broker.transactions.coordinators import CoordinatorKind
from aioproducer.testing.fake_broker.transactions.transaction_coordinator import Granted
from aioproducer.testing.fake_broker.transactions.transaction_entry import Claim, ProducerIdAndEpoch
from aioproducer.testing.fake_broker.wire import codes
from aioproducer.testing.fake_broker.wire.messages import Tree

if TYPE_CHECKING:
    from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest
    from kio.schema.add_partitions_to_txn.v3.request import AddPartitionsToTxnRequest as AddForOne
    from kio.schema.add_partitions_to_txn.v3.request import AddPartitionsToTxnTopic as OneTopic
    from kio.schema.add_partitions_to_txn.v5.request import AddPartitionsToTxnRequest as AddForMany
    from kio.schema.add_partitions_to_txn.v5.request import AddPartitionsToTxnTopic as ManyTopic
    from kio.schema.end_txn.v5.request import EndTxnRequest
    from kio.schema.init_producer_id.v6.request import InitProducerIdRequest

_AnyTopic: TypeAlias = Union["OneTopic", "ManyTopic"]

_FIRST_FOR_MANY = 4
_FIRST_WITH_FENCED = 2
_FIRST_OF_VERSION_2 = 5


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
    answers: list[Tree] = []
    for each in cast("AddForMany", exchange.request()).transactions:
        claim = Claim(each.transactional_id, each.producer_id, each.producer_epoch)
        results = _added(exchange, claim, _partitions(each.topics), verify_only=each.verify_only)
        answers.append({"transactional_id": each.transactional_id, "topic_results": _by_topic(results)})
    exchange.reply_tree({"error_code": 0, "results_by_transaction": answers}, exchange.now)


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
    topic = exchange.cluster.topics.named(topic_partition.topic)
    is_there = topic is not None and topic.partition(topic_partition.partition) is not None
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


def _ended(exchange: Exchange, request: "EndTxnRequest") -> Granted:
    claim = Claim(request.transactional_id, request.producer_id, request.producer_epoch)
    if error := _coordinator_error(exchange, claim):
        return Granted(error)
    is_version_2 = exchange.version >= _FIRST_OF_VERSION_2
    return exchange.cluster.transactions.end(
        claim, is_commit=request.committed, is_version_2=is_version_2, now=exchange.now
    )


FIRST_WITH_FENCED = 4


def answer_init_producer_id(exchange: Exchange) -> None:
    request = cast("InitProducerIdRequest", exchange.request())
    error = exchange.injected_error()
    if not request.transactional_id and request.transactional_id is not None:
        error = error or codes.INVALID_REQUEST
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        error = error or codes.INVALID_REQUEST
    granted = Granted(error) if error else _granted(exchange, request)
    code = answered_to_old_clients(granted.error, is_old=exchange.version < FIRST_WITH_FENCED)
    tree = {"error_code": code, "producer_id": granted.producer_id, "producer_epoch": granted.epoch}
    exchange.reply_tree(tree, exchange.now)


def _granted(exchange: Exchange, request: "InitProducerIdRequest") -> Granted:
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
