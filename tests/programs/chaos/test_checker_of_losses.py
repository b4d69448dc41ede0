"""The checker knows a loss that something explains from one that nothing does."""

import pytest

from tests.programs.chaos.written_cell import SECOND, WrittenCell, checks

# Losses that a leader's death explains


def lose_one(cell: WrittenCell, *, epoch_after: int) -> None:
    """Three acknowledged records; in the place of the last stands another, of some leader epoch."""
    cell.acknowledged(2, topic=2)
    cell.ok(cell.invoke(topic=2), 2, topic=2)
    n = cell.invoke(topic=2)
    cell.ok(n, 2, topic=2)
    cell.log(n, 2, topic=2, epoch=epoch_after)


def test_loss_that_the_death_of_its_leader_explains(cell: WrittenCell) -> None:
    cell.fault("kill_leader", 0, 3, nodes=[1], leaders={"2": {"0": 1}})
    lose_one(cell, epoch_after=1)

    verdict = cell.check()

    assert verdict.told == []
    assert verdict.figures["logs"] == {"one id-0": {}, "two id-0": {"records": 3, "losses_explained": 1}}


def test_loss_at_the_end_of_the_log_is_explained_too(cell: WrittenCell) -> None:
    cell.fault("kill_leader", 0, 3, nodes=[1], leaders={"2": {"0": 1}})
    cell.acknowledged(2, topic=2)
    cell.ok(cell.invoke(topic=2), 2, topic=2)

    assert checks(cell) == {}


def test_loss_within_one_leader_epoch(cell: WrittenCell) -> None:
    """A leader died, but this record was never written."""
    cell.fault("kill_leader", 0, 3, nodes=[1], leaders={"2": {"0": 1}})
    lose_one(cell, epoch_after=0)

    assert checks(cell) == {"LOST": 1}


@pytest.mark.parametrize(
    "leader, begin_s",
    [(2, 0), (1, -100), (1, 100)],
    ids=["another node died", "it died long before", "it died long after"],
)
def test_loss_that_no_death_explains(cell: WrittenCell, leader: int, begin_s: float) -> None:
    cell.fault("kill_leader", begin_s, begin_s + 3, nodes=[1], leaders={"2": {"0": leader}})
    lose_one(cell, epoch_after=1)

    assert checks(cell) == {"LOST": 1}


@pytest.mark.parametrize("partition, found", [(0, {}), (1, {"LOST": 1})], ids=["its leader", "another partition's"])
def test_loss_when_the_watcher_saw_a_leader_move(cell: WrittenCell, partition: int, found: dict[str, int]) -> None:
    """A starved node loses what it leads without being killed."""
    cell.events.append(
        {"kind": "leaders_moved", "begin_us": cell.at(0), "end_us": cell.at(1), "moved": [[2, partition]]}
    )
    lose_one(cell, epoch_after=1)

    assert checks(cell) == found


# Topics made again


def make_again(cell: WrittenCell) -> None:
    cell.covers(1, 0, acknowledged_until_us=cell.now_us)
    cell.now_us += 10 * SECOND
    cell.covers(1, 1, invoked_from_us=cell.now_us)
    cell.log_of(1, 1)


def test_each_life_holds_its_own(cell: WrittenCell) -> None:
    """A record may be in both: its acknowledgement was lost, and it was sent again to the new topic."""
    cell.acknowledged(2)
    twice = cell.invoke()
    cell.log(twice, 2)
    make_again(cell)
    cell.ok(twice, 0)
    cell.log(twice, 0, life=1)
    n = cell.invoke()
    cell.ok(n, 1)
    cell.log(n, 1, life=1)

    assert checks(cell) == {}


def test_record_acknowledged_during_topic_deletion_may_be_gone(cell: WrittenCell) -> None:
    cell.acknowledged(1)
    n = cell.invoke()
    cell.covers(1, 0, acknowledged_until_us=cell.now_us)
    cell.ok(n, 1)
    cell.now_us += SECOND
    cell.covers(1, 1, invoked_from_us=cell.now_us)
    cell.log_of(1, 1)

    assert checks(cell) == {}


def test_record_that_the_first_life_of_a_topic_lacks(cell: WrittenCell) -> None:
    """The record was acknowledged before the topic was read, and deleted after that."""
    cell.ok(cell.invoke(), 0)
    make_again(cell)

    assert checks(cell) == {"LOST": 1}


def test_record_that_the_second_life_of_a_topic_lacks(cell: WrittenCell) -> None:
    cell.acknowledged(1)
    make_again(cell)
    cell.ok(cell.invoke(), 0)

    assert checks(cell) == {"LOST": 1}
