"""A wait queue serves in call order; among queues for memory the earliest call is first, and none is forgotten."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer._accumulator.open_batches import MOST_PER_STEP
from aioproducer._accumulator.partition import RecordDeadline, Topic
from aioproducer._accumulator.waiting_record import WaitingRecord, WaitQueue
from aioproducer._native.delivery import BatchResult
from aioproducer._timing.timers import TimerHeap
from aioproducer.errors import BufferTimeoutError, InvalidPartitionError, MetadataTimeoutError, Outcome
from tests.fakes.core_parts import CHUNK, CoreParts, Queue, full


def record(number: int = 0) -> WaitingRecord:
    result = BatchResult(None, None)  # type: ignore[arg-type]  # it is never awaited
    made = WaitingRecord("t", result, timestamp=number, size=10, called_at=0.0)
    made.value = b"v"
    return made


def queue_of(count: int) -> tuple[WaitQueue[str], list[WaitingRecord]]:
    queue, records = WaitQueue("t"), [record(number) for number in range(count)]
    for each in records:
        queue.join(each)
    return queue, records


def test_record_that_leaves_from_the_middle_is_passed_over() -> None:
    queue, records = queue_of(5)

    queue.leave(records[2])
    queue.leave(records[0])

    assert list(queue) == [records[1], records[3], records[4]]
    assert (len(queue), records[2].is_waiting, records[1].is_waiting) == (3, False, True)


def test_queue_may_be_left_during_iteration() -> None:
    queue, _ = queue_of(10)

    for each in queue:
        queue.leave(each)

    assert list(queue) == []


def test_unwatched_queue_cancels_its_timer() -> None:
    queue, timers = WaitQueue("t"), TimerHeap(lambda _: None)
    queue.timer = timers.schedule(1.0, lambda _: None)

    queue.stop_watching()
    queue.stop_watching()

    assert len(timers) == 0


def test_record_lets_its_content_go() -> None:
    waited = record()
    waited.key, waited.headers, waited.choose_partition = b"k", (("h", b"v"),), lambda: 0
    names = ("value", "key", "headers", "choose_partition")
    assert all(getattr(waited, name) is not None for name in names)

    waited.forget_content()

    assert [getattr(waited, name) for name in names] == [None] * 4


@given(st.lists(st.integers(0, 99) | st.none(), max_size=60))
def test_queue_behaves_like_a_list_with_removal(steps: list[int | None]) -> None:
    queue, expected = WaitQueue("t"), list[WaitingRecord]()
    for step in steps:
        if step is None:
            expected.append(record())
            queue.join(expected[-1])
        elif expected:
            queue.leave(expected.pop(step % len(expected)))

        assert queue.first() is (expected[0] if expected else None)
        assert (list(queue), len(queue)) == (expected, len(expected))


# Records with deadlines of their own


def wait(core: CoreParts, *, topic: str = "t", deadline_s: float = 2.0) -> WaitingRecord:
    return core.wait_in_queue(topic=topic, deadline=RecordDeadline(deadline_s, core.now + deadline_s))


def fill(core: CoreParts) -> None:
    while core.pool.try_lend(1, None) is not None or core.pool.try_lend(1, core.node(1).reserve) is not None:
        pass


@pytest.mark.parametrize("topic, kind", [("t", BufferTimeoutError), ("unknown", MetadataTimeoutError)])
def test_record_leaves_its_queue_at_its_deadline(topic: str, kind: type[Exception]) -> None:
    """One before it, which may wait longer, goes on waiting."""
    core = CoreParts()
    fill(core)
    patient, record = core.wait_in_queue(topic=topic), wait(core, topic=topic)

    core.pass_time(1.999)
    assert core.failed == []
    core.pass_time(0.001)

    [(failed, error)] = core.failed
    assert (failed, type(error), error.outcome, error.elapsed_s) == (record, kind, Outcome.NOT_WRITTEN, 2.0)
    assert "deadline=2" in str(error)
    assert (patient.is_waiting, core.wait_queues.records) == (True, 1)


def test_record_that_was_withdrawn_leaves_no_timer() -> None:
    core = CoreParts()
    fill(core)
    record = wait(core)
    before = len(core.timers)

    core.wait_queues.withdraw(record)

    assert len(core.timers) == before - 1


def test_record_that_finds_room_keeps_its_deadline_in_its_batch() -> None:
    core = CoreParts(leaders=())
    record = core.wait_in_queue(deadline=RecordDeadline(2.0, core.now + 2.0))
    core.pass_time(1.0)

    core.lead([1])

    batch = core.partition().open_batch
    assert batch is not None
    assert record.delivery._batch_result is batch.result
    assert batch.first_deadline == pytest.approx(1002.0)
    core.pass_time(1.01)
    assert core.failed == []
    assert core.accumulator.deadlines.take_due(MOST_PER_STEP) == [core.partition()]


# Places


@pytest.mark.parametrize(
    "partition, key, place",
    [(2, None, 2), (2, b"key", 2), (None, b"key", 1), (None, b"b", 2), (None, None, None)],
    ids=["given", "given and key", "key", "another key", "anywhere"],
)
def test_certain_partition_decides_the_wait_queue(partition: int | None, key: bytes | None, place: int) -> None:
    """A keyless record waits in the queue of its topic, and chooses when it is granted memory."""
    queue = full((1, 1, 1))

    waiting = queue.join(partition=partition, key=key).queue

    assert waiting is not None
    assert getattr(waiting.key, "number", None) == place
    assert isinstance(waiting.key, Topic) is (place is None)


def test_partitioner_is_asked_once() -> None:
    core = full((1, 1)).core
    answers = [0, 1]

    record = core.wait_in_queue(partition=None, choose_partition=answers.pop)
    for _ in range(2):
        core.wait_queues.topic_known("t")

    assert (record.partition, answers) == (1, [0])


def test_partition_beyond_its_topic_has_no_wait_queue() -> None:
    queue = full()

    record = queue.join(partition=3)

    [(refused, error)] = queue.core.failed
    assert (refused, type(error), record.is_waiting) == (record, InvalidPartitionError, False)


# Serving


def test_no_waiter_is_served_without_memory() -> None:
    queue = full()
    records = [queue.join() for _ in range(3)]

    queue.serve()

    assert (queue.appended, [record.is_waiting for record in records]) == ([], [True] * 3)


def test_as_many_are_served_as_there_is_memory_for() -> None:
    queue = full()
    records = [queue.join() for _ in range(4)]

    queue.free(2)

    assert queue.appended == records[:2]


def test_wait_queue_goes_away_with_its_last_record() -> None:
    queue = full()
    partition, timers = queue.core.partition(), len(queue.core.timers)
    queue.join()
    assert (len(queue.core.timers), partition.waiting_count) == (timers + 1, 1)

    queue.free()

    assert (len(queue.core.timers), partition.waiting_count) == (timers, 0)


def test_record_of_a_gone_partition_is_refused_and_later_served() -> None:
    queue = full((1, 1))
    gone, good = queue.join(partition=1), queue.join(partition=0)
    del queue.core.appender.topics["t"].partitions[1]

    queue.free()

    [(refused, error)] = queue.core.failed
    assert (refused, type(error)) == (gone, InvalidPartitionError)
    assert queue.appended == [good]


def test_keyless_record_avoids_a_partition_with_waiters() -> None:
    queue = full((1, 2))
    waiting = queue.join(partition=1, value=bytes(5000))
    anywhere = queue.join(partition=None, value=b"v")

    queue.serve()

    assert queue.appended == []
    assert {waiting.is_waiting, anywhere.is_waiting} == {True}


def test_keyless_record_enters_a_partition_with_later_waiters() -> None:
    """Kept out while every partition has waiters, it would hold the memory that they wait for."""
    queue = full((1, 1))
    anywhere = queue.join(partition=None)
    later = [queue.join(partition=partition) for partition in (0, 1, 0, 1)]

    queue.free(5)

    assert queue.appended == [anywhere, *later]


def test_earliest_unserved_call_has_first_claim_on_memory() -> None:
    """Other nodes live on their own reserves meanwhile."""
    queue = full((1, 2), chunks=16)
    queue.join(partition=0)
    queue.serve()
    assert not queue.core.open_batches.may_use_common

    queue.free()

    assert queue.core.open_batches.may_use_common


def test_large_record_is_not_overtaken_forever() -> None:
    """Returned memory is always enough for a small record of another node, and too little for the large one."""
    chunks = 16
    queue = full((1, 2), chunks=chunks)
    large = queue.join(partition=1, value=bytes(5 * 1024))
    overtaking = 0
    while large not in queue.appended and overtaking <= chunks:
        queue.join(partition=0)
        queue.free()
        overtaking = len(queue.appended)

    assert large in queue.appended
    assert overtaking <= chunks


def test_partition_stalled_while_waiting_alone_continues() -> None:
    queue = full((1, 1))
    held_up = queue.join(partition=0)
    queue.core.refuse(queue.core.drain()[0])
    queue.serve()
    later = queue.join(partition=1)

    queue.free(2)

    assert queue.appended == [held_up, later]


def stalled_queues(partitions: int, first: bytes, node_id: int = 1) -> tuple[Queue, list[WaitingRecord]]:
    """One record waiting for each of some partitions of a node, all held up; the common memory is taken."""
    core = CoreParts(leaders=(node_id,) * partitions, memory=4 * (partitions + 1) * 1024, batch_size=1024)
    for partition in range(partitions):
        core.send(CHUNK, partition=partition)
    core.flush()
    for batch in core.drain(node_id):
        core.refuse(batch)
    while core.appender.append("t", CHUNK, None, 0, None, None, None) is not None:
        pass
    queue = Queue(core)
    return queue, [queue.join(partition=each, value=CHUNK if each else first) for each in range(partitions)]


@pytest.mark.parametrize("partitions", [2, 50])
def test_one_memory_attempt_for_all_stalled_partitions(partitions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each turn tries one waiter: trying all of a thousand would leave no time for anything else."""
    queue, _ = stalled_queues(partitions, CHUNK)
    asked: list[int] = []
    monkeypatch.setattr(queue.core.pool, "try_lend", lambda size, *_, **__: asked.append(size))

    queue.serve()

    assert len(asked) == 2  # as much as is sensible, and as little as is possible


@pytest.mark.parametrize("node_id", [0, 1])
def test_recovered_partition_does_not_wait_behind_a_stalled_one(node_id: int) -> None:
    """The recovered node has a reserve, of which the stalled partition gets nothing."""
    queue, [stuck, recovered] = stalled_queues(2, CHUNK * 3, node_id)
    queue.serve()
    core = queue.core
    core.acknowledge(next(batch for batch in core.drain(node_id) if batch.partition is core.partition(1)))

    queue.serve()

    assert (stuck.is_waiting, queue.appended) == (True, [recovered])


def test_earlier_stalled_record_goes_before_later_stalled_ones() -> None:
    """The earlier record competes from this serving on, and no later one is served in its place."""
    core = CoreParts(leaders=(1, 1), memory=8 * 1024, batch_size=1024)
    for partition in (0, 1):
        core.send(CHUNK, partition=partition)
    core.flush()
    batches = {batch.partition.topic_partition.partition: batch for batch in core.drain()}
    while core.appender.append("t", CHUNK, None, 0, None, None, None) is not None:
        pass
    queue = Queue(core)
    first = queue.join(partition=0)
    core.refuse(batches[1])
    second = queue.join(partition=1)
    core.refuse(batches[0])
    queue.serve()
    assert queue.appended == []

    queue.free(2)

    assert queue.appended == [first, second]


# Shortage


def test_memory_is_short_while_a_record_waits() -> None:
    queue = full()
    open_batches = queue.core.open_batches
    queue.join()

    assert open_batches.memory_is_short
    queue.free()

    assert not open_batches.memory_is_short


# Leaders


def test_waiting_records_compete_under_their_new_leader() -> None:
    queue = full((1, 2), chunks=16)
    record = queue.join(partition=0)
    queue.serve()
    assert record.is_waiting
    queue.core.lead((2, 1), epoch=1)

    queue.core.wait_queues.leaders_changed()

    assert queue.appended == [record]


def test_new_leaders_take_no_memory_from_waiters() -> None:
    queue = full((1, 1))
    records = [queue.join(partition=partition) for partition in (0, 1, 0)]
    for _ in range(2):
        queue.core.wait_queues.leaders_changed()

    queue.free(3)

    assert queue.appended == records


def test_leader_change_after_all_left_leaves_no_shortage() -> None:
    """Else lingers would be cut short, and common memory kept for no one."""
    core = full().core
    record = core.wait_in_queue(b"v")
    core.wait_queues.serve()
    core.wait_queues.withdraw(record)

    core.lead((2,), epoch=1)

    assert (core.open_batches.memory_is_short, core.open_batches.may_use_common) == (False, True)


@given(st.lists(st.tuples(st.sampled_from((None, 0, 1, 2)), st.sampled_from((1, 900, 2000))), min_size=1, max_size=20))
def test_waiters_are_served_in_the_order_of_their_queue(records: list[tuple[int | None, int]]) -> None:
    queue = full((1, 1, 2))
    waiting = [queue.join(partition=partition, value=bytes(size)) for partition, size in records]

    for _ in range(200):
        for node_id in (1, 2):
            for batch in queue.core.drain(node_id):
                queue.core.acknowledge(batch)
        queue.serve()

    assert len(queue.appended) == len(waiting)
    for partition in (None, 0, 1, 2):
        assert [each for each in queue.appended if each.partition == partition] == [
            each for each in waiting if each.partition == partition
        ]


def test_topics_with_leaderless_partitions_are_known() -> None:
    """None of their batches is ready, so nothing else would ask for their leaders."""
    queue = Queue(CoreParts(leaders=(1, -1)))
    queue.join(partition=0)
    assert queue.core.wait_queues.leaderless_topics == set()

    queue.join(partition=1)
    queue.join(partition=None)
    assert queue.core.wait_queues.leaderless_topics == {"t"}


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "beside another of the node"])
def test_queue_whose_partition_recovers_is_served_at_once(others: int) -> None:
    core = CoreParts(leaders=(1, 1), memory=2 * 1024, batch_size=1024, max_record_size=6 * 1024)
    for _ in range(2):
        core.send(CHUNK)
    [batch] = core.drain()
    core.refuse(batch)
    first, second = core.wait_in_queue(CHUNK), core.wait_in_queue(CHUNK)
    beside = [core.wait_in_queue(CHUNK, partition=1) for _ in range(others)]
    core.wait_queues.serve()
    core.wait_queues.withdraw(first)
    for _ in range(2):
        [batch] = core.drain()
        core.acknowledge(batch)

    core.wait_queues.serve()

    assert [record.is_waiting for record in (second, *beside)] == [False] * (1 + others)


def test_memory_from_a_refused_batch_goes_to_the_longest_waiter() -> None:
    """One response refuses a batch of the waiter's partition, and acknowledges one of another."""
    core = CoreParts(leaders=(1, 1), memory=8 * 1024, batch_size=1024)
    for _ in range(4):
        assert core.appender.append("t", CHUNK, None, 1, None, None, None) is not None
    while core.appender.append("t", CHUNK, None, 0, None, None, None) is not None:
        pass
    record = core.wait_in_queue(CHUNK, partition=0)
    core.wait_queues.serve()
    batches = {batch.partition.topic_partition.partition: batch for batch in core.drain()}

    core.refuse(batches[0], pause_s=1.0)
    core.acknowledge(batches[1])
    core.wait_queues.serve()

    assert not record.is_waiting
