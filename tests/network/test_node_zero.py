"""Ids of nodes begin at 0: node 0 is one that metadata names, and no bootstrap address; those have negative ids."""

import asyncio

from aioproducer.cluster import Node
from tests.fakes.network import Ends, client_on
from tests.fakes.scripted_broker import ScriptedBroker
from tests.fakes.virtual_loop import run
from tests.network.test_connection_pool import HangsUp
from tests.network.test_network_client import cluster_of, gives_ids, producer_id
from tests.network.test_node_selection import ask_and_give_up, asked_nodes, connect


def test_node_0_is_asked_when_it_is_meant() -> None:
    async def story() -> list[int]:
        network = client_on()
        asked = asked_nodes(network, 0, 1)
        await connect(network, 0, 1)
        network.client.send(0, Ends().request("keeps it busy"))
        await ask_and_give_up(network, after_s=0.1, node_id=0)
        await network.client.close()
        return asked

    assert run(story()) == [0]


def test_node_0_is_asked_before_the_bootstrap_addresses() -> None:
    async def story() -> tuple[list[str], dict[int, int]]:
        network = client_on()
        network.loop.servers["a", 1] = network.loop.servers["seed", 9092] = lambda: ScriptedBroker(gives_ids)
        network.client.update_nodes(cluster_of(Node(0, "a", 1)))
        await producer_id(network)
        in_flight = network.client.requests_in_flight()
        await network.client.close()
        return [host for _, host, _ in network.loop.connects], in_flight

    assert run(story()) == (["a"], {0: 0})


def test_failure_of_node_0_is_notified() -> None:
    async def story() -> int:
        network = client_on()
        told: list[None] = []
        network.client.on_node_failed = lambda: told.append(None)
        network.loop.servers["a", 1] = HangsUp
        network.client.update_nodes(cluster_of(Node(0, "a", 1)))
        network.client.connect(0)
        await asyncio.sleep(0.5)
        await network.client.close()
        return len(told)

    assert run(story()) == 1


def test_node_0_is_looked_for_where_it_is_now() -> None:
    async def story() -> list[str]:
        network = client_on()
        network.loop.servers["a", 1] = network.loop.servers["b", 1] = ScriptedBroker
        for host in ("a", "b"):
            network.client.update_nodes(cluster_of(Node(0, host, 1)))
            network.client.connect(0)
            await asyncio.sleep(1)
        await network.client.close()
        return [host for _, host, _ in network.loop.connects]

    assert run(story()) == ["a", "b"]
