"""Several addresses of a name: the first that connects wins, and the others leave nothing behind."""

import asyncio
import gc
import socket
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import pytest

from aioproducer._network.addresses import interleaved
from aioproducer._network.connection_pool import NodeConnection
from aioproducer._network.context import NetworkSettings
from aioproducer.cluster import Node
from aioproducer.errors import BrokerConnectionError
from tests.fakes.event_loops import LOOPS
from tests.fakes.network import network_context
from tests.fakes.scripted_broker import ScriptedBroker
from tests.fakes.virtual_cluster import in_virtual_time
from tests.fakes.virtual_loop import virtual_loop

EVERY_LOOP = pytest.mark.parametrize("new_loop", LOOPS.values(), ids=LOOPS)

NewLoop = Callable[[], asyncio.AbstractEventLoop]


def names_of(loop: asyncio.AbstractEventLoop, addresses: Sequence[str]) -> None:
    """Let every name have these addresses."""

    async def getaddrinfo(_: str, port: int, **__: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    loop.getaddrinfo = getaddrinfo  # type: ignore[method-assign, assignment]  # as an application would


class OneNode:
    """The way to a node called "seed", and a wait for what becomes of its attempt."""

    def __init__(self, port: int = 9092, settings: NetworkSettings | None = None) -> None:
        self.context = network_context(settings)
        self.way = NodeConnection(Node(-1, "seed", port), self.context, lambda _: self._has_ended.set())
        self._has_ended = asyncio.Event()

    async def attempt(self) -> bool:
        """Connect, and tell whether that worked."""
        self.way.connect()
        async with asyncio.timeout(60):
            await self._has_ended.wait()
        return self.way.is_open

    async def close(self) -> None:
        await self.way.close(BrokerConnectionError("done"))


async def connects(loop: asyncio.AbstractEventLoop, addresses: Sequence[str], host: str, *, dead: str = "") -> bool:
    """Connect by these addresses to a broker that listens on a host, while another one swallows what it gets."""
    names_of(loop, addresses)
    server = await loop.create_server(ScriptedBroker, host, 0)
    port = server.sockets[0].getsockname()[1]
    settings = NetworkSettings(connection_setup_timeout_ms=120_000, connection_setup_timeout_max_ms=120_000)
    node = OneNode(port, settings)
    with black_hole(dead, port) if dead else ExitStack():
        is_open = await node.attempt()
    await node.close()
    server.close()
    return is_open


def black_hole(host: str, port: int) -> ExitStack:
    """Listen, with a backlog that is full: the system drops what further clients send."""
    held = ExitStack()
    listening = held.enter_context(socket.socket())
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((host, port))
    listening.listen(0)
    for _ in range(4):
        client = held.enter_context(socket.socket())
        client.setblocking(False)
        client.connect_ex((host, port))
    return held


@pytest.mark.parametrize(
    "found, tried",
    [
        ([], []),
        (["::1", "::2", "10.0.0.1"], ["::1", "10.0.0.1", "::2"]),
        (["10.0.0.1", "10.0.0.2", "::1", "::2", "::3"], ["10.0.0.1", "::1", "10.0.0.2", "::2", "::3"]),
    ],
)
def test_families_take_turns(found: list[str], tried: list[str]) -> None:
    assert [address[0] for address in interleaved([(each, 1) for each in found])] == tried


@in_virtual_time
async def test_first_record_waits_a_quarter_second_for_a_dead_address() -> None:
    """Others wait their whole request time-out for an address that swallows packets."""
    loop, node = virtual_loop(), OneNode()
    loop.names["seed"] = ["2001:db8::1", "10.0.0.1"]
    loop.black_holes.add("2001:db8::1")
    loop.servers["10.0.0.1", 9092] = ScriptedBroker
    start = loop.time()
    is_open = await node.attempt()
    waited_s = loop.time() - start
    await node.close()

    assert is_open
    assert 0.25 <= waited_s < 0.3
    assert [(host, round(when - start, 3)) for when, host, _ in loop.connects] == [
        ("2001:db8::1", 0.0),
        ("10.0.0.1", 0.25),
    ]


@in_virtual_time
async def test_address_that_refuses_is_followed_by_the_next_at_once() -> None:
    loop = virtual_loop()
    loop.names["seed"] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    start = loop.time()
    node = OneNode()
    await node.attempt()
    text = str(node.way.last_error)
    await node.close()

    assert [round(when - start, 3) for when, *_ in loop.connects] == [0.0, 0.001, 0.002]
    assert text == (
        "cannot connect to bootstrap broker seed:9092: "
        "10.0.0.1: Connection refused; 10.0.0.2: Connection refused; 10.0.0.3: Connection refused"
    )


@in_virtual_time
async def test_every_address_has_its_own_time_and_reason() -> None:
    loop = virtual_loop()
    loop.names["seed"] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    loop.black_holes |= {"10.0.0.1", "10.0.0.2"}
    start = loop.time()
    node = OneNode(settings=NetworkSettings(connection_setup_timeout_ms=2_000, connection_setup_timeout_max_ms=2_000))
    await node.attempt()
    took_s = loop.time() - start
    text = str(node.way.last_error)
    await node.close()

    assert 1.8 < took_s < 3.0  # the second began 250 ms after the first
    assert text.startswith("cannot connect to bootstrap broker seed:9092: 10.0.0.3: Connection refused; ")
    assert "10.0.0.1: no connection within " in text
    assert "10.0.0.2: no connection within " in text


@in_virtual_time
async def test_stranger_at_an_address_is_followed_by_the_others() -> None:
    """The open port wins the race, and never answers: the slower address gets its turn."""
    loop = virtual_loop()
    loop.names["seed"] = ["10.0.0.1", "10.0.0.2"]
    loop.servers["10.0.0.1", 9092] = lambda: ScriptedBroker(greets=False)
    loop.servers["10.0.0.2", 9092] = ScriptedBroker
    node = OneNode()
    is_open = await node.attempt()
    await node.close()

    assert is_open


@in_virtual_time
async def test_one_connection_is_left_of_two_that_are_made_at_once() -> None:
    """The loser has a transport already, and no broker connection: no handshake is written to it."""
    loop, node, brokers = virtual_loop(), OneNode(), list[ScriptedBroker]()

    def broker() -> ScriptedBroker:
        brokers.append(ScriptedBroker())
        return brokers[-1]

    loop.names["seed"] = ["slow", "fast"]
    loop.servers["slow", 9092] = loop.servers["fast", 9092] = broker
    connects = loop.create_connection

    async def create_connection(factory: Callable[[], asyncio.Protocol], host: str, port: int) -> object:
        await asyncio.sleep(0.25 if host == "slow" else 0.0)
        return await connects(factory, host, port)

    loop.create_connection = create_connection  # type: ignore[method-assign, assignment]  # of this loop alone
    await node.attempt()
    await asyncio.sleep(1)
    open_brokers = [each.is_connected for each in brokers]
    await node.close()

    assert sorted(open_brokers) in ([True], [False, True])
    assert node.context.counters_by_node.total().connections_created == 1


@EVERY_LOOP
def test_dead_first_address_is_left_behind_on_real_sockets(new_loop: NewLoop) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        addresses = ["127.0.0.2", "127.0.0.1"]
        assert runner.run(connects(runner.get_loop(), addresses, "127.0.0.1", dead="127.0.0.2"))


@EVERY_LOOP
def test_host_with_ipv6_alone_is_connected_to(new_loop: NewLoop) -> None:
    """A defect of aiokafka's: hosts and names with IPv6 alone."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(connects(runner.get_loop(), ["::1"], "::1"))


@EVERY_LOOP
def test_host_without_ipv6_is_connected_to_by_its_other_address(new_loop: NewLoop) -> None:
    """`2001:db8::1` is of the documentation, and leads nowhere: unreachable at once, or never answered."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(connects(runner.get_loop(), ["2001:db8::1", "127.0.0.1"], "127.0.0.1"))


async def cancelled_after(turns: int) -> int:
    """Begin an attempt by three addresses, of which two are open, and give it up; return what is left of it."""
    loop = asyncio.get_running_loop()
    names_of(loop, ["127.0.0.1", "127.0.0.2", "127.0.0.3"])
    brokers = list[ScriptedBroker]()

    def broker() -> ScriptedBroker:
        brokers.append(ScriptedBroker(greets=False))
        return brokers[-1]

    server = await loop.create_server(broker, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    also = await loop.create_server(broker, "127.0.0.2", port)
    node = OneNode(port)
    node.way.connect()
    for _ in range(turns):
        await asyncio.sleep(0)
    await node.close()
    for _ in range(100):
        await asyncio.sleep(0.001)
        if not any(each.is_connected for each in brokers):
            break
    server.close()
    also.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    return len(others) + sum(each.is_connected for each in brokers)


@EVERY_LOOP
@pytest.mark.parametrize("turns", range(12))
def test_attempt_that_is_cancelled_closes_every_socket(new_loop: NewLoop, turns: int) -> None:
    """In any turn: while addresses are connected to, when one has won, and during the handshake."""
    with warnings.catch_warnings(record=True) as caught, asyncio.Runner(loop_factory=new_loop) as runner:
        warnings.simplefilter("always", ResourceWarning)
        left = runner.run(cancelled_after(turns))
        gc.collect()

    assert left == 0
    assert [str(each.message) for each in caught if "unclosed" in str(each.message)] == []
