"""Faults of the network between clients and brokers: what the proxies do."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.programs.chaos.arena import Arena
from tests.programs.chaos.faults.strike import Fault, Strike
from tests.programs.chaos.troubles import (
    Trouble,
    at_most,
    delays,
    half_open,
    in_single_bytes,
    loses_one_way,
    pass_on,
    resets_every,
)

HOLD_S = (5.0, 12.0)

CHOICES: dict[str, Callable[[random.Random], Trouble]] = {
    "resets": lambda rng: resets_every(rng.choice([4, 16, 64, 256])),
    "delay": lambda _: delays(0.2, 0.1),
    "thin_line": lambda _: at_most(64 * 1024),
    "half_open": lambda rng: rng.choice([half_open, loses_one_way(answers=True), loses_one_way(answers=False)]),
    "single_bytes": lambda _: in_single_bytes,
}


CUT_OFF_S = (10.0, 15.0)
"""Longer than a transaction of the chaos runs may be open."""


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
