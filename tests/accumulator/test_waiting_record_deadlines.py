"""Records that wait, with deadlines of their own."""

import pytest

from aioproducer._accumulator.partition_queue import RecordDeadline
from aioproducer._accumulator.wait_queue import WaitingRecord
from aioproducer.errors import BufferTimeoutError, MetadataTimeoutError, Outcome
from tests.fakes.core_parts import CoreParts


def wait(core: CoreParts, *, topic: str = "t", deadline_s: float = 2.0) -> WaitingRecord:
    return core.wait_in_queue(topic=topic, deadline=RecordDeadline(deadline_s, core.now + deadline_s))


def fill(core: CoreParts) -> None:
    while core.pool.try_lend(1, None) is not None or core.pool.try_lend(1, 1) is not None:
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

    batch = core.queue().open_batch
    assert batch is not None
    assert record.delivery._batch_result is batch.result
    assert batch.first_deadline == pytest.approx(1002.0)
    core.pass_time(1.01)
    assert core.failed == []
    assert core.accumulator.deadlines.take_due() == [core.queue()]
