"""What is written: requests without a response (acks=0), back-pressure, and the options of sockets."""

import asyncio
import dataclasses
import random
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import uvloop

from aioproducer._network.connection import BrokerConnection, honours_back_pressure
from aioproducer._network.context import NetworkContext, NetworkSettings
from aioproducer.errors import BrokerConnectionError, KafkaError
from aioproducer.testing import FakeCluster
from tests.fakes.core_parts import EventNotes
from tests.fakes.logs import EventList
from tests.fakes.network import Ends, Pair, TimerDriver, connected, network_context, nothing
from tests.fakes.scripted_broker import ScriptedBroker
from tests.fakes.virtual_loop import connect_in_memory, in_virtual_time

NewLoop = Callable[[], asyncio.AbstractEventLoop]


async def stuck(**settings: Any) -> tuple[Pair, Ends]:
    """Connect by a transport that writes nothing until it is flushed."""
    pair = await connected(settings=NetworkSettings(**settings))
    pair.transport.is_stuck = True
    return pair, Ends()


@in_virtual_time
async def test_acks_0_ends_when_its_bytes_have_left() -> None:
    pair, ends = await stuck()
    pair.connection.send(ends.request("a", acks=0))
    pair.connection.send(ends.request("b", acks=0))
    await asyncio.sleep(1)
    before = list(ends.all)
    pair.transport.flush(pair.transport.get_write_buffer_size() - 1)
    await asyncio.sleep(1)
    assert (before, ends.all) == ([], [("a", "written")])


@in_virtual_time
async def test_acks_0_counts_as_in_flight_until_written() -> None:
    """Otherwise nothing would bound what waits for a broker that does not read."""
    pair, ends = await stuck(max_in_flight=1)
    pair.connection.send(ends.request("a", acks=0))
    could_send = pair.connection.can_send
    pair.transport.is_stuck = False
    pair.transport.flush()
    await asyncio.sleep(0.2)
    assert (could_send, pair.connection.can_send) == (False, True)


@in_virtual_time
async def test_acks_0_to_a_broker_that_does_not_read_closes() -> None:
    """A write buffer that has not moved for request_timeout is given up."""
    pair, ends = await stuck(request_timeout_ms=1000)
    start = pair.context.loop.time()
    pair.connection.send(ends.request("a", acks=0))
    await pair.connection.closed
    elapsed_s, text = pair.context.loop.time() - start, str(ends.errors()[0])

    assert elapsed_s == pytest.approx(1, abs=0.2)
    assert "has read nothing" in text


@in_virtual_time
async def test_acks_0_after_a_quiet_time_has_the_whole_time_to_leave() -> None:
    """That nothing has moved while there was nothing to move is no standstill."""
    pair = await connected(settings=NetworkSettings(request_timeout_ms=1000))
    pair.connection.send(Ends().request("long ago", acks=0))
    await asyncio.sleep(5)
    pair.transport.is_stuck = True
    start = pair.context.loop.time()
    pair.connection.send(Ends().request("now", acks=0))
    await asyncio.sleep(0.5)
    is_open = pair.connection.is_open
    await pair.connection.closed
    elapsed_s = pair.context.loop.time() - start

    assert is_open
    assert elapsed_s == pytest.approx(1, abs=0.2)


@in_virtual_time
async def test_acks_0_after_a_slow_moment_ends_soon_again() -> None:
    """Who looks ever more rarely while nothing moves looks often again once something has."""
    pair, ends = await stuck()
    pair.connection.send(ends.request("slow", acks=0))
    await asyncio.sleep(5)
    pair.transport.flush(pair.transport.get_write_buffer_size())
    await asyncio.sleep(0.5)
    pair.connection.send(ends.request("quick", acks=0))
    await asyncio.sleep(0.01)
    pair.transport.flush(pair.transport.get_write_buffer_size())
    start = pair.context.loop.time()
    while ends.names() != ["slow", "quick"]:  # noqa: ASYNC110  # there is no notification
        await asyncio.sleep(0.001)
    assert pair.context.loop.time() - start < 0.05


@in_virtual_time
async def test_acks_0_to_a_broker_that_reads_slowly_goes_on() -> None:
    """However long it takes, and however much waits behind: only a standstill is given up."""
    pair, ends = await stuck(request_timeout_ms=1000)
    for name in "abcdef":
        pair.connection.send(ends.request(name, acks=0))
        pair.connection.send(ends.request(name.upper(), acks=0))
        await asyncio.sleep(0.5)
        pair.transport.flush(pair.transport.get_write_buffer_size() // 2)
    await asyncio.sleep(0.2)
    assert (pair.connection.is_open, ends.names()[:4]) == (True, ["a", "A", "b", "B"])


@in_virtual_time
async def test_acks_0_to_a_broker_in_its_pause_waits_for_the_end_of_it() -> None:
    """It reads nothing meanwhile, as it has said (KIP-219); what its kernel still takes does not shorten that."""
    pair, ends = await stuck(request_timeout_ms=1000)
    start = pair.context.loop.time()
    pair.connection.send(ends.request("a", acks=0))
    pair.connection.pause_until(start + 5)
    await asyncio.sleep(0.5)
    pair.transport.flush(1)
    await pair.connection.closed
    assert pair.context.loop.time() - start == pytest.approx(6, abs=0.2)


@in_virtual_time
async def test_acks_0_record_sent_before_hang_up_was_written() -> None:
    """A refusing broker can only close, sooner than the next poll. Bytes that were not sent are lost."""
    pair = await connected(ScriptedBroker(lambda broker, _heard: broker.transport.close()))
    ends = Ends()
    pair.transport.is_stuck = True
    pair.connection.send(ends.request("left", acks=0))
    left = pair.transport.get_write_buffer_size()
    pair.connection.send(ends.request("kept", acks=0))
    await asyncio.sleep(0)  # the look that follows a write at once is over; the next is a timer's
    await asyncio.sleep(0)
    pair.transport.flush(left)
    await pair.connection.closed
    assert [(name, type(how)) for name, how in ends.all] == [("left", str), ("kept", BrokerConnectionError)]


@in_virtual_time
async def test_choked_transport_takes_no_request() -> None:
    events = EventNotes()
    settings = NetworkSettings(write_buffer_bytes=1000)
    context = dataclasses.replace(network_context(settings), events=events)
    connection = BrokerConnection(context, "broker 1 at host:9092", nothing)
    transport, _ = connect_in_memory(context.loop, connection, ScriptedBroker())
    await connection.ready
    transport.is_stuck = True
    connection.send(Ends().request("a", body=bytes(2000)))
    choked = connection.can_send
    events.wakes = 0
    transport.is_stuck = False
    transport.flush()
    await asyncio.sleep(0.01)
    assert ([choked, connection.can_send], events.wakes) == ([False, True], 1)


@in_virtual_time
async def test_acks_0_keeps_its_connection_in_use() -> None:
    """Nothing comes back that would show it: by answers alone it was idle while it was written to."""
    settings = NetworkSettings(request_timeout_ms=1000, connections_max_idle_ms=5000)
    pair = await connected(settings=settings)
    ends = Ends()
    for number in range(20):
        pair.connection.send(ends.request(str(number), acks=0))
        await asyncio.sleep(1)
    assert (pair.connection.is_open, len(ends.all)) == (True, 20)


@in_virtual_time
async def test_acks_0_that_leaves_byte_by_byte_is_not_idle() -> None:
    """A slow network may take longer for it than an unused connection is kept."""
    pair, ends = await stuck(request_timeout_ms=30_000, connections_max_idle_ms=1000)
    pair.connection.send(ends.request("a", acks=0, body=bytes(100)))
    for _ in range(40):
        await asyncio.sleep(1)
        pair.transport.flush(1)
    assert (pair.connection.is_open, pair.connection.in_flight) == (True, 1)


@in_virtual_time
async def test_unanswered_bytes_are_counted_too() -> None:
    pair = await connected()
    for acks in (0, -1):
        pair.connection.send(Ends().request("a", acks=acks, body=bytes(5000)))
    await asyncio.sleep(0)
    counted, written = pair.context.counters.bytes_out, pair.transport.written

    assert counted == written > 10_000


LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
REQUEST_BYTES = 1_000_000


class DeafBroker(ScriptedBroker):
    is_deaf = True

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.is_deaf:
            self.transport.pause_reading()

    def listen(self) -> None:
        self.is_deaf = False
        self.transport.resume_reading()


@pytest.fixture(params=LOOPS)
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=LOOPS[request.param]) as each:
        yield each


async def connect(broker: ScriptedBroker) -> tuple[BrokerConnection, asyncio.AbstractServer]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: broker, "127.0.0.1", 0, family=socket.AF_INET)
    driver = TimerDriver(loop)
    context = NetworkContext(
        loop=loop,
        timers=driver.heap,
        random=random.Random(1),
        events=driver.events,
        log=EventList(),
        client_id="tests",
        settings=NetworkSettings(max_in_flight=1000, write_buffer_bytes=64 * 1024),
    )
    _, connection = await loop.create_connection(
        lambda: BrokerConnection(context, "broker 1", nothing), *server.sockets[0].getsockname()
    )
    await connection.ready
    return connection, server


async def send_until_choked(connection: BrokerConnection, ends: Ends, *, acks: int) -> int:
    """Send as long as the connection takes it; how many megabytes that was."""
    sent = 0
    while connection.can_send and sent < 100:
        connection.send(ends.request(str(sent), acks=acks, body=bytes(REQUEST_BYTES)))
        sent += 1
        await asyncio.sleep(0)
    return sent


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not is_so():  # noqa: ASYNC110  # no event to wait for
            await asyncio.sleep(0.001)


async def sent_to_a_deaf_broker(*, acks: int) -> tuple[int, int, list[str]]:
    """Send until the connection is full, then let the broker read; count what was sent, and what ended before that."""
    broker, ends = DeafBroker(), Ends()
    connection, server = await connect(broker)
    sent = await send_until_choked(connection, ends, acks=acks)
    await asyncio.sleep(0.02)
    done_before = len(ends.all)
    broker.listen()
    if acks:
        await until(lambda: len(broker.requests) == sent and connection.can_send)
        for heard in broker.requests:
            broker.answer(heard, b"")
    await until(lambda: len(ends.all) == sent)
    broker.transport.close()
    await connection.closed
    server.close()
    return sent, done_before, ends.names()


def test_connection_stops_taking_when_the_broker_stops_reading(runner: asyncio.Runner) -> None:
    """The kernel's buffers and ours are full after a few megabytes."""
    sent, _, ended = runner.run(sent_to_a_deaf_broker(acks=-1))

    assert 1 <= sent < 20
    assert ended == [str(number) for number in range(sent)]


def test_acks_0_is_not_done_while_the_broker_does_not_read(runner: asyncio.Runner) -> None:
    sent, done_before, ended = runner.run(sent_to_a_deaf_broker(acks=0))

    assert done_before < sent
    assert ended == [str(number) for number in range(sent)]


@pytest.mark.parametrize(
    "version, expected",
    [
        ((3, 11, 7), True),
        ((3, 12, 0), False),
        ((3, 12, 8), False),
        ((3, 12, 9), True),
        ((3, 13, 0), False),
        ((3, 13, 1), False),
        ((3, 13, 2), True),
        ((3, 14, 0), True),
    ],
)
def test_interpreters_whose_writelines_never_pauses_are_known(version: tuple[int, ...], expected: bool) -> None:  # noqa: FBT001
    with closing(asyncio.new_event_loop()) as loop:
        assert honours_back_pressure(loop, version) is expected


def test_other_loops_bring_their_own_transports() -> None:
    """The writelines of uvloop pauses on every interpreter."""
    with closing(uvloop.new_event_loop()) as loop:
        assert honours_back_pressure(loop, (3, 12, 0))


async def connected_socket(cluster: FakeCluster, **settings: Any) -> tuple[asyncio.Transport, BrokerConnection]:
    host, port = cluster.bootstrap_servers.split(":")
    transport, connection = await asyncio.get_running_loop().create_connection(
        lambda: BrokerConnection(network_context(NetworkSettings(**settings)), "broker 1", nothing), host, int(port)
    )
    await connection.ready
    return transport, connection


async def test_socket_keeps_nothing_back_and_looks_for_the_other_end(one_broker: FakeCluster) -> None:
    """A firewall forgets a quiet connection, and a record without acknowledgement would vanish in what is left."""
    transport, connection = await connected_socket(one_broker)
    options = ((socket.SOL_SOCKET, socket.SO_KEEPALIVE), (socket.IPPROTO_TCP, socket.TCP_NODELAY))
    found = [transport.get_extra_info("socket").getsockopt(*option) for option in options]
    connection.close(BrokerConnectionError("done"))
    await connection.closed

    assert all(found)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="not of this system")
async def test_dead_peer_is_noticed_before_the_request_timeout(one_broker: FakeCluster) -> None:
    """A load balancer that has lost its backend says nothing; a broker that throttles this client may take nothing."""
    transport, connection = await connected_socket(one_broker, request_timeout_ms=30_000)
    tcp = transport.get_extra_info("socket")
    names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    idle_s, interval_s, probes = (tcp.getsockopt(socket.IPPROTO_TCP, name) for name in names)
    unacknowledged_ms = [tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)]
    connection.pause_until(asyncio.get_running_loop().time() + 60)
    unacknowledged_ms.append(tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
    connection.end_pause()
    unacknowledged_ms.append(tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
    connection.close(BrokerConnectionError("done"))
    await connection.closed

    assert idle_s + interval_s * probes < 30
    assert unacknowledged_ms == [24_000, 0, 24_000]


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="not of this system")
@pytest.mark.parametrize("request_timeout_ms", [2**31 - 1, 3_000_000_000], ids=["longest option", "longer"])
def test_any_request_timeout_is_taken_by_the_system(new_loop: NewLoop, request_timeout_ms: int) -> None:
    async def story() -> None:
        async with FakeCluster(1) as cluster:
            transport, connection = await connected_socket(cluster, request_timeout_ms=request_timeout_ms)
            connection.pause_until(asyncio.get_running_loop().time() + 60)
            connection.end_pause()
            taken_ms = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            connection.close(BrokerConnectionError("done"))
            await connection.closed
        assert taken_ms == min(request_timeout_ms // 5 * 4, 2**31 - 1)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(story())


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_socket_that_refuses_an_option_ends_the_attempt(new_loop: NewLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OverflowError("canary")

    monkeypatch.setattr("aioproducer._network.connection.set_socket_options", refuse)
    complaints: list[object] = []

    async def story() -> KafkaError:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        async with FakeCluster(1) as cluster, asyncio.timeout(10):
            with pytest.raises(BrokerConnectionError) as caught:
                await connected_socket(cluster)
        return caught.value

    with asyncio.Runner(loop_factory=new_loop) as runner:
        error = runner.run(story())

    assert str(error) == "broker 1: the connection cannot be used: OverflowError"
    assert complaints == []
