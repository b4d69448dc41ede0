"""Requests whose answers are waited for."""

import asyncio
import struct

from aioproducer._network.cluster_updates import merge
from aioproducer._network.connection import IdleConnectionError
from aioproducer._network.response_future import RawResponse
from aioproducer._protocol.messages import (
    INIT_PRODUCER_ID,
    MetadataResponse,
    decode_init_producer_id_response,
    encode_init_producer_id_request,
)
from aioproducer.cluster import Cluster, Node
from tests.fakes.network import client_on
from tests.fakes.scripted_broker import Heard, ScriptedBroker
from tests.fakes.virtual_cluster import in_virtual_time


def who_answered(answer: RawResponse) -> MetadataResponse:
    return MetadataResponse(answer.node_id, (), ())


@in_virtual_time
async def test_refused_version_ends_a_connection_without_waiters() -> None:
    """A request on that connection would be refused as well."""
    network = client_on()

    def give_up_and_refuse(broker: ScriptedBroker, heard: Heard) -> None:
        asking.cancel()
        broker.answer(heard, struct.pack(">ihqhB", 0, 35, -1, -1, 0))

    network.loop.servers["seed", 9092] = lambda: ScriptedBroker(give_up_and_refuse)
    asking = asyncio.create_task(
        network.client.request(
            INIT_PRODUCER_ID,
            encode_init_producer_id_request,
            lambda answer: decode_init_producer_id_response(answer.version, answer.payload),
        )
    )
    await asyncio.sleep(1)
    closed = network.client.counters.connections_closed
    await network.client.close()
    assert closed == 1


@in_virtual_time
async def test_answer_names_the_node_behind_a_bootstrap_connection() -> None:
    network = client_on()
    named = MetadataResponse(-1, (Node(5, "seed", 9092),), ())

    def name_and_answer(broker: ScriptedBroker, heard: Heard) -> None:
        network.client.update_nodes(merge(Cluster(), named, 0.0))
        broker.answer(heard, b"")

    network.loop.servers["seed", 9092] = lambda: ScriptedBroker(name_and_answer)
    answer = await network.client.request(INIT_PRODUCER_ID, encode_init_producer_id_request, who_answered)
    await network.client.close()
    assert answer.from_node == 5


@in_virtual_time
async def test_only_node_is_connected_again_after_an_idle_close() -> None:
    """An idle connection was closed; nothing else would wake the waiter."""
    network = client_on()
    network.loop.servers["a", 1] = lambda: ScriptedBroker(lambda broker, heard: broker.answer(heard, b""))
    network.client.update_nodes(merge(Cluster(), MetadataResponse(-1, (Node(1, "a", 1),), ()), 0.0))
    network.client.connect(1)
    await asyncio.sleep(1)
    network.client.disconnect(1, IdleConnectionError("unused"))  # not noticed yet
    async with asyncio.timeout(100):
        answer = await network.client.request(
            INIT_PRODUCER_ID, encode_init_producer_id_request, who_answered, node_id=1
        )
    await network.client.close()
    assert answer.from_node == 1
