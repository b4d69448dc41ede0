"""What wakes the sender: nothing else would, and what could go would wait."""

from aioproducer._network.requests import WRITTEN
from tests.fakes.scripted_sender import ScriptedSender


def test_request_that_has_left_makes_room_for_what_waits_for_its_node() -> None:
    """Without acknowledgements no answer will come that would do so."""
    script = ScriptedSender(leaders=(1, 1), acks=0, idempotent=False)
    script.core.send(b"v", partition=0)
    script.turn()
    script.client.connections[1] = 0
    script.core.send(b"v", partition=1)
    script.turn()
    [request] = script.client.requests[1]
    assert not script.sender._is_woken  # noqa: SLF001  # no task sleeps here that could be seen to wake

    request.on_end(WRITTEN)

    assert script.sender._is_woken  # noqa: SLF001  # as above
