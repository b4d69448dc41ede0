"""Ids of nodes begin at 0: node 0 leads and coordinates like any other. No network."""

from tests.fakes.core_parts import CoreParts, cluster_of
from tests.fakes.partitions_followed import in_use
from tests.fakes.transaction_scene import LOST, STRAY_DELAY_S, Scene


def test_node_0_has_its_part_of_the_reserves() -> None:
    """It is one of those that lead."""
    partitions, _ = in_use()
    partitions.update(cluster_of((0, 1)))

    assert set(partitions.leaders) == {0, 1}


def test_partition_of_node_0_is_moving() -> None:
    """It is about to give memory back: who waits for that gets a large batch."""
    core = CoreParts(leaders=(0,))
    core.send()
    core.open_batches.close(core.queue())

    assert core.queue().is_moving


def test_renewal_that_node_0_has_not_answered_delays_the_next_transaction() -> None:
    """A copy of InitProducerId that arrived there in it would abort it and fence us."""
    scene = Scene(version=0)
    scene.coordinator = 0
    scene.begun(0)
    scene.identity.needs_epoch = True
    scene.manager.abort()
    scene.manager.flushed()
    scene.do("EndTxn")
    scene.manager.unanswered(scene.ask(), LOST, was_sent=True, now=scene.now)

    assert scene.manager.late.begin_at == scene.now + STRAY_DELAY_S
