"""Batches stay large when memory runs out: calls that may wait for room do, others take what is left."""

from collections.abc import Callable

import pytest

from aioproducer._accumulator.partition_queue import ProducerBatch
from tests.fakes.core_parts import CoreParts

BATCH = 4096
FULL = bytes(3900)


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
    """Let a batch of partition 1 end, and serve the waiters."""
    core.pool.give_back(core.queue(1).queued.popleft().chunk)
    core.wait_queues.serve()


def queue_one(core: CoreParts) -> ProducerBatch:
    """Let partition 0 have a small batch that waits to be sent, and the next begin small too."""
    core.send(b"v")
    core.open_batches.close(core.queue(0))
    return core.queue(0).queued[-1]


def test_open_batch_waits_to_grow_while_others_are_in_flight() -> None:
    """Batches in flight will return memory, and each small batch would cost as much work as a large one."""
    core = nearly_full(left=2048)
    queue_one(core)
    core.send(b"v")

    record = core.wait_in_queue(bytes(1500))
    core.wait_queues.serve()

    batch = core.queue(0).open_batch
    assert record.is_waiting
    assert batch is not None
    assert batch.is_ready, "it waits although no one else gives memory back"
    give_one_back(core)
    assert not record.is_waiting
    assert record.delivery._batch_result is batch.result


def test_open_batch_is_sent_at_its_partitions_turn() -> None:
    core = nearly_full(left=2048)
    queue_one(core)
    core.send(b"v")
    core.wait_in_queue(bytes(1500))
    core.queue(1).queued.clear()

    [first] = core.drain()
    core.acknowledge(first)
    [second] = core.drain()

    assert second.count == 1
    assert core.queue(0).open_batch is None


def test_open_batch_does_not_linger_while_room_is_waited_for() -> None:
    """The same holds where no call waits, because each is refused."""
    core = nearly_full(left=2048)
    queue_one(core)
    core.send(b"v")

    refused = core.appender.append("t", bytes(1500), None, 0, None, None, None)

    batch = core.queue(0).open_batch
    assert refused is None
    assert batch is not None
    assert batch.is_ready


def make_held_up(core: CoreParts) -> None:
    core.queue(0).queued[0].attempts = 1


def make_leaderless(core: CoreParts) -> None:
    core.queue(0).leader_id = None


def make_idle(core: CoreParts) -> None:
    core.queue(0).queued.clear()


@pytest.mark.parametrize("stop", [make_held_up, make_leaderless, make_idle])
def test_partition_without_returns_takes_the_memory_left(stop: Callable[[CoreParts], None]) -> None:
    """The open batch is closed, and the next begins as small as it must."""
    core = nearly_full(left=4096)
    queue_one(core)
    core.send(bytes(1900))
    stop(core)

    record = core.wait_in_queue(bytes(900))
    core.wait_queues.serve()

    assert not record.is_waiting
    assert core.pool.available_bytes == 0


def test_small_memory_is_not_kept_together_for_large_batches() -> None:
    core = nearly_full(left=3072, batches=12)
    queue_one(core)
    core.send(bytes(900))

    record = core.wait_in_queue(bytes(900))
    core.wait_queues.serve()

    assert not record.is_waiting


def test_batch_begins_as_large_as_the_last_or_waits() -> None:
    """The batch waits while others of its partition are in flight; a small one would have to grow at once."""
    core = nearly_full(left=BATCH + 2048)
    core.send(FULL)
    core.open_batches.close(core.queue(0))

    record = core.wait_in_queue(b"v")
    core.wait_queues.serve()

    assert (record.is_waiting, core.pool.available_bytes) == (True, 2048)
    give_one_back(core)
    assert (record.is_waiting, core.pool.available_bytes) == (False, 2048)


def test_batch_grows_by_the_memory_left() -> None:
    core = nearly_full(left=3072)
    core.send(b"v")
    batch = core.queue(0).open_batch

    delivery = core.send(bytes(1500))

    assert batch is not None
    assert delivery._batch_result is batch.result
    assert core.pool.available_bytes == 1024
