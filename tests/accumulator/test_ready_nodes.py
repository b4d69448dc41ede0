"""Partitions that are ready to be sent, lingers that end together, and partitions without a leader."""

import pytest

from aioproducer._accumulator.partition import Batch, Partition
from aioproducer._accumulator.producer_identity import IdempotentPartitionIdentity, ProducerIdentity
from aioproducer._accumulator.record_accumulator import ReadyNodes
from aioproducer.records import TopicPartition
from tests.fakes.core_parts import CoreParts, values


def partition(number: int, leader_id: int | None = 1) -> Partition:
    identity = IdempotentPartitionIdentity(ProducerIdentity(is_enabled=True))
    partition = Partition(TopicPartition("t", number), identity, max_in_flight=5)
    partition.leader_id = leader_id
    return partition


def two_ready() -> tuple[ReadyNodes, Partition, Partition]:
    ready, first, second = ReadyNodes(lambda: None), partition(0), partition(1)
    ready.add(first)
    ready.add(second)
    return ready, first, second


def test_partitions_are_taken_in_the_order_they_became_ready() -> None:
    ready, first, second = two_ready()

    assert [ready.take_first(1) for _ in range(3)] == [first, second, None]


def test_partition_stands_in_its_queue_once() -> None:
    ready, only = ReadyNodes(lambda: None), partition(0)
    ready.add(only)
    ready.add(only)

    assert ready.count(1) == 1
    assert [ready.take_first(1), ready.take_first(1)] == [only, None]


def test_partition_offered_again_goes_to_the_end() -> None:
    ready, first, second = two_ready()

    taken = ready.take_first(1)
    assert taken is first
    ready.add(first)

    assert [ready.take_first(1), ready.take_first(1)] == [second, first]


def test_partition_without_room_in_a_request_keeps_its_turn() -> None:
    ready, first, second = two_ready()
    ready.take_first(1)

    ready.offer_first(first)

    assert [ready.take_first(1), ready.take_first(1)] == [first, second]


def test_partition_that_keeps_its_turn_can_still_move() -> None:
    ready, only = ReadyNodes(lambda: None), partition(0)
    ready.add(only)
    ready.take_first(1)

    ready.offer_first(only)

    ready.withdraw(only)
    assert ready.take_first(1) is None


def test_nodes_are_served_apart() -> None:
    ready, here, there = ReadyNodes(lambda: None), partition(0, 1), partition(1, 2)
    ready.add(here)
    ready.add(there)
    assert ready.node_ids == [1, 2]

    ready.take_first(1)

    assert (ready.node_ids, ready.take_first(3), ready.count(3)) == ([2], None, 0)


def test_partition_without_a_leader_is_remembered() -> None:
    ready, lost = ReadyNodes(lambda: None), partition(0, None)

    ready.add(lost)

    assert (list(ready.leaderless["t"]), ready.node_ids) == ([lost], [])


def test_withdrawn_partition_stands_nowhere() -> None:
    """The leader is about to change; a partition that was not queued stays so."""
    ready, led, lost, idle = ReadyNodes(lambda: None), partition(0), partition(1, None), partition(2)
    ready.add(led)
    ready.add(lost)

    for each in (led, lost, idle):
        ready.withdraw(each)

    assert (ready.node_ids, list(ready.leaderless)) == ([], [])


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
