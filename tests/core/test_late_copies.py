"""What may still arrive of requests that went unanswered, and who waits for it. No network."""

import pytest

from aioproducer.core.transaction_requests import OffsetsToSend
from aioproducer.protocol.error_codes import ErrorCode
from tests.fakes.transaction_scene import LOST, OFFSETS, READERS, STRAY_DELAY_S, Scene, State

# Identities


def test_unanswered_renewal_delays_the_next_transaction() -> None:
    """A copy of InitProducerId that arrived in it would abort it and fence us."""
    scene = Scene(version=0).begun(0)
    scene.identity.has_gap = True
    scene.manager.abort()
    scene.manager.flushed()
    scene.do("EndTxn")
    scene.manager.unanswered(scene.ask(), LOST, was_sent=True, now=scene.now)
    scene.pass_time(1)
    scene.do("InitProducerId")

    assert scene.manager.late.begin_at == scene.now + STRAY_DELAY_S


def test_renewal_that_another_node_has_done_delays_nothing() -> None:
    """The first is not the coordinator any more: a copy that arrives there does nothing."""
    scene = Scene(version=0).begun(0)
    scene.identity.has_gap = True
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


# Offsets


def after_offsets_were_lost(version: int, *, answered_by: int) -> Scene:
    """Node 1 did not answer TxnOffsetCommit; in the next transaction, a second later, offsets wait to be sent."""
    scene = Scene(version=version).begun()
    scene.manager.send_offsets(OffsetsToSend(OFFSETS, READERS, is_added=True))
    scene.manager.unanswered(scene.ask(), LOST, was_sent=True, now=scene.now)
    scene.coordinator = answered_by
    scene.pass_time(1)
    scene.do("TxnOffsetCommit")
    scene.manager.commit()
    scene.manager.flushed()
    scene.do("EndTxn")
    if scene.is_in(State.INITIALIZING):
        scene.do("InitProducerId")
    scene.begun()
    scene.manager.send_offsets(OffsetsToSend(OFFSETS, READERS, is_added=True))
    return scene


def test_v1_offsets_wait_for_late_ones_of_the_last_transaction() -> None:
    """Kafka 3.9 refuses a late copy for its old epoch, and forgets the offsets of the present one with it."""
    scene = after_offsets_were_lost(0, answered_by=1)
    gave_up_at = scene.now - 1

    assert scene.asked() is None
    assert scene.manager.next_at(scene.now) == gave_up_at + STRAY_DELAY_S
    assert "may still arrive" in scene.manager.pacing.trouble

    scene.pass_time(STRAY_DELAY_S - 1)
    scene.do("TxnOffsetCommit")
    assert not scene.manager.pacing.trouble


def test_v1_only_offsets_wait_for_late_ones() -> None:
    """Records go on, and an abort need not wait for anything."""
    scene = after_offsets_were_lost(0, answered_by=1)
    scene.manager.use(scene.queue(), scene.now)
    scene.do("AddPartitionsToTxn")
    assert scene.asked() is None

    scene.manager.abort()
    scene.manager.flushed()
    scene.do("EndTxn")


@pytest.mark.parametrize("version, answered_by", [(0, 2), (2, 1)], ids=["V1, another node", "V2"])
def test_offsets_do_not_wait_where_a_late_copy_does_no_harm(version: int, answered_by: int) -> None:
    """A node that is no coordinator any more refuses it without a look; under V2 its epoch is looked at first."""
    scene = after_offsets_were_lost(version, answered_by=answered_by)

    scene.do("TxnOffsetCommit")


def test_v1_offsets_wait_where_the_coordinator_comes_back_to() -> None:
    """In the same transaction: where a late copy may arrive is known of the node."""
    scene = after_offsets_were_lost(0, answered_by=2)
    scene.coordinator = 1
    scene.do("TxnOffsetCommit", ErrorCode.NOT_COORDINATOR)
    scene.pass_time(1)
    question = scene.manager.next_request(scene.now)
    assert question is not None
    scene.found(question)

    assert scene.asked() is None
    assert scene.manager.next_at(scene.now) > scene.now + 1
