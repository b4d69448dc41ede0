"""What the errors of the sender say: the node, the answer, and what was heard last."""

from aioproducer.errors import (
    BrokerConnectionError,
    DeliveryTimeoutError,
    Outcome,
    ProtocolError,
    UnsupportedVersionError,
)
from tests.fakes.scripted_sender import ScriptedSender


def test_error_of_a_deadline_says_what_the_broker_said_last() -> None:
    """It is what the user needs to know."""
    script = ScriptedSender(delivery_timeout_s=1)
    delivery = script.core.send(b"v")
    script.turn()
    script.answer(1, {0: 19})
    script.client.connections[1] = 0
    script.turn(seconds=1)

    error = delivery.exception()
    assert isinstance(error, DeliveryTimeoutError)
    assert error.outcome is Outcome.NOT_WRITTEN
    assert "min.insync.replicas" in str(error)
    assert error.last_broker_error is not None


def test_deadline_on_the_wire_names_the_node_that_was_asked() -> None:
    """Another one leads by now; it was never sent to."""
    script = ScriptedSender(delivery_timeout_s=10)
    delivery = script.core.send(b"v")
    script.turn()
    script.core.lead([2], epoch=1)
    script.turn(seconds=10)

    assert "node 1 has not answered" in str(delivery.exception())


def test_error_of_an_answer_without_the_partition_says_so_and_not_what_was_before() -> None:
    """The connection of an earlier attempt was lost; that of this one was not."""
    script = ScriptedSender(delivery_timeout_s=100, retries=1)
    delivery = script.core.send(b"v")
    script.turn()
    script.lose(1)
    script.turn(seconds=1)
    script.answer(1, {})

    error = delivery.exception()
    assert isinstance(error, BrokerConnectionError)
    assert "does not say what became of the batch" in str(error)
    assert isinstance(error.last_broker_error, ProtocolError)


def test_node_that_speaks_no_common_version_any_more_says_nothing_of_what_it_got_before() -> None:
    """It was replaced by an older one: whether the first attempt was written nobody knows."""
    script = ScriptedSender()
    delivery = script.core.send(b"v")
    script.turn()
    script.lose(1)
    script.client.version_error = UnsupportedVersionError("too old")
    script.turn(seconds=5)

    error = delivery.exception()
    assert isinstance(error, UnsupportedVersionError)
    assert error.outcome is Outcome.UNKNOWN
