"""A broker that does not read, on real sockets and on each interpreter that runs the tests."""

import asyncio
import random
import socket
from collections.abc import Callable, Iterator

import pytest
import uvloop

from aioproducer._network.connection import BrokerConnection
from aioproducer._network.context import NetworkContext, NetworkSettings
from aioproducer._network.write_stream import honours_back_pressure
from tests.fakes.event_log import EventList
from tests.fakes.network import Ends, nothing
from tests.fakes.scripted_broker import ScriptedBroker
from tests.fakes.timer_driver import TimerDriver

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


def test_connection_stops_taking_when_the_broker_stops_reading(runner: asyncio.Runner) -> None:
    """The kernel's buffers and ours are full after a few megabytes."""

    async def story() -> tuple[int, list[str]]:
        broker, ends = DeafBroker(), Ends()
        connection, server = await connect(broker)
        sent = await send_until_choked(connection, ends, acks=-1)
        broker.listen()
        async with asyncio.timeout(5):
            while len(broker.requests) < sent or not connection.can_send:  # noqa: ASYNC110  # no event to wait for
                await asyncio.sleep(0.001)
        for heard in broker.requests:
            broker.answer(heard, b"")
        async with asyncio.timeout(5):
            while len(ends.all) < sent:  # noqa: ASYNC110  # no event to wait for
                await asyncio.sleep(0.001)
        broker.transport.close()
        await connection.closed
        server.close()
        return sent, ends.names()

    sent, ended = runner.run(story())

    assert 1 <= sent < 20
    assert ended == [str(number) for number in range(sent)]


def test_acks_0_is_not_done_while_the_broker_does_not_read(runner: asyncio.Runner) -> None:
    async def story() -> tuple[int, int, list[str]]:
        broker, ends = DeafBroker(), Ends()
        connection, server = await connect(broker)
        sent = await send_until_choked(connection, ends, acks=0)
        await asyncio.sleep(0.02)
        done_before = len(ends.all)
        broker.listen()
        async with asyncio.timeout(5):
            while len(ends.all) < sent:  # noqa: ASYNC110  # no event to wait for
                await asyncio.sleep(0.001)
        broker.transport.close()
        await connection.closed
        server.close()
        return sent, done_before, ends.names()

    sent, done_before, ended = runner.run(story())

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
    loop = asyncio.new_event_loop()
    try:
        assert honours_back_pressure(loop, version) is expected
    finally:
        loop.close()


def test_other_loops_bring_their_own_transports() -> None:
    """The writelines of uvloop pauses on every interpreter."""
    loop = uvloop.new_event_loop()
    try:
        assert honours_back_pressure(loop, (3, 12, 0))
    finally:
        loop.close()
