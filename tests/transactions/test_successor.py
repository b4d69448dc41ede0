"""What is asked before an identity that is doubted is renewed: whose transaction that would abort. No network."""

import pytest

from aioproducer.errors import BrokerError, ProducerFencedError, UnsupportedVersionError
from tests.fakes.transaction_scene import LOST, OFFSETS, READERS, Scene, State, on_both


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
