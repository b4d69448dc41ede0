"""Waiting is bounded: in records, in bytes, and in time."""

import pytest

from aioproducer._accumulator.wait_queue import WaitingRecord
from aioproducer.errors import BufferFullError, BufferTimeoutError, MetadataTimeoutError, Outcome
from tests.fakes.core_parts import CoreParts

CHUNK = b"x" * 900
"""Fills one of the smallest chunks."""


def full() -> CoreParts:
    """A core whose memory is taken by partition 0."""
    core = CoreParts(memory=8 * 1024, batch_size=1024, max_record_size=6 * 1024)
    while core.appender.append("t", CHUNK, None, 0, None, None, None) is not None:
        pass
    return core


def release_one(core: CoreParts) -> None:
    """Have the oldest batch acknowledged, and the waiting records served."""
    [batch] = core.drain()
    core.acknowledge(batch)
    core.lines.serve()


def test_record_that_got_no_memory_in_time_fails_as_not_written() -> None:
    """In max.block.ms from its call."""
    core = full()
    record = core.wait_in_line(b"1")

    core.pass_time(59.9)
    assert record.is_waiting
    core.pass_time(0.1)

    [(failed, error)] = core.failed
    assert failed is record
    assert (type(error), error.outcome, error.topic) == (BufferTimeoutError, Outcome.NOT_WRITTEN, "t")


def test_records_of_a_topic_that_stays_unknown_fail_in_time() -> None:
    """And the topic is forgotten with them."""
    core = CoreParts()
    core.wait_in_line(topic="nowhere")
    assert core.lines.unknown_topics == ["nowhere"]

    core.pass_time(60)

    assert [type(error) for _, error in core.failed] == [MetadataTimeoutError]
    assert core.lines.unknown_topics == []
    assert len(core.timers) == 0


@pytest.mark.parametrize("topic", ["t", "nowhere"], ids=["memory", "metadata"])
def test_error_of_who_waited_in_vain_tells_for_how_long(topic: str) -> None:
    """As that of a batch does."""
    core = full()
    core.wait_in_line(topic=topic)

    core.pass_time(60)

    [(_, error)] = core.failed
    assert error.elapsed_s == pytest.approx(60)


def not_in_line(core: CoreParts, size: int, *, topic: str = "t") -> WaitingRecord:
    """A record that would wait, and does not yet."""
    record = core.wait_in_line(bytes(size), topic=topic)
    core.lines.withdraw(record)
    return record


@pytest.mark.parametrize("size, count", [(1, 1000), (99_000, 10)], ids=["records", "bytes"])
def test_records_nobody_awaits_are_bounded(size: int, count: int) -> None:
    """Both in number and in bytes."""
    core = CoreParts(leaders=())
    late = not_in_line(core, size + 10_000)
    for _ in range(count):
        core.lines.check_room(not_in_line(core, size))
        core.wait_in_line(bytes(size))

    with pytest.raises(BufferFullError, match="no caller awaits them") as refused:
        core.lines.check_room(late)

    assert refused.value.outcome is Outcome.NOT_WRITTEN


@pytest.mark.parametrize("topic, exhausted", [("t", 1), ("nowhere", 0)], ids=["memory", "metadata"])
def test_memory_is_exhausted_for_those_that_need_it(topic: str, exhausted: int) -> None:
    """A record refused among others that wait for metadata was not dropped for want of memory."""
    core = full()
    late = not_in_line(core, 1, topic=topic)
    for _ in range(1000):
        core.wait_in_line(topic="nowhere")

    with pytest.raises(BufferFullError):
        core.lines.check_room(late)

    assert core.lines.exhausted == exhausted


def test_records_that_somebody_awaits_are_not_bounded() -> None:
    """Whoever awaits sends no more meanwhile; once placed or failed they leave nothing behind."""
    core = CoreParts(leaders=())
    records = [core.wait_in_line() for _ in range(1000)]
    for record in records:
        record.delivery.add_done_callback(lambda _: None)

    assert core.lines.has_room(1)
    core.lead((1,))

    assert (core.lines.records, core.lines.bytes) == (0, 0)


def test_record_whose_caller_waits_for_room_is_not_counted() -> None:
    """`enqueue` waits itself."""
    core = CoreParts(leaders=())
    for _ in range(1000):
        core.wait_in_line(is_counted=False)

    assert core.lines.has_room(1)

    assert core.lines.records == 1000


@pytest.mark.parametrize("topic", ["t", "nowhere"], ids=["memory", "metadata"])
def test_each_record_of_a_line_has_its_own_time(topic: str) -> None:
    """One timer serves them one after the other."""
    core = full()
    for _ in range(3):
        core.wait_in_line(topic=topic)
        core.pass_time(10)

    core.pass_time(30)
    counted = [len(core.failed)]
    for _ in range(2):
        core.pass_time(10)
        counted.append(len(core.failed))

    assert counted == [1, 2, 3]


def test_deadline_of_a_record_that_waited_counts_from_its_call() -> None:
    """Not from the moment it got its place."""
    core = full()
    record = core.wait_in_line(b"x")
    core.pass_time(50)
    core.lines.serve()
    release_one(core)
    assert not record.is_waiting

    core.pass_time(70)

    due = core.accumulator.deadlines.take_due()
    overdue = [batch for queue in due for batch in core.accumulator.deadlines.overdue(queue, core.now)]
    assert record.delivery.batch_result in {batch.result for batch in overdue}


def test_fresh_record_does_not_share_the_deadline_of_one_that_waited_long() -> None:
    """It would expire almost at once."""
    core = full()
    waited = core.wait_in_line(b"x")
    core.pass_time(50)
    release_one(core)

    fresh = core.send(b"y")

    assert waited.delivery.batch_result is not fresh.batch_result


def test_records_that_waited_share_a_deadline_only_if_they_were_called_together() -> None:
    """Else the later one would expire long before its time."""
    core = full()
    early, soon = core.wait_in_line(b"x"), core.wait_in_line(b"y")
    core.pass_time(50)
    late = core.wait_in_line(b"z")
    for _ in range(2):
        release_one(core)

    assert early.delivery.batch_result is soon.delivery.batch_result
    assert not late.is_waiting
    assert late.delivery.batch_result is not early.delivery.batch_result
