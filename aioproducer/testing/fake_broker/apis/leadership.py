"""Leaders of partitions: the error of any other broker, the leader it names (KIP-951), and OffsetForLeaderEpoch 2-4."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from aioproducer.testing.fake_broker.log.partition import NO_LEADER, Partition
from aioproducer.testing.fake_broker.wire import codes
from aioproducer.testing.fake_broker.wire.primitives import Writer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kio.schema.offset_for_leader_epoch.v4.request import OffsetForLeaderEpochRequest, OffsetForLeaderPartition

    from aioproducer.testing.fake_broker.exchange import Exchange, ServingBroker
    from aioproducer.testing.fake_broker.wire.messages import Tree


class NodeEndpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


def answer_offset_for_leader_epoch(exchange: Exchange) -> None:
    request = cast("OffsetForLeaderEpochRequest", exchange.request())
    topics: list[Tree] = [
        {"topic": topic.topic, "partitions": [_partition(exchange, topic.topic, asked) for asked in topic.partitions]}
        for topic in request.topics
    ]
    exchange.reply_tree({"topics": topics}, exchange.now)


def _partition(exchange: Exchange, topic_name: str, asked: OffsetForLeaderPartition) -> Tree:
    partition = exchange.cluster.topics.partition(topic_name, asked.partition)
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


def leader_error(partition: Partition | None, node_id: int, client_epoch: int) -> int:
    """Return the error unless this node leads the partition at the epoch the client knows (-1: any)."""
    if partition is None:
        return codes.UNKNOWN_TOPIC_OR_PARTITION
    if partition.leader != node_id:
        return codes.NOT_LEADER_OR_FOLLOWER
    if client_epoch in {-1, partition.leader_epoch}:
        return 0
    return codes.FENCED_LEADER_EPOCH if client_epoch < partition.leader_epoch else codes.UNKNOWN_LEADER_EPOCH


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
