"""When an unused connection closes, and when a throttled node is sent to again."""

import asyncio

import pytest

from aioproducer._network.context import NetworkSettings
from aioproducer._protocol.messages import METADATA
from aioproducer._protocol.transaction_messages import CodeResponse
from aioproducer.cluster import Node
from aioproducer.errors import BrokerConnectionError
from tests.fakes.network import Ends, client_on, connected
from tests.fakes.scripted_broker import Heard, ScriptedBroker
from tests.fakes.virtual_loop import run
from tests.network.test_network_client import cluster_of, until


def echo(broker: ScriptedBroker, heard: Heard) -> None:
    broker.answer(heard, heard.body[-4:])


def test_idle_connection_closes_before_a_request_would_time_out() -> None:
    """Where `connections_max_idle_ms` is the shorter one: one timer serves both."""

    async def story() -> float:
        settings = NetworkSettings(connections_max_idle_ms=5_000, request_timeout_ms=30_000)
        pair = await connected(ScriptedBroker(echo), settings)
        start = pair.context.loop.time()
        pair.connection.send(Ends().request("a"))
        await pair.connection.closed
        return pair.context.loop.time() - start

    assert run(story()) == pytest.approx(5, abs=0.1)


def test_request_longer_than_the_idle_limit_is_waited_for() -> None:
    async def story() -> list[tuple[str, object]]:
        settings = NetworkSettings(connections_max_idle_ms=5_000, request_timeout_ms=30_000)
        pair = await connected(settings=settings)
        ends = Ends()
        pair.connection.send(ends.request("a"))
        await asyncio.sleep(20)
        pair.broker.answer(pair.broker.requests[0], b"late")
        await asyncio.sleep(1)
        return ends.all

    assert run(story()) == [("a", b"late")]


def test_retired_acks_0_connection_closes_after_its_last_request() -> None:
    async def story() -> tuple[bool, list[tuple[str, object]], bool]:
        pair = await connected(settings=NetworkSettings(connections_max_idle_ms=-1))
        ends = Ends()
        pair.transport.is_stuck = True
        pair.connection.send(ends.request("a", acks=0))
        pair.connection.retire(BrokerConnectionError("no longer needed"))
        was_open = pair.connection.is_open
        pair.transport.is_stuck = False
        pair.transport.flush()
        await asyncio.sleep(1)
        return was_open, ends.all, pair.connection.is_open

    assert run(story()) == (True, [("a", "written")], False)


def test_shorter_pause_does_not_end_a_longer_one() -> None:
    """As in Java: each answer says how long it is from there, and the latest end counts."""

    async def story() -> list[bool]:
        network = client_on()
        network.loop.servers["a", 1] = ScriptedBroker
        network.client.update_nodes(cluster_of(Node(1, "a", 1)))
        network.client.connect(1)
        await until(network, lambda: bool(network.client.ready_connection(1)))
        for pause_ms in (10_000, 100):
            answer = CodeResponse(throttle_time_ms=pause_ms, error_code=0)
            network.client.apply_throttle_and_versions(1, answer, api=METADATA, now=network.loop.time())
        ready = []
        for seconds in (1, 8, 2):
            await asyncio.sleep(seconds)
            ready.append(bool(network.client.ready_connection(1)))
        await network.client.close()
        return ready

    assert run(story()) == [False, False, True]


def test_connection_that_is_closed_waits_for_nothing() -> None:
    """Its timer would keep it, and wake the sender, when its last request would have been too late."""

    async def story() -> int:
        pair = await connected()
        pair.connection.send(Ends().request("a"))
        pair.connection.close(BrokerConnectionError("enough"))
        await pair.connection.closed
        return len(pair.context.timers)

    assert run(story()) == 0
