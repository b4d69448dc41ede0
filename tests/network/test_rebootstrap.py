"""When a client bootstraps again from its configured addresses, and when it does not."""

import asyncio

from aioproducer._network.metadata_refresher import MetadataSettings
from aioproducer.cluster import Node, PartitionView
from aioproducer.records import TopicPartition
from tests.fakes.network import ID, Answers, client_on, refreshing
from tests.fakes.scripted_broker import ScriptedBroker
from tests.fakes.virtual_loop import in_virtual_time
from tests.network.test_network_client import cluster_of, producer_id, until


@in_virtual_time
async def test_rebootstrap_when_a_broker_asks_for_it() -> None:
    """Error 129 (KIP-1102): back to the bootstrap addresses."""
    answers = Answers(nodes=[(1, "old", 1)])
    async with refreshing(answers) as (refresher, network):
        network.loop.servers["old", 1] = lambda: ScriptedBroker(answers)
        await refresher.first_response(5)
        answers.error_code = 129
        network.loop.connects.clear()
        refresher.request_update("test")
        await asyncio.sleep(2)
        assert ("seed", 9092) in [(host, port) for _, host, port in network.loop.connects]


@in_virtual_time
async def test_rebootstrap_when_all_brokers_were_replaced() -> None:
    """The old brokers are gone, the name leads to new ones (KIP-899)."""
    old, new = Answers(nodes=[(1, "old", 1)]), Answers(nodes=[(7, "new", 7)])
    async with refreshing(old) as (refresher, network):
        await refresher.first_response(5)
        network.loop.servers["seed", 9092] = lambda: ScriptedBroker(new)
        refresher.request_update("test")
        await asyncio.sleep(5)
        assert list(refresher.cluster.nodes) == [7]


@in_virtual_time
async def test_rebootstrap_after_too_long_without_metadata() -> None:
    """Nodes that take connections but answer nothing useful do not hold the client forever (KIP-1102)."""
    stuck, new = Answers(nodes=[(1, "stuck", 1)]), Answers(nodes=[(7, "new", 7)])
    settings = MetadataSettings(metadata_recovery_rebootstrap_trigger_ms=20_000)
    async with refreshing(stuck, settings) as (refresher, network):
        network.loop.servers["stuck", 1] = lambda: ScriptedBroker(stuck)
        await refresher.first_response(5)
        stuck.error_code = -1
        network.loop.servers["seed", 9092] = lambda: ScriptedBroker(new)
        refresher.request_update("test")
        await asyncio.sleep(30)
        assert "rebootstrapping" in network.log.names()
        assert list(refresher.cluster.nodes) == [7]


@in_virtual_time
async def test_one_failure_after_a_quiet_time_does_not_rebootstrap() -> None:
    """The trigger counts from the first unanswered Metadata request, not from the last response (librdkafka 5178)."""
    answers = Answers(nodes=[(1, "old", 1)])
    async with refreshing(answers) as (refresher, network):
        network.loop.servers["old", 1] = lambda: ScriptedBroker(answers)
        await refresher.first_response(5)
        del network.loop.servers["seed", 9092]  # nothing listens there any more
        await asyncio.sleep(299)
        answers.error_code = -1
        await asyncio.sleep(1.05)
        assert refresher.last_error is not None
        answers.error_code = 0
        await asyncio.sleep(60)
        assert refresher.last_error is None
        assert "rebootstrapping" not in network.log.names()


@in_virtual_time
async def test_nodes_are_asked_again_after_bootstrap_named_them() -> None:
    """Those are asked alone only until then: an address that goes away later is no reason to hear no more."""
    answers, brokers = Answers(nodes=[(1, "old", 1)]), list[ScriptedBroker]()

    def listen() -> ScriptedBroker:
        brokers.append(ScriptedBroker(answers))
        return brokers[-1]

    async with refreshing(answers) as (refresher, network):
        network.loop.servers["old", 1] = network.loop.servers["seed", 9092] = listen
        await refresher.first_response(5)
        answers.error_code = 129
        refresher.request_update("test")
        await asyncio.sleep(1)
        answers.error_code = 0
        await asyncio.sleep(5)
        before = refresher.refreshes
        del network.loop.servers["seed", 9092]
        for broker in brokers:
            broker.transport.close()
        await asyncio.sleep(1)
        refresher.request_update("test")
        await asyncio.sleep(5)
        after = refresher.refreshes

    assert after > before > 1


@in_virtual_time
async def test_rebootstrap_goes_on_when_a_produce_names_a_leader() -> None:
    answers = Answers([(0, "t", ID, [(1, 0)])], nodes=((1, "a", 1), (2, "b", 1)))
    async with refreshing(answers) as (refresher, network):
        refresher.add_topic("t", network.loop.time())
        await refresher.first_response(5)
        await asyncio.sleep(1)
        network.client.rebootstrap()
        refresher.apply_leader_hints({TopicPartition("t", 0): PartitionView(2, 5)}, topic_ids={"t": ID}, endpoints={})
        asked = [node_connection.node.id for node_connection in network.client._pool.candidates()]  # noqa: SLF001  # no other way to see it
        refresher.request_update("test")
        await asyncio.sleep(2)
        result = asked, [node_connection.node.id for node_connection in network.client._pool.candidates()]  # noqa: SLF001  # as above

    assert result == ([-1], [1, 2])


@in_virtual_time
async def test_waiter_for_a_broker_asks_bootstrap_when_allowed() -> None:
    network = client_on()
    network.loop.servers["seed", 9092] = ScriptedBroker
    network.loop.servers["slow", 1] = lambda: ScriptedBroker(greets=False)
    network.client.update_nodes(cluster_of(Node(1, "slow", 1)))
    asking = asyncio.create_task(producer_id(network))
    await asyncio.sleep(0.01)
    began = network.loop.time()
    network.client.rebootstrap()
    await until(network, lambda: len(network.loop.connects) > 1)
    took_s = network.loop.time() - began
    asking.cancel()
    await asyncio.wait((asking,))
    await network.client.close()
    assert took_s < 0.1
