"""Records that cannot be appended wait in order and within bounds."""

from functools import partial

import pytest

from aioproducer._accumulator.open_batches import MOST_PER_STEP
from aioproducer._accumulator.wait_queues import still_unknown
from aioproducer._accumulator.waiting_record import WaitingRecord
from aioproducer._native.delivery import Delivery
from aioproducer.errors import (
    BrokerError,
    BufferFullError,
    BufferTimeoutError,
    InvalidPartitionError,
    KafkaError,
    MetadataTimeoutError,
    Outcome,
)
from tests.fakes.core_parts import CoreParts

CHUNK = b"x" * 900


def full(leaders: tuple[int, ...] = (1,), *, chunks: int = 8) -> CoreParts:
    core = CoreParts(leaders=leaders, memory=chunks * 1024, batch_size=1024, max_record_size=6 * 1024)
    while core.appender.append("t", CHUNK, None, 0, None, None, None) is not None:
        pass
    return core


def release_one(core: CoreParts) -> None:
    """Have the oldest batch of partition 0 acknowledged, and the waiting records served."""
    [batch] = core.drain()
    core.acknowledge(batch)
    core.wait_queues.serve()


def test_record_without_memory_is_placed_when_memory_returns() -> None:
    core = full()
    record = core.wait_in_queue(b"late")

    core.wait_queues.serve()
    waited = [record.is_waiting]
    release_one(core)

    assert [*waited, record.is_waiting] == [True, False]
    assert record.delivery._batch_result.topic_partition == ("t", 0)


def test_record_that_cannot_wait_leaves_no_shortage_behind() -> None:
    """The record was refused when it came, and the earlier waiters had left."""
    core = full()
    core.wait_queues.withdraw(core.wait_in_queue(b"gone"))
    core.wait_in_queue(b"for no partition", partition=99)

    assert [type(error) for _, error in core.failed] == [InvalidPartitionError]
    assert not core.open_batches.memory_is_short


def test_record_does_not_overtake_waiters_of_its_partition() -> None:
    """The record would fit, but the large one before it came first."""
    core = full()
    large = core.wait_in_queue(b"x" * 3000)
    small = core.wait_in_queue(b"s")

    release_one(core)
    assert (large.is_waiting, small.is_waiting) == (True, True)
    for _ in range(3):
        release_one(core)

    assert (large.is_waiting, small.is_waiting) == (False, False)
    assert large.delivery._batch_result.topic_partition == small.delivery._batch_result.topic_partition


def test_append_to_a_partition_with_waiters_queues_last() -> None:
    core = full()
    core.wait_in_queue(b"first")
    [batch] = core.drain()
    core.acknowledge(batch)

    assert core.appender.append("t", b"second", None, 0, None, None, None) is None


def test_keyless_append_does_not_overtake_a_keyless_waiter() -> None:
    """A topic may have one partition only, and then order is what users see."""
    core = full()
    core.wait_in_queue(b"first", partition=None)
    [batch] = core.drain()
    core.acknowledge(batch)

    assert core.appender.append("t", b"second", None, None, None, None, None) is None
    core.wait_queues.serve()
    assert core.appender.append("t", b"third", None, None, None, None, None) is not None


def test_keyless_record_goes_where_there_is_room() -> None:
    """The silent node's partition is skipped, also if it would have been first."""
    core = full(leaders=(1, 2))
    records = [core.wait_in_queue(b"x", partition=None) for _ in range(3)]

    core.wait_queues.serve()

    assert {record.delivery._batch_result.topic_partition for record in records} == {("t", 1)}


def test_silent_node_does_not_delay_records_of_others() -> None:
    core = full(leaders=(1, 2))
    stuck = core.wait_in_queue(b"x", partition=0)
    free = core.wait_in_queue(b"x", partition=1)

    core.wait_queues.serve()

    assert (stuck.is_waiting, free.is_waiting) == (True, False)


def test_stalled_partition_leaves_its_nodes_reserve_to_others() -> None:
    """Its retries may take minutes, and everything that is sent to it meanwhile stays in the buffer."""
    core = CoreParts(leaders=(1, 1), memory=8 * 1024, batch_size=1024, max_record_size=6 * 1024)
    core.send(CHUNK)
    core.flush()
    [batch] = core.drain()
    core.refuse(batch)
    stuck = [core.wait_in_queue(CHUNK) for _ in range(20)]
    free = [core.wait_in_queue(CHUNK, partition=1) for _ in range(3)]

    core.wait_queues.serve()

    assert [record.is_waiting for record in stuck].count(False) == 5  # with the one refused, three quarters
    assert [record.is_waiting for record in free] == [False, False, True]


def test_partition_that_stalled_while_waiting_delays_no_other() -> None:
    core = CoreParts(leaders=(1, 1), memory=8 * 1024, batch_size=1024, max_record_size=6 * 1024)
    for _ in range(8):
        core.send(CHUNK)
    stuck = core.wait_in_queue(CHUNK)
    free = core.wait_in_queue(CHUNK, partition=1)
    [batch] = core.drain()
    core.refuse(batch)
    *_, newest = core.partition().queued
    core.partition().queued.remove(newest)
    core.pool.give_back(newest.chunk)

    core.wait_queues.serve()

    assert (stuck.is_waiting, free.is_waiting) == (True, False)


def test_earliest_call_of_all_nodes_is_served_first() -> None:
    core = full(leaders=(1, 2, 2), chunks=4)
    core.pool.divide_reserves([core.node(1).reserve])  # no reserves
    order = [core.wait_in_queue(CHUNK, partition=partition) for partition in (1, 0, 2, 0)]

    served = []
    for _ in range(4):
        release_one(core)
        served.append([record.is_waiting for record in order].count(False))

    assert served == [1, 2, 3, 4]
    assert [record.is_waiting for record in order] == [False] * 4


def test_large_record_is_not_starved_by_small_ones() -> None:
    """The large record has the first claim on returned memory, also before new calls."""
    core = full(leaders=(1, 1))
    large = core.wait_in_queue(b"x" * 5000, partition=0)

    for _ in range(7):
        release_one(core)
        core.appender.append("t", CHUNK, None, 1, None, None, None)

    assert not large.is_waiting


def test_withdrawn_record_leaves_without_a_trace() -> None:
    core = full()
    first, second = core.wait_in_queue(b"1"), core.wait_in_queue(b"2")

    assert core.wait_queues.withdraw(first)
    assert not core.wait_queues.withdraw(first)
    release_one(core)

    assert not second.is_waiting
    assert (core.wait_queues.records, core.wait_queues.bytes) == (0, 0)


def test_withdrawn_record_may_be_awaited_all_the_same() -> None:
    core = full()
    record = core.wait_in_queue(b"1")
    core.wait_queues.withdraw(record)

    record.delivery.add_done_callback(lambda _: None)

    assert (core.wait_queues.records, core.wait_queues.bytes) == (0, 0)


def test_memory_is_not_short_without_waiters() -> None:
    core = full()
    record = core.wait_in_queue(b"1")
    was_short = core.open_batches.memory_is_short

    core.wait_queues.withdraw(record)
    core.wait_queues.serve()

    assert (was_short, core.open_batches.memory_is_short) == (True, False)
    assert core.open_batches.may_use_common


@pytest.mark.parametrize("leave", ["withdrawn", "too late", "given up"])
def test_no_memory_is_reserved_once_the_last_waiter_left(leave: str) -> None:
    """The sender serves no one while no record waits: its next turn would come too late."""
    core = full()
    record = core.wait_in_queue(b"1")
    core.wait_queues.serve()
    before = core.open_batches.memory_is_short, core.open_batches.may_use_common

    if leave == "withdrawn":
        core.wait_queues.withdraw(record)
    elif leave == "too late":
        core.pass_time(61)
    else:
        core.wait_queues.fail_all(KafkaError("given up"))

    assert before == (True, False)
    assert (core.open_batches.memory_is_short, core.open_batches.may_use_common) == (False, True)


def test_leader_is_not_wanted_for_waiters_that_left() -> None:
    """The empty queue of a leaderless partition stays until the next is served."""
    core = full(leaders=(-1,))
    record = core.wait_in_queue(b"1")
    assert core.wait_queues.leaderless_topics == {"t"}

    core.wait_queues.withdraw(record)

    assert core.wait_queues.leaderless_topics == set()


def test_records_of_a_topic_that_becomes_known_keep_their_order() -> None:
    core = CoreParts(leaders=())
    records = [core.wait_in_queue(b"%d" % number) for number in range(5)]

    core.lead((1,))

    assert [record.delivery._position for record in records] == [0, 1, 2, 3, 4]


def test_partitioner_that_fails_late_fails_its_record_alone() -> None:
    """The partitioner is the user's code: the producer and the records behind it go on."""
    core = CoreParts(leaders=())
    bad, good = core.wait_in_queue(b"bad"), core.wait_in_queue(b"good")
    bad.choose_partition = lambda: 1 // 0

    core.lead((1,))

    [(failed, error)] = core.failed
    assert (failed, error.outcome) == (bad, Outcome.NOT_WRITTEN)
    assert "ZeroDivisionError" in str(error)
    assert not good.is_waiting


def test_error_of_a_partitioner_that_is_ours_keeps_its_class() -> None:
    core = CoreParts(leaders=())
    record = core.wait_in_queue(partition=None)
    record.choose_partition = lambda: 7

    core.lead((1,))

    assert [type(error) for _, error in core.failed] == [InvalidPartitionError]


def test_caller_is_notified_once_when_its_record_leaves() -> None:
    """A record leaves for a place in a batch, by a failure, or because its caller gave up."""
    core = full()
    told: list[int] = []
    records = [core.wait_in_queue(CHUNK) for _ in range(3)]
    for number, record in enumerate(records):
        record.on_left = partial(told.append, number)

    core.wait_queues.withdraw(records[1])
    release_one(core)
    core.wait_queues.fail_all(KafkaError("closed"))

    assert told == [1, 0, 2]


def test_failed_topic_fails_its_waiters_alone() -> None:
    core = CoreParts(leaders=())
    bad, good = core.wait_in_queue(topic="forbidden"), core.wait_in_queue()

    core.wait_queues.topic_failed("forbidden", KafkaError("no"))
    core.wait_queues.topic_failed("never heard of", KafkaError("no"))

    [(failed, error)] = core.failed
    assert (failed, error.topic, error.outcome) == (bad, "forbidden", Outcome.NOT_WRITTEN)
    assert good.is_waiting


def test_topic_without_waiters_may_become_known() -> None:
    core = CoreParts(leaders=())
    core.wait_queues.withdraw(core.wait_in_queue())

    core.lead((1,))

    assert (core.wait_queues.unknown_topics, len(core.timers)) == ([], 0)


def test_failing_all_leaves_no_waiters() -> None:
    core = full()
    records = [core.wait_in_queue(b"x"), core.wait_in_queue(b"y", topic="nowhere")]

    core.wait_queues.fail_all(KafkaError("closed"))

    assert [record for record, _ in core.failed] == [records[1], records[0]]
    assert (core.wait_queues.records, core.wait_queues.unknown_topics) == (0, [])


def test_waiting_record_keeps_its_flush_generation() -> None:
    """A flush called after the record waits for it, wherever it is."""
    core = full()
    record = core.wait_in_queue(b"x")
    generation = core.flush()

    for _ in range(8):
        release_one(core)
    assert not record.is_waiting
    assert not core.generations.is_finished(generation)
    release_one(core)

    assert core.generations.is_finished(generation)


def test_flushed_record_does_not_linger_once_its_topic_is_known() -> None:
    core = CoreParts(leaders=(), linger_s=10.0)
    core.wait_in_queue(topic="t")
    core.flush()

    core.lead((1,))

    batch = core.partition().open_batch
    assert batch is not None
    assert batch.is_ready


def test_withdrawn_front_record_does_not_serve_its_queue_early() -> None:
    """The next record of its queue competes with its own place in the order of calls."""
    core = full(leaders=(1, 1), chunks=4)
    first: WaitingRecord = core.wait_in_queue(CHUNK, partition=0)
    second = core.wait_in_queue(CHUNK, partition=1)
    third = core.wait_in_queue(CHUNK, partition=0)
    core.wait_queues.withdraw(first)

    release_one(core)

    assert (second.is_waiting, third.is_waiting) == (False, True)


# Waiting is bounded: in records, in bytes, and in time


def test_record_that_got_no_memory_in_time_fails_as_not_written() -> None:
    core = full()
    record = core.wait_in_queue(b"1")

    core.pass_time(59.9)
    assert record.is_waiting
    core.pass_time(0.1)

    [(failed, error)] = core.failed
    assert failed is record
    assert (type(error), error.outcome, error.topic) == (BufferTimeoutError, Outcome.NOT_WRITTEN, "t")
    assert error.elapsed_s == pytest.approx(60)


def test_records_of_a_topic_that_stays_unknown_fail_in_time() -> None:
    core = CoreParts()
    core.wait_in_queue(topic="nowhere")
    assert core.wait_queues.unknown_topics == ["nowhere"]

    core.pass_time(60)

    [(_, error)] = core.failed
    assert (type(error), error.elapsed_s) == (MetadataTimeoutError, pytest.approx(60))
    assert core.wait_queues.unknown_topics == []
    assert len(core.timers) == 0


def not_in_line(core: CoreParts, size: int, *, topic: str = "t") -> WaitingRecord:
    record = core.wait_in_queue(bytes(size), topic=topic)
    core.wait_queues.withdraw(record)
    return record


@pytest.mark.parametrize("size, count", [(1, 1000), (99_000, 10)], ids=["records", "bytes"])
def test_unawaited_waiting_records_are_bounded(size: int, count: int) -> None:
    core = CoreParts(leaders=())
    late = not_in_line(core, size + 10_000)
    for _ in range(count):
        core.wait_queues.check_room(not_in_line(core, size))
        core.wait_in_queue(bytes(size))

    with pytest.raises(BufferFullError, match="no caller awaits them") as refused:
        core.wait_queues.check_room(late)

    assert refused.value.outcome is Outcome.NOT_WRITTEN


@pytest.mark.parametrize("topic, exhausted", [("t", 1), ("nowhere", 0)], ids=["memory", "metadata"])
def test_memory_is_exhausted_only_for_records_that_need_it(topic: str, exhausted: int) -> None:
    """A refused record among others that wait for metadata was not dropped for want of memory."""
    core = full()
    late = not_in_line(core, 1, topic=topic)
    for _ in range(1000):
        core.wait_in_queue(topic="nowhere")

    with pytest.raises(BufferFullError):
        core.wait_queues.check_room(late)

    assert core.wait_queues.exhausted == exhausted


def test_awaited_records_are_not_bounded() -> None:
    """A caller that awaits sends no more meanwhile; records that were placed or failed leave nothing behind."""
    core = CoreParts(leaders=())
    records = [core.wait_in_queue() for _ in range(1000)]
    for record in records:
        record.delivery.add_done_callback(lambda _: None)

    assert core.wait_queues.has_room(1)
    core.lead((1,))

    assert (core.wait_queues.records, core.wait_queues.bytes) == (0, 0)


def test_record_whose_caller_waits_for_room_is_not_counted() -> None:
    """`enqueue` itself waits for room."""
    core = CoreParts(leaders=())
    for _ in range(1000):
        core.wait_in_queue(is_counted=False)

    assert core.wait_queues.has_room(1)

    assert core.wait_queues.records == 1000


@pytest.mark.parametrize("topic", ["t", "nowhere"], ids=["memory", "metadata"])
def test_each_waiting_record_has_its_own_deadline(topic: str) -> None:
    core = full()
    for _ in range(3):
        core.wait_in_queue(topic=topic)
        core.pass_time(10)

    core.pass_time(30)
    counted = [len(core.failed)]
    for _ in range(2):
        core.pass_time(10)
        counted.append(len(core.failed))

    assert counted == [1, 2, 3]


def test_deadline_of_a_record_that_waited_counts_from_its_call() -> None:
    core = full()
    record = core.wait_in_queue(b"x")
    core.pass_time(50)
    core.wait_queues.serve()
    release_one(core)
    assert not record.is_waiting

    core.pass_time(70)

    due = core.accumulator.deadlines.take_due(MOST_PER_STEP)
    overdue = [batch for queue in due for batch in core.accumulator.deadlines.overdue(queue, core.now)]
    assert record.delivery._batch_result in {batch.result for batch in overdue}


def test_fresh_record_has_its_own_deadline() -> None:
    core = full()
    waited = core.wait_in_queue(b"x")
    core.pass_time(50)
    release_one(core)

    fresh = core.send(b"y")

    assert waited.delivery._batch_result is not fresh._batch_result


def test_waiters_share_a_deadline_only_if_called_together() -> None:
    core = full()
    early, soon = core.wait_in_queue(b"x"), core.wait_in_queue(b"y")
    core.pass_time(50)
    late = core.wait_in_queue(b"z")
    for _ in range(2):
        release_one(core)

    assert early.delivery._batch_result is soon.delivery._batch_result
    assert not late.is_waiting
    assert late.delivery._batch_result is not early.delivery._batch_result


# A topic unused for long still has partitions: all of its records queue behind those that wait


def appended(core: CoreParts, value: bytes) -> Delivery | None:
    """A record for partition 0, without waiting; None: it must wait."""
    return core.appender.append("t", value, None, 0, None, None, None)


def test_partitioned_record_queues_behind_an_unpartitioned_one() -> None:
    """The unpartitioned record may go to the same partition, so everything behind it waits, too."""
    core = CoreParts()
    chosen = core.wait_in_queue(b"1", partition=None, choose_partition=lambda: 0)
    given = core.wait_in_queue(b"2")
    refused = appended(core, b"3")
    core.wait_queues.withdraw(core.wait_in_queue(b"withdrawn", partition=None, choose_partition=lambda: 0))

    core.wait_queues.topic_known("t")

    assert refused is None
    assert [record.delivery._position for record in (chosen, given)] == [0, 1]
    assert appended(core, b"3") is not None


@pytest.mark.parametrize("is_late", [False, True], ids=["withdrawn", "too late"])
def test_record_that_leaves_delays_no_other(is_late: bool) -> None:  # noqa: FBT001  # parametrized
    core = CoreParts()
    record = core.wait_in_queue(b"gone", partition=None, choose_partition=lambda: 0)
    if is_late:
        core.pass_time(1_000)
    else:
        core.wait_queues.withdraw(record)

    assert not record.is_waiting
    assert appended(core, b"next") is not None


def test_partitioner_that_sends_is_waited_behind() -> None:
    """The partitioner's own record comes while earlier ones are still joining their partitions' queues."""
    core = CoreParts()
    sent = []

    def choose() -> int:
        sent.append(core.wait_in_queue(b"3"))
        return 0

    first = core.wait_in_queue(b"1", partition=None, choose_partition=choose)
    second = core.wait_in_queue(b"2", partition=None, choose_partition=lambda: 0)

    core.wait_queues.topic_known("t")

    assert [record.delivery._position for record in (first, second, *sent)] == [0, 1, 2]
    assert appended(core, b"4") is not None


@pytest.mark.parametrize("code, is_asked", [(3, True), (5, False)])
def test_error_of_an_unknown_topic_asks_whether_it_exists(code: int, *, is_asked: bool) -> None:
    """Brokers answer differently for a topic that is being created, or has no leader yet."""
    trouble = BrokerError.of(code, "what brokers answer", retriable=True)

    assert ("does the topic exist?" in str(still_unknown("t", "max_block_ms=1", trouble))) is is_asked
