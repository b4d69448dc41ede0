"""Epochs and sequences: given once, never twice, and changed for one partition's trouble alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer._accumulator.partition import Batch, BatchState
from aioproducer._accumulator.producer_identity import (
    LAST_EPOCH,
    MAX_SEQUENCE,
    NO_IDENTITY,
    QUIET_TOO_LONG_S,
    REMEMBERED,
    BatchIdentity,
    OwnPartitionIdentity,
    PartitionIdentity,
    ProducerIdentity,
    sequence_after,
)
from tests.fakes.core_parts import CoreParts

NOW = 1000.0


def producer_of(producer_id: int | None = 7, *, epoch: int = 0) -> ProducerIdentity:
    producer = ProducerIdentity(is_enabled=True)
    if producer_id is not None:
        producer.assign(producer_id, epoch)
    return producer


def batch_of(identity: BatchIdentity, *, connection: int = 1, order: int = 0) -> Batch:
    core = CoreParts()
    core.send()
    core.flush()
    [batch] = core.drain(connection=connection)
    batch.identity, batch.order = identity, order
    assert batch.state is BatchState.ON_WIRE
    return batch


def change(partition: PartitionIdentity) -> None:
    """Take another epoch."""
    partition.begin_change()
    partition.finish_change()


def confirmed() -> OwnPartitionIdentity:
    """A partition one batch of which was acknowledged, on connection 1."""
    partition = OwnPartitionIdentity(producer_of())
    partition.acknowledge(batch_of(partition.stamp(1)), 0, NOW)
    return partition


@pytest.mark.parametrize("producer_id", [0, 7, 2**63 - 1], ids=["the first ever given", "usual", "the last"])
def test_first_batch_takes_the_id_and_sequences_count_records(producer_id: int) -> None:
    partition = OwnPartitionIdentity(producer_of(producer_id))

    assert partition.stamp(3) == BatchIdentity(producer_id, 0, 0)
    assert partition.stamp(2) == BatchIdentity(producer_id, 0, 3)
    assert partition.next_sequence == 5


def test_all_partitions_are_offered_once_there_is_an_id() -> None:
    core = CoreParts(leaders=(1, 1, 1))
    core.identity.discard(7)
    core.send(partition=0)
    core.send(partition=2)
    core.flush()
    assert core.drain() == []

    core.identity.assign(8, 0)
    core.accumulator.offer_all()

    drained = [(batch.partition.topic_partition.partition, batch.identity.producer_id) for batch in core.drain()]
    assert drained == [(0, 8), (2, 8)]


def test_partition_begins_with_the_epoch_that_the_broker_gave() -> None:
    assert OwnPartitionIdentity(producer_of(epoch=4)).stamp(1) == BatchIdentity(7, 4, 0)


def test_sequences_wrap_to_zero() -> None:
    partition = OwnPartitionIdentity(producer_of())
    partition.stamp(MAX_SEQUENCE)

    assert partition.stamp(3) == BatchIdentity(7, 0, MAX_SEQUENCE)
    assert partition.next_sequence == 2


def test_nothing_is_stamped_before_an_id_is_known() -> None:
    producer = producer_of(None)
    partition = OwnPartitionIdentity(producer)
    assert (producer.is_missing, partition.can_stamp) == (True, False)

    producer.assign(0, 0)

    assert (producer.is_missing, partition.can_stamp) == (False, True)


def test_without_idempotence_nothing_is_stamped_or_waits() -> None:
    producer = ProducerIdentity(is_enabled=False)
    partition = OwnPartitionIdentity(producer)
    partition.begin_change()

    assert (producer.is_missing, partition.can_stamp, partition.is_changing) == (False, True, False)
    assert partition.stamp(1) is NO_IDENTITY


# Confirmation


@pytest.mark.parametrize("producer_id", [7, 0])
def test_connection_is_confirmed_by_an_acknowledged_batch(producer_id: int) -> None:
    partition = OwnPartitionIdentity(producer_of(producer_id))
    batch = batch_of(partition.stamp(1), connection=3)
    assert not partition.is_confirmed(3, NOW)

    partition.acknowledge(batch, 0, NOW)

    assert partition.is_confirmed(3, NOW)
    assert not partition.is_confirmed(4, NOW)


def test_no_connection_is_never_confirmed() -> None:
    assert not OwnPartitionIdentity(producer_of()).is_confirmed(0, NOW)


def test_doubt_ends_the_confirmation() -> None:
    """An error response, a lost connection and another leader each cause doubt."""
    partition = confirmed()

    partition.require_confirmation()

    assert not partition.is_confirmed(1, NOW)


def test_confirmation_ends_after_hours_of_silence() -> None:
    partition = confirmed()

    assert partition.is_confirmed(1, NOW + QUIET_TOO_LONG_S - 1)
    assert not partition.is_confirmed(1, NOW + QUIET_TOO_LONG_S)


@pytest.mark.parametrize("is_late", [True, False])
def test_acknowledgement_under_an_old_epoch_confirms_nothing(*, is_late: bool) -> None:
    partition = OwnPartitionIdentity(producer_of())
    old = batch_of(partition.stamp(1))
    steps = [partition.finish_change, lambda: partition.acknowledge(old, 0, NOW)]
    partition.begin_change()

    for step in steps if is_late else reversed(steps):
        step()

    assert not partition.is_confirmed(1, NOW)


def test_highest_acknowledged_order_never_falls() -> None:
    """A late response to an earlier batch does not lower it."""
    partition = OwnPartitionIdentity(producer_of())
    for order in (5, 3):
        partition.acknowledge(batch_of(partition.stamp(1), order=order), order, NOW)

    assert partition.last_acked_order == 5


# Repeated offsets


def has_seen(partition: OwnPartitionIdentity, offset: int, batch: Batch) -> bool:
    """Whether a batch was answered this offset before, and the time that a copy of it would be answered with."""
    return partition.has_seen(offset, batch, log_append_time=batch.max_timestamp)


def test_offset_given_before_is_a_repetition() -> None:
    """The broker took the batch for a duplicate, on the connection that gave the offset."""
    partition = OwnPartitionIdentity(producer_of())
    first = batch_of(partition.stamp(1))
    partition.acknowledge(first, 10, NOW)

    assert has_seen(partition, 10, first)
    assert not has_seen(partition, 11, first)
    assert not has_seen(partition, 10, batch_of(partition.stamp(1), connection=2))


def test_offset_with_another_time_is_no_repetition() -> None:
    """A log that begins again reuses offsets: the answer to a duplicate has no time of what was there."""
    partition = OwnPartitionIdentity(producer_of())
    first = batch_of(partition.stamp(1))
    partition.acknowledge(first, 10, NOW)

    assert not partition.has_seen(10, first, log_append_time=-1)


def test_duplicate_has_the_log_append_time() -> None:
    """The time is the one of the first response, neither the current time nor that of the records."""
    partition = OwnPartitionIdentity(producer_of())
    first = batch_of(partition.stamp(1))
    partition.acknowledge(first, 10, NOW, log_append_time=5000)

    assert [partition.has_seen(10, first, log_append_time=time) for time in (5000, 6000)] == [True, False]
    assert not has_seen(partition, 10, first)


def test_only_offsets_that_a_broker_remembers_are_repetitions() -> None:
    partition = OwnPartitionIdentity(producer_of())
    batch = batch_of(partition.stamp(1))
    for offset in range(REMEMBERED + 2):
        partition.acknowledge(batch, offset, NOW)

    assert [has_seen(partition, offset, batch) for offset in range(REMEMBERED + 2)] == [False] * 2 + [True] * 5


def test_unknown_offset_is_never_a_repetition() -> None:
    partition = OwnPartitionIdentity(producer_of())
    batch = batch_of(partition.stamp(1))

    partition.acknowledge(batch, -1, NOW)

    assert not has_seen(partition, -1, batch)


def test_offset_that_another_log_gave_is_no_repetition() -> None:
    """A leader elected with a shorter log reuses offsets: a first attempt must not be taken for a duplicate."""
    partition = OwnPartitionIdentity(producer_of())
    for offset in (0, 1):
        partition.acknowledge(batch_of(partition.stamp(1)), offset, NOW)
    partition.require_confirmation()
    partition.acknowledge(batch_of(partition.stamp(1)), 0, NOW)

    assert not has_seen(partition, 1, batch_of(partition.stamp(1)))


# Changing


def test_changing_partition_stamps_nothing_before_its_epoch() -> None:
    partition = OwnPartitionIdentity(producer_of())
    partition.stamp(3)
    partition.begin_change()
    could_stamp = partition.can_stamp

    partition.finish_change()

    assert (could_stamp, partition.can_stamp) == (False, True)
    assert partition.stamp(1) == BatchIdentity(7, 1, 0)


def test_trouble_of_one_partition_does_not_touch_another() -> None:
    producer = producer_of()
    troubled, calm = OwnPartitionIdentity(producer), OwnPartitionIdentity(producer)
    troubled.stamp(1)
    calm.stamp(2)

    change(troubled)

    assert (calm.can_stamp, calm.stamp(1)) == (True, BatchIdentity(7, 0, 2))


def test_new_epochs_are_above_every_one_used() -> None:
    producer = producer_of()
    partitions = [OwnPartitionIdentity(producer) for _ in range(3)]
    for partition in partitions:
        partition.stamp(1)
        change(partition)

    assert [partition.epoch for partition in partitions] == [1, 2, 3]


def test_changing_offsets_of_the_old_epoch_are_forgotten() -> None:
    partition = OwnPartitionIdentity(producer_of())
    batch = batch_of(partition.stamp(1))
    partition.acknowledge(batch, 10, NOW)
    change(partition)
    later = batch_of(partition.stamp(1))

    partition.acknowledge(later, 11, NOW)

    assert not has_seen(partition, 10, later)


def test_last_epoch_is_followed_by_a_new_producer_id() -> None:
    """32767 is the highest epoch."""
    producer = producer_of(epoch=LAST_EPOCH - 1)
    partition = OwnPartitionIdentity(producer)
    partition.stamp(1)
    for _ in range(2):
        change(partition)
    assert (producer.is_missing, partition.can_stamp) == (True, False)

    producer.assign(8, 0)

    assert partition.stamp(1) == BatchIdentity(8, 0, 0)


def test_untroubled_partition_keeps_an_abandoned_producer_id() -> None:
    producer = producer_of()
    partition = OwnPartitionIdentity(producer)
    partition.stamp(1)
    producer.discard(7)
    assert partition.stamp(1) == BatchIdentity(7, 0, 1)
    producer.assign(8, 0)

    change(partition)

    assert partition.stamp(1) == BatchIdentity(8, 0, 0)


def test_new_producer_id_is_not_given_up_for_an_old_ones_trouble() -> None:
    producer = producer_of()
    producer.discard(7)
    producer.assign(8, 0)

    producer.discard(7)

    assert producer.producer_id == 8


def test_partition_whose_log_is_another_one_begins_a_new_epoch() -> None:
    """The topic was deleted and created again; an unused partition has nothing to change."""
    used, unused = OwnPartitionIdentity(producer_of()), OwnPartitionIdentity(producer_of())
    used.stamp(1)

    for partition in (used, unused):
        partition.forget_log()

    assert (used.is_changing, unused.is_changing) == (True, False)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5) | st.none()), max_size=40))
def test_no_sequence_is_ever_given_twice(steps: list[tuple[int, int | None]]) -> None:
    producer = producer_of(epoch=LAST_EPOCH - 3)
    partitions = [OwnPartitionIdentity(producer) for _ in range(3)]
    given_out: set[tuple[int, int, int, int]] = set()
    for number, records in steps:
        partition = partitions[number]
        if producer.is_missing:
            producer.assign((producer.producer_id or 7) + len(given_out) + 1, 0)
        if records is None and partition.producer_id is not None:
            change(partition)
        elif records is not None:
            identity = partition.stamp(records)
            used = {(number, *identity[:2], identity.base_sequence + index) for index in range(records)}
            assert not used & given_out
            given_out |= used


@pytest.mark.parametrize("verb", ["abandon", "leave_gap"])
def test_batch_that_failed_changes_the_epoch_of_its_partition(verb: str) -> None:
    """Without a transactional id `is_send_allowed` is always true."""
    partition = OwnPartitionIdentity(producer_of())
    assert partition.is_send_allowed
    batch = batch_of(partition.stamp(1))

    getattr(partition, verb)(batch)

    assert partition.is_changing
    assert partition.may_change


@pytest.mark.parametrize(
    "sequence, count, after",
    [(0, 1, 1), (MAX_SEQUENCE - 1, 1, MAX_SEQUENCE), (MAX_SEQUENCE, 1, 0), (MAX_SEQUENCE - 2, 5, 2)],
)
def test_sequence_wraps_after_the_last_positive_number(sequence: int, count: int, after: int) -> None:
    """Kafka's DefaultRecordBatch.incrementSequence does the same."""
    assert sequence_after(sequence, count) == after
