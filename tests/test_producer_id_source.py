"""How an idempotent producer gets its id, on a virtual network."""

import asyncio
import random
import struct

from aioproducer.core.producer_identity import ProducerIdentity
from aioproducer.core.retry_backoff import ExponentialBackoff
from aioproducer.errors import KafkaError
from aioproducer.producer_id_source import ProducerIdSource
from tests.fakes.network import client_on
from tests.fakes.scripted_broker import SPOKEN, Heard, ScriptedBroker
from tests.fakes.virtual_loop import run

FIRST_BOOTSTRAP_NODE = -1


def test_pause_begins_with_the_id() -> None:
    """A broker throttles a client, not a kind of request (KIP-219), and says so in any answer."""
    body = struct.pack(">ihqh", 500, 0, 7, 0)  # throttle time, error code, producer id, epoch

    def answer(broker: ScriptedBroker, heard: Heard) -> None:
        broker.answer(heard, body, header=b"")

    async def story() -> tuple[int | None, bool, bool]:
        network = client_on()
        network.loop.servers["seed", 9092] = lambda: ScriptedBroker(answer, spoken=(*SPOKEN[:-1], (22, 0, 1)))
        identity = ProducerIdentity(is_enabled=True)
        is_paused: list[bool] = []
        refused: list[KafkaError] = []
        source = ProducerIdSource(
            network.client,
            identity,
            ExponentialBackoff(100, 1000, random=random.Random(1)),
            on_assigned=lambda: is_paused.append(not network.client.ready_connection(FIRST_BOOTSTRAP_NODE)),
            on_refused=refused.append,
            log=network.log,
        )
        source.ask()
        task = asyncio.create_task(source.run())
        await asyncio.sleep(0.4)
        task.cancel()
        await asyncio.wait((task,))
        await asyncio.sleep(0.2)
        is_ready = bool(network.client.ready_connection(FIRST_BOOTSTRAP_NODE))
        await network.client.close()
        return identity.producer_id, *is_paused, is_ready

    assert run(story()) == (7, True, True)
