"""Batches open on demand, grow, become ready at their moment, and take no record too far from their oldest."""

from collections.abc import Sequence
from itertools import pairwise

import pytest

from aioproducer._accumulator.buffer_pool import SMALLEST_CHUNK
from aioproducer._accumulator.partition_queue import PartitionQueue
from aioproducer._accumulator.producer_batch import ProducerBatch
from aioproducer.records import TopicPartition
from tests.fakes.core_parts import CoreParts, values


def opened(core: CoreParts, partition: int = 0) -> ProducerBatch:
    """The open batch of a partition."""
    batch = core.queue(partition).open_batch
    assert batch is not None
    return batch


def is_sendable(core: CoreParts, partition: int = 0) -> bool:
    """Whether the partition is offered to its leader."""
    return core.queue(partition).is_offered


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
    assert len(core.queue().queued) == 0


def test_batch_that_cannot_be_begun_takes_no_memory() -> None:
    """The machine has none left for what is kept of it; the next record goes."""
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
def test_batch_begins_as_large_as_the_last_of_its_partition_became(last: int, capacity: int) -> None:
    """It need not grow again; nor does a partition in which less is going on keep what it took once."""
    core = CoreParts()
    for size in (15_000, last):
        core.send(bytes(size))
        core.flush()
        [batch] = core.drain()
        core.acknowledge(batch)

    core.send(b"v")

    assert core.pool.lent_bytes == capacity


def test_last_size_is_no_reason_to_take_much_when_memory_is_scarce() -> None:
    """Half of it is lent."""
    core = CoreParts(leaders=(1, 1), memory=64 * 1024)
    for _ in range(3):
        core.send(bytes(15_000), partition=0)
        core.open_batches.close(core.queue(0))
    lent = core.pool.lent_bytes

    core.send(b"v", partition=0)

    assert core.pool.lent_bytes - lent == SMALLEST_CHUNK


def test_full_batch_is_queued_and_the_next_record_opens_another() -> None:
    """A batch and its header take no more than `batch.size`."""
    core = CoreParts(batch_size=2048)
    for _ in range(5):
        core.send(bytes(700))

    assert values(list(core.queue().queued)) == [2, 2]
    assert {batch.wire_size <= 2048 for batch in core.queue().queued} == {True}


def test_record_larger_than_a_batch_has_one_of_its_own() -> None:
    """As long as `max.request.size` allows it."""
    core = CoreParts(batch_size=1024)
    core.send(b"v")
    core.send(bytes(5000))
    core.send(b"v")

    assert values(list(core.queue().queued)) == [1, 1]
    assert opened(core).result.topic_partition == ("t", 0)


def test_batch_that_cannot_grow_is_closed_and_its_records_are_not_failed() -> None:
    """The next record waits for memory."""
    core = CoreParts(memory=2048)
    first, second = core.send(bytes(100)), core.send(bytes(100))
    record = core.wait_in_line(bytes(1500))

    core.lines.serve()

    assert record.is_waiting
    assert [batch.result for batch in core.queue().queued] == [first.batch_result]
    assert second.batch_result is first.batch_result


@pytest.mark.parametrize("batch_size", [0, 1, 60, 61, 100])
def test_tiny_batch_size_means_one_record_a_batch(batch_size: int) -> None:
    """As `batch.size=0` does in Kafka."""
    core = CoreParts(batch_size=batch_size)
    for _ in range(3):
        core.send(bytes(50))

    assert values(list(core.queue().queued)) == [1, 1, 1]


def test_partitioner_that_sends_when_told_of_a_full_batch_does_no_harm() -> None:
    """Its record may land in the very partition that the one at hand needs room in."""
    core = CoreParts(batch_size=1024)
    told: list[TopicPartition] = []

    def send_once(place: TopicPartition, _: int) -> None:
        told.append(place)
        if len(told) == 1:
            core.send(b"from within")

    core.open_batches.on_full = send_once
    deliveries = [core.send(bytes(600)) for _ in range(3)]
    core.lines.serve()

    assert [delivery.batch_result.topic_partition for delivery in deliveries] == [("t", 0)] * 3
    assert core.open_batches.records == 4


def test_full_batch_is_told_with_its_size() -> None:
    """For partitioners that choose anew then."""
    core = CoreParts(batch_size=1024)
    told: list[tuple[TopicPartition, int]] = []
    core.open_batches.on_full = lambda place, size: told.append((place, size))

    for _ in range(2):
        core.send(bytes(600))

    assert told == [(TopicPartition("t", 0), core.queue().queued[0].size)]


# Becoming ready


def test_batch_is_ready_when_its_linger_is_over() -> None:
    """Counted from its first record."""
    core = CoreParts(linger_s=0.010)
    core.send()
    core.pass_time(0.006)
    core.send()
    assert not is_sendable(core)

    core.pass_time(0.004)

    assert is_sendable(core)
    assert values(core.drain()) == [2]


def test_later_batch_of_a_partition_has_a_linger_of_its_own() -> None:
    """Though the timer of the one before it was set for later."""
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


def test_timer_of_a_batch_that_a_flush_closed_does_not_cut_the_next_linger() -> None:
    """It looks at whatever is open then, and comes back."""
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
    """It fills while others are on the wire."""
    core = CoreParts(linger_s=0)
    core.send()
    assert is_sendable(core)

    core.send()

    assert values(core.drain()) == [2]


def test_awaited_record_ends_the_linger_of_its_batch() -> None:
    """Somebody waits; the batch takes more until it is drained."""
    core = CoreParts(linger_s=60)
    delivery = core.send()

    delivery.add_done_callback(lambda _: None)
    core.send()

    assert is_sendable(core)
    assert values(core.drain()) == [2]


def test_awaited_record_of_a_closed_batch_changes_nothing() -> None:
    """It is on its way already."""
    core = CoreParts(linger_s=60)
    delivery = core.send()
    core.open_batches.close(core.queue())
    core.send()

    delivery.add_done_callback(lambda _: None)

    assert not opened(core).is_ready


def test_memory_short_makes_every_open_batch_ready() -> None:
    """Half-empty ones would wait out their linger while callers wait for memory."""
    core = CoreParts(leaders=(1, 1), linger_s=60)
    core.send(partition=0)
    core.open_batches.make_all_ready()
    assert is_sendable(core, 0)

    core.open_batches.note_shortage(is_short=True)
    core.send(partition=1)

    assert is_sendable(core, 1)


def test_flush_closes_all_open_batches() -> None:
    """What is sent after it is in others."""
    core = CoreParts(leaders=(1, 1), linger_s=60)
    before = [core.send(partition=0), core.send(partition=1)]

    core.flush()
    after = core.send(partition=0)

    assert values(core.drain()) == [1, 1]
    assert after.batch_result not in {delivery.batch_result for delivery in before}


def test_closing_an_idle_partition_does_nothing() -> None:
    """And wakes nobody."""
    core = CoreParts()

    core.open_batches.close(core.queue())

    assert (core.wakes, core.queue().is_empty) == (0, True)


def test_sender_is_woken_when_something_may_be_sent_and_only_then() -> None:
    """Not by each record."""
    core = CoreParts(linger_s=60)
    for _ in range(10):
        core.send()
    assert core.wakes == 0

    core.open_batches.close(core.queue())

    assert core.wakes == 1


# Age


def test_batch_takes_no_record_a_tenth_of_the_timeout_younger_than_its_oldest() -> None:
    """Or that record would have less time than it was promised."""
    core = CoreParts(linger_s=600, delivery_timeout_s=100)
    first = core.send()
    core.pass_time(9.9)
    second = core.send()

    core.pass_time(0.1)
    third = core.send()

    assert first.batch_result is second.batch_result
    assert third.batch_result is not first.batch_result
    assert is_sendable(core)


def test_batch_that_is_ready_and_not_drained_is_closed_in_time_too() -> None:
    """Its node may be away."""
    core = CoreParts(linger_s=0.005, delivery_timeout_s=100)
    first = core.send()
    core.pass_time(0.005)
    core.pass_time(10)

    assert core.send().batch_result is not first.batch_result


def test_record_that_waited_long_does_not_join_a_fresh_batch() -> None:
    """The batch would expire with it."""
    core = CoreParts(delivery_timeout_s=100)
    fresh = opened_at_now(core)

    core.open_batches.close_if_apart(core.queue().slot, core.now - 9)
    assert core.queue().open_batch is fresh
    core.open_batches.close_if_apart(core.queue().slot, core.now - 11)

    assert core.queue().open_batch is None


def opened_at_now(core: CoreParts) -> ProducerBatch:
    """A batch that one record opened now."""
    core.send()
    return opened(core)


# Keyless records


def test_keyless_records_stay_with_a_partition_for_a_batch() -> None:
    """Then another is chosen: both are used, and batches are full."""
    core = CoreParts(leaders=(1, 1), batch_size=1024)
    places = [core.send(bytes(100), partition=None).batch_result.topic_partition for _ in range(200)]
    changes = sum(one != other for one, other in pairwise(places))

    assert set(places) == {("t", 0), ("t", 1)}
    assert changes < 30


def test_opening_a_batch_is_told() -> None:
    """To whoever listens: a transaction learns which partitions it has."""
    core = CoreParts()
    opened: list[PartitionQueue] = []
    core.open_batches.on_opened = opened.append

    core.send()
    core.send()

    assert opened == [core.queue()]
