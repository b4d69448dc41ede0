"""Who leads a partition that has moved, as answers of Produce and Fetch tell it (KIP-951)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from aioproducer.testing.fake_broker.log.partition import NO_LEADER, Partition
from aioproducer.testing.fake_broker.wire.produce_wire import NodeEndpoint

if TYPE_CHECKING:
    from aioproducer.testing.fake_broker.broker import Broker
    from aioproducer.testing.fake_broker.cluster import ModelCluster


def leader_hint(partition: Partition, broker: "Broker") -> tuple[int, int] | None:
    """Node id and leader epoch of the leader as a broker knows it, which may be old news; None when there is none."""
    leader, leader_epoch = broker.stale_leaders.get(partition, (partition.leader, partition.leader_epoch))
    return None if leader == NO_LEADER else (leader, leader_epoch)


def endpoints_of(cluster: "ModelCluster", hints: Iterable[tuple[int, int]]) -> list[NodeEndpoint]:
    """Where the hinted leaders listen, each once."""
    nodes = sorted({node for node, _ in hints})
    return [NodeEndpoint(node, cluster.brokers[node].host, cluster.brokers[node].port) for node in nodes]
