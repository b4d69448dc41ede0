"""Ten thousand partitions that become ready together are sent, and end, in many steps of the event loop.

Work is counted in partitions, not in seconds.
"""

from aioproducer._accumulator.open_batches import MOST_PER_STEP
from aioproducer._accumulator.partition import Batch
from aioproducer._network.requests import Answered
from tests.fakes.core_parts import CoreParts
from tests.fakes.scripted_sender import MAX_IN_FLIGHT, ScriptedSender, response

MANY = 10 * MOST_PER_STEP + 1


def on_wire(script: ScriptedSender) -> list[Batch]:
    return [batch for partition in script.core.accumulator.partitions.in_use() for batch in partition.on_wire]


def with_ready(partitions: int, nodes: int = 1, **settings: float) -> ScriptedSender:
    """Return a sender with a batch in each partition; the nodes lead one each, in turn."""
    leaders = [1 + number % nodes for number in range(partitions)]
    script = ScriptedSender(leaders=leaders, batch_size=1024, **settings)
    for number in range(partitions):
        script.core.send(b"v", partition=number)
    return script


def answer_all(script: ScriptedSender, node_id: int) -> None:
    """Let the responses of all requests to a node come in one step of the loop."""
    for request in script.client.requests[node_id]:
        parts = {batch.partition.number: (0, 0) for batch in on_wire(script)}
        request.on_end(Answered(memoryview(response(parts)), script.core.now))
    script.client.requests[node_id].clear()


def test_turn_takes_a_bounded_number_of_partitions() -> None:
    script = with_ready(1000)
    sent = []
    for _ in range(MAX_IN_FLIGHT):
        script.turn()
        sent.append(len(on_wire(script)))

    assert sent == [MOST_PER_STEP * turn for turn in range(1, MAX_IN_FLIGHT + 1)]


def test_turn_that_came_to_its_bound_is_followed_by_another() -> None:
    script = with_ready(MOST_PER_STEP + 1)
    script.turn()
    is_set = [script.wakeup.is_set]
    script.turn()

    assert [*is_set, script.wakeup.is_set] == [True, False]
    assert len(on_wire(script)) == MOST_PER_STEP + 1


def test_partitions_are_sent_in_the_order_they_became_ready() -> None:
    script = with_ready(MOST_PER_STEP * 2)
    script.turn()

    assert [batch.partition.number for batch in on_wire(script)] == list(range(MOST_PER_STEP))


def test_nodes_take_turns_when_one_alone_fills_a_turn() -> None:
    script = with_ready(MOST_PER_STEP * 6, nodes=3)
    for _ in range(3):
        script.turn()

    assert [script.in_flight(node_id) for node_id in (1, 2, 3)] == [1, 1, 1]


def test_partitions_without_anything_to_send_count_as_work() -> None:
    """Each is looked at; the wire of a partition is full, for example."""
    script = with_ready(MOST_PER_STEP * 3)
    for partition in script.core.accumulator.partitions.in_use()[: MOST_PER_STEP * 2]:
        partition.identity.begin_change()
    script.turn()
    nothing_sent = on_wire(script)
    script.turn()
    script.turn()

    assert nothing_sent == []
    assert len(on_wire(script)) == MOST_PER_STEP


def test_responses_behind_a_large_one_wait_for_a_step() -> None:
    script = with_ready(MOST_PER_STEP * 3)
    for _ in range(3):
        script.turn()
    answer_all(script, 1)
    left = [len(on_wire(script))]
    script.loop.run()

    assert [*left, len(on_wire(script))] == [MOST_PER_STEP * 2, 0]


def test_small_responses_are_applied_where_they_come() -> None:
    """Also several in one step: each is a part of a step's work."""
    script = ScriptedSender(leaders=(1, 1), linger_s=0.0)
    for number in range(2):
        script.core.send(b"v", partition=number)
        script.turn()
    answer_all(script, 1)

    assert on_wire(script) == []


def test_many_lingers_that_end_together_end_in_steps() -> None:
    core = CoreParts(leaders=(1,) * MANY, memory=1 << 30, batch_size=1024, linger_s=1.0)
    for number in range(MANY):
        core.send(b"v", partition=number)
    core.now += 1.0
    core.timers.fire(core.now, at_most=1)
    ready = [len(core.node().ready)]
    while core.open_batches.has_more:
        core.open_batches.go_on()
        ready.append(len(core.node().ready))

    assert ready == [min(MOST_PER_STEP * step, MANY) for step in range(1, len(ready) + 1)]
    assert ready[-1] == MANY


def test_timers_of_batches_that_wait_begin_nothing_again() -> None:
    """Each batch has a timer, and all are due."""
    core = CoreParts(leaders=(1,) * MANY, memory=1 << 30, batch_size=1024, linger_s=1.0)
    for number in range(MANY):
        core.send(b"v", partition=number)
    core.now += 1.0
    core.timers.fire(core.now, at_most=MOST_PER_STEP + 10)

    assert len(core.node().ready) == MOST_PER_STEP + 10


def test_flush_closes_many_batches_in_steps() -> None:
    core = CoreParts(leaders=(1,) * MANY, memory=1 << 30, batch_size=1024, linger_s=1000.0)
    for number in range(MANY):
        core.send(b"v", partition=number)
    core.open_batches.close_soon()
    closed = [len(core.node().ready)]
    core.send(b"w", partition=MANY - 1)  # joins a batch that is still to be closed
    while core.open_batches.has_more:
        core.open_batches.go_on()

    assert [*closed, len(core.node().ready)] == [MOST_PER_STEP, MANY]


def test_batch_opened_while_others_are_closed_stays_open() -> None:
    core = CoreParts(leaders=(1,) * MANY, memory=1 << 30, batch_size=1024, linger_s=1000.0)
    for number in range(MANY):
        core.send(b"v", partition=number)
    core.open_batches.close_soon()
    core.open_batches.close(core.partition(MANY - 1))
    core.send(b"w", partition=MANY - 1)
    while core.open_batches.has_more:
        core.open_batches.go_on()

    assert core.partition(MANY - 1).open_batch is not None


def test_batch_opened_while_others_become_ready_lingers_as_long() -> None:
    core = CoreParts(leaders=(1,) * MANY, memory=1 << 30, batch_size=1024, linger_s=1.0)
    for number in range(MANY):
        core.send(b"v", partition=number)
    core.now += 1.0
    core.timers.fire(core.now, at_most=1)
    core.open_batches.close(core.partition(MANY - 1))
    core.send(b"w", partition=MANY - 1)
    while core.open_batches.has_more:
        core.open_batches.go_on()
    opened = core.partition(MANY - 1).open_batch

    assert opened is not None
    assert not opened.is_ready


def test_callers_pause_after_they_opened_many_batches() -> None:
    """A loop of `enqueue` over many partitions would otherwise be one step."""
    core = CoreParts(leaders=(1,) * MANY, memory=1 << 30, batch_size=1024, linger_s=1000.0)
    for number in range(MANY):
        core.send(b"v", partition=number)

    assert core.events.many_opened == MANY // MOST_PER_STEP
