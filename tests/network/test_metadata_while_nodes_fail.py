"""Frequency of metadata requests while one node cannot be reached, on a virtual network."""

import asyncio

from aioproducer._network.metadata_refresher import MetadataSettings
from aioproducer.errors import BrokerConnectionError
from tests.fakes.metadata_refreshing import Answers, refreshing
from tests.fakes.network import ClientAndNetwork
from tests.fakes.scripted_broker import ScriptedBroker
from tests.fakes.virtual_cluster import in_virtual_time


@in_virtual_time
async def test_failed_node_causes_one_metadata_request() -> None:
    """Other nodes may lead its partitions; asking repeatedly would load those that answer."""
    answers = Answers(nodes=((1, "seed", 9092), (2, "gone", 9092)))
    async with refreshing(answers, MetadataSettings(retry_backoff_ms=0)) as (refresher, network):
        await refresher.first_response(5)
        for _ in range(50):  # as a sender does whose records wait
            network.client.connect(2)
            await asyncio.sleep(0.02)
        failed = sum(host == "gone" for _, host, _ in network.loop.connects)
        network.loop.servers["gone", 9092] = ScriptedBroker
        await asyncio.sleep(2)
        asked = len(answers.asked)
        network.client.disconnect(2, BrokerConnectionError("went away"))
        await asyncio.sleep(1)
        asked_after_loss = len(answers.asked)

    assert 3 <= failed <= 15
    assert asked == 1 + failed
    assert asked_after_loss == asked + 1


@in_virtual_time
async def test_metadata_is_asked_for_while_an_attempt_to_connect_hangs() -> None:
    """Attempts take ever longer; others may lead long before one ends."""
    answers = Answers(nodes=((1, "seed", 9092), (2, "gone", 9092)))
    async with refreshing(answers) as (refresher, network):
        network.loop.black_holes.add("gone")
        await refresher.first_response(5)
        for _ in range(20):
            network.client.connect(2)
            await asyncio.sleep(1)
        failed = sum(host == "gone" for _, host, _ in network.loop.connects)
        asked = len(answers.asked)

    assert failed <= 5
    assert 15 <= asked <= 25


async def lose_unused_node(network: ClientAndNetwork) -> None:
    """Connect to node 2, which is up, and have it close its idle connection."""
    network.loop.servers["other", 9092] = ScriptedBroker
    network.client.connect(2)
    await asyncio.sleep(1)
    network.client.disconnect(2, BrokerConnectionError("idle for too long"))


@in_virtual_time
async def test_lost_unwanted_node_causes_no_request() -> None:
    """A broker closes a connection that is not used: in the hour after, metadata grows old twelve times, and is all."""
    answers = Answers(nodes=((1, "seed", 9092), (2, "other", 9092)))
    async with refreshing(answers) as (refresher, network):
        await refresher.first_response(5)
        await lose_unused_node(network)
        await asyncio.sleep(1)
        turns, asked = network.loop.turns, len(answers.asked)
        await asyncio.sleep(3600)
        turns, asked = network.loop.turns - turns, len(answers.asked) - asked

    assert asked == 12
    assert turns < 400


@in_virtual_time
async def test_lost_node_causes_a_request_once_a_connect_fails() -> None:
    answers = Answers(nodes=((1, "seed", 9092), (2, "other", 9092)))
    async with refreshing(answers) as (refresher, network):
        await refresher.first_response(5)
        await lose_unused_node(network)
        await asyncio.sleep(60)
        del network.loop.servers["other", 9092]  # refused at once
        before = len(answers.asked)
        network.client.connect(2)
        await asyncio.sleep(0.5)
        after = len(answers.asked)

    assert after == before + 1
