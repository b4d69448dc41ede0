"""Faults of broker processes: killed, frozen, restarted, and leaders that move."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tests.programs.chaos.arena import Arena
from tests.programs.chaos.faults.strike import Fault, Strike

IN_SYNC_S = 20.0
"""Time that a restarted node may take to catch up."""

SEEN_S = 1.0


@asynccontextmanager
async def kill_leader(arena: Arena) -> AsyncIterator[Strike]:
    """Kill -9 the leader of some partition."""
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
    """The node that leads a partition chosen at random; any node where there is no leader."""
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
