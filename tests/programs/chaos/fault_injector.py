"""The fault injector: injects a fault, waits, ends it, waits until all is well, and goes on, as its seed says.

A fault is an async context: it strikes on entering, says what it struck, and is lifted on leaving. Faults are dealt
from a shuffled deck, so that each kind comes before one comes twice.
"""

import asyncio
import json
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from confluent_kafka import KafkaException

from tests.programs.chaos.arena import Arena, now_us
from tests.programs.chaos.checker.cell_files import Event
from tests.programs.chaos.plans import CLIENTS_OF_A_PROCESS
from tests.programs.chaos.proxy import (
    Trouble,
    at_most,
    delays,
    half_open,
    in_single_bytes,
    loses_one_way,
    pass_on,
    resets_every,
)


@dataclass(frozen=True, slots=True)
class Strike:
    hold_s: float  # seconds that it stays; 0 if it is over at once
    nodes: list[int] = field(default_factory=list)  # nodes whose leadership it ends or moves
    clients: list[int] = field(default_factory=list)  # clients whose process it stops: from this number, below that one
    detail: str = ""


Fault: TypeAlias = Callable[[Arena], AbstractAsyncContextManager[Strike]]


CALM_S = (2.0, 5.0)  # between two faults, once everyone was acknowledged something
LEAST_S = 8.0  # a fault that cannot stay so long does not begin any more


def known_faults(longest_stop_s: float) -> Mapping[str, Fault]:
    return {
        "kill_leader": kill_leader,
        "kill_controller": kill_controller,
        "kill_two": kill_two,
        "freeze_leader": freeze_leader(longest_stop_s),
        "rolling_restart": rolling_restart,
        "elect_leaders": elect_leaders,
        "grow_topic": grow_topic,
        "make_topic_again": make_topic_again,
        "stop_producer": stop_producer,
        **{kind: bad_network(choose) for kind, choose in CHOICES.items()},
    }


class FaultInjector:
    def __init__(self, arena: Arena, kinds: Sequence[str], *, longest_stop_s: float, recovery_bound_s: float) -> None:
        """Deal from `kinds` of `known_faults`; wait at most `recovery_bound_s` for acknowledgements after healing."""
        self.counts: Counter[str] = Counter()
        self._arena = arena
        self._kinds = kinds
        self._faults = known_faults(longest_stop_s)
        self._recovery_bound_s = recovery_bound_s
        self._deck: list[str] = []

    async def run(self, until: float) -> None:
        """Strike until a monotonic time; all is well when this returns."""
        while time.monotonic() < until - LEAST_S:
            kind = self._deal()
            healed_us = await self._strike(kind, until)
            self.counts[kind] += 1
            await self._arena.wait_until_acknowledged(healed_us, self._recovery_bound_s)
            await asyncio.sleep(max(0.0, min(self._arena.rng.uniform(*CALM_S), until - time.monotonic())))

    def _deal(self) -> str:
        if not self._deck:
            self._deck = self._arena.rng.sample(self._kinds, len(self._kinds))
        return self._deck.pop()

    async def _strike(self, kind: str, until: float) -> int:
        arena = self._arena
        event = Event(kind=kind, leaders=await arena.leaders(), begin_us=now_us())
        async with self._faults[kind](arena) as strike:
            await asyncio.sleep(max(0.0, min(strike.hold_s, until - time.monotonic())))
            event.update(nodes=strike.nodes, clients=strike.clients)
            detail = strike.detail
        event["end_us"] = now_us()
        event["healed_us"] = await arena.wait_until_healed()
        arena.tell(event)
        held, healing = event["end_us"] - event["begin_us"], event["healed_us"] - event["end_us"]
        print(f"    {kind} {strike.nodes or ''} {held / 1e6:.1f} s, healed after {healing / 1e6:.1f} s  {detail}")
        return event["healed_us"]


LOOK_S = 1.0


async def watch_leaders(arena: Arena) -> None:
    """Write every change of a leader down, so that it is known when a leader's term ended."""
    before_us, before = now_us(), await arena.leaders()
    while True:
        await asyncio.sleep(LOOK_S)
        try:
            after = await arena.leaders()
        except KafkaException:  # no broker answers: what changed meanwhile is seen later
            continue
        moved = [
            [int(topic), int(partition)]
            for topic, led in after.items()
            for partition, node in led.items()
            if before.get(topic, {}).get(partition, node) != node
        ]
        after_us = now_us()
        if moved:
            arena.tell(Event(kind="leaders_moved", begin_us=before_us, end_us=after_us, moved=moved))
        before_us, before = after_us, {topic: {**before.get(topic, {}), **led} for topic, led in after.items()}


# Faults of broker processes: killed, frozen, restarted, and leaders that move.

IN_SYNC_S = 20.0  # time that a restarted node may take to catch up

SEEN_S = 1.0


@asynccontextmanager
async def kill_leader(arena: Arena) -> AsyncIterator[Strike]:
    async with _killed(arena, [await some_leader(arena)]) as strike:
        yield strike


@asynccontextmanager
async def kill_controller(arena: Arena) -> AsyncIterator[Strike]:
    """Kill -9 the active controller of the quorum; in this cluster it is a broker too."""
    async with _killed(arena, [active_controller(arena)]) as strike:
        yield strike


@asynccontextmanager
async def kill_two(arena: Arena) -> AsyncIterator[Strike]:
    """Kill -9 two of three: no quorum, no leader for anything, too few replicas."""
    async with _killed(arena, arena.rng.sample(list(arena.cluster.node_ids), 2)) as strike:
        yield strike


@asynccontextmanager
async def _killed(arena: Arena, nodes: Sequence[int]) -> AsyncIterator[Strike]:
    """Kill -9 nodes together, and start them again; their proxies refuse meanwhile, or reset what comes in."""
    refuses = arena.rng.random() < 0.5
    for node in nodes:
        if refuses:
            await arena.links[node].refuse()
        arena.cluster.node(node).kill_now()
    try:
        yield Strike(arena.rng.uniform(2, 10), nodes=list(nodes), detail=f"refuses={refuses}")
    finally:
        for node in nodes:
            await arena.links[node].open()
            arena.cluster.node(node).launch()
        for node in nodes:
            await arena.cluster.restart(node)


def freeze_leader(longest_s: float) -> Fault:
    """SIGSTOP a leader for 5 s or more: its connections stay open and nothing is answered; then it believes it leads.

    Mostly up to 15 s, sometimes as long as is allowed.
    """

    @asynccontextmanager
    async def freeze(arena: Arena) -> AsyncIterator[Strike]:
        node = await some_leader(arena)
        hold_s = arena.rng.uniform(5, longest_s if arena.rng.random() < 0.25 else min(15, longest_s))
        arena.cluster.pause(node)
        try:
            yield Strike(hold_s, nodes=[node])
        finally:
            arena.cluster.resume(node)

    return freeze


@asynccontextmanager
async def rolling_restart(arena: Arena) -> AsyncIterator[Strike]:
    """SIGTERM each node in turn, and start it again: leaders move by themselves, clients should notice little."""
    nodes = list(arena.cluster.node_ids)
    for node in arena.rng.sample(nodes, len(nodes)):
        await restart_cleanly(arena, node)
    yield Strike(0, nodes=nodes)


@asynccontextmanager
async def elect_leaders(arena: Arena) -> AsyncIterator[Strike]:
    """Let a node hand over all it leads, then give every partition back to its preferred leader, under load."""
    await restart_cleanly(arena, arena.rng.choice(arena.cluster.node_ids))
    await arena.wait_until_healed()
    await arena.admin.wait_until_in_sync(IN_SYNC_S)  # others are not elected
    before = await arena.leaders()
    await arena.admin.elect_preferred()
    await asyncio.sleep(SEEN_S)
    after = await arena.leaders()
    moved = sum(node != after[topic].get(partition) for topic, led in before.items() for partition, node in led.items())
    yield Strike(0, nodes=list(arena.cluster.node_ids), detail=f"{moved} leaders moved back")


async def restart_cleanly(arena: Arena, node: int) -> None:
    await arena.cluster.kill(node, signal.SIGTERM)
    await arena.cluster.restart(node)


async def some_leader(arena: Arena) -> int:
    leaders = [node for led in (await arena.leaders()).values() for node in led.values() if node > 0]
    return arena.rng.choice(leaders or list(arena.cluster.node_ids))


def active_controller(arena: Arena) -> int:
    """The quorum's leader, as the nodes themselves wrote it down; any node where none did."""
    found = []
    for node in arena.nodes:
        state = json.loads((node.log_folder / "__cluster_metadata-0" / "quorum-state").read_text("utf-8"))
        found.append((state["leaderEpoch"], state["leaderId"]))
    epoch_and_leader = max(found)
    return epoch_and_leader[1] if epoch_and_leader[1] > 0 else arena.rng.choice(arena.cluster.node_ids)


# Faults of the network between clients and brokers: what the proxies do.

HOLD_S = (5.0, 12.0)

CHOICES: dict[str, Callable[[random.Random], Trouble]] = {
    "resets": lambda rng: resets_every(rng.choice([4, 16, 64, 256])),
    "delay": lambda _: delays(0.2, 0.1),
    "thin_line": lambda _: at_most(64 * 1024),
    "half_open": lambda rng: rng.choice([half_open, loses_one_way(answers=True), loses_one_way(answers=False)]),
    "single_bytes": lambda _: in_single_bytes,
}


CUT_OFF_S = (10.0, 15.0)  # longer than a transaction of the chaos runs may be open


@asynccontextmanager
async def cut_off(arena: Arena) -> AsyncIterator[Strike]:
    """Nothing comes through to any broker, nor back; connections stay."""
    for link in arena.links.values():
        link.trouble = half_open
    try:
        yield Strike(arena.rng.uniform(*CUT_OFF_S), detail="all links")
    finally:
        for link in arena.links.values():
            link.trouble = pass_on


def bad_network(choose: Callable[[random.Random], Trouble]) -> Fault:
    """A trouble on the links of one node, two or all."""

    @asynccontextmanager
    async def strike(arena: Arena) -> AsyncIterator[Strike]:
        nodes = arena.rng.sample(list(arena.links), arena.rng.randint(1, len(arena.links)))
        chosen = choose(arena.rng)
        for node in nodes:
            arena.links[node].trouble = chosen
        try:
            yield Strike(arena.rng.uniform(*HOLD_S), detail=f"links of nodes {sorted(nodes)}")
        finally:
            for node in nodes:
                arena.links[node].trouble = pass_on

    return strike


# Faults that kill no process: topics that grow or are created again, and producer processes that are stopped.

SETTLED_S = 3.0  # seconds after which acknowledged records are visible to readers, and every broker knows of a change


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
