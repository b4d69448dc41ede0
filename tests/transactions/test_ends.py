"""Ends of transactions, their refusals, and offsets to commit. No network."""

import pytest

from aioproducer._transactions.identity import TransactionalIdentity
from aioproducer._transactions.open_transaction import PendingOffsets
from aioproducer._transactions.requests import OffsetsToSend, TransactionRequests
from aioproducer._transactions.verdicts import end_unknown_error
from aioproducer.errors import (
    IllegalStateError,
    Outcome,
    ProducerFencedError,
    TransactionalIdAuthorizationError,
    UnsupportedVersionError,
)
from aioproducer.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from tests.fakes.transaction_scene import LOST, OFFSETS, READERS, Scene, State, on_both

# The end


@on_both()
def test_unknown_transaction_ends_without_request(version: int) -> None:
    """Nothing was sent before."""
    for verb in ("commit", "abort"):
        scene = Scene(version=version).begun()
        getattr(scene.manager, verb)()
        scene.manager.flushed()

        assert (scene.asked(), scene.manager.state) == (None, State.READY)


@pytest.mark.parametrize("api", ["AddPartitionsToTxn", "AddOffsetsToTxn"])
def test_v1_unauthorized_transaction_aborts_locally(api: str) -> None:
    """Permissions are checked first, so the coordinator does not know it; EndTxn would cost an epoch."""
    scene = Scene(version=0).begun()
    if api == "AddPartitionsToTxn":
        scene.manager.use(scene.partition(), scene.now)
    else:
        scene.manager.send_offsets(OffsetsToSend(OFFSETS, READERS))

    scene.do(api, 29 if api == "AddPartitionsToTxn" else 30)
    scene.abort()

    assert (scene.asked(), scene.manager.state) == (None, State.READY)


@pytest.mark.parametrize("first", [15, "lost", "added"])
def test_v1_known_transaction_aborts_by_coordinator(first: int | str) -> None:
    """An earlier attempt may have added the partition, or another partition was added."""
    scene = Scene(version=0).begun(*([7] if first == "added" else []))
    scene.manager.use(scene.partition(), scene.now)
    if first == "lost":
        scene.manager.unanswered(scene.ask(), LOST, was_sent=True, now=scene.now)
    elif first == 15:
        scene.do("AddPartitionsToTxn", 15)
    scene.pass_time(1)

    scene.do("AddPartitionsToTxn", 29)
    scene.abort()

    scene.do("EndTxn")


@on_both()
def test_end_waits_for_earlier_offsets(version: int) -> None:
    """EndTxn was once sent ahead of them (KAFKA-5449)."""
    scene = Scene(version=version).begun(0)
    scene.manager.send_offsets(OffsetsToSend(OFFSETS, READERS))
    scene.commit()

    if version < 2:
        scene.do("AddOffsetsToTxn")
    scene.do("TxnOffsetCommit")
    scene.do("EndTxn")

    assert scene.is_in(State.READY)


@on_both()
@pytest.mark.parametrize("code", [-1, 7, 14, 15, 16, 51])
def test_end_without_success_is_retried(version: int, code: int) -> None:
    """After UNKNOWN_SERVER_ERROR a retry without effect counted as committed (franz-go)."""
    scene = Scene(version=version).begun(0)
    scene.commit()

    scene.do("EndTxn", code)
    assert scene.is_in(State.COMMITTING)
    scene.pass_time(1)
    scene.do("EndTxn")

    assert scene.manager.state is (State.INITIALIZING if version < 2 and code == -1 else State.READY)


@on_both()
@pytest.mark.parametrize("code", [90, 53])
def test_refused_end_raises(version: int, code: int) -> None:
    """Being fenced at commit once went unnoticed (librdkafka before 1.6)."""
    scene = Scene(version=version).begun(0)
    scene.commit()

    scene.do("EndTxn", code)
    if (version, code) == (2, 90):
        scene.described = "Empty", (77, 2)
        scene.do("DescribeTransactions")

    assert scene.is_in(State.FATAL_ERROR)
    assert isinstance(scene.manager.error, (ProducerFencedError, TransactionalIdAuthorizationError))


@pytest.mark.parametrize("code", [47, 90])
def test_v2_fenced_commit_after_timeout_is_abortable(code: int) -> None:
    """Kafka after 4.4 answers so instead of 48 (KAFKA-20785); the epoch is that of the coordinator's own abort."""
    scene = Scene().begun(0)
    scene.commit()

    scene.do("EndTxn", code)
    assert scene.is_in(State.COMMITTING)
    assert not scene.manager.may_abort
    scene.described = "CompleteAbort", (77, 1)
    scene.lose()
    scene.do("DescribeTransactions")

    assert scene.is_in(State.ABORTABLE_ERROR)
    assert "timed out" in str(scene.manager.error)
    scene.abort()
    scene.do("EndTxn")
    assert (scene.manager.state, scene.identity.first_epoch) == (State.READY, 1)


@pytest.mark.parametrize(
    "described", [("CompleteAbort", (77, 2)), ("CompleteAbort", (78, 1)), ("Ongoing", (77, 1)), 53, None]
)
def test_v2_fenced_commit_without_timeout_is_fatal(described: tuple[str, tuple[int, int]] | int | None) -> None:
    """A successor may have aborted it, or committed after it; where no look is possible, the refusal is raised."""
    scene = Scene().begun(0)
    scene.commit()
    scene.do("EndTxn", 90)

    if described is None:
        scene.manager.unsupported(scene.ask(), UnsupportedVersionError("unknown to a proxy"))
    elif isinstance(described, int):
        scene.do("DescribeTransactions", described)
    else:
        scene.described = described
        scene.do("DescribeTransactions")

    assert scene.is_in(State.FATAL_ERROR)
    assert isinstance(scene.manager.error, ProducerFencedError)


def test_v2_timed_out_transaction_aborts_with_its_epoch() -> None:
    """EndTxn(commit) gets 48; EndTxn(abort) with the same epoch gets the next one."""
    scene = Scene().begun(0)
    scene.commit()

    scene.do("EndTxn", 48)
    assert scene.is_in(State.ABORTABLE_ERROR)
    scene.abort()
    scene.do("EndTxn")

    assert (scene.manager.state, scene.identity.first_epoch) == (State.READY, 1)


@pytest.mark.parametrize("code", [90, 47])
@pytest.mark.parametrize("is_fenced", [True, False])
def test_v2_fenced_abort_renews_the_identity(code: int, is_fenced: bool) -> None:  # noqa: FBT001
    """A coordinator that is shutting down may take the abort for a copy of the last end."""
    scene = Scene().begun(0)
    scene.abort()

    scene.do("EndTxn", code)
    scene.do("DescribeTransactions")
    guarded = scene.ask()
    assert (guarded.api.name, guarded.subject) == ("InitProducerId", ("billing-1", 77, 0))
    assert not scene.manager.has_ended
    scene.answer(guarded, 90 if is_fenced else 0)

    assert scene.is_in(State.FATAL_ERROR if is_fenced else State.READY)
    assert isinstance(scene.manager.error, ProducerFencedError) is is_fenced


@pytest.mark.parametrize("code, text", [(90, "newer producer"), (47, "newer producer"), (48, "INVALID_TXN_STATE")])
def test_v2_refused_abort_after_commit_is_fatal(code: int, text: str) -> None:
    """The commit may have been done by a copy of it, and a new identity would not tell."""
    scene = Scene().begun(0)
    scene.commit()
    scene.do("EndTxn", 120)
    scene.abort()

    scene.do("EndTxn", code)

    assert scene.is_in(State.FATAL_ERROR)
    assert text in str(scene.manager.error)


@pytest.mark.parametrize("verb", ["commit", "abort"])
def test_v1_timed_out_transaction_is_fatal_after_renewal(verb: str) -> None:
    """47, then InitProducerId with the identity, which gets 90; one without identity would fence a successor."""
    scene = Scene(version=0).begun(0)
    getattr(scene.manager, verb)()
    scene.manager.flushed()

    scene.do("EndTxn", 47)
    if verb == "commit":
        assert scene.is_in(State.ABORTABLE_ERROR)
        scene.abort()
    scene.do("DescribeTransactions")
    guarded = scene.ask()
    assert not scene.manager.has_ended
    scene.answer(guarded, 90)

    assert guarded.api.name == "InitProducerId"
    assert guarded.subject == ("billing-1", 77, 0)
    assert scene.is_in(State.FATAL_ERROR)
    assert isinstance(scene.manager.error, ProducerFencedError)


@on_both()
@pytest.mark.parametrize("first", ["lost", -1, 16])
def test_commit_is_in_doubt_until_excluded(version: int, first: int | str) -> None:
    """The refusal of a repeated EndTxn does not decide about the first one."""
    scene = Scene(version=version).begun(0)
    scene.commit()
    ending = scene.ask()
    assert scene.manager.is_commit_in_doubt
    if first == "lost":
        scene.manager.unanswered(ending, LOST, was_sent=True, now=scene.now)
    else:
        assert isinstance(first, int)
        scene.answer(ending, first)
    assert scene.manager.is_commit_in_doubt == (first != 16)

    scene.pass_time(1)
    scene.do("EndTxn", 53)

    assert scene.is_in(State.FATAL_ERROR)
    assert scene.manager.is_commit_in_doubt == (first != 16)
    assert scene.manager.error is not None
    unknown = end_unknown_error(scene.manager.error)
    assert (unknown.outcome, scene.manager.error.outcome) == (Outcome.UNKNOWN, None)
    assert "not known" in unknown.__notes__[0]


def test_v1_lost_commit_is_not_denied_by_renewal() -> None:
    """An old coordinator answers the repetition with 47 because of a successor that came after the commit."""
    scene = Scene(version=0).begun(0)
    scene.commit()
    scene.lose()

    scene.do("EndTxn", 47)

    assert scene.is_in(State.FATAL_ERROR)
    assert isinstance(scene.manager.error, ProducerFencedError)


def test_v1_known_transaction_found_closed_is_fatal() -> None:
    """Something else has ended it, as a commit or an abort."""
    for verb in ("commit", "abort"):
        scene = Scene(version=0).begun(0)
        getattr(scene.manager, verb)()
        scene.manager.flushed()

        scene.do("EndTxn", 48)

        assert scene.is_in(State.FATAL_ERROR)


def test_v1_abort_of_unknown_transaction_succeeds() -> None:
    """The addition was not answered, and 48 means that none is open: a new epoch follows."""
    scene = Scene(version=0).begun()
    scene.manager.use(scene.partition(), scene.now)
    scene.lose()
    scene.abort()

    scene.do("EndTxn", 48)
    scene.look_and_renew()

    assert scene.is_in(State.READY)


@on_both()
def test_failure_after_end_was_sent_changes_nothing(version: int) -> None:
    """The records had been acknowledged, and the response to EndTxn decides."""
    scene = Scene(version=version).begun(0)
    scene.commit()
    ending = scene.ask()

    scene.manager.fail_transaction(LOST)
    assert scene.is_in(State.COMMITTING)
    scene.answer(ending)

    assert (scene.manager.state, scene.manager.error) == (State.READY, None)


def test_invalid_transition_raises() -> None:
    """An assert would be skipped under -O."""
    scene = Scene().ready()

    with pytest.raises(IllegalStateError, match="cannot go from ready to committing"):
        scene.manager.commit()

    assert scene.is_in(State.READY)


def test_other_epoch_within_transaction_is_abortable() -> None:
    """A timed-out transaction can be the reason under V2; the text once said to close the producer."""
    scene = Scene().begun(0)
    scene.manager.send_offsets(OffsetsToSend(OFFSETS, READERS))

    scene.do("TxnOffsetCommit", 47)

    assert scene.is_in(State.ABORTABLE_ERROR)
    assert "transaction_timeout_ms" in str(scene.manager.error)
    assert "close it" not in str(scene.manager.error)


def offsets(offset: int, group: str = "readers", generation: int = -1) -> OffsetsToSend:
    given = {TopicPartition("orders", 0): OffsetAndMetadata(offset)}
    return OffsetsToSend(given, ConsumerGroupMetadata(group, generation))


def test_repeated_offsets_join_the_queued_ones() -> None:
    """Also if another group's came after them."""
    line = PendingOffsets()
    first = line.put(offsets(7))
    other = line.put(offsets(7, "others"))

    assert line.put(offsets(7)) is first
    assert line.put(offsets(7, "others")) is other
    assert line.first is first


def test_offsets_after_others_are_sent_after_them() -> None:
    """Joined to earlier ones they would be overwritten."""
    line = PendingOffsets()
    first, second = line.put(offsets(7)), line.put(offsets(8))
    third = line.put(offsets(7))

    assert len({id(each) for each in (first, second, third)}) == 3


def test_other_generation_is_another_request() -> None:
    """It may be refused where the other is not."""
    line = PendingOffsets()
    first = line.put(offsets(7, generation=1))

    assert line.put(offsets(7, generation=2)) is not first


def test_answered_offsets_leave_the_queue() -> None:
    """Also if the response comes after the abort."""
    identity = TransactionalIdentity()
    identity.assign(77, 0)
    requests = TransactionRequests("billing-1", timeout_ms=60_000, identity=identity)
    line = PendingOffsets()
    first = line.put(offsets(7))
    line.forward(requests.add_offsets(first))
    assert (first.is_added, first.is_done, bool(line)) == (True, False, True)
    line.forward(requests.commit_offsets(first, is_v2=False))
    assert (first.is_done, bool(line)) == (True, False)

    late = line.put(offsets(7))
    line.clear()
    line.forward(requests.commit_offsets(late, is_v2=False))
    assert (late is first, late.is_done, bool(line)) == (False, True, False)


# Prepared


@on_both()
@pytest.mark.parametrize("is_commit", [True, False])
def test_prepared_transaction_waits_for_its_end(version: int, *, is_commit: bool) -> None:
    """Nothing is asked between the last record's end and the user's decision."""
    scene = Scene(version=version).begun(0)
    scene.manager.prepare(is_empty=False)
    assert not scene.manager.has_ended
    assert (scene.asked(), scene.manager.prepared) == (None, None)

    scene.manager.flushed()
    assert scene.asked() is None

    prepared = scene.manager.prepared
    assert prepared == ("billing-1", 77, 0, 2 if version >= 2 else 1)
    assert scene.manager.has_identity_of(prepared)
    (scene.commit if is_commit else scene.abort)()
    scene.do("EndTxn")
    assert (scene.manager.state, scene.manager.prepared) == (State.READY, None)


@on_both()
def test_offsets_are_sent_before_a_transaction_is_prepared(version: int) -> None:
    scene = Scene(version=version).begun()
    scene.manager.send_offsets(OffsetsToSend(OFFSETS, READERS))
    scene.manager.prepare(is_empty=True)
    scene.manager.flushed()

    if version < 2:
        scene.do("AddOffsetsToTxn")
    assert scene.manager.prepared is None
    scene.do("TxnOffsetCommit")
    assert scene.asked() is None
    assert scene.manager.prepared is not None


def test_empty_transaction_cannot_be_prepared() -> None:
    scene = Scene().begun()
    with pytest.raises(IllegalStateError, match="nothing to prepare"):
        scene.manager.prepare(is_empty=True)
