"""A name that leads elsewhere is looked up again: brokers move, and their names with them."""

import asyncio

from aioproducer._network.context import NetworkSettings
from aioproducer.errors import BrokerConnectionError
from tests.fakes.core_parts import cluster_of
from tests.fakes.network import client_on
from tests.fakes.scripted_broker import ScriptedBroker
from tests.fakes.virtual_cluster import in_virtual_time


@in_virtual_time
async def test_name_is_looked_up_again_for_each_connection() -> None:
    """NetworkClientTest.testReconnectAfterAddressChange: the old address is not tried once more."""
    network = client_on()
    network.loop.servers["10.0.0.1", 9092] = network.loop.servers["10.0.0.2", 9092] = ScriptedBroker
    network.client.update_nodes(cluster_of((1,)))
    for address in ("10.0.0.1", "10.0.0.2"):
        network.loop.names["host1"] = [address]
        network.client.connect(1)
        await asyncio.sleep(1)
        assert network.client.ready_connection(1)
        network.client.disconnect(1, BrokerConnectionError("enough"))
        await asyncio.sleep(1)
    await network.client.close()
    assert [host for _, host, _ in network.loop.connects] == ["10.0.0.1", "10.0.0.2"]


@in_virtual_time
async def test_silent_name_server_costs_the_setup_timeout() -> None:
    """T22: a lookup that hangs does not hold the attempt for ever, and the next one asks anew."""
    network = client_on(settings=NetworkSettings(connection_setup_timeout_ms=1_000))
    network.loop.servers["10.0.0.1", 9092] = ScriptedBroker
    network.client.update_nodes(cluster_of((1,)))
    answers, asks = network.loop.getaddrinfo, 0

    async def getaddrinfo(host: str, port: int, **options: object) -> object:
        nonlocal asks
        asks += 1
        if asks == 1:
            await asyncio.Event().wait()
        return await answers(host, port, **options)

    network.loop.getaddrinfo = getaddrinfo  # type: ignore[method-assign, assignment]  # of this loop alone
    network.loop.names["host1"] = ["10.0.0.1"]
    network.client.connect(1)
    await asyncio.sleep(2)
    text = str(network.client.last_error(1))
    network.client.connect(1)
    await asyncio.sleep(1)
    is_ready = bool(network.client.ready_connection(1))
    await network.client.close()

    assert "broker 1 at host1:9092, as the cluster advertises it, cannot be resolved here within " in text
    assert (is_ready, asks) == (True, 2)


@in_virtual_time
async def test_look_ups_of_many_names_begin_one_after_another() -> None:
    """Each starts a thread; a hundred that start in one turn of the loop hold everything else up.

    Names that hang keep no other name waiting.
    """
    network = client_on()
    nodes = range(10)
    network.client.update_nodes(cluster_of(tuple(nodes)))
    answers, turns = network.loop.getaddrinfo, []

    async def getaddrinfo(host: str, port: int, **options: object) -> object:
        turns.append(network.loop.turns)
        if host != "host9":
            await asyncio.Event().wait()
        return await answers(host, port, **options)

    network.loop.getaddrinfo = getaddrinfo  # type: ignore[method-assign, assignment]  # of this loop alone
    for number in nodes:
        network.loop.names[f"host{number}"] = [f"10.0.0.{number}"]
        network.loop.servers[f"10.0.0.{number}", 9092] = ScriptedBroker
        network.client.connect(number)
    await asyncio.sleep(1)
    ready = [number for number in nodes if network.client.ready_connection(number)]
    await network.client.close()

    assert ready == [9]
    assert len(set(turns)) == len(turns) == len(nodes)
