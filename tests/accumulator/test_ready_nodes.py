"""Ready partitions stand in their leader's queue once, and take turns."""

from aioproducer._accumulator.partition_queue import PartitionQueue
from aioproducer._accumulator.producer_identity import PartitionIdentity, ProducerIdentity
from aioproducer._accumulator.ready_nodes import ReadyNodes
from aioproducer.records import TopicPartition


def partition(number: int, leader_id: int | None = 1) -> PartitionQueue:
    identity = PartitionIdentity(ProducerIdentity(is_enabled=True))
    queue = PartitionQueue(TopicPartition("t", number), identity, max_in_flight=5)
    queue.leader_id = leader_id
    return queue


def test_partitions_are_taken_in_the_order_they_became_ready() -> None:
    ready, first, second = ReadyNodes(), partition(0), partition(1)
    ready.offer(first)
    ready.offer(second)

    assert [ready.take_first(1) for _ in range(3)] == [first, second, None]


def test_partition_stands_in_its_queue_once() -> None:
    ready, only = ReadyNodes(), partition(0)
    ready.offer(only)
    ready.offer(only)

    assert ready.count(1) == 1
    assert [ready.take_first(1), ready.take_first(1)] == [only, None]


def test_partition_offered_again_goes_to_the_end() -> None:
    ready, first, second = ReadyNodes(), partition(0), partition(1)
    ready.offer(first)
    ready.offer(second)

    taken = ready.take_first(1)
    assert taken is first
    ready.offer(first)

    assert [ready.take_first(1), ready.take_first(1)] == [second, first]


def test_partition_without_room_in_a_request_keeps_its_turn() -> None:
    ready, first, second = ReadyNodes(), partition(0), partition(1)
    ready.offer(first)
    ready.offer(second)
    ready.take_first(1)

    ready.offer_first(first)

    assert [ready.take_first(1), ready.take_first(1)] == [first, second]


def test_partition_that_keeps_its_turn_can_still_move() -> None:
    ready, only = ReadyNodes(), partition(0)
    ready.offer(only)
    ready.take_first(1)

    ready.offer_first(only)

    ready.withdraw(only)
    assert ready.take_first(1) is None


def test_nodes_are_served_apart() -> None:
    ready, here, there = ReadyNodes(), partition(0, 1), partition(1, 2)
    ready.offer(here)
    ready.offer(there)
    assert ready.node_ids == [1, 2]

    ready.take_first(1)

    assert (ready.node_ids, ready.take_first(3), ready.count(3)) == ([2], None, 0)


def test_partition_without_a_leader_is_remembered() -> None:
    ready, lost = ReadyNodes(), partition(0, None)

    ready.offer(lost)

    assert (list(ready.leaderless["t"]), ready.node_ids) == ([lost], [])


def test_withdrawn_partition_stands_nowhere() -> None:
    """The leader is about to change; a partition that was not queued stays so."""
    ready, led, lost, idle = ReadyNodes(), partition(0), partition(1, None), partition(2)
    ready.offer(led)
    ready.offer(lost)

    for each in (led, lost, idle):
        ready.withdraw(each)

    assert (ready.node_ids, list(ready.leaderless)) == ([], [])
