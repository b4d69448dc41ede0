"""Requests whose answers are waited for."""

import asyncio

from aioproducer.core.cluster import Cluster, Node
from aioproducer.network.connection import IdleConnectionError
from aioproducer.protocol.messages import INIT_PRODUCER_ID, MetadataAnswer, encode_init_producer_id_request
from tests.fakes.network import client_on
from tests.fakes.scripted_broker import Heard, ScriptedBroker
from tests.fakes.virtual_loop import run


def test_answer_names_the_node_that_the_bootstrap_broker_has_become() -> None:
    """Metadata may come before it; a pause it asks for is that node's."""

    async def story() -> int:
        network = client_on()
        named = MetadataAnswer(-1, (Node(5, "seed", 9092),), ())

        def name_and_answer(broker: ScriptedBroker, heard: Heard) -> None:
            network.client.update_nodes(Cluster.empty().merge(named, 0.0))
            broker.answer(heard, b"")

        network.loop.servers["seed", 9092] = lambda: ScriptedBroker(name_and_answer)
        node_id = await network.client.request(
            INIT_PRODUCER_ID, encode_init_producer_id_request, lambda answer: answer.node_id
        )
        await network.client.close()
        return node_id

    assert run(story()) == 5


def test_only_node_is_connected_to_again_when_its_connection_closes_as_it_is_asked() -> None:
    """For want of use; nobody else would wake who asks."""

    async def story() -> int:
        network = client_on()
        network.loop.servers["a", 1] = lambda: ScriptedBroker(lambda broker, heard: broker.answer(heard, b""))
        network.client.update_nodes(Cluster.empty().merge(MetadataAnswer(-1, (Node(1, "a", 1),), ()), 0.0))
        network.client.connect(1)
        await asyncio.sleep(1)
        network.client.disconnect(1, IdleConnectionError("unused"))  # and nothing has heard of it yet
        async with asyncio.timeout(100):
            node_id = await network.client.request(
                INIT_PRODUCER_ID, encode_init_producer_id_request, lambda answer: answer.node_id, node_id=1
            )
        await network.client.close()
        return node_id

    assert run(story()) == 1
