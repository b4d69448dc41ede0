"""No batch outlives its deadline, with one timer a partition."""

from aioproducer._accumulator.partition_queue import ProducerBatch
from tests.fakes.core_parts import CoreParts

TIMEOUT_S = 120.0


def overdue(core: CoreParts) -> list[ProducerBatch]:
    deadlines = core.accumulator.deadlines
    found = []
    for queue in deadlines.take_due():
        core.accumulator.close_overdue(queue, core.now)
        found += deadlines.overdue(queue, core.now)
        for batch in found:
            queue.remove(batch)
        deadlines.watch_again(queue)
    return found


def test_batch_is_due_when_its_oldest_record_is() -> None:
    core = CoreParts()
    delivery = core.send()
    core.pass_time(1)
    core.send()

    core.pass_time(TIMEOUT_S - 1.001)
    assert overdue(core) == []
    core.pass_time(0.001)

    assert [batch.result for batch in overdue(core)] == [delivery._batch_result]


def test_partition_is_looked_at_again_for_the_batches_behind() -> None:
    core = CoreParts()
    core.send()
    core.flush()
    core.acknowledge(core.drain()[0])
    core.pass_time(60)
    later = core.send()

    core.pass_time(60)
    assert overdue(core) == []
    core.pass_time(60)

    assert [batch.result for batch in overdue(core)] == [later._batch_result]


def test_every_batch_of_a_partition_has_its_deadline() -> None:
    core = CoreParts()
    for _ in range(3):
        core.send()
        core.flush()
        core.pass_time(10)
    core.pass_time(TIMEOUT_S - 30)

    found = [len(overdue(core))]
    for _ in range(2):
        core.pass_time(10)
        found.append(len(overdue(core)))

    assert found == [1, 1, 1]


def test_batch_on_the_wire_is_due_too() -> None:
    core = CoreParts()
    core.send()
    core.flush()
    [batch] = core.drain()
    core.pass_time(TIMEOUT_S)
    deadlines = core.accumulator.deadlines
    [queue] = deadlines.take_due()

    assert deadlines.overdue(queue, core.now) == [batch]
    batch.is_abandoned = True
    assert deadlines.overdue(queue, core.now) == []


def test_partition_with_many_batches_has_one_timer() -> None:
    core = CoreParts()
    for _ in range(20):
        core.send()
        core.open_batches.close(core.queue())

    assert len(core.timers) == 2


def test_record_called_earlier_brings_the_timer_forward() -> None:
    core = CoreParts()
    core.send()
    [batch] = [core.queue().open_batch]
    assert batch is not None
    batch.called_at -= 50

    core.accumulator.deadlines.watch(batch)
    core.pass_time(TIMEOUT_S - 50)

    assert overdue(core) == [batch]


def test_idle_partition_is_not_watched() -> None:
    core = CoreParts()
    core.send()
    core.pass_time(TIMEOUT_S)
    overdue(core)

    assert (core.queue().is_empty, len(core.timers), overdue(core)) == (True, 0, [])


def test_it_is_known_whether_anything_is_due() -> None:
    core = CoreParts()
    core.send()
    assert not core.accumulator.deadlines.due

    core.pass_time(TIMEOUT_S)
    assert core.accumulator.deadlines.due
