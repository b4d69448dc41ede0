"""Partitions in use follow metadata, keep their identities, and are chosen for keyless records."""

from collections import Counter
from dataclasses import replace
from types import MappingProxyType
from typing import NoReturn

import pytest

from aioproducer._accumulator.partition import Partition, Topic
from aioproducer._accumulator.producer_identity import ProducerIdentity
from aioproducer._accumulator.topic_partitions import TopicPartitions
from aioproducer._native.delivery import Delivery
from aioproducer._protocol.primitives import NO_TOPIC_ID
from aioproducer.cluster import Cluster, Partitions, PartitionView, TopicView
from aioproducer.records import TopicPartition
from tests.fakes.core_parts import CoreParts, Moves, cluster_of, follow, in_use, leader_id, use_all


def leader_ids(partitions: TopicPartitions) -> set[int]:
    return {node.id for node in partitions.leaders}


def following(*arguments: object, **options: object) -> tuple[TopicPartitions, Moves]:
    """Partitions that follow the cluster of these leaders."""
    partitions, moves = in_use()
    follow(partitions, cluster_of(*arguments, **options))
    return partitions, moves


def chosen(partitions: TopicPartitions, topic: Topic, times: int = 200) -> Counter[int]:
    return Counter(partitions.choose(topic, 0.0) for _ in range(times))


# Following metadata


def test_topic_becomes_usable_once() -> None:
    partitions, _ = in_use()

    assert follow(partitions, cluster_of((1, 2))) == ["t"]
    assert follow(partitions, cluster_of((2, 1), epoch=1)) == []


def test_use_of_a_topic_that_has_changed_is_noted_again() -> None:
    """It may be in error, and then its next use asks for it."""
    partitions, _ = following((1, 2))
    topic = partitions.topics["t"]
    topic.noted_until = 100.0

    follow(partitions, cluster_of((2, 1), epoch=1))

    assert topic.noted_until == 0.0


def test_topic_without_partitions_is_not_usable() -> None:
    partitions, _ = in_use()

    assert follow(partitions, cluster_of(())) == []
    assert partitions.topics == {}


def test_leader_is_set_when_it_changes_and_only_then() -> None:
    partitions, moves = following((1, -1))
    use_all(partitions)
    follow(partitions, cluster_of((1, -1), epoch=1))
    follow(partitions, cluster_of((2, 3), epoch=2))
    follow(partitions, cluster_of((-1, 3), epoch=3))

    assert moves.seen == [(0, 1), (0, 2), (1, 3), (0, None)]


def test_leaders_are_the_nodes_that_lead_something() -> None:
    partitions, _ = following((0, 0, 2))
    assert leader_ids(partitions) == {0, 2}

    follow(partitions, cluster_of((0, 0, 0), epoch=1))

    assert leader_ids(partitions) == {0}


def test_leader_that_left_the_cluster_counts_as_none() -> None:
    partitions, moves = in_use()
    before = cluster_of((1, 2))
    follow(partitions, before)
    use_all(partitions)
    nodes = {node_id: node for node_id, node in before.nodes.items() if node_id != 2}

    follow(partitions, Cluster(nodes=MappingProxyType(nodes), topics=before.topics))

    assert moves.seen[-1] == (1, None)


def test_partitions_that_join_keep_those_that_were_there() -> None:
    partitions, _ = following((1,))
    first = partitions.find(TopicPartition("t", 0))

    follow(partitions, cluster_of((1, 2, 1)))
    use_all(partitions)

    assert partitions.find(TopicPartition("t", 0)) is first
    assert [leader_id(queue) for queue in partitions.in_use()] == [1, 2, 1]


def test_topic_missing_in_metadata_keeps_its_partitions() -> None:
    """Under another identity brokers could take its next records for duplicates of old ones."""
    partitions, moves = in_use()
    known = cluster_of((1,))
    follow(partitions, known)
    first = partitions.find(TopicPartition("t", 0))

    follow(partitions, Cluster(nodes=known.nodes, topics=MappingProxyType({})))
    assert (first.leader, list(partitions.leaders)) == (None, [])
    assert (partitions.topics["t"].view, partitions.topics["t"].blocked_count) == (None, 1)
    assert partitions.topics["t"].waits_for_metadata_alone
    partitions.topics["t"].block()  # a record is having its partition chosen
    assert not partitions.topics["t"].waits_for_metadata_alone
    partitions.topics["t"].unblock()
    follow(partitions, known)

    assert (partitions.find(TopicPartition("t", 0)), leader_id(first)) == (first, 1)
    assert (partitions.topics["t"].view, partitions.topics["t"].blocked_count) == (known.topics["t"], 0)
    assert not partitions.topics["t"].waits_for_metadata_alone
    assert moves.renewed == []


# Choosing


def test_keyless_records_are_spread_over_all_partitions() -> None:
    partitions, _ = following((1, 2, 3, 1))

    counts = chosen(partitions, partitions.topics["t"], 400)

    assert set(counts) == {0, 1, 2, 3}
    assert min(counts.values()) > 60


def test_leaderless_partition_is_not_chosen_while_others_lead() -> None:
    partitions, _ = following((-1, 2, -1))

    assert set(chosen(partitions, partitions.topics["t"])) == {1}


@pytest.mark.parametrize("leaders", [(1, -1, 1), (2, -1, -1, -1, -1, -1, 2), (1, *(-1,) * 60, 1)])
def test_records_of_leaderless_partitions_spread_evenly(leaders: tuple[int, ...]) -> None:
    """Each partition with a leader is equally likely, however few they are."""
    partitions, _ = following(leaders)

    counts = chosen(partitions, partitions.topics["t"], 400)

    assert set(counts) == {0, len(leaders) - 1}
    assert min(counts.values()) > 160


def test_some_partition_is_chosen_although_none_has_a_leader() -> None:
    partitions, _ = following((-1, -1))

    assert set(chosen(partitions, partitions.topics["t"])) == {0, 1}


@pytest.mark.parametrize("is_adaptive", [True, False])
def test_busy_partition_is_chosen_less_often_if_adaptive(*, is_adaptive: bool) -> None:
    """KIP-794: of two partitions at random the one with the shorter queue."""
    core = CoreParts(leaders=(1, 1))
    core.send(partition=0)
    core.flush()
    partitions, _ = in_use(is_adaptive=is_adaptive)
    follow(partitions, cluster_of((1, 1)))
    partitions.find(TopicPartition("t", 0)).queued.extend(core.partition(0).queued)

    share = chosen(partitions, partitions.topics["t"], 400)[0] / 400

    assert (share < 0.35) is is_adaptive


def partition_of(delivery: Delivery) -> int:
    assert delivery._batch_result.topic_partition is not None
    return delivery._batch_result.topic_partition.partition


def test_keyless_records_leave_a_partition_that_loses_its_leader() -> None:
    core = CoreParts(leaders=(1, 1, 1))
    first = partition_of(core.send(partition=None))
    assert {partition_of(core.send(partition=None)) for _ in range(20)} == {first}

    core.lead([-1 if number == first else 1 for number in range(3)])

    assert first not in {partition_of(core.send(partition=None)) for _ in range(20)}


def test_keyless_records_stay_when_another_loses_its_leader() -> None:
    core = CoreParts(leaders=(1, 1, 1))
    first = partition_of(core.send(partition=None))

    core.lead([1 if number == first else -1 for number in range(3)])
    core.lead([1, 1, 1])

    assert {partition_of(core.send(partition=None)) for _ in range(20)} == {first}


@pytest.mark.parametrize("is_adaptive", [True, False])
def test_keyless_records_leave_a_partition_that_refuses_them(*, is_adaptive: bool) -> None:
    """Callers that await each record would wait for a batch's worth of them."""
    core = CoreParts(leaders=(1,) * 10, linger_s=0.0, is_adaptive=is_adaptive)
    first = partition_of(core.send(partition=None))

    core.refuse(core.drain()[0], pause_s=1.0)

    assert (partition_of(core.send(partition=None)) != first) is is_adaptive


def test_keyless_records_stay_through_a_short_pause() -> None:
    """Each further partition would be one more for a transaction's markers."""
    core = CoreParts(leaders=(1,) * 10, linger_s=0.0)
    first = partition_of(core.send(partition=None))

    core.refuse(core.drain()[0], pause_s=0.02, is_healthy=True)

    assert partition_of(core.send(partition=None)) == first


# Candidates for records that waited


def has_no_waiters(partition: Partition) -> bool:
    return not partition.waiting_count


def test_candidates_are_one_a_leader() -> None:
    """Another leader may have a share of memory where one has none left."""
    partitions, _ = following((1, 1, 2, 2, 3, -1))

    leaders = [leader_id(partition) for partition in partitions.candidates(partitions.topics["t"], 16, has_no_waiters)]

    assert sorted(leaders, key=str) == [1, 2, 3]


def test_candidates_are_bounded() -> None:
    partitions, _ = following(tuple(range(1, 10)))

    assert len(partitions.candidates(partitions.topics["t"], 4, has_no_waiters)) == 4


def test_partition_in_which_others_wait_is_no_candidate() -> None:
    partitions, _ = following((1, 2))
    topic = partitions.topics["t"]
    partitions.use(topic, 0).waiting_count = 1

    assert partitions.candidates(topic, 16, has_no_waiters) == [topic.partitions[1]]


def test_leaderless_partition_is_the_last_resort() -> None:
    partitions, _ = following((-1, -1))

    [candidate] = partitions.candidates(partitions.topics["t"], 16, has_no_waiters)

    assert candidate.leader is None


def test_last_choice_is_tried_first_while_its_batch_is_open() -> None:
    """Records that waited fill a batch together, and the next record joins them."""
    core = CoreParts(leaders=(1, 2, 3))
    topic = core.appender.topics["t"]
    core.send(partition=1)
    topic.follow_to(core.accumulator.partitions.use(topic, 1))

    assert core.accumulator.partitions.candidates(topic, 16, has_no_waiters)[0] is topic.partitions[1]
    assert core.send(partition=None)._batch_result.topic_partition == ("t", 1)
    core.flush()

    assert len(core.accumulator.partitions.candidates(topic, 16, has_no_waiters)) == 3


def test_keyless_records_follow_to_where_there_is_room() -> None:
    """Else each record would wait: the partition chosen for a batch's worth of them had no memory."""
    core = CoreParts(leaders=(1,) * 30)
    partitions, topic = core.accumulator.partitions, core.appender.topics["t"]
    topic.follow_to(partitions.use(topic, 0))
    for _ in range(17):
        core.send(bytes(1000), partition=None)
    elsewhere = partition_of(core.send(partition=None))

    topic.follow_to(partitions.use(topic, 0))

    assert (elsewhere != 0, partition_of(core.send(partition=None))) == (True, 0)


def test_choice_that_is_noted_again_lasts_no_longer_for_it() -> None:
    """After a batch's worth of bytes the next partition is chosen."""
    core = CoreParts(leaders=(1,) * 30)
    partitions, topic = core.accumulator.partitions, core.appender.topics["t"]
    found = set()
    for _ in range(17):
        topic.follow_to(partitions.use(topic, 0))
        found.add(partition_of(core.send(bytes(1000), partition=None)))

    assert found > {0}


def test_last_choice_is_tried_no_more_once_it_has_no_leader() -> None:
    """Its batch is open, but a record in it would wait for a leader."""
    core = CoreParts(leaders=(1, 2, 3))
    partitions, topic = core.accumulator.partitions, core.appender.topics["t"]
    core.send(partition=1)
    topic.follow_to(partitions.use(topic, 1))

    core.lead((1, -1, 3))

    assert topic.partitions[1] not in partitions.candidates(topic, 16, has_no_waiters)
    assert partition_of(core.send(partition=None)) != 1


def test_topic_of_which_nothing_changed_costs_nothing() -> None:
    """An unchanged view is not looked into when other topics change."""
    partitions, moves = in_use()
    known = cluster_of((1,))
    follow(partitions, known)
    use_all(partitions)
    other = TopicView("u", b"u" * 16, Partitions.of([PartitionView(2, 0)]), 0)

    fresh = follow(partitions, Cluster(nodes=known.nodes, topics=MappingProxyType({**known.topics, "u": other})))

    use_all(partitions)
    assert (fresh, moves.seen) == (["u"], [(0, 1), (0, 2)])


def places_of_a_trickle(core: CoreParts) -> list[int]:
    """Return the partitions of keyless records that are sent at once, 60 ms apart."""
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


def test_choice_ends_by_bytes_when_not_adaptive_or_transactional() -> None:
    """A transaction would have to end in each further partition."""
    plain = CoreParts(leaders=[1] * 50, linger_s=0, is_adaptive=False)
    transactional = CoreParts(leaders=[1] * 50, linger_s=0, is_transactional=True)

    assert [len(set(places_of_a_trickle(core))) for core in (plain, transactional)] == [1, 1]


def test_choice_that_is_old_ends_no_batch_before_its_linger() -> None:
    """Batches stay full: the next batch goes elsewhere, not the next record."""
    core = CoreParts(leaders=[1] * 50, linger_s=0.3)
    places = set()
    for _ in range(4):
        places.add(partition_of(core.send(partition=None)))
        core.pass_time(0.060)

    assert len(places) == 1


# Partitions whose logs are others now: their topic was made again, or the cluster is another one


@pytest.mark.parametrize(
    "leaders, told",
    [((1, 2), [(0, True), (1, True), (2, False)]), ((1, 2, 1, 2), [(0, True), (1, True), (2, True)])],
    ids=["fewer", "more"],
)
def test_recreated_topic_reports_which_partitions_exist(leaders: tuple[int, ...], told: list[tuple[int, bool]]) -> None:
    partitions, moves = following((1, 1, 1))
    use_all(partitions)

    follow(partitions, cluster_of(leaders, topic_id=bytes(15) + b"x"))

    assert moves.renewed == told
    assert len(partitions.topics["t"].partitions) == len(leaders)


def test_partition_that_stuck_and_is_gone_is_no_place_any_more() -> None:
    """The native append uses the partition without a check: the next record chooses another."""
    core = CoreParts(leaders=(-1, -1, -1))
    core.accumulator.partitions.topics["t"].stick_to(2)

    core.follow(cluster_of((-1, -1), topic_id=bytes(15) + b"x"))

    delivery = core.appender.append("t", b"v", None, None, None, None, None)
    assert delivery is not None
    assert delivery._batch_result.topic_partition is not None
    assert delivery._batch_result.topic_partition.partition in {0, 1}


def test_partition_that_is_gone_is_on_the_wire_until_the_answer() -> None:
    """A transaction's end must not overtake records that may still be written."""
    core = CoreParts(leaders=(1, 1))
    core.send(partition=1)
    core.open_batches.close_all()
    (batch,) = core.drain()
    core.follow(cluster_of((1,), topic_id=bytes(15) + b"x"))
    partitions = core.accumulator.partitions

    assert (partitions.is_any_on_wire(), batch.partition in partitions.in_use()) == (True, False)
    batch.partition.on_wire.remove(batch)
    assert not partitions.is_any_on_wire()


def forgotten(leaders: tuple[int, ...]) -> tuple[TopicPartitions, Moves]:
    """Partitions in use of a topic that metadata names no longer."""
    partitions, moves = in_use()
    known = cluster_of(leaders)
    follow(partitions, known)
    use_all(partitions)
    follow(partitions, Cluster(nodes=known.nodes, topics=MappingProxyType({})))
    return partitions, moves


def test_topic_recreated_while_forgotten_is_another_topic() -> None:
    """Else the keys of removed partitions would never be delivered again."""
    partitions, moves = forgotten((1, 1, 1))

    follow(partitions, cluster_of((1, 2), topic_id=bytes(15) + b"x"))

    assert moves.renewed == [(0, True), (1, True), (2, False)]
    assert len(partitions.topics["t"].partitions) == 2


@pytest.mark.parametrize("producer_id", [7, None], ids=["with an id", "without"])
def test_another_cluster_has_other_logs_and_gives_other_ids(producer_id: int | None) -> None:
    """The id may be another producer's there; topics missing in the first response have no leader yet."""
    identity = ProducerIdentity(is_enabled=True)
    partitions, moves = in_use(identity=identity)
    here, also_here = cluster_of((1, 1, 1)), cluster_of((1,), topic="u")
    topics = MappingProxyType({**here.topics, **also_here.topics})
    follow(partitions, replace(here, topics=topics, cluster_id="here"))
    use_all(partitions)
    if producer_id is not None:
        identity.assign(producer_id, 0)

    usable = follow(partitions, replace(cluster_of((2, 2)), cluster_id="there"))

    assert usable == ["t"]
    assert moves.renewed == [(0, True), (1, True), (2, False), (0, True)]
    assert [leader_id(queue) for queue in partitions.in_use()] == [2, 2, None]
    assert identity.is_missing


def test_cluster_that_learns_its_id_is_no_other_one() -> None:
    partitions, moves = following((1,))

    follow(partitions, replace(cluster_of((1,)), cluster_id="here"))
    follow(partitions, replace(cluster_of((1,), epoch=1), cluster_id="here"))

    assert moves.renewed == []


@pytest.mark.parametrize("before, after", [(bytes(16), b"x" * 16), (b"x" * 16, bytes(16))], ids=["learned", "lost"])
def test_topic_id_that_was_not_known_is_no_other_topic(before: bytes, after: bytes) -> None:
    """Old brokers give no topic id; a rolling upgrade shows both."""
    partitions, moves = following((1,), topic_id=before)

    follow(partitions, cluster_of((1,), topic_id=after))

    assert moves.renewed == []


@pytest.mark.parametrize("is_forgotten", [False, True], ids=["followed", "forgotten"])
def test_topic_without_an_id_with_fewer_partitions_is_new(*, is_forgotten: bool) -> None:
    """A topic never loses partitions; those that come back keep their identities, which a broker may know."""
    partitions, moves = in_use()
    known = cluster_of((1, 1, 1), topic_id=NO_TOPIC_ID)
    follow(partitions, known)
    use_all(partitions)
    used = partitions.in_use()
    if is_forgotten:
        follow(partitions, Cluster(nodes=known.nodes, topics=MappingProxyType({})))

    follow(partitions, cluster_of((1, 2), topic_id=NO_TOPIC_ID))
    assert moves.renewed == [(0, True), (1, True), (2, False)]
    assert partitions.in_use() == used[:2]
    follow(partitions, cluster_of((1, 2, 2, 2), topic_id=NO_TOPIC_ID))

    use_all(partitions)
    assert partitions.in_use()[:3] == used
    assert [leader_id(queue) for queue in partitions.in_use()] == [1, 2, 2, 2]


def test_topic_with_the_same_id_and_fewer_partitions_is_the_same() -> None:
    """The topic was forgotten, and then described by a broker that is behind."""
    partitions, moves = forgotten((1, 1, 1))

    follow(partitions, cluster_of((2, 2)))

    assert moves.renewed == []
    assert [leader_id(queue) for queue in partitions.in_use()] == [2, 2, None]


class LookedUp(dict[str, TopicView]):
    """Knows each topic by name alone."""

    def __iter__(self) -> NoReturn:
        pytest.fail("all topics are walked through")

    keys = values = items = __iter__  # type: ignore[assignment]


def test_update_looks_at_changed_topics_alone() -> None:
    """With 8,000 topics in use, a look at each for a new one took most of the time."""
    partitions, moves = in_use()
    before = cluster_of((1,))
    follow(partitions, before)
    partitions.use(partitions.topics["t"], 0)
    moves.seen.clear()
    views = LookedUp({"t": cluster_of((2,)).topics["t"], "u": cluster_of((1,), topic="u").topics["u"]})

    fresh = partitions.update(replace(before, topics=views), ["u"])
    assert (fresh, moves.seen, leader_ids(partitions)) == (["u"], [], {1})

    fresh = partitions.update(replace(before, topics=views), ["t"])
    assert (fresh, moves.seen, leader_ids(partitions)) == ([], [(0, 2)], {1, 2})
