"""How an idempotent producer gets its id, on a virtual network."""

import asyncio
import random
import struct
from collections import deque
from collections.abc import Callable

import pytest

from aioproducer._accumulator.producer_identity import ProducerIdentity
from aioproducer._network.network_client import NetworkClient
from aioproducer._sender.producer_id import ProducerIdFetcher
from aioproducer._timing.retry_backoff import ExponentialBackoff
from tests.fakes.logs import EventList
from tests.fakes.network import client_on
from tests.fakes.scripted_broker import SPOKEN, Heard, ScriptedBroker
from tests.fakes.virtual_loop import in_virtual_time

FIRST_BOOTSTRAP_NODE = -1
NOT_THERE_YET = 14


def source_of(
    client: NetworkClient, identity: ProducerIdentity, *, on_assigned: Callable[[], None] = lambda: None
) -> ProducerIdFetcher:
    """One that pauses for 0.1 s after the first failure, and for 10 s at most."""
    backoff = ExponentialBackoff(100, 10_000, 0.0, random=random.Random(1))
    return ProducerIdFetcher(
        client,
        identity,
        backoff,
        on_assigned=on_assigned,
        on_refused=lambda error: pytest.fail(str(error)),
        log=EventList(),
    )


@in_virtual_time
async def test_pause_begins_with_the_id() -> None:
    """A broker throttles a client, not a kind of request (KIP-219), and says so in any answer."""
    body = struct.pack(">ihqh", 500, 0, 7, 0)  # throttle time, error code, producer id, epoch

    def answer(broker: ScriptedBroker, heard: Heard) -> None:
        broker.answer(heard, body, header=b"")

    network = client_on()
    network.loop.servers["seed", 9092] = lambda: ScriptedBroker(answer, spoken=(*SPOKEN[:-1], (22, 0, 1)))
    identity = ProducerIdentity(is_enabled=True)
    is_paused: list[bool] = []
    source = source_of(
        network.client,
        identity,
        on_assigned=lambda: is_paused.append(not network.is_ready(FIRST_BOOTSTRAP_NODE)),
    )
    source.ask()
    task = asyncio.create_task(source.run())
    await asyncio.sleep(0.4)
    task.cancel()
    await asyncio.wait((task,))
    await asyncio.sleep(0.2)
    is_ready = network.is_ready(FIRST_BOOTSTRAP_NODE)
    await network.client.close()
    assert (identity.producer_id, *is_paused, is_ready) == (7, True, True)


@in_virtual_time
async def test_each_id_is_asked_for_with_pauses_of_its_own() -> None:
    """What the one before took so long to get says nothing of the next."""
    codes = deque([NOT_THERE_YET] * 6 + [0, NOT_THERE_YET, 0])
    asked: list[float] = []

    def answer(broker: ScriptedBroker, heard: Heard) -> None:
        asked.append(asyncio.get_running_loop().time())
        code = codes.popleft()
        broker.answer(heard, struct.pack(">ihqh", 0, code, -1 if code else 7, -1 if code else 0), header=b"")

    network = client_on()
    network.loop.servers["seed", 9092] = lambda: ScriptedBroker(answer, spoken=(*SPOKEN[:-1], (22, 0, 1)))
    identity = ProducerIdentity(is_enabled=True)
    source = source_of(network.client, identity)
    source.ask()
    task = asyncio.create_task(source.run())
    await asyncio.sleep(30)
    identity.discard(7)
    source.ask()
    await asyncio.sleep(30)
    task.cancel()
    await asyncio.wait((task,))
    await network.client.close()
    assert asked[8] - asked[7] == pytest.approx(0.1, abs=0.02)
