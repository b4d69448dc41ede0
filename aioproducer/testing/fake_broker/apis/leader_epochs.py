"""OffsetForLeaderEpoch 2-4: where a leader epoch ended, so that consumers notice a log that was cut (KIP-320)."""

from typing import TYPE_CHECKING, cast

from aioproducer.testing.fake_broker.apis.list_offsets import leader_error
from aioproducer.testing.fake_broker.exchange import Exchange
from aioproducer.testing.fake_broker.log.partition import Partition
from aioproducer.testing.fake_broker.wire.messages import Tree

if TYPE_CHECKING:
    from kio.schema.offset_for_leader_epoch.v4.request import OffsetForLeaderEpochRequest, OffsetForLeaderPartition


def answer_offset_for_leader_epoch(exchange: Exchange) -> None:
    request = cast("OffsetForLeaderEpochRequest", exchange.request())
    topics: list[Tree] = [
        {"topic": topic.topic, "partitions": [_partition(exchange, topic.topic, asked) for asked in topic.partitions]}
        for topic in request.topics
    ]
    exchange.reply_tree({"topics": topics}, exchange.now)


def _partition(exchange: Exchange, topic_name: str, asked: "OffsetForLeaderPartition") -> Tree:
    topic = exchange.cluster.topics.named(topic_name)
    partition = topic.partition(asked.partition) if topic else None
    error = exchange.injected_error(topic_name, asked.partition)
    error = error or leader_error(partition, exchange.broker.node_id, asked.current_leader_epoch)
    epoch, end = (-1, -1) if error or partition is None else _end_of(partition, asked.leader_epoch)
    return {"error_code": error, "partition": asked.partition, "leader_epoch": epoch, "end_offset": end}


def _end_of(partition: Partition, leader_epoch: int) -> tuple[int, int]:
    if leader_epoch == partition.leader_epoch:
        return leader_epoch, partition.log.end_offset
    return (-1, -1) if leader_epoch > partition.leader_epoch else partition.log.end_of_epoch(leader_epoch)
