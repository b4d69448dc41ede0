"""Requests whose answers are waited for."""

from aioproducer.core.cluster import Cluster, Node
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
