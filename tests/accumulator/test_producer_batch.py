"""A batch moves only as its table says, and never changes identity while it may be in the log."""

from itertools import product

import pytest

from aioproducer._accumulator.batch_options import BatchOptions
from aioproducer._accumulator.partition_queue import TRANSITIONS, BatchState, PartitionQueue, ProducerBatch
from aioproducer._accumulator.producer_identity import IdempotentPartitionIdentity, ProducerIdentity
from aioproducer._accumulator.record_batch_header import HEADER_SIZE, NO_IDENTITY, BatchIdentity, BatchTimes
from aioproducer._native.delivery import BatchResult
from aioproducer._native.memory import Chunk
from aioproducer._protocol.compression import CompressionType
from aioproducer.errors import Outcome
from aioproducer.records import TopicPartition
from tests.fakes.core_parts import CoreParts
from tests.reference.record_batch import Record, decode_batch, encode_records

OPTIONS = BatchOptions(linger_s=0.0, delivery_timeout_s=1.0, codec=CompressionType.NONE)
SHORTEST_WAY = {
    BatchState.OPEN: [],
    BatchState.QUEUED: [BatchState.QUEUED],
    BatchState.SEALING: [BatchState.QUEUED, BatchState.SEALING],
    BatchState.ON_WIRE: [BatchState.QUEUED, BatchState.ON_WIRE],
    BatchState.DONE: [BatchState.DONE],
}


def batch_in(state: BatchState) -> ProducerBatch:
    place = TopicPartition("t", 0)
    queue = PartitionQueue(place, IdempotentPartitionIdentity(ProducerIdentity(is_enabled=True)), max_in_flight=5)
    result = BatchResult(None, place)  # type: ignore[arg-type]  # it is never awaited
    batch = ProducerBatch(queue, result, Chunk(1024), options=OPTIONS, order=0, called_at=0.0)
    for step in SHORTEST_WAY[state]:
        batch.move_to(step)
    return batch


def on_wire(core: CoreParts, *values: bytes) -> ProducerBatch:
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


def test_header_and_records_are_a_batch_that_the_reference_reads() -> None:
    core = CoreParts()
    batch = on_wire(core, b"one", b"two")

    decoded = decode_batch(batch.header(batch.records()) + bytes(batch.records()))

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

    decoded = decode_batch(batch.header(batch.records()) + bytes(batch.records()))

    assert (decoded.producer_epoch, decoded.base_sequence, bytes(batch.records())) == (1, 0, records)


def test_batch_without_idempotence_is_never_stamped() -> None:
    batch = on_wire(CoreParts(idempotent=False), b"v")

    decoded = decode_batch(batch.header(batch.records()) + bytes(batch.records()))

    assert (batch.is_stamped, batch.identity) == (False, NO_IDENTITY)
    assert (decoded.producer_id, decoded.producer_epoch, decoded.base_sequence) == (-1, -1, -1)


def test_batch_can_hold_its_records_anywhere_in_a_chunk() -> None:
    section = encode_records([Record(None, b"v", 5)])
    batch = batch_in(BatchState.OPEN)
    batch.chunk.fill(bytes(100) + section)

    batch.hold(100, len(section), count=1, times=BatchTimes(5, 5))

    assert bytes(batch.records()) == section
    assert decode_batch(batch.header(batch.records()) + bytes(batch.records())).records == (Record(None, b"v", 5),)


def test_batch_takes_records_until_it_is_closed_once() -> None:
    core = CoreParts()
    batch = on_wire(core, b"v")

    with pytest.raises(AssertionError, match="closed once"):
        batch.close()


def test_outcome_is_unknown_while_the_log_may_hold_the_batch() -> None:
    queued, sent, again = batch_in(BatchState.QUEUED), batch_in(BatchState.ON_WIRE), batch_in(BatchState.QUEUED)
    again.maybe_written = True

    assert [batch.outcome for batch in (queued, sent, again)] == [Outcome.NOT_WRITTEN, Outcome.UNKNOWN, Outcome.UNKNOWN]
