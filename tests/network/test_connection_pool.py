"""The set of all pool, on a virtual loop."""

import asyncio

import pytest

from aioproducer._network.cluster_updates import merge
from aioproducer._network.connection_pool import ConnectionPool
from aioproducer._network.context import NetworkSettings
from aioproducer._protocol.messages import MetadataResponse
from aioproducer.cluster import Cluster, Node
from tests.fakes.network import ClientAndNetwork, Ends, client_on, network_context
from tests.fakes.scripted_broker import ScriptedBroker
from tests.fakes.virtual_loop import run

SEED = Node(-1, "seed", 9092)


def name_nodes(network: ClientAndNetwork, *nodes: Node) -> None:
    network.client.update_nodes(merge(Cluster(), MetadataResponse(-1, nodes, ()), 0.0))


class HangsUp(ScriptedBroker):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.close()


@pytest.mark.parametrize("is_change_first", [True, False])
def test_wait_for_a_change_ends_when_a_timeout_coincides(*, is_change_first: bool) -> None:
    """As when the loop was blocked for longer than the wait: the second waiter finds nothing to do."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        pool = ConnectionPool((SEED,), network_context())
        when = loop.time() + 0.5
        if is_change_first:
            loop.call_at(when, pool.use_bootstrap_only)
        waiting = asyncio.ensure_future(pool.wait_for_change(0.5))
        await asyncio.sleep(0)
        if not is_change_first:
            loop.call_at(when, pool.use_bootstrap_only)

        assert await waiting is None

    run(story())


def test_cancelled_waiter_is_forgotten() -> None:
    """The next change may take long, and many waiters may give up."""

    async def story() -> str:
        pool = ConnectionPool((SEED,), network_context())
        for _ in range(3):
            waiting = asyncio.ensure_future(pool.wait_for_change(0.5))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
        return repr(pool)

    assert run(story()) == "<ConnectionPool 1 waiting=0>"


def test_bootstrap_address_is_free_again_after_its_node_left() -> None:
    async def story() -> tuple[list[Node], list[Node]]:
        network = client_on()
        pool = network.client._pool  # noqa: SLF001  # no broker needs to answer for this
        network.loop.servers["seed", 9092] = ScriptedBroker
        [seed] = pool.candidates()
        seed.connect()
        await asyncio.sleep(1)
        name_nodes(network, Node(5, "seed", 9092))
        adopted = [node_connection.node for node_connection in pool.candidates() if node_connection is seed]
        name_nodes(network, Node(6, "elsewhere", 1))
        bootstrap = [node_connection.node for node_connection in pool.bootstrap()]
        await network.client.close()
        return adopted, bootstrap

    assert run(story()) == ([Node(5, "seed", 9092)], [SEED])


@pytest.mark.parametrize("place", [("elsewhere", 9092), ("host", 9093)], ids=["host", "port"])
def test_node_that_has_moved_is_looked_for_where_it_is_now(place: tuple[str, int]) -> None:
    """To another address, or to another port: a restarted container is there."""

    async def story() -> list[tuple[str, int]]:
        network = client_on()
        network.loop.servers["host", 9092] = network.loop.servers[place] = ScriptedBroker
        for node in (Node(1, "host", 9092), Node(1, *place)):
            name_nodes(network, node)
            network.client.connect(1)
            await asyncio.sleep(1)
            assert network.client.ready_connection(1)
        await network.client.close()
        return [(host, port) for _, host, port in network.loop.connects]

    assert run(story()) == [("host", 9092), place]


def test_close_waits_for_the_connection_to_a_node_that_left() -> None:
    """It still has a request in flight, and would stay open behind the producer."""

    async def story() -> tuple[list[str], bool]:
        network = client_on(settings=NetworkSettings(request_timeout_ms=30_000))
        brokers: list[ScriptedBroker] = []
        network.loop.servers["a", 1] = lambda: brokers.append(ScriptedBroker()) or brokers[-1]
        name_nodes(network, Node(1, "a", 1))
        network.client.connect(1)
        await asyncio.sleep(1)
        ends = Ends()
        network.client.send(1, ends.request("last"))
        name_nodes(network, Node(2, "b", 2))

        await network.client.close()
        names = ends.names()
        await asyncio.sleep(1)
        return names, brokers[0].is_connected

    assert run(story()) == (["last"], False)


def test_next_attempt_begins_with_the_next_address() -> None:
    """One that takes connections and hangs up ends the whole attempt, each time."""

    async def story() -> list[str]:
        network = client_on()
        network.loop.names["a"] = ["10.0.0.1", "10.0.0.2"]
        network.loop.servers["10.0.0.1", 1] = HangsUp
        network.loop.servers["10.0.0.2", 1] = ScriptedBroker
        name_nodes(network, Node(1, "a", 1))
        for _ in range(2):
            network.client.connect(1)
            await asyncio.sleep(1)
        is_ready = network.client.ready_connection(1) > 0
        await network.client.close()
        assert is_ready, network.client.last_error(1)
        return [host for _, host, _ in network.loop.connects]

    assert run(story()) == ["10.0.0.1", "10.0.0.2"]


def test_bootstrap_is_not_asked_while_a_node_is_reachable() -> None:
    """Only when all have failed (KIP-899): the bootstrap addresses were left for good reasons."""

    async def story() -> list[int]:
        network = client_on()
        network.loop.servers["a", 1], network.loop.servers["b", 1] = HangsUp, ScriptedBroker
        name_nodes(network, Node(1, "a", 1), Node(2, "b", 1))
        network.client.connect(1)
        network.client.connect(2)
        await asyncio.sleep(0.5)
        assert network.client.last_error(1) is not None
        candidates = [node_connection.node.id for node_connection in network.client._pool.candidates()]  # noqa: SLF001  # in random order
        await network.client.close()
        return candidates

    assert run(story()) == [1, 2]


def test_errors_name_the_node_of_a_bootstrap_connection() -> None:
    async def story() -> list[str]:
        network = client_on()
        network.loop.servers["seed", 9092] = ScriptedBroker
        [seed] = network.client._pool.candidates()  # noqa: SLF001  # no broker needs to answer for this
        seed.connect()
        await asyncio.sleep(1)
        name_nodes(network, Node(5, "seed", 9092))
        ends = Ends()
        network.client.send(5, ends.request("lost"))
        await network.client.close()
        return [str(error) for error in ends.errors()]

    assert run(story()) == ["broker 5 at seed:9092: the producer was closed"]


def test_node_0_is_looked_for_where_it_is_now() -> None:
    """As when its machine was exchanged."""

    async def story() -> list[str]:
        network = client_on()
        network.loop.servers["a", 1] = network.loop.servers["b", 1] = ScriptedBroker
        for host in ("a", "b"):
            name_nodes(network, Node(0, host, 1))
            network.client.connect(0)
            await asyncio.sleep(1)
        await network.client.close()
        return [host for _, host, _ in network.loop.connects]

    assert run(story()) == ["a", "b"]


def test_failure_of_node_0_is_reported() -> None:
    """Others may lead its partitions by now."""

    async def story() -> int:
        network = client_on()
        network.loop.servers["a", 1] = HangsUp
        name_nodes(network, Node(0, "a", 1))
        network.client.connect(0)
        await asyncio.sleep(0.5)
        await network.client.close()
        return network.driver.events.failed_nodes

    assert run(story()) == 1
