"""Partitions that have something to send and no leader: metadata is asked for their topics, whoever of them is left."""

import pytest

from aioproducer._accumulator.partition_queue import PartitionQueue, ProducerBatch
from tests.fakes.core_parts import CoreParts


def leaderless(partitions: int) -> CoreParts:
    """Each with a batch."""
    core = CoreParts(leaders=(-1,) * partitions)
    for partition in range(partitions):
        core.send(partition=partition)
    core.flush()
    return core


def topics_asked_for(core: CoreParts) -> set[str]:
    """As in a turn of the sender."""
    core.accumulator.withdraw_idle()
    return core.accumulator.leaderless_topics


def end_batch(core: CoreParts, partition: int) -> None:
    """Its deadline has passed."""
    core.queue(partition).remove(core.queue(partition).queued[0])


@pytest.mark.parametrize("partitions", [1, 50])
def test_turn_looks_at_one_partition_of_a_topic(partitions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were it all, records of other topics would pay for each of thousands whose broker is gone."""
    core = leaderless(partitions)
    looked_at: list[PartitionQueue] = []
    original = PartitionQueue.first_sendable

    def first_sendable(queue: PartitionQueue) -> ProducerBatch | None:
        looked_at.append(queue)
        return original(queue)

    monkeypatch.setattr(PartitionQueue, "first_sendable", first_sendable)

    assert topics_asked_for(core) == {"t"}
    assert looked_at == [core.queue(0)]


@pytest.mark.parametrize("last", [0, 1, 2])
def test_topic_is_asked_for_as_long_as_one_partition_has_something_to_send(last: int) -> None:
    """Whichever it is; and again once another has."""
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
    """With what it has by then, nothing or something."""
    core = leaderless(3)
    end_batch(core, 1)
    assert topics_asked_for(core) == {"t"}

    core.lead((1, 1, 1), epoch=1)

    assert topics_asked_for(core) == set()
    assert [batch.queue for batch in core.drain()] == [core.queue(0), core.queue(2)]
