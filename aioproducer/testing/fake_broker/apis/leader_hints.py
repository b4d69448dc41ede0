"""Who leads a partition that has moved, as answers of Produce and Fetch tell it (KIP-951)."""

from collections.abc import Iterable

from aioproducer.testing.fake_broker.exchange import ServingBroker, SharedState
from aioproducer.testing.fake_broker.log.partition import NO_LEADER, Partition
from aioproducer.testing.fake_broker.wire.produce_wire import NodeEndpoint


def leader_hint(partition: Partition, broker: ServingBroker) -> tuple[int, int] | None:
    """Return node id and leader epoch as this broker knows them, perhaps outdated; None without a leader."""
    leader, leader_epoch = broker.stale_leaders.get(partition, (partition.leader, partition.leader_epoch))
    return None if leader == NO_LEADER else (leader, leader_epoch)


def endpoints_of(cluster: SharedState, hints: Iterable[tuple[int, int]]) -> list[NodeEndpoint]:
    nodes = sorted({node for node, _ in hints})
    return [NodeEndpoint(node, cluster.brokers[node].host, cluster.brokers[node].port) for node in nodes]
