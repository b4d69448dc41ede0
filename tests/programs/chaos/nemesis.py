"""The nemesis: strikes, waits, lifts, waits until all is well, and strikes again, as its seed says.

Faults are dealt from a shuffled deck, so that each kind comes before one comes twice.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from tests.programs.chaos.arena import Arena, now_us
from tests.programs.chaos.checker.losses import Event
from tests.programs.chaos.faults import (
    CHOICES,
    Fault,
    bad_network,
    elect_leaders,
    freeze_leader,
    grow_topic,
    kill_controller,
    kill_leader,
    kill_two,
    make_topic_again,
    rolling_restart,
    stop_producer,
)

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


class Nemesis:
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
