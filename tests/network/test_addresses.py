"""Addresses of brokers: how they are looked up, how those of one name race, and what follows when they change."""

import asyncio
import gc
import pathlib
import socket
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest
import uvloop

from aioproducer._network.addresses import connect, interleaved, look_up
from aioproducer._network.context import NetworkSettings
from aioproducer._network.node_connection import NodeConnection
from aioproducer.cluster import Node
from aioproducer.errors import BrokerConnectionError
from tests.fakes.core_parts import cluster_of
from tests.fakes.event_loops import LOOPS
from tests.fakes.network import client_on, network_context
from tests.fakes.scripted_broker import ScriptedBroker
from tests.fakes.virtual_loop import in_virtual_time, virtual_loop

STOCK_LOOPS = pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)

NewLoop = Callable[[], asyncio.AbstractEventLoop]


def scoped_address() -> tuple[str, int] | None:
    table = pathlib.Path("/proc/net/if_inet6")
    for line in table.read_text().splitlines() if table.exists() else []:
        digits, scope_id, *_ = line.split()
        if digits.startswith("fe80"):
            return socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)), int(scope_id, 16)
    return None


@contextmanager
def silent_name_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Let each lookup hang; the event is set once one does."""
    is_asked, may_answer = threading.Event(), threading.Event()

    def getaddrinfo(*_: object) -> list[object]:
        is_asked.set()
        may_answer.wait(60)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield is_asked
    may_answer.set()


@STOCK_LOOPS
def test_lookup_that_hangs_does_not_delay_the_end_of_the_loop(
    new_loop: NewLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runner waits up to five minutes for the loop's own threads."""

    async def ask() -> None:
        lookup = asyncio.ensure_future(look_up(asyncio.get_running_loop(), "broker", 9092))
        await asyncio.to_thread(is_asked.wait, 60)
        lookup.cancel()
        await asyncio.wait([lookup])

    with silent_name_server(monkeypatch) as is_asked:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(ask())

        assert "aioproducer-lookup" in [thread.name for thread in threading.enumerate()]  # it hangs still


@STOCK_LOOPS
def test_names_are_found_when_the_executor_is_shut_down(new_loop: NewLoop) -> None:
    """As at the interpreter's exit, or by an application that shuts it down."""

    async def ask() -> list[object]:
        loop = asyncio.get_running_loop()
        await loop.shutdown_default_executor()
        return [address for address, *_ in await look_up(loop, "localhost", 9092)]

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert "127.0.0.1" in runner.run(ask())


@STOCK_LOOPS
def test_error_of_a_lookup_is_raised(new_loop: NewLoop) -> None:
    """`.invalid` is reserved for names that do not exist."""
    with asyncio.Runner(loop_factory=new_loop) as runner, pytest.raises(socket.gaierror):
        runner.run(look_up(runner.get_loop(), "broker.invalid", 9092))


@STOCK_LOOPS
def test_loop_with_a_resolver_of_its_own_is_asked(new_loop: NewLoop) -> None:
    """Each address once; of those with a scope all that a socket needs."""
    loop = new_loop()
    stream = (socket.AF_INET6, socket.SOCK_STREAM, 6, "")
    found = [(*stream, ("10.0.0.1", 1)), (*stream, ("fe80::1", 1, 7, 3)), (*stream, ("::1", 1, 0, 0))]

    async def getaddrinfo(*_: object, **__: object) -> Sequence[object]:
        return found * 2

    loop.getaddrinfo = getaddrinfo  # type: ignore[method-assign, assignment]  # as an application would
    try:
        addresses = loop.run_until_complete(look_up(loop, "broker", 9092))
    finally:
        loop.close()

    assert addresses == [("10.0.0.1", 9092), ("fe80::1", 9092, 7, 3), ("::1", 9092)]


class Listener(asyncio.Protocol):
    """Keeps all that is said until the other end closes."""

    def __init__(self) -> None:
        self.heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._so_far = b""

    def data_received(self, data: bytes) -> None:
        self._so_far += data

    def connection_lost(self, _: Exception | None) -> None:
        self.heard.set_result(self._so_far)


async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"here")
    writer.close()


@STOCK_LOOPS
def test_link_local_address_is_connected_to_with_its_scope(new_loop: NewLoop) -> None:
    address, scope_id = scoped_address() or pytest.skip("no interface of this machine has a link-local address")

    async def story() -> bytes:
        loop = asyncio.get_running_loop()
        listening = socket.socket(socket.AF_INET6)
        listening.bind((address, 0, 0, scope_id))
        server = await asyncio.start_server(greet, sock=listening)
        (found,) = await look_up(loop, f"{address}%{scope_id}", listening.getsockname()[1])
        listener = await connect(loop, Listener, found)
        server.close()
        return await listener.heard

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(story()) == b"here"


@STOCK_LOOPS
def test_link_local_address_on_which_nothing_listens_is_refused(new_loop: NewLoop) -> None:
    """The port is taken, so that nothing else listens there."""
    address, scope_id = scoped_address() or pytest.skip("no interface of this machine has a link-local address")
    with socket.socket(socket.AF_INET6) as taken, asyncio.Runner(loop_factory=new_loop) as runner:
        taken.bind((address, 0, 0, scope_id))
        place = (address, taken.getsockname()[1], 0, scope_id)

        with pytest.raises(ConnectionRefusedError):
            runner.run(connect(runner.get_loop(), asyncio.Protocol, place))


EVERY_LOOP = pytest.mark.parametrize("new_loop", LOOPS.values(), ids=LOOPS)


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


@in_virtual_time
async def test_name_is_looked_up_again_for_each_connection() -> None:
    """NetworkClientTest.testReconnectAfterAddressChange: the old address is not tried once more."""
    network = client_on()
    network.loop.servers["10.0.0.1", 9092] = network.loop.servers["10.0.0.2", 9092] = ScriptedBroker
    network.client.update_nodes(cluster_of((1,)))
    for address in ("10.0.0.1", "10.0.0.2"):
        network.loop.names["host1"] = [address]
        network.client.nodes[1].connect()
        await asyncio.sleep(1)
        assert network.is_ready(1)
        network.client.nodes[1].disconnect(BrokerConnectionError("enough"))
        await asyncio.sleep(1)
    await network.client.close()
    assert [host for _, host, _ in network.loop.connects] == ["10.0.0.1", "10.0.0.2"]


@in_virtual_time
async def test_silent_name_server_costs_the_setup_timeout() -> None:
    """T22: a lookup that hangs does not hold the attempt without end, and the next one asks again."""
    network = client_on(settings=NetworkSettings(connection_setup_timeout_ms=1_000))
    network.loop.servers["10.0.0.1", 9092] = ScriptedBroker
    network.client.update_nodes(cluster_of((1,)))
    answers, asks = network.loop.getaddrinfo, 0

    async def getaddrinfo(host: str, port: int, **options: object) -> object:
        nonlocal asks
        asks += 1
        if asks == 1:
            await asyncio.Event().wait()
        return await answers(host, port, **options)

    network.loop.getaddrinfo = getaddrinfo  # type: ignore[method-assign, assignment]  # of this loop alone
    network.loop.names["host1"] = ["10.0.0.1"]
    network.client.nodes[1].connect()
    await asyncio.sleep(2)
    text = str(network.client.nodes[1].trouble)
    network.client.nodes[1].connect()
    await asyncio.sleep(1)
    is_ready = network.is_ready(1)
    await network.client.close()

    assert "broker 1 at host1:9092, as the cluster advertises it, cannot be resolved here within " in text
    assert (is_ready, asks) == (True, 2)


@in_virtual_time
async def test_look_ups_of_many_names_begin_one_after_another() -> None:
    """Each starts a thread; a hundred that start in one turn of the loop hold everything else up.

    Names that hang keep no other name waiting.
    """
    network = client_on()
    nodes = range(10)
    network.client.update_nodes(cluster_of(tuple(nodes)))
    answers, turns = network.loop.getaddrinfo, []

    async def getaddrinfo(host: str, port: int, **options: object) -> object:
        turns.append(network.loop.turns)
        if host != "host9":
            await asyncio.Event().wait()
        return await answers(host, port, **options)

    network.loop.getaddrinfo = getaddrinfo  # type: ignore[method-assign, assignment]  # of this loop alone
    for number in nodes:
        network.loop.names[f"host{number}"] = [f"10.0.0.{number}"]
        network.loop.servers[f"10.0.0.{number}", 9092] = ScriptedBroker
        network.client.nodes[number].connect()
    await asyncio.sleep(1)
    ready = [number for number in nodes if network.is_ready(number)]
    await network.client.close()

    assert ready == [9]
    assert len(set(turns)) == len(turns) == len(nodes)
