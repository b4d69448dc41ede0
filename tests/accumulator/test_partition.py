"""The batch of a partition that may be sent next, and the order in which batches come back."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer._accumulator.partition import (
    TRANSITIONS,
    Batch,
    BatchOptions,
    BatchState,
    Partition,
    Topic,
)
from aioproducer._accumulator.producer_identity import (
    NO_IDENTITY,
    BatchIdentity,
    OwnPartitionIdentity,
    ProducerIdentity,
)
from aioproducer._native.append import HEADER_SIZE
from aioproducer._native.delivery import BatchResult
from aioproducer._native.memory import Chunk
from aioproducer._native.produce import encode_header
from aioproducer._protocol.compression import CompressionType
from aioproducer.errors import Outcome
from aioproducer.records import TopicPartition
from tests.fakes.core_parts import CoreParts, sequences
from tests.reference.record_batch import Record, decode_batch, encode_records


def with_batches(
    count: int, *, idempotent: bool = True, max_in_flight: int = 5
) -> tuple[CoreParts, Partition, list[Batch]]:
    """A partition with closed batches of one record each."""
    core = CoreParts(idempotent=idempotent, max_in_flight=max_in_flight)
    for _ in range(count):
        core.send()
        core.open_batches.close(core.partition())
    return core, core.partition(), list(core.partition().queued)


def send_next(core: CoreParts, connection: int = 1) -> Batch | None:
    """Put the next batch on the wire, if there is one."""
    batch = core.partition().next_to_send(connection, core.now)
    if batch is not None:
        core.partition().put_on_wire(batch, connection, core.now)
    return batch


def send_all(core: CoreParts, connection: int = 1) -> list[Batch]:
    sent = []
    while (batch := send_next(core, connection)) is not None:
        sent.append(batch)
    return sent


def confirm(core: CoreParts, connection: int = 1) -> None:
    """Have a batch of its own acknowledged, so that the others may be pipelined."""
    batch = send_next(core, connection)
    assert batch is not None
    core.acknowledge(batch)


# The window


def test_one_batch_is_sent_until_the_connection_has_confirmed() -> None:
    """At a broker without state a rejected first batch would be overtaken by its accepted successor."""
    core, _, batches = with_batches(8)

    assert send_all(core) == batches[:1]
    core.acknowledge(batches[0])

    assert send_all(core) == batches[1:6]


def test_producer_id_zero_is_pipelined_like_any_other() -> None:
    core, _, batches = with_batches(8)
    core.identity.assign(0, 0)
    confirm(core)

    assert send_all(core) == batches[1:6]
    assert {batch.identity.producer_id for batch in batches[:6]} == {0}


def test_one_batch_is_sent_without_idempotence() -> None:
    core, _, _ = with_batches(3, idempotent=False, max_in_flight=1)
    confirm(core)

    assert len(send_all(core)) == 1


@pytest.mark.parametrize("trouble", ["error", "hours of silence", "another leader"])
def test_one_batch_is_sent_again_after_trouble(trouble: str) -> None:
    core, partition, _ = with_batches(4)
    confirm(core)
    if trouble == "error":
        partition.identity.require_confirmation()
    elif trouble == "another leader":
        core.lead((2,), epoch=1)
    else:
        core.now += 3600

    assert len(send_all(core)) == 1


def test_one_batch_is_sent_while_parts_of_a_split_one_exist() -> None:
    core, partition, _ = with_batches(4)
    confirm(core)
    partition.parts = 2

    assert len(send_all(core)) == 1


def test_nothing_follows_on_another_connection_while_in_flight() -> None:
    core, _, batches = with_batches(4)
    confirm(core)
    send_next(core, connection=1)

    assert send_next(core, connection=2) is None
    core.refuse(batches[1])

    assert send_next(core, connection=2) is batches[1]


# Sequences


def test_sequences_follow_the_order_of_sending() -> None:
    core, _, batches = with_batches(4)
    confirm(core)
    send_all(core)

    assert sequences(batches) == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_batch_is_sent_again_under_the_sequence_it_has() -> None:
    core, _, batches = with_batches(2)
    send_all(core)
    header = encode_header(batches[0])
    core.refuse(batches[0], maybe_written=True)

    assert send_next(core, connection=2) is batches[0]
    assert (encode_header(batches[0]), batches[0].attempts) == (header, 2)


# Retries


def test_retry_waits_for_its_backoff_and_blocks_later_batches() -> None:
    core, partition, batches = with_batches(2)
    send_next(core)
    core.refuse(batches[0], pause_s=0.1)

    assert partition.next_to_send(1, core.now) is None
    assert partition.first_sendable() is batches[0]
    core.now += 0.1
    assert send_next(core) is batches[0]


@given(st.permutations(range(5)))
def test_retries_stand_in_their_old_order_however_they_come_back(order: list[int]) -> None:
    core, partition, batches = with_batches(8)
    confirm(core)
    sent = send_all(core)

    for index in order:
        core.refuse(sent[index], maybe_written=True)

    assert list(partition.queued) == batches[1:]


def test_batch_under_compression_blocks_later_ones() -> None:
    core, partition, batches = with_batches(2)
    batches[0].move_to(BatchState.SEALING)

    assert (partition.first_sendable(), send_next(core)) == (None, None)


# The open batch


def test_open_batch_is_sent_once_ready_and_first() -> None:
    core = CoreParts()
    core.send()
    partition = core.partition()
    assert partition.first_sendable() is None

    core.pass_time(0.005)

    assert partition.first_sendable() is partition.open_batch


def test_closing_without_an_open_batch_does_nothing() -> None:
    core = CoreParts()

    assert core.partition().take_open() is None
    assert core.partition().is_empty


def test_removed_batch_is_not_sent() -> None:
    core, partition, batches = with_batches(2)

    partition.queued.remove(batches[0])

    assert send_all(core) == batches[1:]


def test_open_batch_waits_for_a_producer_id() -> None:
    core, partition, batches = with_batches(1)
    core.identity.discard(7)

    assert partition.first_sendable() is None
    core.identity.assign(8, 0)
    assert partition.first_sendable() is batches[0]


# A changing epoch


def test_changing_partition_sends_only_ambiguous_batches() -> None:
    """Ambiguous batches keep their old identity; unsent ones wait for the new one."""
    core, partition, batches = with_batches(4)
    confirm(core)
    for batch in send_all(core):
        core.refuse(batch, maybe_written=batch is not batches[1])
    partition.identity.begin_change()
    partition.restamp_if_resolved()

    assert send_all(core) == [batches[2]]
    core.acknowledge(batches[2])
    assert send_next(core) is batches[3]


def test_unwritten_batches_are_stamped_again_in_order() -> None:
    core, partition, batches = with_batches(4)
    confirm(core)
    for batch in send_all(core):
        core.refuse(batch)
    partition.identity.begin_change()

    assert partition.restamp_if_resolved() == []
    confirm(core)
    send_all(core)

    assert sequences(batches[1:]) == [(1, 0), (1, 1), (1, 2)]


def test_new_epoch_waits_for_batches_in_flight() -> None:
    core, partition, batches = with_batches(3)
    confirm(core)
    send_all(core)
    core.refuse(batches[1])
    partition.identity.begin_change()

    partition.restamp_if_resolved()
    assert (partition.identity.is_changing, partition.first_sendable()) == (True, None)
    core.refuse(batches[2])
    partition.restamp_if_resolved()

    assert (partition.identity.epoch, partition.first_sendable()) == (1, batches[1])


def test_batch_whose_successor_was_acknowledged_is_overtaken() -> None:
    """Sent again under a new identity the batch would be behind its successor in the log."""
    core, partition, batches = with_batches(4)
    confirm(core)
    send_all(core)
    core.acknowledge(batches[2])
    core.refuse(batches[1])
    core.refuse(batches[3])
    partition.identity.begin_change()

    assert partition.restamp_if_resolved() == [batches[1]]
    assert list(partition.queued) == [batches[3]]


def test_partition_that_changes_nothing_restamps_nothing() -> None:
    core, partition, batches = with_batches(1)
    send_next(core)
    core.refuse(batches[0])

    assert partition.restamp_if_resolved() == []
    assert batches[0].is_stamped


@pytest.mark.parametrize("where", ["on the wire", "queued again"])
def test_batch_is_not_first_unresolved_behind_a_stamped_one(where: str) -> None:
    core, partition, batches = with_batches(4)
    confirm(core)
    send_all(core)
    if where == "queued again":
        core.refuse(batches[1])

    assert [partition.is_first_unresolved(batch) for batch in batches[1:]] == [True, False, False]


# What it knows of itself


def test_pending_batches_are_those_whose_callers_wait() -> None:
    core, partition, batches = with_batches(2)
    assert partition.pending() == batches
    core.send()
    assert partition.pending() == [*batches, partition.open_batch]

    send_next(core)
    batches[0].is_abandoned = True

    assert partition.pending() == [batches[1], partition.open_batch]


def test_partition_is_held_up_from_its_first_failure_on() -> None:
    """A batch on its first attempt is about to return its memory."""
    core, partition, batches = with_batches(1)
    send_next(core)
    assert (partition.is_stalled, partition.is_moving) == (False, True)

    core.refuse(batches[0])
    send_next(core)

    assert (partition.is_stalled, partition.is_moving) == (True, False)


def test_backlog_counts_queued_and_open_batches() -> None:
    core, partition, _ = with_batches(3)
    send_next(core)
    core.send()

    assert (partition.backlog, partition.is_empty) == (3, False)


class StrictBroker:
    """Takes a batch only as the next of its epoch, and answers or loses it; as Kafka does."""

    def __init__(self) -> None:
        self.core = CoreParts()
        self.queue = self.core.partition()
        self.connection = 1
        self.expected = (0, 0)
        self.log: list[int] = []

    def step(self, action: str) -> None:
        if action == "send":
            self.core.send()
            self.core.open_batches.close(self.queue)
        elif action == "drain":
            send_next(self.core, self.connection)
        elif action == "reconnect" and not self.queue.on_wire:
            self.connection += 1
        elif self.queue.on_wire:
            self._end(self.queue.on_wire[0], action)
        assert self.queue.restamp_if_resolved() == []

    def _end(self, batch: Batch, action: str) -> None:
        is_next = sequences([batch])[0] in {self.expected, (self.expected[0] + 1, 0)}
        if action == "ack" and is_next:
            self.log.append(batch.order)
            self.expected = (batch.identity.epoch, batch.identity.base_sequence + batch.count)
            self.core.acknowledge(batch)
            return
        if action == "change" and self.queue.is_first_unresolved(batch) and not batch.maybe_written:
            self.queue.identity.begin_change()
        self.core.refuse(batch)


@given(
    st.lists(st.sampled_from(["send", "send", "drain", "drain", "ack", "refuse", "change", "reconnect"]), min_size=9)
)
def test_log_has_batches_in_order_for_any_answers(actions: list[str]) -> None:
    """The broker takes some batches, refuses others, and the partition changes its epoch between."""
    broker = StrictBroker()

    for action in actions:
        broker.step(action)

        assert broker.log == sorted(broker.log)
        assert len({batch.connection_number for batch in broker.queue.on_wire}) <= 1


def test_part_under_compression_waits_for_an_epoch_change() -> None:
    core, partition, batches = with_batches(2)
    send_next(core)
    core.refuse(batches[0])
    partition.identity.begin_change()
    assert partition.first_sendable() is batches[0]

    batches[0].move_to(BatchState.SEALING)

    assert partition.first_sendable() is None


def test_partition_led_by_node_0_is_moving() -> None:
    """The partition is about to return memory: a record that waits for that memory gets a large batch."""
    core = CoreParts(leaders=(0,))
    core.send()
    core.open_batches.close(core.partition())

    assert core.partition().is_moving


# Batches

OPTIONS = BatchOptions(linger_s=0.0, delivery_timeout_s=1.0, codec=CompressionType.NONE)
SHORTEST_WAY = {
    BatchState.OPEN: [],
    BatchState.QUEUED: [BatchState.QUEUED],
    BatchState.SEALING: [BatchState.QUEUED, BatchState.SEALING],
    BatchState.ON_WIRE: [BatchState.QUEUED, BatchState.ON_WIRE],
    BatchState.DONE: [BatchState.DONE],
}


def batch_in(state: BatchState) -> Batch:
    place = TopicPartition("t", 0)
    identity = OwnPartitionIdentity(ProducerIdentity(is_enabled=True))
    partition = Partition(Topic("t", is_adaptive=True), 0, identity, max_in_flight=5)
    result = BatchResult(None, place)  # type: ignore[arg-type]  # it is never awaited
    batch = Batch(partition, result, Chunk(1024), options=OPTIONS, order=0, called_at=0.0)
    for step in SHORTEST_WAY[state]:
        batch.move_to(step)
    return batch


def on_wire(core: CoreParts, *values: bytes) -> Batch:
    for value in values:
        core.send(value)
    core.flush()
    [batch] = core.drain()
    return batch


@pytest.mark.parametrize("before, after", list(product(BatchState, BatchState)))
def test_state_changes_only_as_the_table_says(before: BatchState, after: BatchState) -> None:
    batch = batch_in(before)

    if after in TRANSITIONS[before]:
        batch.move_to(after)
        assert batch.state is after
    else:
        with pytest.raises(AssertionError, match=f"cannot become {after.value}"):
            batch.move_to(after)
        assert batch.state is before


def test_table_names_every_state() -> None:
    assert set(TRANSITIONS) == set(BatchState)
    assert [state for state, after in TRANSITIONS.items() if not after] == [BatchState.DONE]


@pytest.mark.parametrize(
    "state, maybe_written, is_unresolved",
    [
        (BatchState.QUEUED, False, False),
        (BatchState.QUEUED, True, True),
        (BatchState.ON_WIRE, False, True),
        (BatchState.ON_WIRE, True, True),
        (BatchState.DONE, False, False),
        (BatchState.DONE, True, False),
    ],
)
def test_batch_is_unresolved_in_flight_and_while_ambiguous(
    state: BatchState, *, maybe_written: bool, is_unresolved: bool
) -> None:
    batch = batch_in(state)
    batch.maybe_written = maybe_written

    assert batch.is_unresolved is is_unresolved
    assert batch.outcome is (Outcome.UNKNOWN if is_unresolved else Outcome.NOT_WRITTEN)


def test_header_and_records_are_a_batch_that_the_reference_reads() -> None:
    core = CoreParts()
    batch = on_wire(core, b"one", b"two")

    decoded = decode_batch(encode_header(batch) + bytes(batch.records()))

    assert [record.value for record in decoded.records] == [b"one", b"two"]
    assert (decoded.producer_id, decoded.producer_epoch, decoded.base_sequence) == (7, 0, 0)
    assert batch.wire_size == batch.uncompressed_wire_size == HEADER_SIZE + len(batch.records())


def test_ambiguous_batch_never_loses_its_identity() -> None:
    batch = batch_in(BatchState.QUEUED)
    batch.identity = BatchIdentity(7, 0, 0)
    batch.maybe_written = True

    with pytest.raises(AssertionError, match="ambiguous"):
        batch.unstamp()

    assert batch.is_stamped


def test_unwritten_batch_can_get_another_identity() -> None:
    core = CoreParts()
    batch = on_wire(core, b"v")
    records = bytes(batch.records())
    batch.unstamp()
    batch.identity = BatchIdentity(7, 1, 0)

    decoded = decode_batch(encode_header(batch) + bytes(batch.records()))

    assert (decoded.producer_epoch, decoded.base_sequence, bytes(batch.records())) == (1, 0, records)


def test_batch_without_idempotence_is_never_stamped() -> None:
    batch = on_wire(CoreParts(idempotent=False), b"v")

    decoded = decode_batch(encode_header(batch) + bytes(batch.records()))

    assert (batch.is_stamped, batch.identity) == (False, NO_IDENTITY)
    assert (decoded.producer_id, decoded.producer_epoch, decoded.base_sequence) == (-1, -1, -1)


def test_batch_can_hold_its_records_anywhere_in_a_chunk() -> None:
    section = encode_records([Record(None, b"v", 5)])
    batch = batch_in(BatchState.OPEN)
    batch.chunk.fill(bytes(100) + section)

    batch.hold(100, len(section), count=1, base_timestamp=5, max_timestamp=5)

    assert bytes(batch.records()) == section
    assert decode_batch(encode_header(batch) + bytes(batch.records())).records == (Record(None, b"v", 5),)
