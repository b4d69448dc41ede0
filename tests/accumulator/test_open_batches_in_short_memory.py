"""Where memory runs out, batches stay large: who may wait for room does, and who may not takes what there is."""

from collections.abc import Callable

import pytest

from aioproducer._accumulator.producer_batch import ProducerBatch
from tests.fakes.core_parts import CoreParts

BATCH = 4096
FULL = bytes(3900)
"""Fills a batch."""


def nearly_full(*, left: int, leaders: tuple[int, ...] = (1, 1), batches: int = 16) -> CoreParts:
    """A core of which partition 1 has taken all memory but `left` bytes."""
    core = CoreParts(leaders=leaders, memory=batches * BATCH, batch_size=BATCH)
    for _ in range(core.pool.total_bytes // BATCH):
        core.send(FULL, partition=1)
        core.open_batches.close(core.queue(1))
    free_whole, scrap = divmod(left, BATCH)
    for batch in [core.queue(1).queued.popleft() for _ in range(free_whole + (scrap > 0))]:
        core.pool.give_back(batch.chunk)
    if scrap:
        assert core.pool.try_lend(BATCH - scrap, 1) is not None
    assert core.pool.available_bytes == left
    return core


def give_one_back(core: CoreParts) -> None:
    """Let a batch of partition 1 end, and serve those who wait."""
    core.pool.give_back(core.queue(1).queued.popleft().chunk)
    core.lines.serve()


def queue_one(core: CoreParts) -> ProducerBatch:
    """Let partition 0 have a small batch that waits to be sent, and the next begin small too."""
    core.send(b"v")
    core.open_batches.close(core.queue(0))
    return core.queue(0).queued[-1]


def test_open_batch_waits_for_the_memory_to_grow_while_others_of_its_partition_are_under_way() -> None:
    """They give memory back, and each small batch would cost as much work as a large one."""
    core = nearly_full(left=2048)
    queue_one(core)
    core.send(b"v")

    record = core.wait_in_line(bytes(1500))
    core.lines.serve()

    batch = core.queue(0).open_batch
    assert record.is_waiting
    assert batch is not None
    assert batch.is_ready, "it waits for nobody who is not there"
    give_one_back(core)
    assert not record.is_waiting
    assert record.delivery.batch_result is batch.result


def test_open_batch_is_sent_as_it_is_when_its_partitions_turn_comes() -> None:
    """Waiting for room holds back none that has it."""
    core = nearly_full(left=2048)
    queue_one(core)
    core.send(b"v")
    core.wait_in_line(bytes(1500))
    core.queue(1).queued.clear()

    [first] = core.drain()
    core.acknowledge(first)
    [second] = core.drain()

    assert second.count == 1
    assert core.queue(0).open_batch is None


def test_open_batch_does_not_linger_while_room_is_waited_for() -> None:
    """Nor where nobody stands in line, because each call is refused."""
    core = nearly_full(left=2048)
    queue_one(core)
    core.send(b"v")

    refused = core.appender.append("t", bytes(1500), None, 0, None, None, None)

    batch = core.queue(0).open_batch
    assert refused is None
    assert batch is not None
    assert batch.is_ready


def make_held_up(core: CoreParts) -> None:
    """An attempt of its first batch has failed."""
    core.queue(0).queued[0].attempts = 1


def make_leaderless(core: CoreParts) -> None:
    """Nobody leads it."""
    core.queue(0).leader_id = None


def make_idle(core: CoreParts) -> None:
    """Its batches have ended."""
    core.queue(0).queued.clear()


@pytest.mark.parametrize("stop", [make_held_up, make_leaderless, make_idle])
def test_partition_that_is_given_nothing_back_takes_what_there_is(stop: Callable[[CoreParts], None]) -> None:
    """Its open batch is closed, and the next begins as small as need be."""
    core = nearly_full(left=4096)
    queue_one(core)
    core.send(bytes(1900))
    stop(core)

    record = core.wait_in_line(bytes(900))
    core.lines.serve()

    assert not record.is_waiting
    assert core.pool.available_bytes == 0


def test_small_memory_is_not_kept_together_for_large_batches() -> None:
    """Others would miss it."""
    core = nearly_full(left=3072, batches=12)
    queue_one(core)
    core.send(bytes(900))

    record = core.wait_in_line(bytes(900))
    core.lines.serve()

    assert not record.is_waiting


def test_batch_begins_as_large_as_the_last_or_waits() -> None:
    """While others of its partition are under way; a small one would have to grow at once."""
    core = nearly_full(left=BATCH + 2048)
    core.send(FULL)
    core.open_batches.close(core.queue(0))

    record = core.wait_in_line(b"v")
    core.lines.serve()

    assert (record.is_waiting, core.pool.available_bytes) == (True, 2048)
    give_one_back(core)
    assert (record.is_waiting, core.pool.available_bytes) == (False, 2048)


def test_batch_grows_by_what_there_is_when_four_times_as_much_is_not_there() -> None:
    """Before it is closed or waits."""
    core = nearly_full(left=3072)
    core.send(b"v")
    batch = core.queue(0).open_batch

    delivery = core.send(bytes(1500))

    assert batch is not None
    assert delivery.batch_result is batch.result
    assert core.pool.available_bytes == 1024
