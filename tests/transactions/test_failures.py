"""Strays, gaps and refusals, and their effect on a transaction. No network."""

import pytest

from aioproducer._protocol.messages import ProducerIdResponse
from aioproducer._protocol.transaction_messages import (
    CoordinatorResponse,
    EndTxnResponse,
    PartitionResult,
    PartitionsResponse,
)
from aioproducer._transactions.requests import OffsetsToSend, TransactionRequest
from aioproducer.errors import (
    BrokerError,
    GroupAuthorizationError,
    KafkaError,
    TopicAuthorizationError,
    TransactionAbortableError,
)
from aioproducer.records import OffsetAndMetadata, TopicPartition
from tests.fakes.transaction_scene import LOST, OFFSETS, READERS, Scene, State, on_both

ABORTABLE_ANSWERS = (24, 30, 120)  # INVALID_GROUP_ID, GROUP_AUTHORIZATION_FAILED, TRANSACTION_ABORTABLE


# Strays and gaps


def test_v1_gap_takes_a_new_epoch() -> None:
    """A batch with a sequence was not acknowledged: later ones would get 45, or a late copy be committed."""
    scene = Scene(version=0).ready()
    partition = scene.partition()
    assert scene.manager.begin(0)
    scene.manager.use(partition, scene.now)
    scene.do("AddPartitionsToTxn")
    partition.identity.stamp(3)
    partition.identity.begin_change()
    scene.abort()
    scene.do("EndTxn")

    guarded = scene.do("InitProducerId")
    assert scene.manager.begin(0)
    scene.manager.use(partition, scene.now)
    scene.do("AddPartitionsToTxn")

    assert guarded.subject == ("billing-1", 77, 0)
    assert tuple(partition.identity.stamp(1)) == (77, 1, 0, True)


@pytest.mark.parametrize("name", ["AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"])
def test_v1_unanswered_request_takes_a_new_epoch(name: str) -> None:
    """A delayed copy would affect the next transaction: a stray EndTxn committed it."""
    scene = Scene(version=0).begun()
    scene.manager.use(scene.partition(), scene.now)
    scene.manager.send_offsets(OffsetsToSend(OFFSETS, READERS))
    for step in ("AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"):
        if step == "EndTxn":
            scene.commit()
        if step == name:
            scene.lose()
        scene.do(step)

    assert scene.is_in(State.INITIALIZING)
    scene.look_and_renew()
    assert (scene.manager.state, scene.identity.first_epoch) == (State.READY, 1)


@pytest.mark.parametrize("was_sent", [True, False])
def test_v1_unsent_request_leaves_no_copy(was_sent: bool) -> None:  # noqa: FBT001
    """Only a request that was handed to a connection can arrive late."""
    scene = Scene(version=0).begun(0)
    scene.commit()
    request = scene.ask()
    scene.manager.unanswered(request, LOST, was_sent=was_sent, now=scene.now)
    scene.pass_time(1)
    scene.do("EndTxn")

    assert scene.manager.state is (State.INITIALIZING if was_sent else State.READY)


def test_v2_unanswered_end_needs_no_extra_epoch() -> None:
    """A copy of it has an older epoch."""
    scene = Scene().begun(0)
    scene.commit()
    scene.lose()
    scene.do("EndTxn")

    assert scene.is_in(State.READY)


def test_upgrade_takes_a_new_epoch_first() -> None:
    """V1 continues sequences, V2 begins at 0. An idle producer may have a successor by then."""
    scene = Scene(version=0).begun(0)
    scene.commit()
    scene.do("EndTxn")
    scene.version = 2

    assert not scene.manager.begin(2)
    scene.do("DescribeTransactions")
    guarded = scene.do("InitProducerId")
    assert scene.manager.begin(2)

    assert (guarded.subject, scene.manager.is_v2) == (("billing-1", 77, 0), True)


def test_downgrade_needs_no_request() -> None:
    """V2 has just given a new epoch."""
    scene = Scene().begun(0)
    scene.commit()
    scene.do("EndTxn")
    scene.version = 0

    assert scene.manager.begin(0)
    assert not scene.manager.is_v2


@on_both()
def test_coordinator_replaces_used_up_epochs(version: int) -> None:
    """It gives another producer id, and sequences begin at 0 (KAFKA-18660, KAFKA-19367)."""
    scene = Scene(version=version).ready()
    scene.identity.assign(77, 32_767)
    partition = scene.partition()
    assert scene.manager.begin(version)
    scene.manager.use(partition, scene.now)
    if version < 2:
        scene.do("AddPartitionsToTxn")
        scene.identity.needs_epoch = True
    first = partition.identity.stamp(2)
    scene.commit()
    ending = scene.ask()
    if version < 2:
        scene.answer(ending)
        renewal = scene.ask()
        scene.manager.answered(renewal, ProducerIdResponse(0, 0, 88, 0), scene.now)
    else:
        scene.manager.answered(ending, EndTxnResponse(0, 0, 88, 0), scene.now)
    assert scene.manager.begin(version)
    scene.manager.use(partition, scene.now)
    if version < 2:
        scene.do("AddPartitionsToTxn")

    assert tuple(first) == (77, 32_767, 0, True)
    assert tuple(partition.identity.stamp(1)) == (88, 0, 0, True)


# Failures


@on_both()
def test_failed_record_requires_an_abort(version: int) -> None:
    scene = Scene(version=version).begun(0)
    cause = KafkaError("not delivered")

    scene.manager.fail_transaction(cause)

    assert scene.is_in(State.ABORTABLE_ERROR)
    assert isinstance(scene.manager.error, TransactionAbortableError)
    assert scene.manager.error.__cause__ is cause
    scene.abort()
    scene.do("EndTxn")
    assert scene.is_in(State.READY)


def test_failure_between_transactions_fails_none() -> None:
    scene = Scene().ready()

    scene.manager.fail_transaction(KafkaError("late"))

    assert scene.is_in(State.READY)


@pytest.mark.parametrize("code, kind", [(29, TopicAuthorizationError), (55, BrokerError), (120, BrokerError)])
def test_v1_refused_partition_fails_the_transaction(code: int, kind: type[KafkaError]) -> None:
    """The code's own error is the cause."""
    scene = Scene(version=0).begun()
    scene.manager.use(scene.partition(), scene.now)

    scene.do("AddPartitionsToTxn", code)

    assert scene.is_in(State.ABORTABLE_ERROR)
    assert scene.manager.error is not None
    assert isinstance(scene.manager.error.__cause__, kind)


def test_v1_untried_partition_is_not_the_reason() -> None:
    """OPERATION_NOT_ATTEMPTED accompanies the code that counts; the error names that topic."""
    scene = Scene(version=0).begun()
    scene.manager.use(scene.partition(0, "mine"), scene.now)
    scene.manager.use(scene.partition(0, "secret"), scene.now)
    request = scene.ask()
    results = [PartitionResult("mine", 0, 55), PartitionResult("secret", 0, 29)]

    scene.manager.answered(request, PartitionsResponse(0, results), scene.now)

    assert scene.manager.error is not None
    cause = scene.manager.error.__cause__
    assert isinstance(cause, TopicAuthorizationError)
    assert (cause.topic, cause.partition) == ("secret", 0)
    assert "AddPartitionsToTxn of 'billing-1' for secret-0: TOPIC_AUTHORIZATION_FAILED" in str(cause)


def test_error_names_up_to_five_partitions() -> None:
    scene = Scene().begun(0)
    places = {TopicPartition("orders", number): OffsetAndMetadata(7) for number in range(7)}
    scene.send_offsets(places, READERS)

    scene.do("TxnOffsetCommit", 29)

    assert scene.manager.error is not None
    cause = scene.manager.error.__cause__
    assert isinstance(cause, TopicAuthorizationError)
    assert (cause.topic, cause.partition) == (None, None)
    assert "for orders-0, orders-1, orders-2, orders-3, orders-4 and 2 more: TOPIC" in str(cause)


def test_v1_partition_missing_in_response_is_added_again() -> None:
    """It does not count as added."""
    scene = Scene(version=0).begun()
    partition = scene.partition()
    scene.manager.use(partition, scene.now)

    scene.manager.answered(scene.ask(), PartitionsResponse(0, []), scene.now)
    assert not partition.identity.can_stamp
    scene.pass_time(1)
    scene.do("AddPartitionsToTxn")

    assert partition.identity.can_stamp


@on_both()
@pytest.mark.parametrize("code", [22, 25, 30, 82, 113, 12])
def test_refused_offsets_fail_the_transaction(version: int, code: int) -> None:
    """The group has rebalanced, or the member was replaced."""
    scene = Scene(version=version).begun(0)
    scene.send_offsets(OFFSETS, READERS)

    scene.do("TxnOffsetCommit", code)

    assert scene.is_in(State.ABORTABLE_ERROR)
    assert scene.manager.error is not None
    cause = scene.manager.error.__cause__
    assert isinstance(cause, BrokerError)
    assert (cause.code, isinstance(cause, GroupAuthorizationError)) == (code, code == 30)


@on_both()
def test_offsets_are_done_together(version: int) -> None:
    """One partition was refused for now: all are sent again (`testRetriableErrorInTxnOffsetCommit`)."""
    scene = Scene(version=version).begun(0)
    places = {TopicPartition("orders", number): OffsetAndMetadata(7) for number in range(2)}
    sending = scene.send_offsets(places, READERS)
    request = scene.ask()
    results = [PartitionResult("orders", 0, 0), PartitionResult("orders", 1, 14)]

    scene.manager.answered(request, PartitionsResponse(0, results), scene.now)

    assert not sending.is_done
    assert "orders-1" in scene.manager.pacing.trouble
    assert "orders-0" not in scene.manager.pacing.trouble
    scene.pass_time(1)
    again = scene.do("TxnOffsetCommit")
    assert again.subject is request.subject
    assert sending.is_done


@on_both()
@pytest.mark.parametrize("code", [7, 15, 16])
def test_only_the_moved_coordinator_is_looked_up(version: int, code: int) -> None:
    """Not the transaction's."""
    scene = Scene(version=version).begun(0)
    scene.send_offsets(OFFSETS, READERS)
    scene.do("TxnOffsetCommit", code)
    scene.pass_time(1)

    finding = scene.manager.next_request(scene.now)
    assert finding is not None
    assert (finding.api.name, finding.coordinator.key) == ("FindCoordinator", "readers")
    scene.found(finding)
    scene.do("TxnOffsetCommit")
    scene.commit()

    assert scene.asked() == "EndTxn"


def test_abort_is_possible_until_commit_is_sent() -> None:
    """After that only its response decides."""
    scene = Scene().begun(0)
    assert scene.manager.may_abort
    scene.manager.commit()
    assert scene.manager.may_abort
    scene.manager.flushed()
    scene.ask()

    assert not scene.manager.may_abort


def test_response_after_a_fatal_error_is_ignored() -> None:
    scene = Scene().begun(0)
    scene.commit()
    request = scene.ask()
    scene.manager.fail(KafkaError("the end"))

    scene.answer(request)

    assert (scene.manager.state, str(scene.manager.error)) == (State.FATAL_ERROR, "the end")


def test_second_fatal_error_keeps_the_first() -> None:
    """The first is the reason."""
    scene = Scene().begun(0)
    scene.manager.fail(KafkaError("the end"))

    scene.manager.fail(KafkaError("and again"))

    assert str(scene.manager.error) == "the end"


def test_unanswered_request_is_named() -> None:
    scene = Scene().begun(0)
    scene.commit()
    scene.lose()

    assert "EndTxn" in scene.manager.pacing.trouble


def test_unknown_code_is_shown_as_a_number() -> None:
    scene = Scene().ready()
    assert scene.manager.begin(0)
    scene.manager.use(scene.partition(), scene.now)
    scene.do("AddPartitionsToTxn", 12_345)

    assert "for t-0: a code newer than this client (12345)" in str(scene.manager.error)


def test_offsets_answered_after_an_abort_are_ignored() -> None:
    scene = Scene().begun(0)
    scene.send_offsets(OFFSETS, READERS)
    request = scene.ask()
    scene.manager.abort()

    scene.answer(request)
    scene.manager.flushed()

    assert scene.asked() == "EndTxn"


def test_abortable_error_is_not_wrapped_twice() -> None:
    reason = TransactionAbortableError("the topic was made again")
    scene = Scene().begun(0)

    scene.manager.fail_transaction(reason)

    assert scene.manager.error is reason


def finding(scene: Scene) -> TransactionRequest:
    request = scene.manager.next_request(scene.now)
    assert request is not None
    assert request.api.name == "FindCoordinator"
    return request


def refuse(scene: Scene, code: int) -> None:
    scene.manager.answered(finding(scene), CoordinatorResponse(0, code, -1, "", -1), scene.now)


@on_both()
@pytest.mark.parametrize("code", ABORTABLE_ANSWERS)
def test_unfound_group_coordinator_fails_only_transaction(version: int, code: int) -> None:
    """The producer can go on without that group; Kafka's own aborts for TRANSACTION_ABORTABLE, too (KIP-1050)."""
    scene = Scene(version=version).begun()
    scene.send_offsets(OFFSETS, READERS)

    refuse(scene, code)

    assert scene.is_in(State.ABORTABLE_ERROR)
    scene.abort()
    if version < 2:
        scene.do("EndTxn")
    assert (scene.asked(), scene.manager.state) == (None, State.READY)


@pytest.mark.parametrize("code", ABORTABLE_ANSWERS)
def test_refused_lookup_without_transaction_is_fatal(code: int) -> None:
    """FindCoordinator was once repeated without a pause until it succeeded."""
    scene = Scene()
    scene.manager.initialize()

    refuse(scene, code)

    assert scene.is_in(State.FATAL_ERROR)


@on_both()
@pytest.mark.parametrize("code", ABORTABLE_ANSWERS)
@pytest.mark.parametrize("is_commit", [True, False])
def test_refused_lookup_for_an_end_is_raised(version: int, code: int, *, is_commit: bool) -> None:
    """EndTxn reached a node that is not the coordinator: a commit can be aborted later, an abort can not be done."""
    scene = Scene(version=version).begun(0)
    (scene.commit if is_commit else scene.abort)()
    scene.do("EndTxn", 16)
    scene.pass_time(1)

    refuse(scene, code)

    assert scene.is_in(State.ABORTABLE_ERROR if is_commit else State.FATAL_ERROR)


@on_both()
def test_lookup_answered_after_abort_is_ignored(version: int) -> None:
    """It was for offsets that are no longer wanted."""
    scene = Scene(version=version).begun()
    scene.send_offsets(OFFSETS, READERS)
    request = finding(scene)
    scene.abort()

    scene.manager.answered(request, CoordinatorResponse(0, 30, -1, "", -1), scene.now)

    if version < 2:
        scene.do("EndTxn")
    assert (scene.asked(), scene.manager.state, scene.manager.error) == (None, State.READY, None)


@on_both()
@pytest.mark.parametrize("code", ABORTABLE_ANSWERS)
def test_refused_lookup_after_lost_commit_is_fatal(version: int, code: int) -> None:
    """The commit may have been done, so "must be aborted" would be wrong."""
    scene = Scene(version=version).begun(0)
    scene.commit()
    end = scene.lose()

    refuse(scene, code)

    assert end.api.name == "EndTxn"
    assert scene.is_in(State.FATAL_ERROR)
