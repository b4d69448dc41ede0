"""A refresher of metadata that runs against a scripted broker on a virtual network."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from aioproducer._network.context import NetworkSettings
from aioproducer._network.metadata_refresher import MetadataRefresher, MetadataSettings
from tests.fakes.network import ClientAndNetwork, client_on
from tests.fakes.scripted_broker import Heard, ScriptedBroker, metadata_body

ID = b"i" * 16
Topics = Sequence[tuple[int, str, bytes, Sequence[tuple[int, int]]]]


class Answers:
    """A broker's responses to Metadata, one after another, the last one repeated; and the requests with their times."""

    def __init__(self, *topics: Topics, nodes: Sequence[tuple[int, str, int]] = ((1, "seed", 9092),)) -> None:
        self.asked: list[tuple[float, bytes]] = []
        self.nodes = nodes
        self.error_code = 0
        self.cluster_id = "cluster"
        self._topics = list(topics) or [()]

    def __call__(self, broker: ScriptedBroker, heard: Heard) -> None:
        topics = self._topics.pop(0) if len(self._topics) > 1 else self._topics[0]
        self.asked.append((asyncio.get_running_loop().time(), heard.body))
        broker.answer(heard, metadata_body(self.nodes, topics, self.error_code, cluster_id=self.cluster_id))


@asynccontextmanager
async def refreshing(
    answers: Callable[[ScriptedBroker, Heard], None] | None, settings: MetadataSettings | None = None
) -> AsyncIterator[tuple[MetadataRefresher, ClientAndNetwork]]:
    """A running refresher on a network with one broker, or without."""
    network = client_on(settings=NetworkSettings(connection_setup_timeout_ms=1000))
    if answers is not None:
        network.loop.servers["seed", 9092] = lambda: ScriptedBroker(answers)
    refresher = MetadataRefresher(
        network.client, settings or MetadataSettings(), random=random.Random(1), log=network.log
    )
    network.driver.events.follow(refresher)
    task = asyncio.create_task(refresher.run())
    try:
        yield refresher, network
    finally:
        task.cancel()
        await asyncio.wait((task,))
        await network.client.close()
    assert task.cancelled()
