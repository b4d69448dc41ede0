"""The node for requests that any broker can answer, and how long a named node is waited for."""

import asyncio
from functools import partial

import pytest

from aioproducer._protocol.messages import INIT_PRODUCER_ID, METADATA
from aioproducer._protocol.transaction_messages import CodeResponse
from aioproducer.cluster import Node
from tests.fakes.network import ClientAndNetwork, Ends, client_on
from tests.fakes.scripted_broker import Heard, ScriptedBroker
from tests.fakes.virtual_cluster import in_virtual_time
from tests.network.test_network_client import cluster_of, gives_ids, producer_id, until


def asked_nodes(network: ClientAndNetwork, *node_ids: int) -> list[int]:
    asked: list[int] = []

    def broker(node_id: int) -> ScriptedBroker:
        def note(_: ScriptedBroker, heard: Heard) -> None:
            if heard.api_key == INIT_PRODUCER_ID.key:
                asked.append(node_id)

        return ScriptedBroker(note)

    for node_id in node_ids:
        network.loop.servers[f"host{node_id}", 1] = partial(broker, node_id)
    network.client.update_nodes(cluster_of(*(Node(node_id, f"host{node_id}", 1) for node_id in node_ids)))
    return asked


async def connect(network: ClientAndNetwork, *node_ids: int) -> None:
    for node_id in node_ids:
        network.client.connect(node_id)
    await until(network, lambda: all(network.client.ready_connection(node_id) for node_id in node_ids))


async def ask_and_give_up(network: ClientAndNetwork, *, after_s: float, node_id: int | None = None) -> None:
    """Ask for a producer id, and wait for the answer for so long."""
    asking = asyncio.create_task(producer_id(network, node_id))
    await asyncio.sleep(after_s)
    asking.cancel()
    await asyncio.wait((asking,))


@in_virtual_time
async def test_silent_node_is_asked_last() -> None:
    network = client_on()
    asked = asked_nodes(network, 1, 2)
    await connect(network, 1, 2)
    network.client.send(1, Ends().request("silent"))
    await asyncio.sleep(2)
    for name in ("busy", "very busy"):
        network.client.send(2, Ends().request(name))
    await ask_and_give_up(network, after_s=0.1)
    await network.client.close()
    assert asked == [2]


@in_virtual_time
async def test_silent_broker_is_not_asked_by_its_bootstrap_address() -> None:
    """A second connection to the same node would be silent too, and cost the broker a handshake."""
    network = client_on()
    network.loop.servers["seed", 9092] = ScriptedBroker
    network.client.update_nodes(cluster_of(Node(1, "seed", 9092)))
    await connect(network, 1)
    await ask_and_give_up(network, after_s=5)
    await network.client.close()
    assert len(network.loop.connects) == 1


@in_virtual_time
async def test_request_to_a_throttled_node_waits_for_its_pause() -> None:
    """It can be reached, and is asked by name because no other has the answer."""
    network = client_on()
    network.loop.servers["a", 1] = lambda: ScriptedBroker(gives_ids)
    network.client.update_nodes(cluster_of(Node(1, "a", 1)))
    await connect(network, 1)
    began = network.loop.time()
    network.client.apply_throttle_and_versions(
        1, CodeResponse(throttle_time_ms=5_000, error_code=0), api=METADATA, now=began
    )
    await producer_id(network, 1)
    await network.client.close()
    assert network.loop.time() - began == pytest.approx(5, abs=0.1)


@in_virtual_time
async def test_node_0_is_asked_when_it_is_meant() -> None:
    """And not any broker: it alone coordinates what is asked for."""
    network = client_on()
    asked = asked_nodes(network, 0, 1)
    await connect(network, 0, 1)
    network.client.send(0, Ends().request("keeps it busy"))
    await ask_and_give_up(network, after_s=0.1, node_id=0)
    await network.client.close()
    assert asked == [0]
