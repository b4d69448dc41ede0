"""Identity under a transactional id: of partitions, in doubt, and after late copies. No network."""

import pytest

from aioproducer._accumulator.partition import Batch, Partition, Topic
from aioproducer._accumulator.producer_identity import ProducerIdentity
from aioproducer._transactions.identity import TransactionalIdentity, identity_of
from aioproducer._transactions.requests import OffsetsToSend
from aioproducer.cluster import Node
from aioproducer.errors import BrokerError, ProducerFencedError, UnsupportedVersionError
from aioproducer.records import ConsumerGroupMetadata
from tests.fakes.core_parts import CoreParts
from tests.fakes.transaction_scene import LOST, OFFSETS, READERS, STRAY_DELAY_S, Scene, State, on_both


@pytest.fixture
def shared() -> TransactionalIdentity:
    identity = TransactionalIdentity()
    identity.assign(77, 3)
    return identity


@pytest.fixture
def partition(shared: TransactionalIdentity) -> Partition:
    partition = Partition(Topic("t", is_adaptive=True), 0, shared.of_partition(), max_in_flight=5)
    shared.transaction = 1
    partition.identity.join_transaction()
    return partition


def test_partition_never_takes_another_epoch_by_itself(partition: Partition) -> None:
    partition.identity.begin_change()

    assert not partition.identity.may_change


def sent_by(partition: Partition, *, sent_at: float = 10.0) -> Batch:
    core = CoreParts()
    core.send()
    core.open_batches.close(core.partition())
    batch = core.partition().queued[0]
    batch.identity = partition.identity.stamp(batch.count)
    batch.attempts, batch.sent_at = 1, sent_at
    return batch


def identity_given(partition: Partition, count: int) -> tuple[int, int, int]:
    identity = partition.identity.stamp(count)
    assert identity.is_transactional
    return identity.producer_id, identity.epoch, identity.base_sequence


def test_identity_depends_on_transactional_id() -> None:
    """The coordinator gives epochs, or each partition chooses its own."""
    assert isinstance(identity_of("t", is_idempotent=True), TransactionalIdentity)
    assert type(identity_of(None, is_idempotent=True)) is ProducerIdentity
    assert not identity_of(None, is_idempotent=False).is_enabled


@pytest.mark.parametrize("discarded", [77, 76])
def test_unknown_id_is_kept_until_the_next_epoch(shared: TransactionalIdentity, discarded: int) -> None:
    """Only the coordinator changes it; discarding an earlier id has no effect."""
    shared.discard(discarded)

    assert (shared.producer_id, shared.needs_epoch) == (77, discarded == 77)


def test_sequences_restart_with_the_next_identity(shared: TransactionalIdentity, partition: Partition) -> None:
    """Under one identity they continue from transaction to transaction."""
    assert identity_given(partition, 4) == (77, 3, 0)
    shared.transaction += 1
    assert not partition.identity.can_stamp
    partition.identity.join_transaction()
    assert identity_given(partition, 1) == (77, 3, 4)

    shared.assign(77, 4)
    shared.transaction += 1
    partition.identity.join_transaction()
    assert identity_given(partition, 1) == (77, 4, 0)


@pytest.mark.parametrize("verb", ["abandon", "leave_gap"])
def test_failed_batch_stops_its_partition(partition: Partition, verb: str) -> None:
    """The partition does not choose an epoch itself."""
    batch = sent_by(partition)

    getattr(partition.identity, verb)(batch)

    assert not partition.identity.can_stamp
    assert not partition.identity.may_change


def test_gap_requires_an_epoch_for_all(shared: TransactionalIdentity, partition: Partition) -> None:
    """The next transaction needs it; an abandoned batch may still be acknowledged."""
    batch = sent_by(partition)
    partition.identity.abandon(batch)
    assert not shared.needs_epoch

    partition.identity.leave_gap(batch)
    assert shared.needs_epoch


@pytest.mark.parametrize("later", [(77, 4), (78, 3)], ids=["another epoch", "another id"])
def test_batch_of_older_identity_stops_no_partition(
    shared: TransactionalIdentity, partition: Partition, later: tuple[int, int]
) -> None:
    """Epochs of another producer id may be equal."""
    batch = sent_by(partition)
    shared.assign(*later)
    shared.transaction += 1
    partition.identity.join_transaction()

    partition.identity.abandon(batch)
    partition.identity.leave_gap(batch)

    assert partition.identity.can_stamp
    assert not shared.needs_epoch


def test_failure_of_older_identity_is_no_gap(shared: TransactionalIdentity, partition: Partition) -> None:
    """The partition has not joined yet."""
    shared.assign(77, 4)

    partition.identity.begin_change()

    assert not shared.needs_epoch


def test_first_response_of_a_transaction_is_timed(shared: TransactionalIdentity, partition: Partition) -> None:
    """Not that of a repeated batch, nor a later one."""
    repeated, first, later = sent_by(partition), sent_by(partition, sent_at=11.0), sent_by(partition, sent_at=11.5)
    repeated.attempts = 2

    partition.identity.acknowledge(repeated, 0, 20.0)
    assert shared.first_response_s is None
    partition.identity.acknowledge(first, 1, 11.25)
    partition.identity.acknowledge(later, 2, 12.0)

    assert shared.first_response_s == 0.25


def test_late_response_is_not_the_next_first(shared: TransactionalIdentity, partition: Partition) -> None:
    """An abort does not wait for it."""
    late = sent_by(partition)
    shared.assign(77, 5)
    shared.begin_transaction(pipelines_at_once=True)
    partition.identity.acknowledge(late, 0, 20.0)
    assert shared.first_response_s is None

    partition.identity.join_transaction()
    partition.identity.acknowledge(late, 0, 20.0)
    assert shared.first_response_s is None


def test_new_identity_pipelines_until_an_error(shared: TransactionalIdentity) -> None:
    """Only if brokers refuse a first sequence other than 0."""
    shared.pipelines_at_once = True
    shared.transaction = 1
    partition = Partition(Topic("t", is_adaptive=True), 0, shared.of_partition(), max_in_flight=5)
    partition.identity.join_transaction()
    assert partition.identity.is_confirmed(1, 0.0)

    partition.identity.require_confirmation()
    assert not partition.identity.is_confirmed(1, 0.0)


def acknowledged(partition: Partition, *offsets: int) -> list[bool]:
    """Whether the log has lost something, after each of some batches sent and acknowledged in order."""
    lost = []
    for number, offset in enumerate(offsets):
        batch = sent_by(partition)
        batch.order = number
        partition.identity.acknowledge(batch, offset, 11.0)
        lost.append(partition.identity.has_lost_log)
    return lost


def test_offset_that_does_not_rise_means_a_lost_log(partition: Partition) -> None:
    """Records of the transaction are gone, and stay so."""
    assert acknowledged(partition, 5, 6, 6, 7) == [False, False, True, True]


def test_response_without_offset_means_no_lost_log(partition: Partition) -> None:
    """The broker no longer knew the offset."""
    assert acknowledged(partition, 5, -1, 6) == [False, False, False]


def test_offset_of_earlier_batch_may_come_later(partition: Partition) -> None:
    """It was appended first, but sent again after an error."""
    first, second = sent_by(partition), sent_by(partition)
    first.order, second.order = 0, 1

    partition.identity.acknowledge(second, 6, 11.0)
    partition.identity.acknowledge(first, 5, 12.0)

    assert not partition.identity.has_lost_log


def test_each_transaction_starts_without_an_offset(shared: TransactionalIdentity, partition: Partition) -> None:
    """Records of the previous one are committed or aborted, so they cannot be lost to this one."""
    assert not partition.identity.is_bound_to_log
    assert acknowledged(partition, 5, 5) == [False, True]
    assert partition.identity.is_bound_to_log
    shared.transaction += 1
    assert partition.identity.is_bound_to_log

    partition.identity.join_transaction()

    assert not partition.identity.is_bound_to_log
    assert acknowledged(partition, 0) == [False]


def test_late_offset_of_older_identity_is_ignored(shared: TransactionalIdentity, partition: Partition) -> None:
    """It belongs to an aborted transaction."""
    late = sent_by(partition)
    shared.assign(77, 4)
    shared.transaction += 1
    partition.identity.join_transaction()

    partition.identity.acknowledge(late, 5, 11.0)

    assert not partition.identity.is_bound_to_log


def test_no_transactional_id_means_no_lost_log() -> None:
    """Records do not depend on earlier ones."""
    partition = ProducerIdentity(is_enabled=True).of_partition()

    assert partition.is_bound_to_log
    assert not partition.has_lost_log


def doubted() -> Scene:
    """An abort that the coordinator has answered as if the producer were fenced."""
    scene = Scene().begun(0)
    scene.abort()
    scene.do("EndTxn", 90)
    return scene


@pytest.mark.parametrize("claimant", [(77, 1), (77, 2), (88, 0)])
def test_successors_transaction_is_left_open(claimant: tuple[int, int]) -> None:
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
def test_identity_is_renewed_if_none_is_open(state: str, claimant: tuple[int, int]) -> None:
    """InitProducerId decides whether that is possible."""
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
    scene.lose()
    scene.do("TxnOffsetCommit")
    scene.commit()
    scene.do("EndTxn")
    scene.version = version
    scene.described = "Ongoing", (77, 0)
    return scene


@pytest.mark.parametrize("code", [0, 48, 90])
def test_strays_transaction_is_aborted_before_renewal(code: int) -> None:
    """InitProducerId would abort it under an epoch that no producer learns, and so fence this one."""
    scene = reopened(0)

    scene.do("DescribeTransactions")
    ending = scene.do("EndTxn", code)
    assert ending.subject is False
    scene.described = "CompleteAbort", (77, 0)
    guarded = scene.look_and_renew()

    assert guarded.subject == ("billing-1", 77, 0)
    assert (scene.manager.state, scene.manager.is_commit_in_doubt) == (State.READY, False)


def test_strays_transaction_is_aborted_only_once() -> None:
    """Otherwise looking and aborting could alternate forever."""
    scene = reopened(0)
    scene.do("DescribeTransactions")
    scene.do("EndTxn", 48)

    scene.look_and_renew()

    assert scene.is_in(State.READY)


def test_epoch_of_that_abort_is_taken() -> None:
    """Under V2, after an abort that was wrongly refused as fenced."""
    scene = doubted()
    scene.described = "Ongoing", (77, 0)

    scene.do("DescribeTransactions")
    scene.do("EndTxn")
    scene.described = "CompleteAbort", (77, 1)
    guarded = scene.look_and_renew()

    assert guarded.subject == ("billing-1", 77, 1)


@on_both()
def test_other_epoch_for_offsets_is_checked_at_abort(version: int) -> None:
    """The coordinator is asked before the identity is renewed."""
    scene = Scene(version=version).begun(0)
    scene.send_offsets(OFFSETS, READERS)
    scene.do("TxnOffsetCommit", 47)
    scene.abort()
    scene.described = "Ongoing", (77, 1)

    scene.do("DescribeTransactions")

    assert scene.is_in(State.FATAL_ERROR)
    assert isinstance(scene.manager.error, ProducerFencedError)


@pytest.mark.parametrize("is_forbidden", [True, False], ids=["forbidden", "unsupported"])
def test_refused_describe_is_not_repeated(*, is_forbidden: bool) -> None:
    """InitProducerId gets the reason, or an identity; the coordinator may be older than Kafka 3.0."""
    scene = doubted()

    if is_forbidden:
        scene.do("DescribeTransactions", 53)
    else:
        scene.manager.unsupported(scene.ask(), UnsupportedVersionError("too old"))
    scene.do("InitProducerId")

    assert scene.is_in(State.READY)


@pytest.mark.parametrize("code", [14, 15, 16, -1, None])
def test_describe_without_an_answer_is_repeated(code: int | None) -> None:
    """After a pause, at the coordinator of that time; the first may have died."""
    scene = doubted()
    if code is None:
        scene.lose(after_s=0)
    else:
        scene.do("DescribeTransactions", code)
    assert scene.asked() is None

    scene.pass_time(0.2)
    scene.look_and_renew()

    assert scene.is_in(State.READY)


def test_invalid_describe_response_is_fatal() -> None:
    """Nothing may be aborted because of it."""
    scene = doubted()

    scene.do("DescribeTransactions", 42)

    assert scene.is_in(State.FATAL_ERROR)
    assert isinstance(scene.manager.error, BrokerError)
    assert scene.manager.error.code == 42


def test_each_renewal_describes_again() -> None:
    """A successor may have come during the pause; pauses grow as if there were no other request."""
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


def test_describe_is_repeated_at_a_new_coordinator() -> None:
    """The attempt was not answered, and the coordinator is looked up first."""
    scene = doubted()
    scene.do("DescribeTransactions")
    scene.lose(after_s=0.2)
    scene.coordinator = 2

    request = scene.ask()

    assert (request.api.name, scene.manager.node_of(request)) == ("DescribeTransactions", Node(2, "h", 9092))


@on_both()
def test_transaction_in_another_cluster_is_foreign(version: int) -> None:
    """Also if both clusters gave the same identity."""
    scene = Scene(version=version).ready()
    scene.identity.discard(77)
    scene.described = "Ongoing", (77, 0)

    assert not scene.manager.begin(version)
    scene.do("DescribeTransactions")

    assert isinstance(scene.manager.error, ProducerFencedError)


def renewing(*, coordinator: int = 1) -> Scene:
    """A V1 transaction that has ended with a gap, so that the identity is renewed."""
    scene = Scene(version=0)
    scene.coordinator = coordinator
    scene.begun(0)
    scene.identity.needs_epoch = True
    scene.abort()
    scene.do("EndTxn")
    return scene


def test_undoubted_identity_is_not_described() -> None:
    """A first identity fences anyway, and the one after a V1 gap is its own."""
    assert renewing().asked() == "InitProducerId"


# Identities


@pytest.mark.parametrize("answered_by", [1, 2])
def test_unanswered_renewal_delays_next_transaction(answered_by: int) -> None:
    """A late InitProducerId would abort it, and fence this producer; not at a node that is coordinator no longer."""
    scene = renewing()
    scene.lose()
    scene.coordinator = answered_by
    scene.do("InitProducerId")

    assert scene.manager.late.begin_at == (scene.now - 1 + STRAY_DELAY_S if answered_by == 1 else 0)


def test_lookup_leaves_no_stray() -> None:
    """FindCoordinator changes nothing."""
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
    scene.lose()
    scene.coordinator = answered_by
    scene.do("TxnOffsetCommit")
    scene.commit()
    scene.do("EndTxn")
    if scene.is_in(State.INITIALIZING):
        scene.look_and_renew()
    return scene


def test_v1_unanswered_offsets_delay_next_transaction() -> None:
    """Kafka 3.9 refuses a late copy for its old epoch, but drops the current offsets with it."""
    scene = after_offsets_were_lost(0, answered_by=1)
    gave_up_at = scene.now - 1

    assert scene.manager.late.begin_at == gave_up_at + STRAY_DELAY_S

    scene.pass_time(STRAY_DELAY_S)
    scene.begun()
    assert scene.manager.late.begin_at <= scene.now


@pytest.mark.parametrize("version, answered_by", [(0, 2), (2, 1)], ids=["V1, another node", "V2"])
def test_harmless_stray_offsets_delay_nothing(version: int, answered_by: int) -> None:
    """A former coordinator refuses them unread; under V2 the epoch is checked first."""
    scene = after_offsets_were_lost(version, answered_by=answered_by)

    assert scene.manager.late.begin_at <= scene.now


def test_v1_offsets_never_answered_delay_after_abort() -> None:
    """It is unknown whether the node is still the coordinator."""
    scene = Scene(version=0).begun()
    scene.send_offsets(OFFSETS, READERS)
    scene.lose()
    scene.abort()
    scene.do("EndTxn")
    scene.look_and_renew()

    assert scene.manager.late.begin_at == scene.now - 1 + STRAY_DELAY_S


def test_v1_stray_offsets_count_per_group() -> None:
    """Another group's coordinator does not answer for the first one's."""
    scene = Scene(version=0).begun()
    other = ConsumerGroupMetadata("others")
    scene.send_offsets(OFFSETS, READERS)
    scene.manager.send_offsets(OffsetsToSend(OFFSETS, other))
    scene.lose()
    scene.do("TxnOffsetCommit")
    scene.do("AddOffsetsToTxn")
    scene.coordinator = 2
    scene.do("TxnOffsetCommit")

    assert scene.manager.late.begin_at == scene.now - 1 + STRAY_DELAY_S


def test_renewal_unanswered_by_node_0_delays_next_transaction() -> None:
    """Node 0 is a node like any other."""
    scene = renewing(coordinator=0)
    scene.lose(after_s=0)

    assert scene.manager.late.begin_at == scene.now + STRAY_DELAY_S
