"""Faults that kill no process: topics that grow or are created again, and producer processes that are stopped."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.programs.chaos.arena import Arena, now_us
from tests.programs.chaos.faults.strike import Strike
from tests.programs.chaos.plans import CLIENTS_OF_A_PROCESS

SETTLED_S = 3.0
"""Seconds after which acknowledged records are visible to readers, and every broker knows of a change."""


@asynccontextmanager
async def grow_topic(arena: Arena) -> AsyncIterator[Strike]:
    """Give a topic a few more partitions; clients find out by themselves."""
    topic = arena.rng.choice(list(arena.topics.values()))
    topic.partitions += arena.rng.randint(1, 3)
    await arena.admin.grow(topic.name, topic.partitions)
    yield Strike(0, detail=f"{topic.name} has {topic.partitions} partitions")


@asynccontextmanager
async def make_topic_again(arena: Arena) -> AsyncIterator[Strike]:
    """Delete a topic under load and make it again: another topic id, empty, with as many partitions."""
    topic = arena.rng.choice(list(arena.topics.values()))
    read_from_us = now_us()
    await asyncio.sleep(SETTLED_S)
    await arena.read_log(topic, acknowledged_until_us=read_from_us)
    topic.life += 1
    await arena.admin.delete(topic.name)
    await asyncio.sleep(arena.rng.uniform(0, 3))
    await arena.admin.create(topic.name, topic.partitions, {"min.insync.replicas": "2"})
    await asyncio.sleep(SETTLED_S)
    topic.invoked_from_us = now_us()
    yield Strike(0, detail=f"{topic.name} has life {topic.life}")


@asynccontextmanager
async def stop_producer(arena: Arena) -> AsyncIterator[Strike]:
    """SIGSTOP a producer process for longer than its records may live."""
    sender = arena.rng.choice(list(arena.senders.values()))
    first = sender.orders.first_client
    hold_s = sender.orders.options["delivery_timeout_ms"] / 1000 + arena.rng.uniform(1, 4)
    sender.process.pause()
    try:
        yield Strike(hold_s, clients=[first, first + CLIENTS_OF_A_PROCESS], detail=sender.orders.name)
    finally:
        sender.process.resume()
