"""A connection or a whole client, on a virtual loop, with everything injected."""

import asyncio
import random
from collections.abc import Sequence
from typing import NamedTuple

from aioproducer._network.connection import BrokerConnection
from aioproducer._network.context import NetworkContext, NetworkSettings
from aioproducer._network.network_client import NetworkClient
from aioproducer._network.requests import Answered, Lost, OutgoingRequest, RequestEnd, Written
from aioproducer.errors import KafkaError
from tests.fakes.event_log import EventList
from tests.fakes.memory_transport import MemoryTransport, connect_in_memory
from tests.fakes.scripted_broker import ScriptedBroker
from tests.fakes.timer_driver import TimerDriver
from tests.fakes.virtual_loop import VirtualLoop, virtual_loop


class Ends:
    """Ends of requests, in order: (name, how), where how is the response's bytes, "written", or the error."""

    def __init__(self) -> None:
        self.all: list[tuple[str, object]] = []

    def request(self, name: str, *, acks: int = -1, body: bytes = b"body") -> OutgoingRequest:
        """A Produce request that notes here how it ends."""
        return OutgoingRequest(
            api_key=0,
            version=13,
            flexible=True,
            buffers=[body],
            expects_response=acks != 0,
            on_end=lambda end: self.all.append((name, _how(end))),
        )

    def names(self) -> list[str]:
        """Names of the requests that have ended, in that order."""
        return [name for name, _ in self.all]

    def errors(self) -> list[KafkaError]:
        return [how for _, how in self.all if isinstance(how, KafkaError)]


def _how(end: RequestEnd) -> object:
    match end:
        case Answered(payload):
            return bytes(payload)
        case Lost(error):
            return error
        case Written():
            return "written"


def nothing(_connection: BrokerConnection, _error: KafkaError) -> None:
    """Follow no connection's end."""


class Pair(NamedTuple):
    connection: BrokerConnection
    broker: ScriptedBroker
    transport: MemoryTransport
    context: NetworkContext


def network_context(settings: NetworkSettings | None = None) -> NetworkContext:
    loop = asyncio.get_running_loop()
    driver = TimerDriver(loop)
    return NetworkContext(
        loop=loop,
        timers=driver.heap,
        random=random.Random(1),
        events=driver.events,
        log=EventList(),
        client_id="tests",
        settings=settings or NetworkSettings(),
    )


async def connected(broker: ScriptedBroker | None = None, settings: NetworkSettings | None = None) -> Pair:
    context = network_context(settings)
    broker = broker or ScriptedBroker()
    connection = BrokerConnection(context, "broker 1 at host:9092", nothing)
    transport, _ = connect_in_memory(context.loop, connection, broker)
    await connection.ready
    return Pair(connection, broker, transport, context)


class ClientAndNetwork(NamedTuple):
    client: NetworkClient
    loop: VirtualLoop
    driver: TimerDriver
    log: EventList


def client_on(
    *, bootstrap: Sequence[tuple[str, int]] = (("seed", 9092),), settings: NetworkSettings | None = None
) -> ClientAndNetwork:
    loop = virtual_loop()
    driver = TimerDriver(loop)
    log = EventList()
    client = NetworkClient(
        bootstrap=bootstrap,
        settings=settings or NetworkSettings(),
        timers=driver.heap,
        random=random.Random(1),
        events=driver.events,
        log=log,
        client_id="tests",
    )
    client.start(loop)
    return ClientAndNetwork(client, loop, driver, log)
