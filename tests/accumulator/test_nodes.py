"""Keyless records go to leaders in the client's rack, and not to nodes for which batches wait too long."""

from collections import Counter
from types import MappingProxyType
from typing import NamedTuple

import pytest

from aioproducer._accumulator.nodes import Nodes
from aioproducer._accumulator.partition import Partition
from aioproducer._accumulator.topic_partitions import TopicPartitions
from aioproducer._native.delivery import Delivery
from aioproducer._timing.timers import TimerHeap
from aioproducer.cluster import Cluster
from tests.fakes.core_parts import NO_CONNECTIONS, CoreParts, cluster_of, follow, in_use

RACKS = {1: "a", 2: "b", 3: "a"}


class Rack(NamedTuple):
    """The partitions of a client in a rack."""

    nodes: Nodes
    partitions: TopicPartitions

    def follow(self, cluster: Cluster) -> None:
        self.nodes.update(cluster, NO_CONNECTIONS)
        follow(self.partitions, cluster)


def in_rack(rack: str, *, is_adaptive: bool = True) -> Rack:
    nodes = Nodes(TimerHeap(lambda _: None), on_unavailable=lambda _: None, availability_timeout_s=1, rack=rack)
    partitions, _ = in_use(is_adaptive=is_adaptive, nodes=nodes)
    return Rack(nodes, partitions)


def chosen(partitions: TopicPartitions, times: int = 200) -> Counter[int]:
    return Counter(partitions.choose(partitions.topics["t"], 0.0) for _ in range(times))


def has_no_waiters(partition: Partition) -> bool:
    return not partition.waiting_count


def candidates(partitions: TopicPartitions) -> set[int]:
    return {partition.number for partition in partitions.candidates(partitions.topics["t"], 16, has_no_waiters)}


def partition_of(delivery: Delivery) -> int:
    assert delivery._batch_result.topic_partition is not None
    return delivery._batch_result.topic_partition.partition


# Racks


@pytest.mark.parametrize("is_adaptive", [True, False])
def test_leaders_in_the_rack_share_the_records(*, is_adaptive: bool) -> None:
    client = in_rack("a", is_adaptive=is_adaptive)
    client.follow(cluster_of((1, 2, 3, -1, 2, 1), racks=RACKS))

    counts = chosen(client.partitions, 300)

    assert set(counts) == {0, 2, 5}
    assert min(counts.values()) > 60
    assert candidates(client.partitions) <= {0, 2, 5}


@pytest.mark.parametrize("racks", [{}, {1: "b", 2: "b"}, {1: "b", 2: "b", 9: "a"}, {1: "A", 2: ""}], ids=str)
def test_all_leaders_are_preferred_when_none_is_in_the_rack(racks: dict[int, str]) -> None:
    """Node 9 is in the rack but leads nothing; names of racks are compared exactly."""
    client = in_rack("a")
    client.follow(cluster_of((1, 2, -1), racks=racks))

    assert set(chosen(client.partitions)) == {0, 1}
    assert candidates(client.partitions) == {0, 1}


def test_rack_is_left_while_it_has_no_leader_and_then_used_again() -> None:
    client = in_rack("b")
    found = []
    for epoch, leaders in enumerate([(1, 2, 3), (1, -1, 3), (-1, -1, -1), (1, 2, 3), (2, 1, 3)]):
        client.follow(cluster_of(leaders, epoch=epoch, racks=RACKS))
        found.append(set(chosen(client.partitions)))

    assert found == [{1}, {0, 2}, {0, 1, 2}, {1}, {0}]


def test_broker_that_moves_to_another_rack_is_followed() -> None:
    """No leader changes, so the topic is not followed again."""
    client = in_rack("b")
    before = cluster_of((1, 2, 3), racks=RACKS)
    client.follow(before)
    assert set(chosen(client.partitions)) == {1}

    nodes = cluster_of((), racks={3: "b"}).nodes
    client.follow(Cluster(nodes=MappingProxyType(dict(nodes)), topics=before.topics))

    assert set(chosen(client.partitions)) == {2}


def test_shorter_queue_is_preferred_within_the_rack_alone() -> None:
    client = in_rack("a")
    client.follow(cluster_of((1, 2, 3), racks=RACKS))
    core = CoreParts(leaders=(1,))
    core.send(bytes(100))
    queue = client.partitions.use(client.partitions.topics["t"], 0)
    queue.queued.extend(core.accumulator.unfinished()[0][1] * 3)

    counts = chosen(client.partitions, 400)

    assert set(counts) == {0, 2}
    assert counts[0] < 150


def test_sticky_partition_is_left_when_its_leader_changes_rack() -> None:
    core = CoreParts(leaders=(1, 2, 3), rack="b", racks=RACKS)
    partitions, topic = core.accumulator.partitions, core.appender.topics["t"]
    assert partition_of(core.send(partition=None)) == 1
    topic.follow_to(partitions.use(topic, 1))

    core.lead((2, 1, 3), epoch=1)

    assert partition_of(core.send(partition=None)) == 0
    assert candidates(partitions) == {0}


# Availability


def core_with_timeout(leaders: tuple[int, ...] = (1, 2, 3), timeout_s: float = 1.0) -> CoreParts:
    return CoreParts(leaders=leaders, linger_s=0.0, availability_timeout_s=timeout_s)


def wait(core: CoreParts, node_id: int, seconds: float) -> None:
    """Let a node take nothing for a while."""
    core.accumulator.nodes.note_waiting(core.node(node_id), core.now)
    core.now += seconds
    core.timers.fire(core.now)


def test_node_with_overdue_batches_gets_no_keyless_records() -> None:
    core = core_with_timeout()
    core.send(partition=0)

    wait(core, 1, 0.9)
    assert set(chosen(core.accumulator.partitions)) == {0, 1, 2}
    wait(core, 1, 0.2)  # the second wait is the same one

    assert set(chosen(core.accumulator.partitions)) == {1, 2}
    assert candidates(core.accumulator.partitions) == {1, 2}


@pytest.mark.parametrize("before_s", [0.9, 1.0], ids=["available", "unavailable"])
def test_time_begins_again_when_a_node_drains(before_s: float) -> None:
    core = core_with_timeout()
    core.send(partition=0)
    wait(core, 1, before_s)

    core.drain()

    wait(core, 1, 0.9)
    assert set(chosen(core.accumulator.partitions)) == {0, 1, 2}


def test_node_is_available_again_when_its_batches_move_away() -> None:
    core = core_with_timeout((1, 1, 2))
    core.send(partition=0)
    wait(core, 1, 1.0)
    assert set(chosen(core.accumulator.partitions)) == {2}

    core.lead((2, 1, 2), epoch=1)

    assert set(chosen(core.accumulator.partitions)) == {0, 1, 2}


def test_all_nodes_are_candidates_when_none_takes_batches() -> None:
    core = core_with_timeout((1, 2, -1))
    for partition, node_id in enumerate((1, 2)):
        core.send(partition=partition)
        core.accumulator.nodes.note_waiting(core.node(node_id), core.now)
    wait(core, 1, 1.0)

    assert set(chosen(core.accumulator.partitions)) == {0, 1}


def test_sticky_partition_is_left_when_its_node_is_unavailable() -> None:
    """Otherwise records join its open batch until that is full."""
    core = core_with_timeout()
    first = partition_of(core.send(partition=None))
    assert partition_of(core.send(partition=None)) == first

    wait(core, first + 1, 1.0)

    assert partition_of(core.send(partition=None)) != first


def test_nodes_are_always_available_without_a_timeout() -> None:
    core = core_with_timeout(timeout_s=0.0)
    core.send(partition=0)

    wait(core, 1, 1_000_000.0)

    assert set(chosen(core.accumulator.partitions)) == {0, 1, 2}


def test_racks_are_chosen_among_available_nodes() -> None:
    timers = TimerHeap(lambda _: None)
    nodes = Nodes(timers, on_unavailable=lambda _: None, availability_timeout_s=1.0, rack="a")
    nodes.update(cluster_of((1, 2, 3), racks=RACKS), NO_CONNECTIONS)
    leaders, found = frozenset(nodes.of(node_id) for node_id in (1, 2, 3)), []
    for node_id in (1, 3, 2):
        found.append({node.id for node in nodes.preferred(leaders)})
        nodes.note_waiting(nodes.of(node_id), 0.0)
        timers.fire(1.0)

    assert found == [{1, 3}, {3}, {2}]
    assert {node.id for node in nodes.preferred(leaders)} == {1, 3}  # none is available
