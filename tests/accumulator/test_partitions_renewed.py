"""Partitions whose logs are others now: their topic was made again, or the cluster is another one."""

from dataclasses import replace
from types import MappingProxyType

import pytest

from aioproducer._accumulator.producer_identity import ProducerIdentity
from aioproducer._protocol.produce import NO_TOPIC_ID
from aioproducer.cluster import Cluster
from tests.fakes.core_parts import CoreParts, cluster_of
from tests.fakes.partitions_followed import in_use, use_all


@pytest.mark.parametrize(
    "leaders, told",
    [((1, 2), [(0, True), (1, True), (2, False)]), ((1, 2, 1, 2), [(0, True), (1, True), (2, True)])],
    ids=["fewer", "more"],
)
def test_topic_made_again_tells_which_partitions_still_exist(
    leaders: tuple[int, ...], told: list[tuple[int, bool]]
) -> None:
    """Nothing that was known of its logs holds."""
    partitions, moves = in_use()
    partitions.update(cluster_of((1, 1, 1)))
    use_all(partitions)

    partitions.update(cluster_of(leaders, topic_id=bytes(15) + b"x"))

    assert moves.renewed == told
    assert len(partitions.topics["t"].slots) == len(leaders)


def test_partition_that_stuck_and_is_gone_is_no_place_any_more() -> None:
    """The native append looks there without asking how many there are: the next record chooses anew."""
    core = CoreParts(leaders=(-1, -1, -1))
    core.accumulator.partitions.topics["t"].stick_to(2)

    core.accumulator.update_cluster(cluster_of((-1, -1), topic_id=bytes(15) + b"x"))

    delivery = core.appender.append("t", b"v", None, None, None, None, None)
    assert delivery is not None
    assert delivery.batch_result.topic_partition is not None
    assert delivery.batch_result.topic_partition.partition in {0, 1}


def test_partition_that_is_gone_is_on_the_wire_until_the_answer() -> None:
    """A transaction's end must not overtake what may still be written, should the topic get as many again."""
    core = CoreParts(leaders=(1, 1))
    core.send(partition=1)
    core.open_batches.close_all()
    (batch,) = core.drain()
    core.accumulator.update_cluster(cluster_of((1,), topic_id=bytes(15) + b"x"))
    partitions = core.accumulator.partitions

    assert (partitions.is_any_on_wire(), batch.queue in partitions.queues()) == (True, False)
    batch.queue.take_from_wire(batch)
    assert not partitions.is_any_on_wire()


def test_topic_made_again_while_metadata_had_forgotten_it_is_another_topic() -> None:
    """Else the keys that belonged to partitions which are gone would never be delivered again."""
    partitions, moves = in_use()
    known = cluster_of((1, 1, 1))
    partitions.update(known)
    use_all(partitions)
    partitions.update(Cluster(nodes=known.nodes, topics=MappingProxyType({})))

    partitions.update(cluster_of((1, 2), topic_id=bytes(15) + b"x"))

    assert moves.renewed == [(0, True), (1, True), (2, False)]
    assert len(partitions.topics["t"].slots) == 2


@pytest.mark.parametrize("producer_id", [7, None], ids=["with an id", "without"])
def test_another_cluster_has_other_logs_and_gives_other_ids(producer_id: int | None) -> None:
    """The id may be another producer's there; topics that the first answer does not name have no leader yet."""
    identity = ProducerIdentity(is_enabled=True)
    partitions, moves = in_use(identity=identity)
    here, also_here = cluster_of((1, 1, 1)), cluster_of((1,), topic="u")
    topics = MappingProxyType({**here.topics, **also_here.topics})
    partitions.update(replace(here, topics=topics, cluster_id="here"))
    use_all(partitions)
    if producer_id is not None:
        identity.assign(producer_id, 0)

    usable = partitions.update(replace(cluster_of((2, 2)), cluster_id="there"))

    assert usable == ["t"]
    assert moves.renewed == [(0, True), (1, True), (2, False), (0, True)]
    assert [queue.leader_id for queue in partitions.queues()] == [2, 2, None]
    assert identity.is_missing


def test_cluster_that_learns_its_id_is_no_other_one() -> None:
    """The first answer of all names it, too."""
    partitions, moves = in_use()
    partitions.update(cluster_of((1,)))

    partitions.update(replace(cluster_of((1,)), cluster_id="here"))
    partitions.update(replace(cluster_of((1,), epoch=1), cluster_id="here"))

    assert moves.renewed == []


@pytest.mark.parametrize("before, after", [(bytes(16), b"x" * 16), (b"x" * 16, bytes(16))], ids=["learned", "lost"])
def test_topic_id_that_was_not_known_is_no_other_topic(before: bytes, after: bytes) -> None:
    """Old brokers give none; a rolling upgrade shows both."""
    partitions, moves = in_use()
    partitions.update(cluster_of((1,), topic_id=before))

    partitions.update(cluster_of((1,), topic_id=after))

    assert moves.renewed == []


@pytest.mark.parametrize("is_forgotten", [False, True], ids=["followed", "forgotten"])
def test_topic_without_an_id_that_has_fewer_partitions_was_made_again(*, is_forgotten: bool) -> None:
    """No topic loses partitions; those that come back go on under their own identities, which a broker may know."""
    partitions, moves = in_use()
    known = cluster_of((1, 1, 1), topic_id=NO_TOPIC_ID)
    partitions.update(known)
    use_all(partitions)
    queues = partitions.queues()
    if is_forgotten:
        partitions.update(Cluster(nodes=known.nodes, topics=MappingProxyType({})))

    partitions.update(cluster_of((1, 2), topic_id=NO_TOPIC_ID))
    assert moves.renewed == [(0, True), (1, True), (2, False)]
    assert partitions.queues() == queues[:2]
    partitions.update(cluster_of((1, 2, 2, 2), topic_id=NO_TOPIC_ID))

    use_all(partitions)
    assert partitions.queues()[:3] == queues
    assert [queue.leader_id for queue in partitions.queues()] == [1, 2, 2, 2]


def test_topic_with_the_same_id_that_has_fewer_partitions_is_the_same_topic() -> None:
    """It was forgotten, and then described by a broker that is behind."""
    partitions, moves = in_use()
    known = cluster_of((1, 1, 1))
    partitions.update(known)
    use_all(partitions)
    partitions.update(Cluster(nodes=known.nodes, topics=MappingProxyType({})))

    partitions.update(cluster_of((2, 2)))

    assert moves.renewed == []
    assert [queue.leader_id for queue in partitions.queues()] == [2, 2, None]
