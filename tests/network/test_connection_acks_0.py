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
from tests.fakes.virtual_cluster import in_virtual_time


def echo(broker: ScriptedBroker, heard: Heard) -> None:
    broker.answer(heard, heard.body[-4:])


@in_virtual_time
async def test_acks_0_ends_when_its_bytes_have_left() -> None:
    pair = await connected()
    ends = Ends()
    pair.transport.is_stuck = True
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
    pair = await connected(settings=NetworkSettings(max_in_flight=1))
    pair.transport.is_stuck = True
    pair.connection.send(Ends().request("a", acks=0))
    stuck = pair.connection.can_send
    pair.transport.is_stuck = False
    pair.transport.flush()
    await asyncio.sleep(0.2)
    assert (stuck, pair.connection.can_send) == (False, True)


@in_virtual_time
async def test_acks_0_to_a_broker_that_does_not_read_closes() -> None:
    """A write buffer that has not moved for request_timeout is given up."""
    pair = await connected(settings=NetworkSettings(request_timeout_ms=1000))
    ends = Ends()
    pair.transport.is_stuck = True
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
    assert pair.context.loop.time() - start < 0.05


@in_virtual_time
async def test_acks_0_to_a_broker_that_reads_slowly_goes_on() -> None:
    """However long it takes, and however much waits behind: only a standstill is given up."""
    pair = await connected(settings=NetworkSettings(request_timeout_ms=1000))
    ends = Ends()
    pair.transport.is_stuck = True
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
    pair = await connected(settings=NetworkSettings(request_timeout_ms=1000))
    pair.transport.is_stuck = True
    start = pair.context.loop.time()
    pair.connection.send(Ends().request("a", acks=0))
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
    settings = NetworkSettings(request_timeout_ms=30_000, connections_max_idle_ms=1000)
    pair = await connected(settings=settings)
    pair.transport.is_stuck = True
    pair.connection.send(Ends().request("a", acks=0, body=bytes(100)))
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
