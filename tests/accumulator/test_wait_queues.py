"""Records that cannot be appended wait in order, are bounded, and none is forgotten."""

from functools import partial

import pytest

from aioproducer._accumulator.wait_queue import WaitingRecord
from aioproducer.errors import (
    InvalidPartitionError,
    KafkaError,
    Outcome,
)
from tests.fakes.core_parts import CoreParts

CHUNK = b"x" * 900
"""Fills one of the smallest chunks."""


def full(leaders: tuple[int, ...] = (1,), *, chunks: int = 8) -> CoreParts:
    """A core whose memory is taken by partition 0."""
    core = CoreParts(leaders=leaders, memory=chunks * 1024, batch_size=1024, max_record_size=6 * 1024)
    while core.appender.append("t", CHUNK, None, 0, None, None, None) is not None:
        pass
    return core


def release_one(core: CoreParts) -> None:
    """Have the oldest batch of partition 0 acknowledged, and the waiting records served."""
    [batch] = core.drain()
    core.acknowledge(batch)
    core.lines.serve()


def test_record_without_memory_waits_and_is_placed_when_memory_comes_back() -> None:
    """Its delivery follows it into its batch."""
    core = full()
    record = core.wait_in_line(b"late")

    core.lines.serve()
    waited = [record.is_waiting]
    release_one(core)

    assert [*waited, record.is_waiting] == [True, False]
    assert record.delivery.batch_result.topic_partition == ("t", 0)


def test_record_that_cannot_wait_leaves_no_shortage_behind() -> None:
    """It was refused when it came, and whoever had waited before had gone."""
    core = full()
    core.lines.withdraw(core.wait_in_line(b"gone"))
    core.wait_in_line(b"for no partition", partition=99)

    assert [type(error) for _, error in core.failed] == [InvalidPartitionError]
    assert not core.open_batches.memory_is_short


def test_record_does_not_overtake_those_that_wait_for_its_partition() -> None:
    """Although it would fit: the large one before it came first."""
    core = full()
    large = core.wait_in_line(b"x" * 3000)
    small = core.wait_in_line(b"s")

    release_one(core)
    assert (large.is_waiting, small.is_waiting) == (True, True)
    for _ in range(3):
        release_one(core)

    assert (large.is_waiting, small.is_waiting) == (False, False)
    assert large.delivery.batch_result.topic_partition == small.delivery.batch_result.topic_partition


def test_later_append_to_a_partition_with_a_line_goes_to_its_end() -> None:
    """Even when memory has just come back."""
    core = full()
    core.wait_in_line(b"first")
    [batch] = core.drain()
    core.acknowledge(batch)

    assert core.appender.append("t", b"second", None, 0, None, None, None) is None


def test_keyless_append_does_not_overtake_a_keyless_record_that_waits() -> None:
    """A topic may have one partition only, and then order is what users see."""
    core = full()
    core.wait_in_line(b"first", partition=None)
    [batch] = core.drain()
    core.acknowledge(batch)

    assert core.appender.append("t", b"second", None, None, None, None, None) is None
    core.lines.serve()
    assert core.appender.append("t", b"third", None, None, None, None, None) is not None


def test_keyless_record_goes_where_there_is_room() -> None:
    """Not to the node that answers nothing, wherever it would have gone first."""
    core = full(leaders=(1, 2))
    records = [core.wait_in_line(b"x", partition=None) for _ in range(3)]

    core.lines.serve()

    assert {record.delivery.batch_result.topic_partition for record in records} == {("t", 1)}


def test_node_that_answers_nothing_does_not_hold_back_records_of_others() -> None:
    """These have their own reserve."""
    core = full(leaders=(1, 2))
    stuck = core.wait_in_line(b"x", partition=0)
    free = core.wait_in_line(b"x", partition=1)

    core.lines.serve()

    assert (stuck.is_waiting, free.is_waiting) == (True, False)


def test_partition_that_is_held_up_leaves_the_reserve_of_its_node_to_the_others() -> None:
    """Its retries may go on for minutes, and all that is sent to it meanwhile stays in the buffer."""
    core = CoreParts(leaders=(1, 1), memory=8 * 1024, batch_size=1024, max_record_size=6 * 1024)
    core.send(CHUNK)
    core.flush()
    [batch] = core.drain()
    core.refuse(batch)
    stuck = [core.wait_in_line(CHUNK) for _ in range(20)]
    free = [core.wait_in_line(CHUNK, partition=1) for _ in range(3)]

    core.lines.serve()

    assert [record.is_waiting for record in stuck].count(False) == 5  # with the one refused, three quarters
    assert [record.is_waiting for record in free] == [False, False, True]


def test_partition_that_became_held_up_while_it_waited_holds_back_nobody() -> None:
    """It stood before the others of its node."""
    core = CoreParts(leaders=(1, 1), memory=8 * 1024, batch_size=1024, max_record_size=6 * 1024)
    for _ in range(8):
        core.send(CHUNK)
    stuck = core.wait_in_line(CHUNK)
    free = core.wait_in_line(CHUNK, partition=1)
    [batch] = core.drain()
    core.refuse(batch)
    *_, newest = core.queue().queued
    core.queue().remove(newest)
    core.pool.give_back(newest.chunk)

    core.lines.serve()

    assert (stuck.is_waiting, free.is_waiting) == (True, False)


def test_earliest_call_of_all_nodes_is_served_first() -> None:
    """Not the node that was the first in some table."""
    core = full(leaders=(1, 2, 2), chunks=4)
    core.pool.set_nodes({1})  # no reserves
    order = [core.wait_in_line(CHUNK, partition=partition) for partition in (1, 0, 2, 0)]

    served = []
    for _ in range(4):
        release_one(core)
        served.append([record.is_waiting for record in order].count(False))

    assert served == [1, 2, 3, 4]
    assert [record.is_waiting for record in order] == [False] * 4


def test_large_record_is_not_starved_by_small_ones_of_other_partitions() -> None:
    """It has the first claim on the memory that comes back, also before new calls."""
    core = full(leaders=(1, 1))
    large = core.wait_in_line(b"x" * 5000, partition=0)

    for _ in range(7):
        release_one(core)
        core.appender.append("t", CHUNK, None, 1, None, None, None)

    assert not large.is_waiting


def test_withdrawn_record_leaves_without_a_trace() -> None:
    """And the one behind it is served."""
    core = full()
    first, second = core.wait_in_line(b"1"), core.wait_in_line(b"2")

    assert core.lines.withdraw(first)
    assert not core.lines.withdraw(first)
    release_one(core)

    assert not second.is_waiting
    assert (core.lines.records, core.lines.bytes) == (0, 0)


def test_withdrawn_record_may_be_awaited_all_the_same() -> None:
    """It counts no more, and counts once."""
    core = full()
    record = core.wait_in_line(b"1")
    core.lines.withdraw(record)

    record.delivery.add_done_callback(lambda _: None)

    assert (core.lines.records, core.lines.bytes) == (0, 0)


def test_leaders_may_change_after_everybody_has_left_the_lines() -> None:
    """Cancelled callers leave empty lines behind until the next turn."""
    core = full()
    core.lines.withdraw(core.wait_in_line(b"1"))

    core.lead((2,), epoch=1)

    assert core.lines.records == 0


def test_memory_is_no_longer_short_once_nobody_waits() -> None:
    """Or lingers would be cut short for ever."""
    core = full()
    record = core.wait_in_line(b"1")
    was_short = core.open_batches.memory_is_short

    core.lines.withdraw(record)
    core.lines.serve()

    assert (was_short, core.open_batches.memory_is_short) == (True, False)
    assert core.open_batches.may_use_common


@pytest.mark.parametrize("leave", ["withdrawn", "too late", "given up"])
def test_memory_is_kept_for_nobody_from_the_moment_the_last_has_left(leave: str) -> None:
    """The sender serves nobody while nobody waits: its next turn would come too late, and not look."""
    core = full()
    record = core.wait_in_line(b"1")
    core.lines.serve()
    before = core.open_batches.memory_is_short, core.open_batches.may_use_common

    if leave == "withdrawn":
        core.lines.withdraw(record)
    elif leave == "too late":
        core.pass_time(61)
    else:
        core.lines.fail_all(KafkaError("given up"))

    assert before == (True, False)
    assert (core.open_batches.memory_is_short, core.open_batches.may_use_common) == (False, True)


def test_leader_is_wanted_for_nobody_who_has_left() -> None:
    """The empty line of a partition without one stays until the next is served."""
    core = full(leaders=(-1,))
    record = core.wait_in_line(b"1")
    assert core.lines.leaderless_topics == {"t"}

    core.lines.withdraw(record)

    assert core.lines.leaderless_topics == set()


def test_records_of_a_topic_that_becomes_known_are_placed_in_their_order() -> None:
    """In one batch."""
    core = CoreParts(leaders=())
    records = [core.wait_in_line(b"%d" % number) for number in range(5)]

    core.lead((1,))

    assert [record.delivery.position for record in records] == [0, 1, 2, 3, 4]


def test_partitioner_that_fails_late_fails_its_record_alone() -> None:
    """It is the user's own code: the producer and the records behind it go on."""
    core = CoreParts(leaders=())
    bad, good = core.wait_in_line(b"bad"), core.wait_in_line(b"good")
    bad.choose_partition = lambda: 1 // 0

    core.lead((1,))

    [(failed, error)] = core.failed
    assert (failed, error.outcome) == (bad, Outcome.NOT_WRITTEN)
    assert "ZeroDivisionError" in str(error)
    assert not good.is_waiting


def test_error_of_a_partitioner_that_is_ours_keeps_its_class() -> None:
    """It says more than a wrapper."""
    core = CoreParts(leaders=())
    record = core.wait_in_line(partition=None)
    record.choose_partition = lambda: 7

    core.lead((1,))

    assert [type(error) for _, error in core.failed] == [InvalidPartitionError]


def test_caller_is_told_once_when_its_record_leaves_the_line() -> None:
    """For a place, a failure, or because it gave up."""
    core = full()
    told: list[int] = []
    records = [core.wait_in_line(CHUNK) for _ in range(3)]
    for number, record in enumerate(records):
        record.on_left = partial(told.append, number)

    core.lines.withdraw(records[1])
    release_one(core)
    core.lines.fail_all(KafkaError("closed"))

    assert told == [1, 0, 2]


def test_topic_that_failed_fails_those_who_wait_for_it_alone() -> None:
    """No permission, or a name that no broker takes."""
    core = CoreParts(leaders=())
    bad, good = core.wait_in_line(topic="forbidden"), core.wait_in_line()

    core.lines.topic_failed("forbidden", KafkaError("no"))
    core.lines.topic_failed("never heard of", KafkaError("no"))

    [(failed, error)] = core.failed
    assert (failed, error.topic, error.outcome) == (bad, "forbidden", Outcome.NOT_WRITTEN)
    assert good.is_waiting


def test_topic_that_nobody_waits_for_may_become_known() -> None:
    """Its only caller gave up."""
    core = CoreParts(leaders=())
    core.lines.withdraw(core.wait_in_line())

    core.lead((1,))

    assert (core.lines.unknown_topics, len(core.timers)) == ([], 0)


def test_failing_all_leaves_nobody_in_line() -> None:
    """For the close of a producer."""
    core = full()
    records = [core.wait_in_line(b"x"), core.wait_in_line(b"y", topic="nowhere")]

    core.lines.fail_all(KafkaError("closed"))

    assert [record for record, _ in core.failed] == [records[1], records[0]]
    assert (core.lines.records, core.lines.unknown_topics) == (0, [])


def test_waiting_record_keeps_its_flush_generation() -> None:
    """A flush called after it waits for it, wherever it is."""
    core = full()
    record = core.wait_in_line(b"x")
    generation = core.flush()

    for _ in range(8):
        release_one(core)
    assert not record.is_waiting
    assert not core.generations.is_finished(generation)
    release_one(core)

    assert core.generations.is_finished(generation)


def test_record_that_a_flush_waits_for_does_not_linger_once_its_topic_is_known() -> None:
    """Nor would the flush, which has closed all batches long ago."""
    core = CoreParts(leaders=(), linger_s=10.0)
    core.wait_in_line(topic="t")
    core.flush()

    core.lead((1,))

    batch = core.queue().open_batch
    assert batch is not None
    assert batch.is_ready


def test_shown_front_of_a_record_that_left_does_not_serve_its_line_out_of_turn() -> None:
    """The next of its line competes with its own place in the order of calls."""
    core = full(leaders=(1, 1), chunks=4)
    first: WaitingRecord = core.wait_in_line(CHUNK, partition=0)
    second = core.wait_in_line(CHUNK, partition=1)
    third = core.wait_in_line(CHUNK, partition=0)
    core.lines.withdraw(first)

    release_one(core)

    assert (second.is_waiting, third.is_waiting) == (False, True)


def test_nobody_who_waits_has_no_leader() -> None:
    """Not even a topic is gone through for that."""
    assert CoreParts().lines.leaderless_topics == set()
