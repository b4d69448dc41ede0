"""Who the coordinators are, as far as brokers say it, and what their refusals cost. No network."""

import pytest

from aioproducer._protocol.transaction_messages import CoordinatorResponse
from aioproducer._transactions.requests import TransactionRequest
from aioproducer.errors import BrokerConnectionError
from tests.fakes.transaction_scene import OFFSETS, READERS, Scene, State, on_both

ABORTABLE_ANSWERS = (24, 30, 120)
"""INVALID_GROUP_ID, GROUP_AUTHORIZATION_FAILED, TRANSACTION_ABORTABLE."""


def finding(scene: Scene) -> TransactionRequest:
    """FindCoordinator, which is asked now."""
    request = scene.manager.next_request(scene.now)
    assert request is not None
    assert request.api.name == "FindCoordinator"
    return request


def refuse(scene: Scene, code: int) -> None:
    """Answer it with a code."""
    scene.manager.answered(finding(scene), CoordinatorResponse(0, code, -1, "", -1), scene.now)


def forget_coordinator(scene: Scene) -> None:
    """Have the present request refused by who is not the coordinator any more."""
    scene.answer(scene.ask(), 16)
    scene.pass_time(1)


@on_both()
@pytest.mark.parametrize("code", ABORTABLE_ANSWERS)
def test_groups_coordinator_that_is_not_told_costs_the_transaction_alone(version: int, code: int) -> None:
    """TRANSACTION_ABORTABLE ended the producer, where Kafka's own aborts (KIP-1050)."""
    scene = Scene(version=version).begun()
    scene.send_offsets(OFFSETS, READERS)

    refuse(scene, code)

    assert scene.is_in(State.ABORTABLE_ERROR)
    scene.manager.abort()
    scene.manager.flushed()
    if version < 2:
        scene.do("EndTxn")
    assert (scene.asked(), scene.manager.state) == (None, State.READY)


@pytest.mark.parametrize("code", ABORTABLE_ANSWERS)
def test_refusal_where_nothing_can_be_aborted_is_the_end(code: int) -> None:
    """FindCoordinator was asked again and again, without a pause, until something else was answered."""
    scene = Scene()
    scene.manager.initialize()

    refuse(scene, code)

    assert scene.is_in(State.FATAL_ERROR)


@on_both()
@pytest.mark.parametrize("code", ABORTABLE_ANSWERS)
def test_refusal_of_the_coordinator_that_an_abort_needs_is_the_end(version: int, code: int) -> None:
    """There is nobody who could do it."""
    scene = Scene(version=version).begun(0)
    scene.manager.abort()
    scene.manager.flushed()
    forget_coordinator(scene)

    refuse(scene, code)

    assert scene.is_in(State.FATAL_ERROR)


@on_both()
@pytest.mark.parametrize("code", ABORTABLE_ANSWERS)
def test_refusal_of_the_coordinator_that_a_commit_needs_is_told_by_the_commit(version: int, code: int) -> None:
    """EndTxn came to who is not the coordinator: the transaction can be aborted, if there is one again."""
    scene = Scene(version=version).begun(0)
    scene.manager.commit()
    scene.manager.flushed()
    forget_coordinator(scene)

    refuse(scene, code)

    assert scene.is_in(State.ABORTABLE_ERROR)


@on_both()
def test_lookup_for_offsets_that_an_abort_has_made_needless_changes_nothing(version: int) -> None:
    """Its answer comes when nobody wants to know any more."""
    scene = Scene(version=version).begun()
    scene.send_offsets(OFFSETS, READERS)
    request = finding(scene)
    scene.manager.abort()
    scene.manager.flushed()

    scene.manager.answered(request, CoordinatorResponse(0, 30, -1, "", -1), scene.now)

    if version < 2:
        scene.do("EndTxn")
    assert (scene.asked(), scene.manager.state, scene.manager.error) == (None, State.READY, None)


@on_both()
@pytest.mark.parametrize("code", ABORTABLE_ANSWERS)
def test_refusal_of_the_coordinator_that_was_asked_to_commit_is_the_end(version: int, code: int) -> None:
    """Without an answer, and it may have: nobody may be told that the transaction must be aborted."""
    scene = Scene(version=version).begun(0)
    scene.manager.commit()
    scene.manager.flushed()
    end = scene.ask()
    scene.manager.unanswered(end, BrokerConnectionError("lost"), was_sent=True, now=scene.now)
    scene.pass_time(1)

    refuse(scene, code)

    assert end.api.name == "EndTxn"
    assert scene.is_in(State.FATAL_ERROR)
