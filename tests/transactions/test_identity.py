"""Identity under a transactional id: of partitions, in doubt, and after late copies. No network."""

import pytest

from aioproducer._accumulator.partition_queue import PartitionQueue
from aioproducer._accumulator.producer_batch import ProducerBatch
from aioproducer._accumulator.producer_identity import ProducerIdentity
from aioproducer._transactions.identity import TransactionalIdentity, identity_of
from aioproducer._transactions.requests import OffsetsToSend
from aioproducer.errors import BrokerError, ProducerFencedError, UnsupportedVersionError
from aioproducer.records import ConsumerGroupMetadata, TopicPartition
from tests.fakes.core_parts import CoreParts
from tests.fakes.transaction_scene import LOST, OFFSETS, READERS, STRAY_DELAY_S, Scene, State, on_both


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


def doubted() -> Scene:
    """An abort that the coordinator has answered as if the producer were fenced."""
    scene = Scene().begun(0)
    scene.manager.abort()
    scene.manager.flushed()
    scene.do("EndTxn", 90)
    return scene


@pytest.mark.parametrize("claimant", [(77, 1), (77, 2), (88, 0)])
def test_open_transaction_of_a_successor_is_left_alone(claimant: tuple[int, int]) -> None:
    """InitProducerId would abort it before it is refused."""
    scene = doubted()
    scene.described = "Ongoing", claimant

    scene.do("DescribeTransactions")

    assert scene.is_in(State.FATAL_ERROR)
    assert isinstance(scene.manager.error, ProducerFencedError)
    assert scene.asked() is None


@pytest.mark.parametrize(
    "state, claimant",
    [
        ("Empty", (77, 1)),
        ("PrepareAbort", (77, 1)),
        ("PrepareCommit", (77, 2)),
        ("CompleteAbort", (77, 1)),
        ("CompleteCommit", (88, 0)),
    ],
)
def test_identity_is_renewed_where_no_transaction_is_open(state: str, claimant: tuple[int, int]) -> None:
    """Whether it can be is for InitProducerId to say."""
    scene = doubted()
    scene.described = state, claimant

    scene.do("DescribeTransactions")
    guarded = scene.do("InitProducerId")

    assert guarded.subject == ("billing-1", 77, 0)
    assert (scene.manager.state, scene.identity.first_epoch) == (State.READY, 1)


def reopened(version: int) -> Scene:
    """A transaction that went unanswered in part and has ended, whose coordinator has one open under its identity."""
    scene = Scene(version=0).begun(0)
    scene.send_offsets(OFFSETS, READERS)
    scene.manager.unanswered(scene.ask(), LOST, was_sent=True, now=scene.now)
    scene.pass_time(1)
    scene.do("TxnOffsetCommit")
    scene.manager.commit()
    scene.manager.flushed()
    scene.do("EndTxn")
    scene.version = version
    scene.described = "Ongoing", (77, 0)
    return scene


@pytest.mark.parametrize("code", [0, 48, 90])
def test_what_a_late_copy_has_begun_is_aborted_before_the_identity_is_renewed(code: int) -> None:
    """InitProducerId would abort it under an epoch that nobody is told of, and so fence the producer that asked."""
    scene = reopened(0)

    scene.do("DescribeTransactions")
    ending = scene.do("EndTxn", code)
    assert ending.subject is False
    scene.described = "CompleteAbort", (77, 0)
    guarded = scene.look_and_renew()

    assert guarded.subject == ("billing-1", 77, 0)
    assert (scene.manager.state, scene.manager.is_commit_in_doubt) == (State.READY, False)


def test_what_is_open_for_ever_is_left_to_the_renewal_after_one_attempt() -> None:
    """No circle of looking and ending."""
    scene = reopened(0)
    scene.do("DescribeTransactions")
    scene.do("EndTxn", 48)

    scene.look_and_renew()

    assert scene.is_in(State.READY)


def test_epoch_that_the_end_of_what_was_left_open_answers_is_taken() -> None:
    """The abort was answered as if the producer were fenced, and it was not: V2."""
    scene = doubted()
    scene.described = "Ongoing", (77, 0)

    scene.do("DescribeTransactions")
    scene.do("EndTxn")
    scene.described = "CompleteAbort", (77, 1)
    guarded = scene.look_and_renew()

    assert guarded.subject == ("billing-1", 77, 1)


@on_both()
def test_offsets_that_are_answered_with_another_epoch_are_no_word_on_a_successor(version: int) -> None:
    """The abort says nothing; before the identity is renewed the coordinator is asked."""
    scene = Scene(version=version).begun(0)
    scene.send_offsets(OFFSETS, READERS)
    scene.do("TxnOffsetCommit", 47)
    scene.manager.abort()
    scene.manager.flushed()
    scene.described = "Ongoing", (77, 1)

    scene.do("DescribeTransactions")

    assert scene.is_in(State.FATAL_ERROR)
    assert isinstance(scene.manager.error, ProducerFencedError)


def test_coordinator_that_may_not_tell_is_not_asked_twice() -> None:
    """InitProducerId is answered with the reason, or with an identity."""
    scene = doubted()

    scene.do("DescribeTransactions", 53)
    scene.do("InitProducerId")

    assert scene.is_in(State.READY)


def test_coordinator_too_old_to_tell_is_not_asked_twice() -> None:
    """It is older than Kafka 3.0."""
    scene = doubted()

    scene.manager.refused(scene.ask(), UnsupportedVersionError("too old"))
    scene.do("InitProducerId")

    assert scene.is_in(State.READY)


@pytest.mark.parametrize("code", [14, 15, 16, -1])
def test_coordinator_that_cannot_tell_yet_is_asked_again(code: int) -> None:
    """After a pause; of whoever coordinates by then."""
    scene = doubted()
    scene.do("DescribeTransactions", code)
    assert scene.asked() is None

    scene.pass_time(0.2)
    scene.do("DescribeTransactions")
    scene.do("InitProducerId")

    assert scene.is_in(State.READY)


def test_look_that_nobody_answered_is_made_again() -> None:
    """The coordinator may have died."""
    scene = doubted()
    scene.manager.unanswered(scene.ask(), LOST, was_sent=True, now=scene.now)

    assert scene.asked() is None
    scene.pass_time(0.2)
    scene.do("DescribeTransactions")
    scene.do("InitProducerId")

    assert scene.is_in(State.READY)


def test_answer_that_makes_no_sense_is_the_end() -> None:
    """Nothing may be aborted on the strength of it."""
    scene = doubted()

    scene.do("DescribeTransactions", 42)

    assert scene.is_in(State.FATAL_ERROR)
    assert isinstance(scene.manager.error, BrokerError)
    assert scene.manager.error.code == 42


def test_each_attempt_to_renew_has_its_own_look() -> None:
    """While the first was put off, a successor has come; the pauses grow as if nothing were asked in between."""
    scene = doubted()
    pauses = []
    for _ in range(3):
        scene.do("DescribeTransactions")
        scene.do("InitProducerId", 14)
        pauses.append(round(scene.manager.pacing.next_at - scene.now, 3))
        scene.pass_time(pauses[-1])
    scene.described = "Ongoing", (77, 2)

    scene.do("DescribeTransactions")

    assert pauses == [0.1, 0.2, 0.4]
    assert isinstance(scene.manager.error, ProducerFencedError)


def test_look_is_of_no_use_to_another_coordinator() -> None:
    """The attempt went unanswered, and who coordinates is found first."""
    scene = doubted()
    scene.do("DescribeTransactions")
    scene.manager.unanswered(scene.ask(), LOST, was_sent=True, now=scene.now)
    scene.pass_time(0.2)
    scene.coordinator = 2

    request = scene.ask()

    assert (request.api.name, scene.manager.node_of(request)) == ("DescribeTransactions", 2)


@on_both()
def test_transaction_that_is_open_in_another_cluster_is_another_producers(version: int) -> None:
    """Also if both clusters gave the same identity; who has nothing open leaves it alone."""
    scene = Scene(version=version).ready()
    scene.identity.discard(77)
    scene.described = "Ongoing", (77, 0)

    assert not scene.manager.begin(version)
    scene.do("DescribeTransactions")

    assert isinstance(scene.manager.error, ProducerFencedError)


def test_whoever_is_not_doubted_asks_nothing_of_the_kind() -> None:
    """A first identity fences, and that of V1 after a gap is its own."""
    scene = Scene(version=0).begun(0)
    scene.identity.needs_epoch = True
    scene.manager.abort()
    scene.manager.flushed()
    scene.do("EndTxn")

    assert scene.asked() == "InitProducerId"


# Identities


def test_unanswered_renewal_delays_the_next_transaction() -> None:
    """A copy of InitProducerId that arrived in it would abort it and fence us."""
    scene = Scene(version=0).begun(0)
    scene.identity.needs_epoch = True
    scene.manager.abort()
    scene.manager.flushed()
    scene.do("EndTxn")
    scene.manager.unanswered(scene.ask(), LOST, was_sent=True, now=scene.now)
    scene.pass_time(1)
    scene.do("InitProducerId")

    assert scene.manager.late.begin_at == scene.now - 1 + STRAY_DELAY_S


def test_renewal_that_another_node_has_done_delays_nothing() -> None:
    """The first is not the coordinator any more: a copy that arrives there does nothing."""
    scene = Scene(version=0).begun(0)
    scene.identity.needs_epoch = True
    scene.manager.abort()
    scene.manager.flushed()
    scene.do("EndTxn")
    scene.manager.unanswered(scene.ask(), LOST, was_sent=True, now=scene.now)
    scene.coordinator = 2
    scene.pass_time(1)
    scene.do("InitProducerId")

    assert scene.manager.late.begin_at <= scene.now


def test_coordinator_that_nobody_names_leaves_no_copy() -> None:
    """To look somebody up changes nothing, however often."""
    scene = Scene(version=0)
    scene.manager.initialize()
    request = scene.manager.next_request(scene.now)
    assert request is not None
    assert request.body(4)
    scene.manager.unanswered(request, LOST, was_sent=True, now=scene.now)
    scene.pass_time(1)
    scene.do("InitProducerId")

    assert scene.manager.late.begin_at <= scene.now


def after_offsets_were_lost(version: int, *, answered_by: int) -> Scene:
    """Node 1 did not answer TxnOffsetCommit, a node did a second later, and the transaction is committed."""
    scene = Scene(version=version).begun()
    scene.send_offsets(OFFSETS, READERS)
    scene.manager.unanswered(scene.ask(), LOST, was_sent=True, now=scene.now)
    scene.coordinator = answered_by
    scene.pass_time(1)
    scene.do("TxnOffsetCommit")
    scene.manager.commit()
    scene.manager.flushed()
    scene.do("EndTxn")
    if scene.is_in(State.INITIALIZING):
        scene.look_and_renew()
    return scene


def test_v1_unanswered_offsets_delay_the_next_transaction() -> None:
    """Kafka 3.9 refuses a late copy for its old epoch, and forgets the offsets of the present one with it."""
    scene = after_offsets_were_lost(0, answered_by=1)
    gave_up_at = scene.now - 1

    assert scene.manager.late.begin_at == gave_up_at + STRAY_DELAY_S

    scene.pass_time(STRAY_DELAY_S)
    scene.begun()
    assert scene.manager.late.begin_at <= scene.now


@pytest.mark.parametrize("version, answered_by", [(0, 2), (2, 1)], ids=["V1, another node", "V2"])
def test_unanswered_offsets_delay_nothing_where_a_late_copy_does_no_harm(version: int, answered_by: int) -> None:
    """A node that is no coordinator any more refuses it without a look; under V2 its epoch is looked at first."""
    scene = after_offsets_were_lost(version, answered_by=answered_by)

    assert scene.manager.late.begin_at <= scene.now


def test_v1_offsets_that_nobody_has_answered_delay_the_next_transaction() -> None:
    """The transaction was aborted: whether the node is still the coordinator is not known."""
    scene = Scene(version=0).begun()
    scene.send_offsets(OFFSETS, READERS)
    scene.manager.unanswered(scene.ask(), LOST, was_sent=True, now=scene.now)
    scene.manager.abort()
    scene.manager.flushed()
    scene.pass_time(1)
    scene.do("EndTxn")
    scene.look_and_renew()

    assert scene.manager.late.begin_at == scene.now - 1 + STRAY_DELAY_S


def test_v1_offsets_are_waited_for_by_group() -> None:
    """Another group's coordinator says nothing of the one that did not answer."""
    scene = Scene(version=0).begun()
    other = ConsumerGroupMetadata("others")
    scene.send_offsets(OFFSETS, READERS)
    scene.manager.send_offsets(OffsetsToSend(OFFSETS, other))
    scene.manager.unanswered(scene.ask(), LOST, was_sent=True, now=scene.now)
    scene.pass_time(1)
    scene.do("TxnOffsetCommit")
    scene.do("AddOffsetsToTxn")
    scene.coordinator = 2
    scene.do("TxnOffsetCommit")

    assert scene.manager.late.begin_at == scene.now - 1 + STRAY_DELAY_S
