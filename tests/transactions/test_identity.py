"""Who sends under a transactional id: what a partition does with the coordinator's identity."""

import pytest

from aioproducer._accumulator.partition_queue import PartitionQueue
from aioproducer._accumulator.producer_batch import ProducerBatch
from aioproducer._accumulator.producer_identity import ProducerIdentity
from aioproducer._transactions.identity import TransactionalIdentity, identity_of
from aioproducer.records import TopicPartition
from tests.fakes.core_parts import CoreParts


@pytest.fixture
def shared() -> TransactionalIdentity:
    """Of a producer that has its identity."""
    identity = TransactionalIdentity()
    identity.assign(77, 3)
    return identity


@pytest.fixture
def queue(shared: TransactionalIdentity) -> PartitionQueue:
    """A partition that belongs to the open transaction."""
    queue = PartitionQueue(TopicPartition("t", 0), shared.of_partition(), max_in_flight=5)
    shared.transaction = 1
    queue.identity.join_transaction()
    return queue


def sent_by(queue: PartitionQueue, *, sent_at: float = 10.0) -> ProducerBatch:
    """A batch at its first attempt."""
    core = CoreParts()
    core.send()
    core.open_batches.close(core.queue())
    batch = core.queue().queued[0]
    batch.identity = queue.identity.stamp(batch.count)
    batch.attempts, batch.sent_at = 1, sent_at
    return batch


def identity_given(queue: PartitionQueue, count: int) -> tuple[int, int, int]:
    """What the next batch of so many records gets."""
    identity = queue.identity.stamp(count)
    assert identity.is_transactional
    return identity.producer_id, identity.epoch, identity.base_sequence


def test_transactional_id_decides_who_sends() -> None:
    """The coordinator, or each partition by itself."""
    assert isinstance(identity_of("t", is_idempotent=True), TransactionalIdentity)
    assert type(identity_of(None, is_idempotent=True)) is ProducerIdentity
    assert not identity_of(None, is_idempotent=False).is_enabled


@pytest.mark.parametrize("discarded", [77, 76])
def test_id_that_brokers_do_not_know_is_kept_until_the_coordinator_has_given_an_epoch(
    shared: TransactionalIdentity, discarded: int
) -> None:
    """It is the coordinator's to change; what is said of an earlier one is old."""
    shared.discard(discarded)

    assert (shared.producer_id, shared.needs_epoch) == (77, discarded == 77)


def test_sequences_go_on_under_one_identity_and_begin_anew_under_the_next(
    shared: TransactionalIdentity, queue: PartitionQueue
) -> None:
    """From transaction to transaction."""
    assert identity_given(queue, 4) == (77, 3, 0)
    shared.transaction += 1
    assert not queue.identity.can_stamp
    queue.identity.join_transaction()
    assert identity_given(queue, 1) == (77, 3, 4)

    shared.assign(77, 4)
    shared.transaction += 1
    queue.identity.join_transaction()
    assert identity_given(queue, 1) == (77, 4, 0)


@pytest.mark.parametrize("verb", ["abandon", "leave_gap"])
def test_batch_that_failed_stops_its_partition(queue: PartitionQueue, verb: str) -> None:
    """No epoch of its own follows."""
    batch = sent_by(queue)

    getattr(queue.identity, verb)(batch)

    assert not queue.identity.can_stamp
    assert not queue.identity.may_change


def test_gap_is_known_to_all(shared: TransactionalIdentity, queue: PartitionQueue) -> None:
    """The next transaction needs another epoch; a batch that nobody waits for may still be acknowledged."""
    batch = sent_by(queue)
    queue.identity.abandon(batch)
    assert not shared.needs_epoch

    queue.identity.leave_gap(batch)
    assert shared.needs_epoch


@pytest.mark.parametrize("later", [(77, 4), (78, 3)], ids=["another epoch", "another id"])
def test_batch_of_an_older_identity_stops_nobody(
    shared: TransactionalIdentity, queue: PartitionQueue, later: tuple[int, int]
) -> None:
    """Its epoch is over; those of another id begin anew, and may be the same."""
    batch = sent_by(queue)
    shared.assign(*later)
    shared.transaction += 1
    queue.identity.join_transaction()

    queue.identity.abandon(batch)
    queue.identity.leave_gap(batch)

    assert queue.identity.can_stamp
    assert not shared.needs_epoch


def test_trouble_with_an_older_identity_is_no_gap_in_the_new_one(
    shared: TransactionalIdentity, queue: PartitionQueue
) -> None:
    """The partition has not joined yet."""
    shared.assign(77, 4)

    queue.identity.begin_change()

    assert not shared.needs_epoch


def test_first_answer_of_a_transaction_is_timed(shared: TransactionalIdentity, queue: PartitionQueue) -> None:
    """Not that of a batch that had to be repeated, nor a later one."""
    repeated, first, later = sent_by(queue), sent_by(queue, sent_at=11.0), sent_by(queue, sent_at=11.5)
    repeated.attempts = 2

    queue.identity.acknowledge(repeated, 0, 20.0)
    assert shared.first_response_s is None
    queue.identity.acknowledge(first, 1, 11.25)
    queue.identity.acknowledge(later, 2, 12.0)

    assert shared.first_response_s == 0.25


def test_answer_that_is_late_is_not_the_first_of_the_next_transaction(
    shared: TransactionalIdentity, queue: PartitionQueue
) -> None:
    """An abort does not wait for it."""
    late = sent_by(queue)
    shared.assign(77, 5)
    shared.begin_transaction(pipelines_at_once=True)
    queue.identity.acknowledge(late, 0, 20.0)
    assert shared.first_response_s is None

    queue.identity.join_transaction()
    queue.identity.acknowledge(late, 0, 20.0)
    assert shared.first_response_s is None


def test_fresh_identity_pipelines_until_something_is_doubtful(shared: TransactionalIdentity) -> None:
    """Where brokers refuse a first sequence other than 0."""
    shared.pipelines_at_once = True
    shared.transaction = 1
    queue = PartitionQueue(TopicPartition("t", 0), shared.of_partition(), max_in_flight=5)
    queue.identity.join_transaction()
    assert queue.identity.is_confirmed(1, 0.0)

    queue.identity.require_confirmation()
    assert not queue.identity.is_confirmed(1, 0.0)


# Another log


def acknowledged(queue: PartitionQueue, *offsets: int) -> list[bool]:
    """Whether the log has lost something, after each of some batches sent and acknowledged in order."""
    lost = []
    for number, offset in enumerate(offsets):
        batch = sent_by(queue)
        batch.order = number
        queue.identity.acknowledge(batch, offset, 11.0)
        lost.append(queue.identity.has_lost_log)
    return lost


def test_offset_that_does_not_rise_says_that_the_log_is_another_one(queue: PartitionQueue) -> None:
    """What lay there belongs to the transaction, and is gone; it stays so."""
    assert acknowledged(queue, 5, 6, 6, 7) == [False, False, True, True]


def test_answer_without_an_offset_says_nothing_of_the_log(queue: PartitionQueue) -> None:
    """The broker no longer knew it."""
    assert acknowledged(queue, 5, -1, 6) == [False, False, False]


def test_offset_of_an_earlier_batch_may_be_told_later(queue: PartitionQueue) -> None:
    """It was appended first, and answered with an error that made it be sent again."""
    first, second = sent_by(queue), sent_by(queue)
    first.order, second.order = 0, 1

    queue.identity.acknowledge(second, 6, 11.0)
    queue.identity.acknowledge(first, 5, 12.0)

    assert not queue.identity.has_lost_log


def test_each_transaction_begins_without_a_place_in_the_log(
    shared: TransactionalIdentity, queue: PartitionQueue
) -> None:
    """What the one before has written is committed, or aborted: it cannot be lost to this one."""
    assert not queue.identity.is_bound_to_log
    assert acknowledged(queue, 5, 5) == [False, True]
    assert queue.identity.is_bound_to_log
    shared.transaction += 1
    assert queue.identity.is_bound_to_log

    queue.identity.join_transaction()

    assert not queue.identity.is_bound_to_log
    assert acknowledged(queue, 0) == [False]


def test_late_answer_under_an_older_identity_is_no_place_in_the_log(
    shared: TransactionalIdentity, queue: PartitionQueue
) -> None:
    """It belongs to a transaction that was aborted."""
    late = sent_by(queue)
    shared.assign(77, 4)
    shared.transaction += 1
    queue.identity.join_transaction()

    queue.identity.acknowledge(late, 5, 11.0)

    assert not queue.identity.is_bound_to_log


def test_without_a_transactional_id_every_log_is_a_new_beginning() -> None:
    """And no record hangs together with one that is gone."""
    partition = ProducerIdentity(is_enabled=True).of_partition()

    assert partition.is_bound_to_log
    assert not partition.has_lost_log
