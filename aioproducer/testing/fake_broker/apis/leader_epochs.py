"""OffsetForLeaderEpoch 2-4 (KIP-320), and the leader that Produce and Fetch name after a move (KIP-951)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from aioproducer.testing.fake_broker.apis.list_offsets import leader_error
from aioproducer.testing.fake_broker.exchange import Exchange, ServingBroker
from aioproducer.testing.fake_broker.log.partition import NO_LEADER, Partition
from aioproducer.testing.fake_broker.wire.messages import Tree
from aioproducer.testing.fake_broker.wire.produce_wire import NodeEndpoint

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


def leader_hint(partition: Partition, broker: ServingBroker) -> tuple[int, int] | None:
    """Return node id and leader epoch as this broker knows them, perhaps outdated; None without a leader."""
    leader, leader_epoch = broker.stale_leaders.get(partition, (partition.leader, partition.leader_epoch))
    return None if leader == NO_LEADER else (leader, leader_epoch)


def endpoints_of(exchange: Exchange, hints: Iterable[tuple[int, int]]) -> list[NodeEndpoint]:
    nodes = sorted({node for node, _ in hints})
    racks = exchange.cluster.settings.racks
    return [NodeEndpoint(node, *exchange.address_of(node), racks.get(node)) for node in nodes]
