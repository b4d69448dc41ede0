"""A connection, a client or a refresher of metadata on a virtual loop, with everything injected."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from aioproducer._network.connection import BrokerConnection
from aioproducer._network.context import NetworkContext, NetworkSettings
from aioproducer._network.metadata_refresher import MetadataRefresher, MetadataSettings
from aioproducer._network.network_client import NetworkClient
from aioproducer._network.requests import Answered, Lost, OutgoingRequest, RequestEnd, Written
from aioproducer._timing.timers import TimerHeap
from aioproducer.errors import KafkaError
from tests.fakes.core_parts import EventNotes
from tests.fakes.logs import EventList
from tests.fakes.scripted_broker import Heard, ScriptedBroker, metadata_body
from tests.fakes.virtual_loop import MemoryTransport, VirtualLoop, connect_in_memory, virtual_loop


class TimerDriver:
    """One `call_at` at a time, for the earliest timer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.events = EventNotes()
        self.events.on_timer = lambda _when: self._set_alarm()
        self.heap = TimerHeap(self.events.set_alarm)
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None

    @property
    def wakes(self) -> int:
        return self.events.wakes

    def _set_alarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        when = self.heap.next_at()
        if when is not None:
            self._handle = self._loop.call_at(when, self._fire)

    def _fire(self) -> None:
        self._handle = None
        self.heap.fire(self._loop.time())
        self._set_alarm()


class Ends:
    """Ends of requests, in order: (name, how), where how is the response's bytes, "written", or the error."""

    def __init__(self) -> None:
        self.all: list[tuple[str, object]] = []

    def request(self, name: str, *, acks: int = -1, body: bytes = b"body") -> OutgoingRequest:
        return OutgoingRequest(
            api_key=0,
            name="Produce",
            version=13,
            flexible=True,
            buffers=[body],
            expects_response=acks != 0,
            on_end=lambda end: self.all.append((name, _how(end))),
        )

    def names(self) -> list[str]:
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

    def is_ready(self, node_id: int) -> bool:
        """Whether a node takes a request now."""
        return self.client.nodes[node_id].ready_connection is not None

    def connection_number(self, node_id: int) -> int:
        """Return the number of the connection to a node; 0 if it takes no request now."""
        connection = self.client.nodes[node_id].ready_connection
        return 0 if connection is None else connection.number

    def send(self, node_id: int, request: OutgoingRequest) -> None:
        """Hand a request to the transport of a node that is ready."""
        connection = self.client.nodes[node_id].ready_connection
        assert connection is not None
        connection.send(request)


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
