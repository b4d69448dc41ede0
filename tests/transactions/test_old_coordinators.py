"""What is asked of coordinators before Kafka 2.5, whose requests cannot say all that must be said. No network."""

import pytest

from aioproducer._transactions.requests import OffsetsToSend
from aioproducer.errors import ProducerFencedError, UnsupportedVersionError
from aioproducer.records import ConsumerGroupMetadata
from tests.fakes.transaction_scene import LOST, OFFSETS, READERS, Scene, State

LAST_WITHOUT_IDENTITY = 2
LAST_WITHOUT_MEMBER = 2


def test_identity_that_was_disowned_is_never_replaced_by_a_fresh_one() -> None:
    """A successor may have the transactional id: a fresh identity would fence it."""
    scene = Scene(version=0).begun(0)
    scene.manager.commit()
    scene.manager.flushed()
    scene.do("EndTxn", 47)
    scene.manager.abort()
    scene.manager.flushed()

    scene.manager.refused(scene.ask(), UnsupportedVersionError("DescribeTransactions"))
    request = scene.ask()
    with pytest.raises(UnsupportedVersionError, match=r"older than Kafka 2\.5") as refused:
        request.body(LAST_WITHOUT_IDENTITY)
    scene.manager.refused(request, refused.value)

    assert request.body(LAST_WITHOUT_IDENTITY + 1)
    assert scene.is_in(State.FATAL_ERROR)
    assert isinstance(scene.manager.error, ProducerFencedError)


def test_identity_that_was_confirmed_by_its_end_may_be_replaced_by_a_fresh_one() -> None:
    """A lost request costs no producer there: EndTxn has just said whose the id is."""
    scene = Scene(version=0).begun(0)
    scene.manager.commit()
    scene.manager.flushed()
    scene.manager.unanswered(scene.ask(), LOST, was_sent=True, now=scene.now)
    scene.pass_time(1)
    scene.do("EndTxn")
    look = scene.ask()
    scene.manager.refused(look, UnsupportedVersionError("Kafka 3.0 is needed"))

    request = scene.ask()

    assert look.api.name == "DescribeTransactions"
    assert (request.api.name, request.subject) == ("InitProducerId", ("billing-1", 77, 0))
    assert request.body(LAST_WITHOUT_IDENTITY)


def test_doubt_of_an_identity_ends_with_the_next_one() -> None:
    """Coordinators that can say whose an id is have said it."""
    scene = Scene(version=0).begun(0)
    scene.manager.commit()
    scene.manager.flushed()
    scene.do("EndTxn", 47)
    scene.manager.abort()
    scene.manager.flushed()
    scene.do("DescribeTransactions")
    scene.do("InitProducerId")

    scene.begun(1)
    scene.manager.commit()
    scene.manager.flushed()
    scene.manager.unanswered(scene.ask(), LOST, was_sent=True, now=scene.now)
    scene.pass_time(1)
    scene.do("EndTxn")

    assert scene.ask().body(LAST_WITHOUT_IDENTITY)


@pytest.mark.parametrize(
    "group",
    [
        ConsumerGroupMetadata("readers", generation_id=7),
        ConsumerGroupMetadata("readers", member_id="m"),
        ConsumerGroupMetadata("readers", group_instance_id="i"),
    ],
    ids=["generation", "member", "instance"],
)
def test_offsets_are_not_committed_without_the_member_that_was_given(group: ConsumerGroupMetadata) -> None:
    """Left out, the coordinator could refuse nobody."""
    scene = Scene(version=0).begun(0)
    scene.manager.send_offsets(OffsetsToSend(OFFSETS, group))
    scene.do("AddOffsetsToTxn")

    request = scene.ask()

    with pytest.raises(UnsupportedVersionError, match=r"older than Kafka 2\.5"):
        request.body(LAST_WITHOUT_MEMBER)
    assert request.body(LAST_WITHOUT_MEMBER + 1)


def test_offsets_of_a_group_alone_need_no_member() -> None:
    """There is nothing that could be left out."""
    scene = Scene(version=0).begun(0)
    scene.manager.send_offsets(OffsetsToSend(OFFSETS, READERS))
    scene.do("AddOffsetsToTxn")

    assert scene.ask().body(LAST_WITHOUT_MEMBER)
