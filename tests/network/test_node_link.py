"""The way to one node, on a virtual loop."""

import asyncio

import pytest

from aioproducer.core.cluster import Node
from aioproducer.errors import BrokerConnectionError
from aioproducer.network.environment import NetworkSettings
from aioproducer.network.node_link import NodeLink
from tests.fakes.network import environment
from tests.fakes.scripted_broker import ScriptedBroker
from tests.fakes.virtual_loop import run, virtual_loop


@pytest.mark.parametrize("is_open", [False, True], ids=["no answer to the call", "open and silent"])
def test_what_an_attempt_has_waited_for_is_said(*, is_open: bool) -> None:
    """A firewall and a stranger on the port are looked for in different places."""

    async def story() -> str:
        if is_open:
            virtual_loop().servers["seed", 9092] = lambda: ScriptedBroker(greets=False)
        else:
            virtual_loop().black_holes.add("seed")
        settings = NetworkSettings(connection_setup_timeout_ms=2000)
        link = NodeLink(Node(-1, "seed", 9092), environment(settings), lambda _: None)
        link.connect()
        await asyncio.sleep(3)
        await link.close(BrokerConnectionError("done"))
        return str(link.last_error)

    missing = "the port is open, but no Kafka broker has answered there" if is_open else "seed: no connection"

    assert missing in run(story())


@pytest.mark.parametrize("turns", range(4))
def test_attempt_that_was_called_off_is_no_reason_not_to_try_again(turns: int) -> None:
    """Metadata may arrive in the very turn in which the attempt begins: its task is cancelled before its first step."""

    async def story() -> tuple[bool, bool, str]:
        virtual_loop().servers["seed", 9092] = ScriptedBroker
        link = NodeLink(Node(-1, "seed", 9092), environment(), lambda _: None)
        link.connect()
        for _ in range(turns):
            await asyncio.sleep(0)
        link.retire()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        is_connecting, text = link.is_connecting, repr(link)
        link.connect()
        await asyncio.sleep(1)
        is_open = link.is_open
        await link.close(BrokerConnectionError("done"))
        return is_connecting, is_open, text

    assert run(story()) == (False, True, "<NodeLink bootstrap broker seed:9092 not connected failures=0>")


@pytest.mark.parametrize("is_lost, failures", [(False, 1), (True, 0)], ids=["never made", "made and lost"])
def test_connection_that_was_not_made_counts_as_failed_once(*, is_lost: bool, failures: int) -> None:
    """One that was made and lost later is counted as closed, and not here too."""

    async def story() -> int:
        surroundings, broker = environment(), ScriptedBroker()
        if is_lost:
            virtual_loop().servers["seed", 9092] = lambda: broker
        link = NodeLink(Node(-1, "seed", 9092), surroundings, lambda _: None)
        link.connect()
        await asyncio.sleep(1)
        if is_lost:
            broker.transport.close()
            await asyncio.sleep(1)
        assert link.failures == 1
        await link.close(BrokerConnectionError("done"))
        return surroundings.counters.connection_failures

    assert run(story()) == failures
