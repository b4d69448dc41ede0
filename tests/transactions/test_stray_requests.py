"""What may still arrive of requests that went unanswered, and who waits for it. No network."""

import pytest

from aioproducer._transactions.requests import OffsetsToSend
from aioproducer.records import ConsumerGroupMetadata
from tests.fakes.transaction_scene import LOST, OFFSETS, READERS, STRAY_DELAY_S, Scene, State

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


# Offsets


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
