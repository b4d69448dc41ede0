"""Requests without a response (acks=0), and a transport that does not take more bytes."""

import asyncio
import dataclasses

import pytest

from aioproducer._network.connection import BrokerConnection
from aioproducer._network.context import NetworkSettings
from aioproducer.errors import BrokerConnectionError
from tests.fakes.memory_transport import connect_in_memory
from tests.fakes.network import Ends, connected, network_context, nothing
from tests.fakes.producer_events import EventNotes
from tests.fakes.scripted_broker import Heard, ScriptedBroker
from tests.fakes.virtual_loop import run


def echo(broker: ScriptedBroker, heard: Heard) -> None:
    broker.answer(heard, heard.body[-4:])


def test_acks_0_ends_when_its_bytes_have_left() -> None:
    """No answer is awaited; the end is when the transport holds nothing of it, found by polling."""

    async def story() -> tuple[list[tuple[str, object]], list[tuple[str, object]]]:
        pair = await connected()
        ends = Ends()
        pair.transport.is_stuck = True
        pair.connection.send(ends.request("a", acks=0))
        pair.connection.send(ends.request("b", acks=0))
        await asyncio.sleep(1)
        before = list(ends.all)
        pair.transport.flush(pair.transport.get_write_buffer_size() - 1)
        await asyncio.sleep(1)
        return before, ends.all

    assert run(story()) == ([], [("a", "written")])


def test_acks_0_counts_as_in_flight_until_written() -> None:
    """Otherwise nothing would bound what waits for a broker that does not read."""

    async def story() -> tuple[bool, bool]:
        pair = await connected(settings=NetworkSettings(max_in_flight=1))
        pair.transport.is_stuck = True
        pair.connection.send(Ends().request("a", acks=0))
        stuck = pair.connection.can_send
        pair.transport.is_stuck = False
        pair.transport.flush()
        await asyncio.sleep(0.2)
        return stuck, pair.connection.can_send

    assert run(story()) == (False, True)


def test_acks_0_to_a_broker_that_does_not_read_closes() -> None:
    """A write buffer that has not moved for request_timeout is given up."""

    async def story() -> tuple[float, str]:
        pair = await connected(settings=NetworkSettings(request_timeout_ms=1000))
        ends = Ends()
        pair.transport.is_stuck = True
        start = pair.context.loop.time()
        pair.connection.send(ends.request("a", acks=0))
        await pair.connection.closed
        return pair.context.loop.time() - start, str(ends.errors()[0])

    elapsed_s, text = run(story())

    assert elapsed_s == pytest.approx(1, abs=0.2)
    assert "has read nothing" in text


def test_acks_0_after_a_quiet_time_has_the_whole_time_to_leave() -> None:
    """That nothing has moved while there was nothing to move is no standstill."""

    async def story() -> tuple[bool, float]:
        pair = await connected(settings=NetworkSettings(request_timeout_ms=1000))
        pair.connection.send(Ends().request("long ago", acks=0))
        await asyncio.sleep(5)
        pair.transport.is_stuck = True
        start = pair.context.loop.time()
        pair.connection.send(Ends().request("now", acks=0))
        await asyncio.sleep(0.5)
        is_open = pair.connection.is_open
        await pair.connection.closed
        return is_open, pair.context.loop.time() - start

    is_open, elapsed_s = run(story())

    assert is_open
    assert elapsed_s == pytest.approx(1, abs=0.2)


def test_acks_0_after_a_slow_moment_ends_soon_again() -> None:
    """Who looks ever more rarely while nothing moves looks often again once something has."""

    async def story() -> float:
        pair = await connected()
        ends = Ends()
        pair.transport.is_stuck = True
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
        return pair.context.loop.time() - start

    assert run(story()) < 0.05


def test_acks_0_to_a_broker_that_reads_slowly_goes_on() -> None:
    """However long it takes, and however much waits behind: only a standstill is given up."""

    async def story() -> tuple[bool, list[str]]:
        pair = await connected(settings=NetworkSettings(request_timeout_ms=1000))
        ends = Ends()
        pair.transport.is_stuck = True
        for name in "abcdef":
            pair.connection.send(ends.request(name, acks=0))
            pair.connection.send(ends.request(name.upper(), acks=0))
            await asyncio.sleep(0.5)
            pair.transport.flush(pair.transport.get_write_buffer_size() // 2)
        await asyncio.sleep(0.2)
        return pair.connection.is_open, ends.names()[:4]

    assert run(story()) == (True, ["a", "A", "b", "B"])


def test_acks_0_to_a_broker_in_its_pause_waits_for_the_end_of_it() -> None:
    """It reads nothing meanwhile, as it has said (KIP-219); what its kernel still takes does not shorten that."""

    async def story() -> float:
        pair = await connected(settings=NetworkSettings(request_timeout_ms=1000))
        pair.transport.is_stuck = True
        start = pair.context.loop.time()
        pair.connection.send(Ends().request("a", acks=0))
        pair.connection.pause_until(start + 5)
        await asyncio.sleep(0.5)
        pair.transport.flush(1)
        await pair.connection.closed
        return pair.context.loop.time() - start

    assert run(story()) == pytest.approx(6, abs=0.2)


def test_acks_0_record_sent_before_hang_up_was_written() -> None:
    """A refusing broker can only close, sooner than the next poll. Bytes that were not sent are lost."""

    async def story() -> list[tuple[str, type]]:
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
        return [(name, type(how)) for name, how in ends.all]

    assert run(story()) == [("left", str), ("kept", BrokerConnectionError)]


def test_choked_transport_takes_no_request() -> None:
    """Above the mark the connection is not ready; below it again, it is, and the sender is woken."""

    async def story() -> tuple[list[bool], int]:
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
        return [choked, connection.can_send], events.wakes

    assert run(story()) == ([False, True], 1)


def test_acks_0_keeps_its_connection_in_use() -> None:
    """Nothing comes back that would show it: by answers alone it was idle while it was written to."""

    async def story() -> tuple[bool, int]:
        settings = NetworkSettings(request_timeout_ms=1000, connections_max_idle_ms=5000)
        pair = await connected(settings=settings)
        ends = Ends()
        for number in range(20):
            pair.connection.send(ends.request(str(number), acks=0))
            await asyncio.sleep(1)
        return pair.connection.is_open, len(ends.all)

    assert run(story()) == (True, 20)


def test_acks_0_that_leaves_byte_by_byte_is_not_idle() -> None:
    """A slow network may take longer for it than an unused connection is kept."""

    async def story() -> tuple[bool, int]:
        settings = NetworkSettings(request_timeout_ms=30_000, connections_max_idle_ms=1000)
        pair = await connected(settings=settings)
        pair.transport.is_stuck = True
        pair.connection.send(Ends().request("a", acks=0, body=bytes(100)))
        for _ in range(40):
            await asyncio.sleep(1)
            pair.transport.flush(1)
        return pair.connection.is_open, pair.connection.in_flight

    assert run(story()) == (True, 1)


def test_unanswered_bytes_are_counted_too() -> None:
    async def story() -> tuple[int, int]:
        pair = await connected()
        for acks in (0, -1):
            pair.connection.send(Ends().request("a", acks=acks, body=bytes(5000)))
        await asyncio.sleep(0)
        return pair.context.counters.bytes_out, pair.transport.written

    counted, written = run(story())

    assert counted == written > 10_000
