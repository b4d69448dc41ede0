"""Bytes of unfinished responses are bounded over all connections."""

import asyncio
import struct
import tracemalloc
from dataclasses import replace

import pytest

from aioproducer._network.connection import BrokerConnection
from aioproducer._network.context import NetworkContext
from aioproducer._network.response_budget import ResponseBudget
from aioproducer.errors import BrokerConnectionError
from tests.fakes.memory_transport import connect_in_memory
from tests.fakes.network import Ends, connected, network_context, nothing
from tests.fakes.scripted_broker import ScriptedBroker
from tests.fakes.virtual_cluster import in_virtual_time
from tests.fakes.virtual_loop import run

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
        pair = await connected()
        pair.connection.send(Ends().request("a"))
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
    errors, are_open, total = (
        ends.errors(),
        [name for name, each in connections.items() if each.is_open],
        context.response_budget.total,
    )

    assert [type(error) for error in errors] == [BrokerConnectionError]
    assert "broker a at host:9092" in str(errors[0])
    assert "1250 allowed" in str(errors[0])
    assert (are_open, total) == (["b"], 400)


@in_virtual_time
async def test_answers_that_end_hold_nothing() -> None:
    pair = await connected()
    ends = Ends()
    pair.connection.send(ends.request("a"))
    await asyncio.sleep(0.01)
    for byte in struct.pack(">ii", 9, pair.broker.requests[0].correlation_id) + b"\x00body":
        pair.broker.say(bytes((byte,)))
        await asyncio.sleep(0.01)
    assert (ends.names(), pair.context.response_budget.total) == (["a"], 0)
