"""A request takes one batch a partition, in turn, up to its size; what comes back is offered again."""

from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer._accumulator.open_batches import MOST_PER_STEP
from aioproducer._accumulator.partition import Batch, BatchState
from aioproducer._accumulator.waiting_record import WaitingRecord
from aioproducer._protocol.compression import CompressionType
from tests.fakes.core_parts import CoreParts, sequences, values


def partitions(batches: list[Batch]) -> list[int]:
    return [batch.partition.topic_partition.partition for batch in batches]


def close_one(core: CoreParts, partition: int = 0, size: int = 1) -> None:
    core.send(bytes(size), partition=partition)
    core.open_batches.close(core.partition(partition))


# Requests


def test_request_has_one_batch_of_each_ready_partition() -> None:
    core = CoreParts(leaders=(1, 1, 1))
    for partition in (0, 0, 2):
        close_one(core, partition)

    assert partitions(core.drain()) == [0, 2]


def test_lone_batch_is_taken_past_the_queue_of_its_node() -> None:
    core = CoreParts()
    core.send(b"v")
    batch = core.partition().open_batch
    assert batch is not None
    core.open_batches.end_linger(core.partition(), batch.result)

    core.accumulator.open_batches.take_lone(batch, 7, core.now)

    assert core.partition().on_wire == [batch]
    assert (batch.state, batch.connection_number, batch.sent_at) == (BatchState.ON_WIRE, 7, core.now)
    assert (batch.node, batch.attempts, batch.is_stamped) == (core.node(1), 1, True)
    assert (core.partition().is_offered, core.drain()) == (False, [])


def test_request_has_only_what_its_node_leads() -> None:
    core = CoreParts(leaders=(1, 2, 1))
    for partition in range(3):
        close_one(core, partition)

    assert partitions(core.drain(node_id=2)) == [1]
    assert partitions(core.drain(node_id=1)) == [0, 2]
    assert core.drain(node_id=3) == []


def test_request_ends_where_its_size_would_be_exceeded() -> None:
    """The partition that found no room is first in the next request."""
    core = CoreParts(leaders=(1, 1, 1), max_request_size=3000)
    for partition in range(3):
        close_one(core, partition, size=1200)

    assert [partitions(core.drain()), partitions(core.drain()), core.drain()] == [[0, 1], [2], []]


def test_batch_larger_than_a_request_goes_alone() -> None:
    core = CoreParts(leaders=(1, 1), max_request_size=500)
    close_one(core, 0, size=2000)
    close_one(core, 1)

    assert [partitions(core.drain()), partitions(core.drain())] == [[0], [1]]


def test_no_partition_starves_behind_one_that_always_has_more() -> None:
    core = CoreParts(leaders=(1, 1, 1), max_request_size=2000, max_in_flight=5)
    for partition in range(3):
        for _ in range(3):
            close_one(core, partition, size=1500)

    served = []
    for _ in range(9):
        [batch] = core.drain()
        served += partitions([batch])
        core.acknowledge(batch)

    assert served == [0, 1, 2] * 3


def test_confirmed_partition_pipelines_its_batches() -> None:
    core = CoreParts()
    for _ in range(8):
        close_one(core)
    core.acknowledge(core.drain()[0])

    sent = [batch for _ in range(7) for batch in core.drain()]

    assert sequences(sent) == [(0, number) for number in range(1, 6)]


def test_room_on_the_wire_is_used_as_soon_as_there_is_some() -> None:
    core = CoreParts()
    for _ in range(2):
        close_one(core)
    [first] = core.drain()
    assert core.drain() == []

    core.acknowledge(first)

    assert values(core.drain()) == [1]


def test_drained_batch_knows_where_it_went() -> None:
    """The connection keeps order across reconnects; the leader is the one the batch was sent to."""
    core = CoreParts()
    close_one(core)

    [batch] = core.drain(node_id=1, connection=9)

    assert (batch.node, batch.connection_number, batch.state, batch.attempts) == (
        core.node(1),
        9,
        BatchState.ON_WIRE,
        1,
    )


def test_open_batch_is_closed_when_it_is_drained() -> None:
    core = CoreParts()
    first = core.send()
    core.pass_time(0.005)

    [batch] = core.drain()

    assert batch.result is first._batch_result
    assert core.send()._batch_result is not first._batch_result


# Nothing is scanned


def test_partition_is_offered_only_by_its_own_events() -> None:
    """A request never looks at ten thousand idle partitions."""
    core = CoreParts(leaders=(1,) * 10_000)
    close_one(core, 7)

    assert len(core.node(1).ready) == 1
    assert partitions(core.drain()) == [7]
    assert len(core.node(1).ready) == 0


# Leaders


def test_partition_moves_to_the_queue_of_its_new_leader() -> None:
    core = CoreParts(leaders=(1,))
    close_one(core)

    core.lead((2,), epoch=1)

    assert core.drain(node_id=1) == []
    assert partitions(core.drain(node_id=2)) == [0]


def test_partition_without_a_leader_waits_and_is_named() -> None:
    core = CoreParts(leaders=(1, 1))
    core.lead((-1, 1), epoch=1)
    close_one(core)
    assert core.accumulator.leaderless_topics == {"t"}
    core.lead((2, 1), epoch=2)

    assert core.accumulator.leaderless_topics == set()
    assert partitions(core.drain(node_id=2)) == [0]


def test_new_leader_ends_the_backoff() -> None:
    core = CoreParts(leaders=(1,))
    close_one(core)
    core.refuse(core.drain()[0], pause_s=10)
    assert core.drain() == []

    core.lead((2,), epoch=1)

    assert values(core.drain(node_id=2, connection=2)) == [1]


def test_new_leader_waits_for_batches_in_flight_to_the_old() -> None:
    core = CoreParts(leaders=(1,))
    close_one(core)
    close_one(core)
    [first] = core.drain()
    core.lead((2,), epoch=1)
    assert core.drain(node_id=2, connection=2) == []

    core.refuse(first, maybe_written=True)

    assert core.drain(node_id=2, connection=2) == [first]


def test_reserves_follow_the_leaders() -> None:
    core = CoreParts(leaders=(1, 2), memory=64 * 1024)
    core.pool.try_lend(48 * 1024, core.node(2).reserve)
    assert core.pool.try_lend(16 * 1024, core.node(2).reserve) is None

    core.lead((2, 2), epoch=1)

    assert core.pool.try_lend(16 * 1024, core.node(2).reserve) is not None


# Coming back


def test_batch_in_backoff_is_offered_when_it_is_over() -> None:
    core = CoreParts()
    close_one(core)
    core.refuse(core.drain()[0], pause_s=0.1)
    assert core.drain() == []
    wakes = core.wakes

    core.pass_time(0.1)

    assert core.wakes == wakes + 1
    assert values(core.drain()) == [1]


# Sealing


def sealing() -> CoreParts:
    return CoreParts(compression=CompressionType.GZIP)


def test_batch_is_sealed_before_it_is_sent() -> None:
    """The partition waits for the compression; then it is offered again."""
    core = sealing()
    close_one(core, size=5000)
    close_one(core)

    assert core.drain() == []
    [batch] = core.accumulator.take_unsealed()
    assert (batch.state, core.drain(), core.accumulator.take_unsealed()) == (BatchState.SEALING, [], [])
    core.accumulator.sealed(batch, b"small")

    assert core.drain() == [batch]
    assert (bytes(batch.records()), batch.compression) == (b"small", CompressionType.GZIP)


def test_batch_that_did_not_get_smaller_is_sent_as_it_is() -> None:
    core = sealing()
    close_one(core)
    core.drain()
    [batch] = core.accumulator.take_unsealed()
    before = bytes(batch.records())

    core.accumulator.sealed(batch, None)

    assert core.drain() == [batch]
    assert (bytes(batch.records()), batch.compression) == (before, 0)


def test_sealed_batch_is_not_sealed_again_for_its_next_attempt() -> None:
    core = sealing()
    close_one(core)
    core.drain()
    core.accumulator.sealed(core.accumulator.take_unsealed()[0], None)
    core.refuse(core.drain()[0])

    assert values(core.drain()) == [1]
    assert core.accumulator.take_unsealed() == []


def test_batch_that_ended_while_sealed_gives_memory_back() -> None:
    """The compressing thread owned the memory until then."""
    core = sealing()
    close_one(core)
    core.drain()
    [batch] = core.accumulator.take_unsealed()
    core.partition().queued.remove(batch)
    batch.move_to(BatchState.DONE)

    core.accumulator.sealed(batch, b"late")

    assert core.pool.lent_bytes == 0


# Ends


def test_unfinished_are_all_that_were_accepted_and_have_no_end() -> None:
    core = CoreParts(leaders=(1, 2))
    close_one(core, 0)
    on_wire = core.drain()
    close_one(core, 1)
    core.send(partition=0)

    unfinished = [batch for _, batches in core.accumulator.unfinished() for batch in batches]
    assert (len(unfinished), set(on_wire) < set(unfinished)) == (3, True)
    assert {batch.state for batch in unfinished} == {BatchState.ON_WIRE, BatchState.QUEUED}


def test_overdue_open_batch_is_closed() -> None:
    core = CoreParts(linger_s=600)
    core.send()
    core.accumulator.close_overdue(core.partition(), core.now + 119)
    assert core.partition().open_batch is not None

    core.accumulator.close_overdue(core.partition(), core.now + 120)

    assert core.partition().open_batch is None


class AnyDay:
    """Records are sent, answered, refused and withdrawn while leaders move and time passes."""

    def __init__(self) -> None:
        self.core = CoreParts(leaders=(1, 2), memory=16 * 1024, batch_size=2048, max_record_size=3000)
        self.on_wire: list[Batch] = []
        self.waiting: list[WaitingRecord] = []
        self.epoch = 0

    def step(self, action: str, number: int) -> None:
        core, partition = self.core, number % 2
        if action == "send":
            value = bytes(40 * number)
            if core.appender.append("t", value, None, partition, None, None, None) is None:
                self.waiting.append(core.wait_in_queue(value, partition=partition))
        elif action == "drain":
            self.on_wire += core.drain(1 + partition, connection=1 + partition)
        elif action == "withdraw" and self.waiting:
            core.wait_queues.withdraw(self.waiting.pop(number % len(self.waiting)))
        elif action == "move":
            self.epoch += 1
            core.lead((1 + partition, 2 - partition), epoch=self.epoch)
        elif action == "wait":
            core.pass_time(number / 100)
        elif self.on_wire:
            self._answer(self.on_wire.pop(0), is_written=action == "acknowledge")
        core.wait_queues.serve()

    def _answer(self, batch: Batch, *, is_written: bool) -> None:
        if is_written:
            self.core.acknowledge(batch)
        else:
            self.core.refuse(batch, maybe_written=True, pause_s=0.05)

    def finish(self) -> None:
        self.core.flush()
        for number in range(200):
            for action in ("drain", "acknowledge", "wait"):
                self.step(action, number)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["send", "send", "drain", "acknowledge", "refuse", "withdraw", "move", "wait"]),
            st.integers(0, 70),
        ),
        max_size=60,
    )
)
@settings(max_examples=50)
def test_nothing_is_left_behind_by_any_day(steps: list[tuple[str, int]]) -> None:
    day = AnyDay()
    for action, number in steps:
        day.step(action, number)
        assert day.core.pool.lent_bytes <= day.core.pool.total_bytes

    day.finish()

    core = day.core
    assert (core.pool.lent_bytes, core.generations.unfinished, core.wait_queues.records, core.failed) == (0, 0, 0, [])
    left = [batch for _, batches in core.accumulator.unfinished() for batch in batches]
    assert (left, core.accumulator.ready.nodes) == ([], [])
    assert (core.open_batches.memory_is_short, core.open_batches.may_use_common) == (False, True)


# Deadlines

TIMEOUT_S = 120.0


def overdue(core: CoreParts) -> list[Batch]:
    deadlines = core.accumulator.deadlines
    found = []
    for queue in deadlines.take_due(MOST_PER_STEP):
        core.accumulator.close_overdue(queue, core.now)
        found += deadlines.overdue(queue, core.now)
        for batch in found:
            queue.queued.remove(batch)
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
    [queue] = deadlines.take_due(MOST_PER_STEP)

    assert deadlines.overdue(queue, core.now) == [batch]
    batch.is_abandoned = True
    assert deadlines.overdue(queue, core.now) == []


def test_partition_with_many_batches_has_one_timer() -> None:
    core = CoreParts()
    for _ in range(20):
        core.send()
        core.open_batches.close(core.partition())

    assert len(core.timers) == 2


def test_record_called_earlier_brings_the_timer_forward() -> None:
    core = CoreParts()
    core.send()
    [batch] = [core.partition().open_batch]
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

    assert (core.partition().is_empty, len(core.timers), overdue(core)) == (True, 0, [])
