"""Open batches: when they open, grow, close and are ready, and what they refuse."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from aioproducer._accumulator.buffer_pool import SMALLEST_CHUNK
from aioproducer._accumulator.partition import Batch
from aioproducer._native.append import HEADER_SIZE
from aioproducer.errors import InvalidPartitionError, Outcome, RecordTooLargeError
from aioproducer.records import TopicPartition
from tests.fakes.core_parts import CoreParts, values


def opened(core: CoreParts, partition: int = 0) -> Batch:
    batch = core.partition(partition).open_batch
    assert batch is not None
    return batch


def is_sendable(core: CoreParts, partition: int = 0) -> bool:
    """Whether the partition is offered to its leader."""
    return core.partition(partition).is_offered


def capacities(core: CoreParts, sizes: Sequence[int]) -> list[int]:
    """The open batch's chunk after each of these records."""
    found = []
    for size in sizes:
        core.send(bytes(size))
        found.append(core.pool.lent_bytes)
    return found


# Opening and growing


def test_batch_begins_small_and_grows_by_fours() -> None:
    """A thousand quiet partitions do not take a thousand full batches."""
    core = CoreParts()

    assert capacities(core, (1, 1500, 4000, 9000)) == [1024, 4096, 16384, 16384]
    assert len(core.partition().queued) == 0


def test_batch_that_cannot_be_begun_takes_no_memory() -> None:
    """The machine had no memory for the batch's own objects; the next record is accepted."""
    core = CoreParts()

    def exhaust() -> None:
        raise MemoryError

    core.on_clock = exhaust
    with pytest.raises(MemoryError):
        core.send(b"v")
    core.on_clock = lambda: None
    lent = core.pool.lent_bytes
    core.send(b"v")
    core.flush()

    assert (lent, values(core.drain())) == (0, [1])


@pytest.mark.parametrize("last, capacity", [(15_000, 16384), (3000, 4096), (100, 1024)])
def test_batch_starts_as_large_as_the_last_one_became(last: int, capacity: int) -> None:
    """The batch need not grow again; a partition with less traffic gives the memory up."""
    core = CoreParts()
    for size in (15_000, last):
        core.send(bytes(size))
        core.flush()
        [batch] = core.drain()
        core.acknowledge(batch)

    core.send(b"v")

    assert core.pool.lent_bytes == capacity


def test_batch_starts_small_when_memory_is_scarce() -> None:
    core = CoreParts(leaders=(1, 1), memory=64 * 1024)
    for _ in range(3):
        core.send(bytes(15_000), partition=0)
        core.open_batches.close(core.partition(0))
    lent = core.pool.lent_bytes

    core.send(b"v", partition=0)

    assert core.pool.lent_bytes - lent == SMALLEST_CHUNK


def test_full_batch_is_queued_and_the_next_record_opens_another() -> None:
    core = CoreParts(batch_size=2048)
    for _ in range(5):
        core.send(bytes(700))

    assert values(list(core.partition().queued)) == [2, 2]
    assert {batch.wire_size <= 2048 for batch in core.partition().queued} == {True}


def test_record_larger_than_a_batch_has_one_of_its_own() -> None:
    core = CoreParts(batch_size=1024)
    core.send(b"v")
    core.send(bytes(5000))
    core.send(b"v")

    assert values(list(core.partition().queued)) == [1, 1]
    assert opened(core).result.topic_partition == ("t", 0)


def test_batch_that_cannot_grow_is_closed_not_failed() -> None:
    core = CoreParts(memory=2048)
    first, second = core.send(bytes(100)), core.send(bytes(100))
    record = core.wait_in_queue(bytes(1500))

    core.wait_queues.serve()

    assert record.is_waiting
    assert [batch.result for batch in core.partition().queued] == [first._batch_result]
    assert second._batch_result is first._batch_result


@pytest.mark.parametrize("batch_size", [0, 1, 60, 61, 100])
def test_tiny_batch_size_means_one_record_a_batch(batch_size: int) -> None:
    """`batch.size=0` does the same in Kafka."""
    core = CoreParts(batch_size=batch_size)
    for _ in range(3):
        core.send(bytes(50))

    assert values(list(core.partition().queued)) == [1, 1, 1]


def test_partitioner_may_send_when_told_of_a_full_batch() -> None:
    """The partitioner's record may land in the partition that the current record needs room in."""
    core = CoreParts(batch_size=1024)
    told: list[TopicPartition] = []

    def send_once(place: TopicPartition, _: int) -> None:
        told.append(place)
        if len(told) == 1:
            core.send(b"from within")

    core.events.on_filled = send_once
    deliveries = [core.send(bytes(600)) for _ in range(3)]
    core.wait_queues.serve()

    assert [delivery._batch_result.topic_partition for delivery in deliveries] == [("t", 0)] * 3
    assert core.open_batches.records == 4


def test_full_batch_is_notified_with_its_size() -> None:
    core = CoreParts(batch_size=1024)

    for _ in range(2):
        core.send(bytes(600))

    assert core.events.filled == [(TopicPartition("t", 0), core.partition().queued[0].size)]


# Becoming ready


def test_batch_is_ready_when_its_linger_is_over() -> None:
    core = CoreParts(linger_s=0.010)
    core.send()
    core.pass_time(0.006)
    core.send()
    assert not is_sendable(core)

    core.pass_time(0.004)

    assert is_sendable(core)
    assert values(core.drain()) == [2]


def test_later_batch_of_a_partition_has_a_linger_of_its_own() -> None:
    """The timer of the batch before it was set for later."""
    core = CoreParts(linger_s=0.010)
    core.send()
    core.pass_time(0.010)
    core.acknowledge(core.drain()[0])
    core.pass_time(0.003)
    core.send()

    core.pass_time(0.009)
    assert not is_sendable(core)
    core.pass_time(0.001)
    assert is_sendable(core)


def test_timer_of_a_flushed_batch_does_not_cut_the_next_linger() -> None:
    """The timer looks at what is open when it fires, and is set again."""
    core = CoreParts(linger_s=0.010)
    core.send()
    core.pass_time(0.005)
    core.flush()
    core.acknowledge(core.drain()[0])
    core.send()

    core.pass_time(0.005)
    assert not is_sendable(core)
    core.pass_time(0.005)
    assert is_sendable(core)


def test_without_linger_a_batch_is_ready_at_once() -> None:
    core = CoreParts(linger_s=0)
    core.send()
    assert is_sendable(core)

    core.send()

    assert values(core.drain()) == [2]


def test_awaited_record_ends_the_linger_of_its_batch() -> None:
    """A waiter makes the batch ready; it takes more records until it is drained."""
    core = CoreParts(linger_s=60)
    delivery = core.send()

    delivery.add_done_callback(lambda _: None)
    core.send()

    assert is_sendable(core)
    assert values(core.drain()) == [2]


def test_awaited_record_of_a_closed_batch_changes_nothing() -> None:
    core = CoreParts(linger_s=60)
    delivery = core.send()
    core.open_batches.close(core.partition())
    core.send()

    delivery.add_done_callback(lambda _: None)

    assert not opened(core).is_ready


def test_memory_short_makes_every_open_batch_ready() -> None:
    """Half-empty batches would wait out their linger while callers wait for memory."""
    core = CoreParts(leaders=(1, 1), linger_s=60)
    core.send(partition=0)
    core.open_batches.make_all_ready()
    assert is_sendable(core, 0)

    core.open_batches.note_shortage(is_short=True)
    core.send(partition=1)

    assert is_sendable(core, 1)


def test_flush_closes_all_open_batches() -> None:
    core = CoreParts(leaders=(1, 1), linger_s=60)
    before = [core.send(partition=0), core.send(partition=1)]

    core.flush()
    after = core.send(partition=0)

    assert values(core.drain()) == [1, 1]
    assert after._batch_result not in {delivery._batch_result for delivery in before}


def test_closing_an_idle_partition_does_nothing() -> None:
    core = CoreParts()

    core.open_batches.close(core.partition())

    assert (core.wakes, core.partition().is_empty) == (0, True)


def test_sender_is_woken_only_when_a_batch_may_be_sent() -> None:
    core = CoreParts(linger_s=60)
    for _ in range(10):
        core.send()
    assert core.wakes == 0

    core.open_batches.close(core.partition())

    assert core.wakes == 1


# Age


def test_batch_takes_no_record_a_tenth_of_the_timeout_younger() -> None:
    core = CoreParts(linger_s=600, delivery_timeout_s=100)
    first = core.send()
    core.pass_time(9.9)
    second = core.send()

    core.pass_time(0.1)
    third = core.send()

    assert first._batch_result is second._batch_result
    assert third._batch_result is not first._batch_result
    assert is_sendable(core)


def test_ready_undrained_batch_is_closed_in_time() -> None:
    core = CoreParts(linger_s=0.005, delivery_timeout_s=100)
    first = core.send()
    core.pass_time(0.005)
    core.pass_time(10)

    assert core.send()._batch_result is not first._batch_result


def test_record_that_waited_long_does_not_join_a_fresh_batch() -> None:
    core = CoreParts(delivery_timeout_s=100)
    core.send()
    fresh = opened(core)

    core.open_batches.close_if_apart(core.partition(), core.now - 9)
    assert core.partition().open_batch is fresh
    core.open_batches.close_if_apart(core.partition(), core.now - 11)

    assert core.partition().open_batch is None


# Keyless records


def test_keyless_records_stay_with_a_partition_for_a_batch() -> None:
    core = CoreParts(leaders=(1, 1), batch_size=1024)
    places = [core.send(bytes(100), partition=None)._batch_result.topic_partition for _ in range(200)]
    changes = sum(one != other for one, other in pairwise(places))

    assert set(places) == {("t", 0), ("t", 1)}
    assert changes < 30


def test_opening_a_batch_is_notified() -> None:
    """A transaction learns which partitions it has."""
    core = CoreParts(is_transactional=True)

    core.send()
    core.send()

    assert core.events.opened == [core.partition()]


# Refusals


def test_partition_that_the_topic_does_not_have_is_refused() -> None:
    core = CoreParts(leaders=(1, 1))

    with pytest.raises(InvalidPartitionError, match=r"partition must be 0\.\.1 for topic 't', got 2") as refused:
        core.send(partition=2)

    assert (refused.value.outcome, refused.value.partition) == (Outcome.NOT_WRITTEN, 2)
    assert core.events.unknown == ["t"]  # brokers are asked again


def test_record_that_no_batch_can_hold_is_refused() -> None:
    core = CoreParts(max_record_size=1000)

    with pytest.raises(RecordTooLargeError, match="raise max_request_size") as refused:
        core.send(bytes(1000))

    error = refused.value
    assert (error.limit_bytes, error.option) == (1000, "max_request_size")
    assert error.size_bytes is not None
    assert error.size_bytes > 1000


# Limits of topics


def test_refused_size_makes_later_batches_of_the_topic_smaller() -> None:
    """The limit is half of what the broker refused, and never so small that nothing fits."""
    core = CoreParts(batch_size=4096)
    core.open_batches.limits.refused("t", 4000)
    for _ in range(20):
        core.send(bytes(400))

    assert {batch.wire_size <= 2000 for batch in core.partition().queued} == {True}
    assert set(values(list(core.partition().queued))) == {4}


def test_limit_of_a_topic_is_never_below_half_the_smallest_chunk() -> None:
    core = CoreParts()
    for _ in range(30):
        core.open_batches.limits.refused("t", 10)
    for _ in range(4):
        core.send(bytes(100))

    assert values(list(core.partition().queued)) == [3]
    assert core.partition().queued[0].wire_size <= SMALLEST_CHUNK // 2


def test_lowered_limit_holds_for_the_batch_that_is_open() -> None:
    core = CoreParts()
    core.send(bytes(500))
    core.open_batches.limits.refused("t", 2000)

    core.send(bytes(800))

    assert values(list(core.partition().queued)) == [1]
    assert core.pool.lent_bytes <= 4 * SMALLEST_CHUNK


# Counting


def test_records_are_counted_in_open_and_closed_batches() -> None:
    core = CoreParts(leaders=(1, 1))
    for _ in range(3):
        core.send(partition=0)
    core.open_batches.close(core.partition(0))
    core.send(partition=1)
    counted = [core.open_batches.records]
    core.pass_time(1)
    core.drain()
    counted.append(core.open_batches.records)

    assert counted == [4, 4]


def test_batch_has_room_for_its_header() -> None:
    core = CoreParts(batch_size=1024)
    for _ in range(200):
        core.send(bytes(20))

    sizes = {batch.wire_size for batch in core.partition().queued}

    assert 1024 - HEADER_SIZE < max(sizes) <= 1024


# Short memory: calls that may wait for room keep batches large, others take what is left

BATCH = 4096
FULL = bytes(3900)


def nearly_full(*, left: int, leaders: tuple[int, ...] = (1, 1), batches: int = 16) -> CoreParts:
    """A core of which partition 1 has taken all memory but `left` bytes."""
    core = CoreParts(leaders=leaders, memory=batches * BATCH, batch_size=BATCH)
    for _ in range(core.pool.total_bytes // BATCH):
        core.send(FULL, partition=1)
        core.open_batches.close(core.partition(1))
    free_whole, scrap = divmod(left, BATCH)
    for batch in [core.partition(1).queued.popleft() for _ in range(free_whole + (scrap > 0))]:
        core.pool.give_back(batch.chunk)
    if scrap:
        assert core.pool.try_lend(BATCH - scrap, core.node(1).reserve) is not None
    assert core.pool.available_bytes == left
    return core


def give_one_back(core: CoreParts) -> None:
    """Let a batch of partition 1 end, and serve the waiters."""
    core.pool.give_back(core.partition(1).queued.popleft().chunk)
    core.wait_queues.serve()


def queue_one(core: CoreParts) -> Batch:
    """Let partition 0 have a small batch that waits to be sent, and the next begin small too."""
    core.send(b"v")
    core.open_batches.close(core.partition(0))
    return core.partition(0).queued[-1]


def test_open_batch_waits_to_grow_while_others_are_in_flight() -> None:
    """Batches in flight will return memory, and each small batch would cost as much work as a large one."""
    core = nearly_full(left=2048)
    queue_one(core)
    core.send(b"v")

    record = core.wait_in_queue(bytes(1500))
    core.wait_queues.serve()

    batch = core.partition(0).open_batch
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
    core.partition(1).queued.clear()

    [first] = core.drain()
    core.acknowledge(first)
    [second] = core.drain()

    assert second.count == 1
    assert core.partition(0).open_batch is None


def test_open_batch_does_not_linger_while_room_is_waited_for() -> None:
    """The same holds where no call waits, because each is refused."""
    core = nearly_full(left=2048)
    queue_one(core)
    core.send(b"v")

    refused = core.appender.append("t", bytes(1500), None, 0, None, None, None)

    batch = core.partition(0).open_batch
    assert refused is None
    assert batch is not None
    assert batch.is_ready


def make_held_up(core: CoreParts) -> None:
    core.partition(0).queued[0].attempts = 1


def make_leaderless(core: CoreParts) -> None:
    core.partition(0).leader = None


def make_idle(core: CoreParts) -> None:
    core.partition(0).queued.clear()


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
    core.open_batches.close(core.partition(0))

    record = core.wait_in_queue(b"v")
    core.wait_queues.serve()

    assert (record.is_waiting, core.pool.available_bytes) == (True, 2048)
    give_one_back(core)
    assert (record.is_waiting, core.pool.available_bytes) == (False, 2048)


def test_batch_grows_by_the_memory_left() -> None:
    core = nearly_full(left=3072)
    core.send(b"v")
    batch = core.partition(0).open_batch

    delivery = core.send(bytes(1500))

    assert batch is not None
    assert delivery._batch_result is batch.result
    assert core.pool.available_bytes == 1024
