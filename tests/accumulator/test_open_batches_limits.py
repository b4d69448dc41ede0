"""What open batches refuse, what limits them, and how they are counted."""

import pytest

from aioproducer._accumulator.buffer_pool import SMALLEST_CHUNK
from aioproducer._accumulator.record_batch_header import HEADER_SIZE
from aioproducer.errors import InvalidPartitionError, Outcome, RecordTooLargeError
from tests.fakes.core_parts import CoreParts, values

# Refusals


def test_partition_that_the_topic_does_not_have_is_refused() -> None:
    """With the range that it has."""
    core = CoreParts(leaders=(1, 1))

    with pytest.raises(InvalidPartitionError, match=r"partition must be 0\.\.1 for topic 't', got 2") as refused:
        core.send(partition=2)

    assert (refused.value.outcome, refused.value.partition) == (Outcome.NOT_WRITTEN, 2)


def test_refused_partition_has_brokers_asked_again() -> None:
    """The topic may have more of them by now."""
    core = CoreParts(leaders=(1, 1))
    asked: list[str] = []
    core.accumulator.open_batches.on_unknown_partition = asked.append

    with pytest.raises(InvalidPartitionError):
        core.send(partition=2)

    assert asked == ["t"]


def test_record_that_no_batch_can_hold_is_refused() -> None:
    """With both sizes and the option to raise."""
    core = CoreParts(max_record_size=1000)

    with pytest.raises(RecordTooLargeError, match="raise max_request_size") as refused:
        core.send(bytes(1000))

    error = refused.value
    assert (error.limit_bytes, error.option) == (1000, "max_request_size")
    assert error.size_bytes is not None
    assert error.size_bytes > 1000


# Limits of topics


def test_refused_size_makes_later_batches_of_the_topic_smaller() -> None:
    """Half of what the broker refused; never so small that nothing fits."""
    core = CoreParts(batch_size=4096)
    core.open_batches.limits.refused("t", 4000)
    for _ in range(20):
        core.send(bytes(400))

    assert {batch.wire_size <= 2000 for batch in core.queue().queued} == {True}
    assert set(values(list(core.queue().queued))) == {4}


def test_limit_of_a_topic_is_never_below_half_the_smallest_chunk() -> None:
    """However often something was refused."""
    core = CoreParts()
    for _ in range(30):
        core.open_batches.limits.refused("t", 10)
    for _ in range(4):
        core.send(bytes(100))

    assert values(list(core.queue().queued)) == [3]
    assert core.queue().queued[0].wire_size <= SMALLEST_CHUNK // 2


def test_lowered_limit_holds_for_the_batch_that_is_open() -> None:
    """It grows no more."""
    core = CoreParts()
    core.send(bytes(500))
    core.open_batches.limits.refused("t", 2000)

    core.send(bytes(800))

    assert values(list(core.queue().queued)) == [1]
    assert core.pool.lent_bytes <= 4 * SMALLEST_CHUNK


# Counting


def test_records_are_counted_in_open_and_closed_batches() -> None:
    """Each once."""
    core = CoreParts(leaders=(1, 1))
    for _ in range(3):
        core.send(partition=0)
    core.open_batches.close(core.queue(0))
    core.send(partition=1)
    counted = [core.open_batches.records]
    core.pass_time(1)
    core.drain()
    counted.append(core.open_batches.records)

    assert counted == [4, 4]


def test_open_batches_show_how_many_there_are() -> None:
    """In one line."""
    core = CoreParts(leaders=(1, 1))
    core.send(partition=1)

    assert repr(core.open_batches) == "<OpenBatches open=1 memory_is_short=False>"


def test_batch_has_room_for_its_header() -> None:
    """What goes to the broker is no larger than `batch.size`."""
    core = CoreParts(batch_size=1024)
    for _ in range(200):
        core.send(bytes(20))

    sizes = {batch.wire_size for batch in core.queue().queued}

    assert 1024 - HEADER_SIZE < max(sizes) <= 1024
