"""Partitions in use follow metadata, keep their identities, and are chosen for keyless records."""

from collections import Counter
from types import MappingProxyType

import pytest

from aioproducer._accumulator.topic_partitions import TopicPartitions
from aioproducer._native.append import OpenPartition, TopicInfo
from aioproducer._native.delivery import Delivery
from aioproducer.cluster import Cluster, Partitions, PartitionView, TopicView
from aioproducer.records import TopicPartition
from tests.fakes.core_parts import CoreParts, cluster_of
from tests.fakes.partitions_followed import in_use, use_all


def chosen(partitions: TopicPartitions, topic: TopicInfo, times: int = 200) -> Counter[int]:
    """How often each partition was chosen."""
    return Counter(partitions.choose(topic, 0.0) for _ in range(times))


# Following metadata


def test_topic_becomes_usable_once() -> None:
    """Later news of it wake nobody."""
    partitions, _ = in_use()

    assert partitions.update(cluster_of((1, 2))) == ["t"]
    assert partitions.update(cluster_of((2, 1), epoch=1)) == []


def test_topic_without_partitions_is_not_usable() -> None:
    """It is in an error, or being created."""
    partitions, _ = in_use()

    assert partitions.update(cluster_of(())) == []
    assert partitions.topics == {}


def test_leader_is_set_when_it_changes_and_only_then() -> None:
    """Nobody, first; then whom metadata names."""
    partitions, moves = in_use()
    partitions.update(cluster_of((1, -1)))
    use_all(partitions)
    partitions.update(cluster_of((1, -1), epoch=1))
    partitions.update(cluster_of((2, 3), epoch=2))
    partitions.update(cluster_of((-1, 3), epoch=3))

    assert moves.seen == [(0, 1), (0, 2), (1, 3), (0, None)]


def test_leaders_are_the_nodes_that_lead_something() -> None:
    """A node that lost its last partition is none."""
    partitions, _ = in_use()
    partitions.update(cluster_of((1, 1, 2)))
    assert set(partitions.leaders) == {1, 2}

    partitions.update(cluster_of((1, 1, 1), epoch=1))

    assert set(partitions.leaders) == {1}


def test_leader_that_left_the_cluster_is_nobody() -> None:
    """Also when the topic's own view is the same object as before."""
    partitions, moves = in_use()
    before = cluster_of((1, 2))
    partitions.update(before)
    use_all(partitions)
    nodes = {node_id: node for node_id, node in before.nodes.items() if node_id != 2}

    partitions.update(Cluster(nodes=MappingProxyType(nodes), topics=before.topics))

    assert moves.seen[-1] == (1, None)


def test_partitions_that_join_keep_those_that_were_there() -> None:
    """Their epoch and sequence survive."""
    partitions, _ = in_use()
    partitions.update(cluster_of((1,)))
    first = partitions.queue(TopicPartition("t", 0))

    partitions.update(cluster_of((1, 2, 1)))
    use_all(partitions)

    assert partitions.queue(TopicPartition("t", 0)) is first
    assert [queue.leader_id for queue in partitions.queues()] == [1, 2, 1]


def test_topic_that_metadata_forgot_keeps_its_partitions_without_leaders() -> None:
    """Under another identity brokers could take its next records for copies of old ones."""
    partitions, moves = in_use()
    known = cluster_of((1,))
    partitions.update(known)
    first = partitions.queue(TopicPartition("t", 0))

    partitions.update(Cluster(nodes=known.nodes, topics=MappingProxyType({})))
    assert (first.leader_id, set(partitions.leaders)) == (None, set())
    assert (partitions.is_forgotten("t"), partitions.topics["t"].held) == (True, 1)  # records wait to be told of more
    partitions.update(known)

    assert (partitions.queue(TopicPartition("t", 0)), first.leader_id) == (first, 1)
    assert (partitions.is_forgotten("t"), partitions.topics["t"].held) == (False, 0)
    assert not partitions.is_forgotten("never used")
    assert moves.renewed == []


# Choosing


def test_keyless_records_are_spread_over_all_partitions() -> None:
    """Evenly while all are equally busy."""
    partitions, _ = in_use()
    partitions.update(cluster_of((1, 2, 3, 1)))

    counts = chosen(partitions, partitions.topics["t"], 400)

    assert set(counts) == {0, 1, 2, 3}
    assert min(counts.values()) > 60


def test_partition_without_a_leader_is_not_chosen_while_others_have_one() -> None:
    """Its records would wait."""
    partitions, _ = in_use()
    partitions.update(cluster_of((-1, 2, -1)))

    assert set(chosen(partitions, partitions.topics["t"])) == {1}


@pytest.mark.parametrize("leaders", [(1, -1, 1), (2, -1, -1, -1, -1, -1, 2), (1, *(-1,) * 60, 1)])
def test_no_partition_inherits_the_records_of_its_neighbours_without_a_leader(leaders: tuple[int, ...]) -> None:
    """Each that has one is as likely as the others, however few they are."""
    partitions, _ = in_use()
    partitions.update(cluster_of(leaders))

    counts = chosen(partitions, partitions.topics["t"], 400)

    assert set(counts) == {0, len(leaders) - 1}
    assert min(counts.values()) > 160


def test_some_partition_is_chosen_although_none_has_a_leader() -> None:
    """The record waits there for one."""
    partitions, _ = in_use()
    partitions.update(cluster_of((-1, -1)))

    assert set(chosen(partitions, partitions.topics["t"])) == {0, 1}


@pytest.mark.parametrize("is_adaptive", [True, False])
def test_busy_partition_is_chosen_less_often_if_adaptive(*, is_adaptive: bool) -> None:
    """Of two at random the shorter queue (KIP-794)."""
    core = CoreParts(leaders=(1, 1))
    core.send(partition=0)
    core.flush()
    partitions, _ = in_use(is_adaptive=is_adaptive)
    partitions.update(cluster_of((1, 1)))
    partitions.queue(TopicPartition("t", 0)).queued.extend(core.queue(0).queued)

    share = chosen(partitions, partitions.topics["t"], 400)[0] / 400

    assert (share < 0.35) is is_adaptive


def partition_of(delivery: Delivery) -> int:
    """Where a record went."""
    assert delivery.batch_result.topic_partition is not None
    return delivery.batch_result.topic_partition.partition


def test_keyless_records_leave_a_partition_that_loses_its_leader() -> None:
    """At once, not after a batch's worth of bytes."""
    core = CoreParts(leaders=(1, 1, 1))
    first = partition_of(core.send(partition=None))
    assert {partition_of(core.send(partition=None)) for _ in range(20)} == {first}

    core.lead([-1 if number == first else 1 for number in range(3)])

    assert first not in {partition_of(core.send(partition=None)) for _ in range(20)}


def test_keyless_records_stay_where_another_partition_loses_its_leader() -> None:
    """Or batches would be smaller for nothing."""
    core = CoreParts(leaders=(1, 1, 1))
    first = partition_of(core.send(partition=None))

    core.lead([1 if number == first else -1 for number in range(3)])
    core.lead([1, 1, 1])

    assert {partition_of(core.send(partition=None)) for _ in range(20)} == {first}


@pytest.mark.parametrize("is_adaptive", [True, False])
def test_keyless_records_leave_a_partition_that_refuses_them(*, is_adaptive: bool) -> None:
    """Whoever awaits each would wait for a batch's worth of them; not if queues are not to be compared."""
    core = CoreParts(leaders=(1,) * 10, linger_s=0.0, is_adaptive=is_adaptive)
    first = partition_of(core.send(partition=None))

    core.refuse(core.drain()[0], pause_s=1.0)

    assert (partition_of(core.send(partition=None)) != first) is is_adaptive


def test_keyless_records_stay_in_a_partition_that_takes_them_in_a_moment() -> None:
    """A transaction would write to one partition more each time that markers are waited for."""
    core = CoreParts(leaders=(1,) * 10, linger_s=0.0)
    first = partition_of(core.send(partition=None))

    core.refuse(core.drain()[0], pause_s=0.02, is_healthy=True)

    assert partition_of(core.send(partition=None)) == first


# Candidates for records that waited


def nobody_waits(slot: OpenPartition) -> bool:
    """Whether a partition has no line."""
    return not slot.line


def test_candidates_are_one_a_leader() -> None:
    """Memory that one leader has no share of, another may have."""
    partitions, _ = in_use()
    partitions.update(cluster_of((1, 1, 2, 2, 3, -1)))

    leaders = [slot.queue.leader_id for slot in partitions.candidates(partitions.topics["t"], 16, nobody_waits)]

    assert sorted(leaders, key=str) == [1, 2, 3]


def test_candidates_are_bounded() -> None:
    """By what the caller wants to try."""
    partitions, _ = in_use()
    partitions.update(cluster_of(tuple(range(1, 10))))

    assert len(partitions.candidates(partitions.topics["t"], 4, nobody_waits)) == 4


def test_partition_in_which_others_wait_is_no_candidate() -> None:
    """The record would overtake them."""
    partitions, _ = in_use()
    partitions.update(cluster_of((1, 2)))
    topic = partitions.topics["t"]
    partitions.slot(topic, 0).line = 1

    assert partitions.candidates(topic, 16, nobody_waits) == [topic.slots[1]]


def test_partition_without_a_leader_is_a_candidate_of_last_resort() -> None:
    """When there is no other."""
    partitions, _ = in_use()
    partitions.update(cluster_of((-1, -1)))

    [candidate] = partitions.candidates(partitions.topics["t"], 16, nobody_waits)

    assert candidate.queue.leader_id is None


def test_last_choice_is_tried_first_while_its_batch_is_open() -> None:
    """Records that waited fill a batch together; whoever comes next joins them."""
    core = CoreParts(leaders=(1, 2, 3))
    topic = core.appender.topics["t"]
    core.send(partition=1)
    core.accumulator.partitions.note_chosen(topic, core.accumulator.partitions.slot(topic, 1))

    assert core.accumulator.partitions.candidates(topic, 16, nobody_waits)[0] is topic.slots[1]
    assert core.send(partition=None).batch_result.topic_partition == ("t", 1)
    core.flush()

    assert len(core.accumulator.partitions.candidates(topic, 16, nobody_waits)) == 3


def test_keyless_records_go_on_to_where_one_of_them_found_room_although_they_had_turned_elsewhere() -> None:
    """Else each of them would stand in line: the partition chosen for a batch's worth of them had no memory."""
    core = CoreParts(leaders=(1,) * 30)
    partitions, topic = core.accumulator.partitions, core.appender.topics["t"]
    partitions.note_chosen(topic, partitions.slot(topic, 0))
    for _ in range(17):
        core.send(bytes(1000), partition=None)
    elsewhere = partition_of(core.send(partition=None))

    partitions.note_chosen(topic, partitions.slot(topic, 0))

    assert (elsewhere != 0, partition_of(core.send(partition=None))) == (True, 0)


def test_choice_that_is_noted_again_lasts_no_longer_for_it() -> None:
    """A batch's worth of bytes, then the next partition."""
    core = CoreParts(leaders=(1,) * 30)
    partitions, topic = core.accumulator.partitions, core.appender.topics["t"]
    found = set()
    for _ in range(17):
        partitions.note_chosen(topic, partitions.slot(topic, 0))
        found.add(partition_of(core.send(bytes(1000), partition=None)))

    assert found > {0}


def test_last_choice_is_tried_no_more_once_it_has_no_leader() -> None:
    """Although its batch is open: who waits there would wait for a leader too."""
    core = CoreParts(leaders=(1, 2, 3))
    partitions, topic = core.accumulator.partitions, core.appender.topics["t"]
    core.send(partition=1)
    partitions.note_chosen(topic, partitions.slot(topic, 1))

    core.lead((1, -1, 3))

    assert topic.slots[1] not in partitions.candidates(topic, 16, nobody_waits)
    assert partition_of(core.send(partition=None)) != 1


def test_topic_of_which_nothing_changed_costs_nothing() -> None:
    """The same view is not looked into, whatever becomes of other topics."""
    partitions, moves = in_use()
    known = cluster_of((1,))
    partitions.update(known)
    use_all(partitions)
    other = TopicView("u", b"u" * 16, Partitions.of([PartitionView(2, 0)]), 0)

    fresh = partitions.update(Cluster(nodes=known.nodes, topics=MappingProxyType({**known.topics, "u": other})))

    use_all(partitions)
    assert (fresh, moves.seen) == (["u"], [(0, 1), (0, 2)])


def places_of_a_trickle(core: CoreParts) -> list[int]:
    """Where keyless records go that are called 60 ms apart, and leave at once."""
    places = []
    for _ in range(4):
        places.append(partition_of(core.send(partition=None)))
        core.pass_time(0.060)
        for batch in core.drain():
            core.acknowledge(batch)
    return places


def test_choice_ends_with_a_batch_after_a_tenth_of_a_second() -> None:
    """A batch's worth of bytes would take this trickle minutes, all of them in one partition."""
    first, second, third, fourth = places_of_a_trickle(CoreParts(leaders=[1] * 50, linger_s=0))

    assert (first, third) == (second, fourth)
    assert first != third


def test_choice_ends_by_bytes_alone_where_it_is_not_adaptive_and_in_transactions() -> None:
    """As it was asked to; and each partition more would be one more to end the transaction in."""
    plain = CoreParts(leaders=[1] * 50, linger_s=0, is_adaptive=False)
    transactional = CoreParts(leaders=[1] * 50, linger_s=0)
    transactional.open_batches.on_opened = lambda _: None

    assert [len(set(places_of_a_trickle(core))) for core in (plain, transactional)] == [1, 1]


def test_choice_that_is_old_ends_no_batch_before_its_linger() -> None:
    """Batches are as full as they would be: the next one goes elsewhere, not the next record."""
    core = CoreParts(leaders=[1] * 50, linger_s=0.3)
    places = set()
    for _ in range(4):
        places.add(partition_of(core.send(partition=None)))
        core.pass_time(0.060)

    assert len(places) == 1
