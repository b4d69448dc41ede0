"""The way to one node, on a virtual loop."""

import asyncio
from typing import NoReturn

import pytest

from aioproducer._network.connection_pool import NodeConnection
from aioproducer._network.context import NetworkSettings
from aioproducer.cluster import Node
from aioproducer.errors import BrokerConnectionError, CredentialsError
from tests.fakes.event_log import EventList
from tests.fakes.network import network_context
from tests.fakes.scripted_broker import ScriptedBroker
from tests.fakes.virtual_cluster import in_virtual_time
from tests.fakes.virtual_loop import run, virtual_loop


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
    result = is_connecting, is_open, text

    assert result == (False, True, "<NodeConnection bootstrap broker seed:9092 not connected failures=0>")


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
    assert (
        node_connection.failures,
        context.counters_by_node.total().connection_failures,
        node_connection.is_connecting,
    ) == (
        1,
        1,
        False,
    )
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
