"""One connection in virtual time: its requests, what ends it and when, and the memory that its answers may take."""

import asyncio
import gc
import struct
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from aioproducer._network.connection import TRANSITIONS, BrokerConnection, ConnectionState
from aioproducer._network.context import NetworkContext, NetworkSettings, ResponseBudget
from aioproducer._network.requests import Answered, Lost, RequestEnd
from aioproducer._protocol.framing import ResponseOutOfOrderError
from aioproducer._protocol.messages import PRODUCE
from aioproducer.errors import (
    BrokerConnectionError,
    KafkaError,
    ProtocolError,
    TlsRefusedError,
    UnsupportedVersionError,
)
from tests.fakes.network import Ends, Pair, connected, network_context, nothing
from tests.fakes.scripted_broker import Heard, ScriptedBroker
from tests.fakes.virtual_loop import connect_in_memory, in_virtual_time, run


def echo(broker: ScriptedBroker, heard: Heard) -> None:
    broker.answer(heard, heard.body[-4:])


async def refused(broker: ScriptedBroker) -> KafkaError:
    context = network_context()
    connection = BrokerConnection(context, "broker 1 at host:9092", nothing)
    connect_in_memory(context.loop, connection, broker)
    with pytest.raises(KafkaError) as caught:
        await connection.ready
    await connection.closed
    return caught.value


async def asked(names: str, **settings: Any) -> tuple[Pair, Ends]:
    """Connect, and send a request of each of these names."""
    pair, ends = await connected(settings=NetworkSettings(**settings)), Ends()
    for name in names:
        pair.connection.send(ends.request(name))
    return pair, ends


async def lost_after(answer: bytes, **settings: Any) -> tuple[list[str], KafkaError]:
    pair, ends = await asked("ab", **settings)
    await asyncio.sleep(0.01)
    pair.broker.say(answer)
    await pair.connection.closed
    return ends.names(), ends.errors()[0]


@in_virtual_time
async def test_handshake_failing_after_cancellation_is_silent() -> None:
    """A producer that closes while it connects leaves no failure unretrieved."""
    complaints: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    context = network_context()
    connection = BrokerConnection(context, "broker 1 at host:9092", nothing)
    connect_in_memory(context.loop, connection, ScriptedBroker(echo))
    connection.close(BrokerConnectionError("called off"))
    await connection.closed
    del connection
    await asyncio.sleep(60)  # until nothing is on its way any more
    gc.collect()
    assert complaints == []


@in_virtual_time
async def test_versions_are_known_when_it_is_ready() -> None:
    pair = await connected()
    assert pair.connection.versions.highest_common(PRODUCE) == 13


@in_virtual_time
async def test_answers_come_in_order() -> None:
    pair = await connected(ScriptedBroker(echo))
    ends = Ends()
    for name in "abcde":
        pair.connection.send(ends.request(name, body=b"...." + name.encode() * 4))
    await asyncio.sleep(0.01)
    assert ends.all == [(name, name.encode() * 4) for name in "abcde"]


@in_virtual_time
async def test_takes_no_more_than_max_in_flight() -> None:
    pair, ends = await asked("a", max_in_flight=2)
    can_send = [pair.connection.can_send]
    pair.connection.send(ends.request("b"))
    can_send.append(pair.connection.can_send)
    await asyncio.sleep(0.01)
    pair.broker.answer(pair.broker.requests[0], b"")
    await asyncio.sleep(0.01)
    assert [*can_send, pair.connection.can_send] == [True, False, True]


@pytest.mark.parametrize(
    "answer, kind, text",
    [
        (struct.pack(">i", 2**31 - 1) + b"x" * 100, ProtocolError, "2147483647 bytes"),
        (struct.pack(">i", -5), ProtocolError, "-5 bytes"),
        (struct.pack(">i", 3), ProtocolError, "3 bytes"),
        (struct.pack(">iib", 5, 77, 0), ResponseOutOfOrderError, "answered request 77"),
        (struct.pack(">iib", 5, 2, 0), ResponseOutOfOrderError, "oldest unanswered is 1"),
        (struct.pack(">iib", 5, 1, 5), ProtocolError, "tagged fields"),
    ],
)
def test_nonsense_closes_and_loses_all_in_flight(answer: bytes, kind: type[KafkaError], text: str) -> None:
    names, error = run(lost_after(answer))

    assert names == ["a", "b"]
    assert type(error) is kind
    assert "broker 1 at host:9092" in str(error)
    assert text in str(error)


@in_virtual_time
async def test_retiring_connection_closes_after_its_last_answer() -> None:
    pair, ends = await asked("a")
    pair.connection.retire(BrokerConnectionError("another version"))
    seen = [pair.connection.can_send, pair.connection.is_open]
    await asyncio.sleep(0.01)
    pair.broker.answer(pair.broker.requests[0], b"late")
    await pair.connection.closed
    assert (seen, ends.names()) == ([False, True], ["a"])


def test_large_frame_is_refused_at_its_size() -> None:
    """Four bytes are enough; nothing is kept of what follows."""
    _, error = run(lost_after(struct.pack(">i", 2000), max_frame_bytes=1024))

    assert "1024 allowed" in str(error)


@pytest.mark.parametrize(
    "words, kind, text",
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ProtocolError, "an HTTP server"),
        (b"<html><body>no</body></html>", ProtocolError, "an HTTP server"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", ProtocolError, "an SSH server"),
        (b"\x15\x03\x03\x00\x02\x02\x46", TlsRefusedError, "speaks TLS"),
        (b"\xff" * 40, ProtocolError, "-1 bytes"),
    ],
)
def test_other_server_on_the_port_is_named(words: bytes, kind: type[KafkaError], text: str) -> None:
    error = run(refused(ScriptedBroker(lambda broker, _: broker.say(words), greets=False)))

    assert type(error) is kind
    assert text in str(error)


def test_silent_hang_up_in_the_handshake_hints_at_tls() -> None:
    error = run(refused(ScriptedBroker(lambda broker, _: broker.transport.close(), greets=False)))

    assert "without TLS" in str(error)


def test_broker_too_old_is_named() -> None:
    """A broker without a common version of Produce is not used."""
    error = run(refused(ScriptedBroker(spoken=((0, 0, 2), (3, 0, 13), (18, 0, 4)))))

    assert type(error) is UnsupportedVersionError
    assert "too old" in str(error)


@in_virtual_time
async def test_garbled_answer_is_lost_with_later_ones() -> None:
    """An `on_end` that raises ProtocolError counts as not called: first lost of all."""
    pair = await connected()
    ends = Ends()
    garbled = ends.request("a")
    note = garbled.on_end

    def cannot_read(end: RequestEnd) -> None:
        if isinstance(end, Answered):
            raise ProtocolError("garbled")
        note(end)

    garbled.on_end = cannot_read
    pair.connection.send(garbled)
    pair.connection.send(ends.request("b"))
    await asyncio.sleep(0.01)
    for heard in pair.broker.requests:
        pair.broker.answer(heard, b"")
    await pair.connection.closed
    assert [f"{name}: {how}" for name, how in ends.all] == [f"{name}: broker 1 at host:9092: garbled" for name in "ab"]


def test_error_of_a_garbled_answer_holds_no_bytes_of_its_request() -> None:
    """Keeping the error of a delivery must not keep the memory of its batch."""

    async def story() -> bytearray:
        pair = await connected()
        ends, memory = Ends(), bytearray(b"body")
        garbled = ends.request("a", body=memoryview(memory))  # type: ignore[arg-type]  # a buffer, as of a batch

        note = garbled.on_end

        def cannot_read(end: RequestEnd) -> None:
            if isinstance(end, Lost):
                note(end)
                return
            try:
                struct.unpack(">i", b"")
            except struct.error as error:
                raise ProtocolError("garbled") from error

        garbled.on_end = cannot_read
        pair.connection.send(garbled)
        await asyncio.sleep(0.01)
        pair.broker.answer(pair.broker.requests[0], b"")
        await pair.connection.closed
        kept.append(ends.errors()[0])
        return memory

    kept: list[KafkaError] = []
    memory = run(story())

    memory.extend(b"a bytearray with an exported view cannot grow")
    assert "garbled" in str(kept[0])


@in_virtual_time
async def test_callback_may_close_the_connection() -> None:
    pair = await connected()
    ends = Ends()
    first = ends.request("a")
    first.on_end = lambda _end: pair.connection.close(BrokerConnectionError("omitted a partition"))
    pair.connection.send(first)
    pair.connection.send(ends.request("b"))
    await asyncio.sleep(0.01)
    one, two = pair.broker.requests
    pair.broker.say(struct.pack(">iib", 5, one.correlation_id, 0) + struct.pack(">iib", 5, two.correlation_id, 0))
    await pair.connection.closed
    assert [f"{name}: {how}" for name, how in ends.all] == ["b: broker 1 at host:9092: omitted a partition"]


@in_virtual_time
async def test_answer_before_all_bytes_left_closes() -> None:
    """Memory that the transport still holds is never given back by an early answer."""
    pair = await connected()
    ends = Ends()
    pair.transport.is_stuck = True
    pair.connection.send(ends.request("a"))
    pair.broker.say(struct.pack(">iib", 5, 1, 0))
    await pair.connection.closed
    assert "before it had all of it" in str(ends.errors()[0])


@in_virtual_time
async def test_request_times_out_from_when_it_became_the_oldest() -> None:
    """Sent together, answered one after 0.9 s: the second has a time-out of its own from then."""
    pair, ends = await asked("ab", request_timeout_ms=1000)
    start = pair.context.loop.time()
    await asyncio.sleep(0.9)
    pair.broker.answer(pair.broker.requests[0], b"")
    await pair.connection.closed

    assert "request_timeout_ms=1000" in str(ends.errors()[0])
    assert ends.names() == ["a", "b"]
    assert pair.context.loop.time() - start == pytest.approx(1.9, abs=0.01)


@in_virtual_time
async def test_request_times_out_from_the_end_of_a_pause() -> None:
    """The broker has said that it reads nothing meanwhile (KIP-219); an answer that comes all the same ends that."""
    pair, ends = await asked("abc", request_timeout_ms=1000)
    loop = pair.context.loop
    start = loop.time()
    pair.connection.pause_until(start + 5.0)
    pair.connection.pause_until(start + 0.1)
    silent_s = pair.connection.silent_for_s(loop.time())
    await asyncio.sleep(4.0)
    pair.broker.answer(pair.broker.requests[0], b"")
    await asyncio.sleep(0.01)
    pair.connection.pause_until(loop.time() + 3.0)
    await pair.connection.closed

    assert ends.names() == ["a", "b", "c"]
    assert silent_s <= 0
    assert loop.time() - start == pytest.approx(8.0, abs=0.05)


@in_virtual_time
async def test_idle_connection_closes_after_its_time() -> None:
    pair = await connected(ScriptedBroker(echo), NetworkSettings(connections_max_idle_ms=60_000))
    start = pair.context.loop.time()
    await asyncio.sleep(50)
    pair.connection.send(Ends().request("a"))
    await pair.connection.closed
    assert pair.context.loop.time() - start == pytest.approx(110, abs=0.1)


@in_virtual_time
async def test_idle_connection_stays_when_told_so() -> None:
    pair = await connected(settings=NetworkSettings(connections_max_idle_ms=-1))
    await asyncio.sleep(100_000)
    assert pair.connection.is_open


@in_virtual_time
async def test_failing_on_end_does_not_keep_others_waiting() -> None:
    pair = await connected()
    complaints: list[str] = []
    pair.context.loop.set_exception_handler(lambda _loop, context: complaints.append(context["message"]))
    ends = Ends()
    broken = ends.request("a")

    def fail(_end: RequestEnd) -> None:
        raise RuntimeError("a defect")

    broken.on_end = fail
    pair.connection.send(broken)
    pair.connection.send(ends.request("b"))
    pair.connection.close(BrokerConnectionError("enough"))
    await pair.connection.closed

    assert ends.names() == ["b"]
    assert len(complaints) == 1


@in_virtual_time
async def test_losses_come_from_the_loop_not_from_close() -> None:
    """Who closes in the middle of a step is not called back inside it."""
    pair, ends = await asked("a")
    pair.connection.close(BrokerConnectionError("enough"))
    at_once = ends.names()
    await pair.connection.closed
    assert (at_once, ends.names()) == ([], ["a"])


@pytest.mark.parametrize("state", ConnectionState)
def test_closed_is_the_end_of_every_state(state: ConnectionState) -> None:
    """Every open state can close, and nothing comes after that."""
    assert (ConnectionState.CLOSED in TRANSITIONS[state]) is (state is not ConnectionState.CLOSED)


@in_virtual_time
async def test_idle_connection_closes_before_a_request_would_time_out() -> None:
    """Where `connections_max_idle_ms` is the shorter one: one timer serves both."""
    settings = NetworkSettings(connections_max_idle_ms=5_000, request_timeout_ms=30_000)
    pair = await connected(ScriptedBroker(echo), settings)
    start = pair.context.loop.time()
    pair.connection.send(Ends().request("a"))
    await pair.connection.closed
    assert pair.context.loop.time() - start == pytest.approx(5, abs=0.1)


@in_virtual_time
async def test_request_longer_than_the_idle_limit_is_waited_for() -> None:
    pair, ends = await asked("a", connections_max_idle_ms=5_000, request_timeout_ms=30_000)
    await asyncio.sleep(20)
    pair.broker.answer(pair.broker.requests[0], b"late")
    await asyncio.sleep(1)
    assert ends.all == [("a", b"late")]


@in_virtual_time
async def test_retired_acks_0_connection_closes_after_its_last_request() -> None:
    pair = await connected(settings=NetworkSettings(connections_max_idle_ms=-1))
    ends = Ends()
    pair.transport.is_stuck = True
    pair.connection.send(ends.request("a", acks=0))
    pair.connection.retire(BrokerConnectionError("no longer needed"))
    was_open = pair.connection.is_open
    pair.transport.is_stuck = False
    pair.transport.flush()
    await asyncio.sleep(1)
    assert (was_open, ends.all, pair.connection.is_open) == (True, [("a", "written")], False)


@in_virtual_time
async def test_connection_that_is_closed_waits_for_nothing() -> None:
    """Its timer would keep it, and wake the sender, when its last request would have been too late."""
    pair, _ = await asked("a")
    pair.connection.close(BrokerConnectionError("enough"))
    await pair.connection.closed
    assert len(pair.context.timers) == 0


MIB = 1024 * 1024


async def asking(context: NetworkContext, broker: ScriptedBroker, *, ends: Ends, name: str) -> BrokerConnection:
    connection = BrokerConnection(context, f"broker {name} at host:9092", nothing)
    connect_in_memory(context.loop, connection, broker)
    await connection.ready
    connection.send(ends.request(name))
    await asyncio.sleep(0.01)
    return connection


def test_connection_that_is_closed_lets_go_of_the_begun_answer() -> None:
    """At once: the connection itself is part of cycles, which are collected some time later."""

    async def story() -> tuple[int, int, int]:
        pair, _ = await asked("a")
        await asyncio.sleep(0.01)
        pair.broker.say(struct.pack(">i", 30 * MIB))
        for _ in range(20):
            pair.broker.say(bytes(MIB))
        await asyncio.sleep(0.01)
        before, held = tracemalloc.get_traced_memory()[0], pair.context.response_budget.total
        pair.connection.close(BrokerConnectionError("enough"))
        await pair.connection.closed
        return held, pair.context.response_budget.total, before - tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    held, left, freed = run(story())
    tracemalloc.stop()

    assert (held, left) == (20 * MIB, 0)
    assert freed > 18 * MIB


@pytest.mark.parametrize("order", ["largest first", "largest last"])
@in_virtual_time
async def test_connection_that_holds_most_is_closed_beyond_the_bound(order: str) -> None:
    """Other brokers' responses go on; the error names the broker, the bytes, and the limit."""
    pieces = [("a", 900), ("b", 300)] if order == "largest first" else [("b", 400), ("a", 851)]
    context = replace(network_context(), response_budget=ResponseBudget(1000))
    ends, brokers = Ends(), {"a": ScriptedBroker(), "b": ScriptedBroker()}
    connections = {name: await asking(context, broker, ends=ends, name=name) for name, broker in brokers.items()}
    for name, size in pieces:
        brokers[name].say(struct.pack(">i", 1000) + bytes(size))
        await asyncio.sleep(0.01)
    if order == "largest first":
        brokers["b"].say(bytes(100))
        await asyncio.sleep(0.01)
    await connections["a"].closed
    (error,) = ends.errors()

    assert type(error) is BrokerConnectionError
    assert "broker a at host:9092" in str(error)
    assert "1250 allowed" in str(error)
    assert [name for name, each in connections.items() if each.is_open] == ["b"]
    assert context.response_budget.total == 400


@in_virtual_time
async def test_answers_that_end_hold_nothing() -> None:
    pair, ends = await asked("a")
    await asyncio.sleep(0.01)
    for byte in struct.pack(">ii", 9, pair.broker.requests[0].correlation_id) + b"\x00body":
        pair.broker.say(bytes((byte,)))
        await asyncio.sleep(0.01)
    assert (ends.names(), pair.context.response_budget.total) == (["a"], 0)


@in_virtual_time
async def test_secret_in_a_defect_of_a_callback_is_not_shown() -> None:
    """A defect may be in what handles a password: the repr of a UnicodeEncodeError shows all of the text."""
    pair, request = await connected(ScriptedBroker(echo)), Ends().request("a")
    pair.context.loop.set_exception_handler(lambda *_: None)

    def defect(_: RequestEnd) -> None:
        "canary-password\ud83d".encode()

    request.on_end = defect
    pair.connection.send(request)
    await pair.connection.closed
    error = pair.connection.error

    assert "an answer could not be handled: UnicodeEncodeError" in str(error)
    assert "canary" not in f"{error} {error!r}"
