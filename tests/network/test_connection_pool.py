"""The connections to all nodes, and to one of them, on a virtual loop."""

import asyncio
from typing import NoReturn

import pytest

from aioproducer._network.cluster_updates import merge
from aioproducer._network.connection_pool import ConnectionPool
from aioproducer._network.context import NetworkSettings
from aioproducer._network.node_connection import NodeConnection
from aioproducer._protocol.messages import MetadataResponse
from aioproducer.cluster import Cluster, Node
from aioproducer.errors import BrokerConnectionError, CredentialsError
from tests.fakes.logs import EventList
from tests.fakes.network import ClientAndNetwork, Ends, client_on, network_context
from tests.fakes.scripted_broker import ScriptedBroker
from tests.fakes.virtual_loop import in_virtual_time, run, virtual_loop

SEED = Node(-1, "seed", 9092)


def name_nodes(network: ClientAndNetwork, *nodes: Node) -> None:
    network.client.update_nodes(merge(Cluster(), MetadataResponse(-1, nodes, ()), 0.0))


class HangsUp(ScriptedBroker):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.close()


@pytest.mark.parametrize("is_change_first", [True, False])
@in_virtual_time
async def test_wait_for_a_change_ends_when_a_timeout_coincides(*, is_change_first: bool) -> None:
    """As when the loop was blocked for longer than the wait: the second waiter finds nothing to do."""
    loop = asyncio.get_running_loop()
    pool = ConnectionPool((SEED,), network_context())
    when = loop.time() + 0.5
    if is_change_first:
        loop.call_at(when, pool.use_bootstrap_only)
    waiting = asyncio.ensure_future(pool.wait_for_change(0.5))
    await asyncio.sleep(0)
    if not is_change_first:
        loop.call_at(when, pool.use_bootstrap_only)

    assert await waiting is None


@in_virtual_time
async def test_cancelled_waiter_is_forgotten() -> None:
    """The next change may take long, and many waiters may give up."""
    pool = ConnectionPool((SEED,), network_context())
    for _ in range(3):
        waiting = asyncio.ensure_future(pool.wait_for_change(0.5))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
    assert repr(pool) == "<ConnectionPool 1 waiting=0>"


@in_virtual_time
async def test_bootstrap_address_is_free_again_after_its_node_left() -> None:
    network = client_on()
    pool = network.client._pool  # noqa: SLF001  # no broker needs to answer for this
    network.loop.servers["seed", 9092] = ScriptedBroker
    [seed] = pool.candidates()
    seed.connect()
    await asyncio.sleep(1)
    name_nodes(network, Node(5, "seed", 9092))
    adopted = [node_connection.node for node_connection in pool.candidates() if node_connection is seed]
    name_nodes(network, Node(6, "elsewhere", 1))
    bootstrap = [node_connection.node for node_connection in pool.bootstrap()]
    await network.client.close()
    assert (adopted, bootstrap) == ([Node(5, "seed", 9092)], [SEED])


@pytest.mark.parametrize("place", [("elsewhere", 9092), ("host", 9093)], ids=["host", "port"])
@in_virtual_time
async def test_node_that_has_moved_is_looked_for_where_it_is_now(place: tuple[str, int]) -> None:
    """To another address, or to another port: a restarted container is there."""
    network = client_on()
    network.loop.servers["host", 9092] = network.loop.servers[place] = ScriptedBroker
    for node in (Node(0, "host", 9092), Node(0, *place)):
        name_nodes(network, node)
        network.client.nodes[0].connect()
        await asyncio.sleep(1)
        assert network.is_ready(0)
    await network.client.close()
    assert [(host, port) for _, host, port in network.loop.connects] == [("host", 9092), place]


@in_virtual_time
async def test_close_waits_for_the_connection_to_a_node_that_left() -> None:
    """It still has a request in flight, and would stay open behind the producer."""
    network = client_on(settings=NetworkSettings(request_timeout_ms=30_000))
    brokers: list[ScriptedBroker] = []
    network.loop.servers["a", 1] = lambda: brokers.append(ScriptedBroker()) or brokers[-1]
    name_nodes(network, Node(1, "a", 1))
    network.client.nodes[1].connect()
    await asyncio.sleep(1)
    ends = Ends()
    network.send(1, ends.request("last"))
    name_nodes(network, Node(2, "b", 2))

    await network.client.close()
    names = ends.names()
    await asyncio.sleep(1)
    assert (names, brokers[0].is_connected) == (["last"], False)


@in_virtual_time
async def test_next_attempt_begins_with_the_next_address() -> None:
    """One that takes connections and hangs up ends the whole attempt, each time."""
    network = client_on()
    network.loop.names["a"] = ["10.0.0.1", "10.0.0.2"]
    network.loop.servers["10.0.0.1", 1] = HangsUp
    network.loop.servers["10.0.0.2", 1] = ScriptedBroker
    name_nodes(network, Node(1, "a", 1))
    for _ in range(2):
        network.client.nodes[1].connect()
        await asyncio.sleep(1)
    is_ready = network.is_ready(1)
    await network.client.close()
    assert is_ready, network.client.nodes[1].trouble
    assert [host for _, host, _ in network.loop.connects] == ["10.0.0.1", "10.0.0.2"]


@in_virtual_time
async def test_bootstrap_is_not_asked_while_a_node_is_reachable() -> None:
    """Only when all have failed (KIP-899): the bootstrap addresses were left for good reasons."""
    network = client_on()
    network.loop.servers["a", 1], network.loop.servers["b", 1] = HangsUp, ScriptedBroker
    name_nodes(network, Node(1, "a", 1), Node(2, "b", 1))
    network.client.nodes[1].connect()
    network.client.nodes[2].connect()
    await asyncio.sleep(0.5)
    assert network.client.nodes[1].trouble is not None
    candidates = [node_connection.node.id for node_connection in network.client._pool.candidates()]  # noqa: SLF001  # in random order
    await network.client.close()
    assert candidates == [1, 2]


@in_virtual_time
async def test_errors_name_the_node_of_a_bootstrap_connection() -> None:
    network = client_on()
    network.loop.servers["seed", 9092] = ScriptedBroker
    [seed] = network.client._pool.candidates()  # noqa: SLF001  # no broker needs to answer for this
    seed.connect()
    await asyncio.sleep(1)
    name_nodes(network, Node(5, "seed", 9092))
    ends = Ends()
    network.send(5, ends.request("lost"))
    await network.client.close()
    assert [str(error) for error in ends.errors()] == ["broker 5 at seed:9092: the producer was closed"]


@in_virtual_time
async def test_failure_of_node_0_is_reported() -> None:
    """Others may lead its partitions by now."""
    network = client_on()
    network.loop.servers["a", 1] = HangsUp
    name_nodes(network, Node(0, "a", 1))
    network.client.nodes[0].connect()
    await asyncio.sleep(0.5)
    await network.client.close()
    assert network.driver.events.failed_nodes == 1


@pytest.mark.parametrize("is_open", [False, True], ids=["no answer to the call", "open and silent"])
def test_what_an_attempt_has_waited_for_is_said(*, is_open: bool) -> None:
    """A firewall and a stranger on the port are looked for in different places."""

    async def story() -> str:
        if is_open:
            virtual_loop().servers["seed", 9092] = lambda: ScriptedBroker(greets=False)
        else:
            virtual_loop().black_holes.add("seed")
        settings = NetworkSettings(connection_setup_timeout_ms=2000)
        node_connection = NodeConnection(Node(-1, "seed", 9092), network_context(settings), lambda _: None)
        node_connection.connect()
        await asyncio.sleep(3)
        await node_connection.close(BrokerConnectionError("done"))
        return str(node_connection.last_error)

    missing = "the port is open, but no Kafka broker has answered there" if is_open else "seed: no connection"

    assert missing in run(story())


@pytest.mark.parametrize("turns", range(4))
@in_virtual_time
async def test_cancelled_attempt_can_be_made_again(turns: int) -> None:
    """Metadata may arrive in the very turn in which the attempt begins: its task is cancelled before its first step."""
    virtual_loop().servers["seed", 9092] = ScriptedBroker
    node_connection = NodeConnection(Node(-1, "seed", 9092), network_context(), lambda _: None)
    node_connection.connect()
    for _ in range(turns):
        await asyncio.sleep(0)
    node_connection.retire()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    is_connecting, text = node_connection.is_connecting, repr(node_connection)
    node_connection.connect()
    await asyncio.sleep(1)
    is_open = node_connection.is_open
    await node_connection.close(BrokerConnectionError("done"))

    assert (is_connecting, is_open) == (False, True)
    assert text == "<NodeConnection bootstrap broker seed:9092 not connected failures=0>"


@pytest.mark.parametrize("is_lost, failures", [(False, 1), (True, 0)], ids=["never made", "made and lost"])
@in_virtual_time
async def test_connection_that_was_not_made_counts_as_failed_once(*, is_lost: bool, failures: int) -> None:
    """One that was made and lost later is counted as closed, and not here too."""
    context, broker = network_context(), ScriptedBroker()
    if is_lost:
        virtual_loop().servers["seed", 9092] = lambda: broker
    node_connection = NodeConnection(Node(-1, "seed", 9092), context, lambda _: None)
    node_connection.connect()
    await asyncio.sleep(1)
    if is_lost:
        broker.transport.close()
        await asyncio.sleep(1)
    assert node_connection.failures == 1
    await node_connection.close(BrokerConnectionError("done"))
    assert context.counters_by_node.total().connection_failures == failures


@in_virtual_time
async def test_attempt_has_more_time_only_after_failed_attempts() -> None:
    """A link that went silent is given up after one set-up time-out: what it swallowed does not come any more."""
    broker, loop = ScriptedBroker(), virtual_loop()
    loop.servers["seed", 9092] = lambda: broker
    ended = asyncio.Event()
    node_connection = NodeConnection(Node(-1, "seed", 9092), network_context(), lambda _: ended.set())

    async def attempt_s() -> float:
        ended.clear()
        began = loop.time()
        node_connection.connect()
        await ended.wait()
        return loop.time() - began

    await attempt_s()
    broker.transport.close()
    await asyncio.sleep(1)
    loop.servers["seed", 9092] = lambda: ScriptedBroker(greets=False)
    took_s = [await attempt_s() for _ in range(3)]
    await node_connection.close(BrokerConnectionError("done"))

    assert 8 <= took_s[0] <= 12
    assert 16 <= took_s[1] <= 25  # with the pause between attempts
    assert 24 <= took_s[2] <= 37


@in_virtual_time
async def test_refused_logins_do_not_lengthen_the_set_up_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Source: ClusterConnectionStates.authenticationFailed."""
    loop, ended = virtual_loop(), asyncio.Event()
    node_connection = NodeConnection(Node(-1, "seed", 9092), network_context(), lambda _: ended.set())

    async def refused(_: NodeConnection) -> NoReturn:
        raise CredentialsError("no such user")

    with monkeypatch.context() as patched:
        patched.setattr(NodeConnection, "_open", refused)
        for _ in range(3):
            ended.clear()
            node_connection.connect()
            await ended.wait()
    await asyncio.sleep(60)  # past every pause
    loop.servers["seed", 9092] = lambda: ScriptedBroker(greets=False)
    ended.clear()
    began = loop.time()
    node_connection.connect()
    await ended.wait()
    took_s = loop.time() - began
    await node_connection.close(BrokerConnectionError("done"))

    assert 8 <= took_s <= 12


class ResolverError(Exception):
    """An error of a third party's resolver."""


FOREIGN = [
    (ResolverError("SERVFAIL"), "ResolverError: SERVFAIL"),
    (RuntimeError("cannot schedule new futures after shutdown"), "RuntimeError: cannot schedule new futures"),
    (
        ExceptionGroup("create_connection failed", [OSError(113, "x"), ResolverError("two")]),
        "No route to host; ResolverError: two",
    ),
    (TimeoutError("of the resolver"), "of the resolver"),
    (asyncio.CancelledError(), "CancelledError"),  # of a future of the resolver's, which its executor has cancelled
    (AttributeError(), "AttributeError"),
]


@pytest.mark.parametrize("step", ["getaddrinfo", "create_connection"])
@pytest.mark.parametrize("error, text", FOREIGN, ids=[type(error).__name__ for error, _ in FOREIGN])
@in_virtual_time
async def test_error_of_foreign_code_is_a_failed_attempt(step: str, error: BaseException, text: str) -> None:
    """Of any class: it is noted and logged with its text, counted once, and tried again after a pause."""

    async def fail(*_: object, **__: object) -> NoReturn:
        raise error

    loop, never_retrieved = virtual_loop(), list[object]()
    loop.servers["seed", 9092] = ScriptedBroker
    loop.set_exception_handler(lambda _, context: never_retrieved.append(context))
    context = network_context()
    node_connection = NodeConnection(Node(-1, "seed", 9092), context, lambda _: None)
    setattr(loop, step, fail)
    node_connection.connect()
    await asyncio.sleep(1)
    assert isinstance(node_connection.last_error, BrokerConnectionError)
    assert text in str(node_connection.last_error)
    assert (node_connection.failures, node_connection.is_connecting) == (1, False)
    assert context.counters_by_node.total().connection_failures == 1
    assert isinstance(context.log, EventList)
    assert text in str(context.log.events)
    delattr(loop, step)
    node_connection.connect()
    await asyncio.sleep(1)
    assert node_connection.is_open
    await node_connection.close(BrokerConnectionError("done"))
    assert never_retrieved == []


@in_virtual_time
async def test_next_address_is_tried_after_an_error_of_foreign_code() -> None:
    """One address that the loop cannot take does not cost the others."""
    loop = virtual_loop()
    loop.names["seed"], connects = ["bad", "good"], loop.create_connection
    loop.servers["good", 9092] = ScriptedBroker

    async def create_connection(factory: object, host: str, port: int) -> object:
        if host == "bad":
            raise ResolverError
        return await connects(factory, host, port)  # type: ignore[arg-type]  # as it is given

    loop.create_connection = create_connection  # type: ignore[method-assign, assignment]  # of this loop alone
    node_connection = NodeConnection(Node(-1, "seed", 9092), network_context(), lambda _: None)
    node_connection.connect()
    await asyncio.sleep(1)
    is_open = node_connection.is_open
    await node_connection.close(BrokerConnectionError("done"))
    assert is_open


@in_virtual_time
async def test_name_without_addresses_is_said_to_have_none() -> None:
    """A resolver may return an empty list, and raise nothing."""

    async def getaddrinfo(*_: object, **__: object) -> list[object]:
        return []

    virtual_loop().getaddrinfo = getaddrinfo  # type: ignore[method-assign, assignment]  # of this loop alone
    node_connection = NodeConnection(Node(-1, "seed", 9092), network_context(), lambda _: None)
    node_connection.connect()
    await asyncio.sleep(1)
    await node_connection.close(BrokerConnectionError("done"))
    assert str(node_connection.last_error) == "cannot resolve 'seed': the name has no address"
