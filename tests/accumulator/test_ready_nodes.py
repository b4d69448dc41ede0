"""Partitions that are ready to be sent, lingers that end together, and partitions without a leader."""

from typing import cast

import pytest

from aioproducer._accumulator.partition import Batch, Node, Partition, Topic
from aioproducer._accumulator.producer_identity import OwnPartitionIdentity, ProducerIdentity
from aioproducer._accumulator.record_accumulator import ReadyNodes
from aioproducer._timing.wakeup import Wakeup
from tests.fakes.core_parts import CoreParts, EventNotes, values

NO_WAKEUP = cast("Wakeup", EventNotes())


def partition(number: int, leader: Node | None) -> Partition:
    identity = OwnPartitionIdentity(ProducerIdentity(is_enabled=True))
    partition = Partition(Topic("t", is_adaptive=True), number, identity, max_in_flight=5)
    partition.leader = leader
    return partition


class TwoReady:
    """Two ready partitions of a node."""

    def __init__(self) -> None:
        self.ready, self.node = ReadyNodes(NO_WAKEUP), Node(1)
        self.first, self.second = partition(0, self.node), partition(1, self.node)
        self.ready.add(self.first)
        self.ready.add(self.second)

    def take_all(self) -> list[Partition]:
        return [self.ready.take_first(self.node) for _ in range(len(self.node.ready))]


def test_partitions_are_taken_in_the_order_they_became_ready() -> None:
    both = TwoReady()

    assert both.take_all() == [both.first, both.second]


def test_partition_stands_in_its_queue_once() -> None:
    both = TwoReady()
    both.ready.add(both.first)

    assert both.take_all() == [both.first, both.second]


def test_partition_offered_again_goes_to_the_end() -> None:
    both = TwoReady()

    taken = both.ready.take_first(both.node)
    assert taken is both.first
    both.ready.add(taken)

    assert both.take_all() == [both.second, both.first]


def test_partition_without_room_in_a_request_keeps_its_turn() -> None:
    both = TwoReady()
    both.ready.take_first(both.node)

    both.ready.offer_first(both.first)

    assert both.take_all() == [both.first, both.second]


def test_partition_that_keeps_its_turn_can_still_move() -> None:
    both = TwoReady()
    both.ready.take_first(both.node)

    both.ready.offer_first(both.first)

    both.ready.withdraw(both.first)
    assert both.take_all() == [both.second]


def test_nodes_are_served_apart() -> None:
    ready, here, there = ReadyNodes(NO_WAKEUP), Node(1), Node(2)
    ready.add(partition(0, here))
    ready.add(partition(1, there))
    assert ready.nodes == [here, there]

    ready.take_first(here)

    assert ready.nodes == [there]


def test_partition_without_a_leader_is_remembered() -> None:
    ready, lost = ReadyNodes(NO_WAKEUP), partition(0, None)

    ready.add(lost)

    assert (list(ready.leaderless["t"]), ready.nodes) == ([lost], [])


def test_withdrawn_partition_stands_nowhere() -> None:
    """The leader is about to change; a partition that was not queued stays so."""
    ready, node = ReadyNodes(NO_WAKEUP), Node(1)
    led, lost, idle = partition(0, node), partition(1, None), partition(2, node)
    ready.add(led)
    ready.add(lost)

    for each in (led, lost, idle):
        ready.withdraw(each)

    assert (ready.nodes, list(ready.leaderless)) == ([], [])


# Partitions that have something to send and no leader: metadata is asked for their topics


def leaderless(partitions: int) -> CoreParts:
    core = CoreParts(leaders=(-1,) * partitions)
    for partition in range(partitions):
        core.send(partition=partition)
    core.flush()
    return core


def topics_asked_for(core: CoreParts) -> set[str]:
    core.accumulator.withdraw_idle()
    return core.accumulator.leaderless_topics


def end_batch(core: CoreParts, partition: int) -> None:
    core.partition(partition).queued.popleft()


@pytest.mark.parametrize("partitions", [1, 50])
def test_turn_looks_at_one_partition_of_a_topic(partitions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking at all would delay other topics by thousands of partitions whose broker is gone."""
    core = leaderless(partitions)
    looked_at: list[Partition] = []
    original = Partition.first_sendable

    def first_sendable(partition: Partition) -> Batch | None:
        looked_at.append(partition)
        return original(partition)

    monkeypatch.setattr(Partition, "first_sendable", first_sendable)

    assert topics_asked_for(core) == {"t"}
    assert looked_at == [core.partition(0)]


@pytest.mark.parametrize("last", [0, 1, 2])
def test_topic_is_asked_for_while_any_partition_has_records(last: int) -> None:
    """Not for records that were too late, or whose topic is gone: else metadata would be asked for without end."""
    core = leaderless(3)
    for partition in {0, 1, 2} - {last}:
        end_batch(core, partition)
    assert topics_asked_for(core) == {"t"}

    end_batch(core, last)

    assert topics_asked_for(core) == set()
    core.send(partition=1)
    core.flush()
    assert topics_asked_for(core) == {"t"}


def test_partition_that_was_not_looked_at_goes_to_its_leader() -> None:
    core = leaderless(3)
    end_batch(core, 1)
    assert topics_asked_for(core) == {"t"}

    core.lead((1, 1, 1), epoch=1)

    assert topics_asked_for(core) == set()
    assert [batch.partition for batch in core.drain()] == [core.partition(0), core.partition(2)]


# When the linger of one batch is over, the others for its node are sent with it, and no others


LEADERS = (1, 2, 1, 2, 1)


def offered(core: CoreParts) -> list[int]:
    return [number for number in range(len(LEADERS)) if core.partition(number).is_offered]


def opened_in_turn(**settings: float) -> CoreParts:
    """A batch in a partition each millisecond; the linger of the first is over a millisecond later."""
    core = CoreParts(leaders=LEADERS, **{"linger_s": 0.005} | settings)
    for number in range(len(LEADERS)):
        core.send(partition=number)
        core.pass_time(0.00099)
    return core


def test_batches_of_a_node_go_when_the_first_linger_ends() -> None:
    """One request carries all of them; no request of another node is hurried."""
    core = opened_in_turn()

    core.pass_time(0.0001)

    assert offered(core) == [0, 2, 4]


def test_node_gets_one_request_per_linger() -> None:
    """Each batch is opened behind the last request, so none of their lingers ends early."""
    core = CoreParts(leaders=[1] * 50, linger_s=0.0505)
    requests = 0
    for turn in range(1010):
        core.send(partition=turn * 7 % 50)
        core.pass_time(0.001)
        drained = core.drain()
        requests += bool(drained)
        for batch in drained:
            core.acknowledge(batch)

    assert requests == 1010 // 51


def test_batch_that_goes_along_takes_records_until_it_is_drained() -> None:
    core = opened_in_turn()
    core.pass_time(0.0001)
    core.send(partition=2)

    assert values(core.drain()) == [1, 2, 1]


def test_awaited_or_full_batch_takes_no_other_along() -> None:
    core = opened_in_turn(batch_size=1024)
    core.send(bytes(2000), partition=0)
    core.send(partition=1).add_done_callback(lambda _: None)

    assert offered(core) == [0, 1]


def test_linger_of_a_ready_batch_takes_no_other_along() -> None:
    """The ready batch was awaited, and stays because no broker takes it: it does not go now either."""
    core = opened_in_turn()
    core.send(partition=0).add_done_callback(lambda _: None)

    core.pass_time(0.0001)

    assert offered(core) == [0]


def test_batch_that_was_closed_is_not_taken_along() -> None:
    """The next batch of its partition waits for the node's next linger, too."""
    core = opened_in_turn()
    core.open_batches.close(core.partition(2))
    [closed] = core.drain()

    core.pass_time(0.0001)

    assert (closed.partition, offered(core)) == (core.partition(2), [0, 4])


def test_linger_cut_by_age_takes_others_along() -> None:
    """A tenth of `delivery.timeout.ms` is the longest linger that is kept."""
    core = opened_in_turn(linger_s=60, delivery_timeout_s=0.05)

    core.pass_time(0.0001)

    assert offered(core) == [0, 2, 4]


def test_moved_partition_goes_with_its_former_leaders_batches() -> None:
    core = opened_in_turn()
    core.lead((1, 2, 2, 2, 1), epoch=1)

    core.pass_time(0.0001)

    assert offered(core) == [0, 2, 4]
    assert (len(core.drain(1)), len(core.drain(2))) == (2, 1)
