"""Ready partitions stand in their leader's queue once, and take turns."""

from aioproducer._accumulator.partition_queue import PartitionQueue
from aioproducer._accumulator.producer_identity import IdempotentPartitionIdentity, ProducerIdentity
from aioproducer._accumulator.ready_nodes import ReadyNodes
from aioproducer.records import TopicPartition


def partition(number: int, leader_id: int | None = 1) -> PartitionQueue:
    """A partition and its leader."""
    identity = IdempotentPartitionIdentity(ProducerIdentity(is_enabled=True))
    queue = PartitionQueue(TopicPartition("t", number), identity, max_in_flight=5)
    queue.leader_id = leader_id
    return queue


def test_partitions_are_taken_in_the_order_in_which_they_became_ready() -> None:
    """First come, first served."""
    ready, first, second = ReadyNodes(), partition(0), partition(1)
    ready.offer(first)
    ready.offer(second)

    assert [ready.take_first(1) for _ in range(3)] == [first, second, None]


def test_partition_stands_in_its_queue_once() -> None:
    """However often it is offered."""
    ready, only = ReadyNodes(), partition(0)
    ready.offer(only)
    ready.offer(only)

    assert ready.count(1) == 1
    assert [ready.take_first(1), ready.take_first(1)] == [only, None]


def test_partition_offered_again_goes_to_the_end() -> None:
    """The others have their turn first."""
    ready, first, second = ReadyNodes(), partition(0), partition(1)
    ready.offer(first)
    ready.offer(second)

    taken = ready.take_first(1)
    assert taken is first
    ready.offer(first)

    assert [ready.take_first(1), ready.take_first(1)] == [second, first]


def test_partition_that_found_no_room_in_a_request_keeps_its_turn() -> None:
    """It is first in the next."""
    ready, first, second = ReadyNodes(), partition(0), partition(1)
    ready.offer(first)
    ready.offer(second)
    ready.take_first(1)

    ready.offer_first(first)

    assert [ready.take_first(1), ready.take_first(1)] == [first, second]


def test_partition_that_keeps_its_turn_can_still_move_to_another_leader() -> None:
    """Else its next batch would be sent to the old one."""
    ready, only = ReadyNodes(), partition(0)
    ready.offer(only)
    ready.take_first(1)

    ready.offer_first(only)

    ready.withdraw(only)
    assert ready.take_first(1) is None


def test_nodes_are_served_apart() -> None:
    """And only those with something ready are named."""
    ready, here, there = ReadyNodes(), partition(0, 1), partition(1, 2)
    ready.offer(here)
    ready.offer(there)
    assert ready.node_ids == [1, 2]

    ready.take_first(1)

    assert (ready.node_ids, ready.take_first(3), ready.count(3)) == ([2], None, 0)


def test_partition_without_a_leader_is_remembered() -> None:
    """Metadata must be asked for it."""
    ready, lost = ReadyNodes(), partition(0, None)

    ready.offer(lost)

    assert (list(ready.leaderless["t"]), ready.node_ids) == ([lost], [])


def test_withdrawn_partition_stands_nowhere() -> None:
    """Its leader is about to change; one that stood nowhere does as before."""
    ready, led, lost, idle = ReadyNodes(), partition(0), partition(1, None), partition(2)
    ready.offer(led)
    ready.offer(lost)

    for each in (led, lost, idle):
        ready.withdraw(each)

    assert (ready.node_ids, list(ready.leaderless)) == ([], [])


def test_ready_nodes_show_how_many_are_ready_where() -> None:
    """In one line."""
    ready = ReadyNodes()
    for each in (partition(0), partition(1), partition(2, 2), partition(3, None)):
        ready.offer(each)
    ready.take_first(2)

    assert repr(ready) == "<ReadyNodes {1: 2} leaderless=1>"
