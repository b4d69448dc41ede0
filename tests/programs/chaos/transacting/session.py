"""One session: a cluster, transacting processes, what is done to both, and what is found in the end."""

import asyncio
import random
import signal
import time
from collections import Counter

from aioproducer import Producer
from tests.programs.chaos.arena import Arena
from tests.programs.chaos.checker.cell_description import Topic
from tests.programs.chaos.checker.verdict import Verdict
from tests.programs.chaos.faults import cut_off
from tests.programs.chaos.nemesis import known_faults
from tests.programs.chaos.tied_process import TiedProcess
from tests.programs.chaos.transacting.committed import check_session, group_offsets
from tests.programs.chaos.transacting.history import PARTITIONS
from tests.programs.chaos.transacting.processes import (
    ALL_IDS,
    BANK,
    COPIER,
    IDS,
    INPUT,
    INPUT_PARTITIONS,
    OUTPUT,
    TOPIC,
    start,
)
from tests.programs.timestamp import now

TOPICS = {TOPIC: PARTITIONS, BANK: PARTITIONS, INPUT: INPUT_PARTITIONS, OUTPUT: INPUT_PARTITIONS}

BROKER_FAULTS = ("kill_leader", "kill_controller", "kill_two", "freeze_leader", "rolling_restart", "elect_leaders")
NETWORK_FAULTS = ("resets", "delay", "thin_line", "half_open", "single_bytes", "cut_off")
CLIENT_FAULTS = ("kill_client", "stop_client")
DECK = (*BROKER_FAULTS, *NETWORK_FAULTS, *CLIENT_FAULTS * 3)
CALM_S = (3.0, 8.0)
LONGEST_STOP_S = 12.0
STOP_S = (4.0, 14.0)
END_S = 60.0


class Session:
    """One cluster, its processes, and what was done to them."""

    def __init__(self, arena: Arena, rng: random.Random, copies: int) -> None:
        self.faults: Counter[str] = Counter()
        self.problems: list[str] = []
        self._arena = arena
        self._rng = rng
        self._copies = copies
        self._processes: dict[str, TiedProcess] = {}
        self._starts: Counter[str] = Counter()

    async def run(self, seconds: float) -> Verdict:
        for number, (topic, partitions) in enumerate(TOPICS.items()):
            await self._arena.make_topic(number, Topic(name=topic, idempotent=True), partitions)
        await self._arena.wait_until_healed()
        await self._fill_input()
        for name in (*IDS, COPIER):
            self._start(name)
        try:
            await self._fight(time.monotonic() + seconds)
            print(f"    {now()} the fight is over", flush=True)
            await self._end()
            print(f"    {now()} everybody has ended", flush=True)
        finally:
            for process in self._processes.values():
                process.kill_now()
        servers = self._arena.cluster.bootstrap_servers
        return await asyncio.to_thread(check_session, servers, self._arena.folder, self._copies)

    async def _fill_input(self) -> None:
        async with Producer(self._arena.cluster.bootstrap_servers) as producer:
            for number in range(self._copies):
                await producer.enqueue(INPUT, b"%d" % number, partition=number % INPUT_PARTITIONS)

    def _start(self, name: str) -> None:
        self._starts[name] += 1
        self._processes[name] = start(name, self._arena, copies=self._copies, life=self._starts[name])

    # Faults

    async def _fight(self, until: float) -> None:
        known, deck = {**known_faults(LONGEST_STOP_S), "cut_off": cut_off}, list[str]()
        while time.monotonic() < until:
            deck = deck or self._rng.sample(DECK, len(DECK))
            kind = deck.pop()
            began = time.monotonic()
            if kind in CLIENT_FAULTS:
                detail = await self._strike_client(kind)
            else:
                async with known[kind](self._arena) as strike:
                    await asyncio.sleep(strike.hold_s)
                    detail = f"{strike.nodes or ''} {strike.detail}"
                await self._arena.wait_until_healed()
            self.faults[kind] += 1
            print(f"    {now()} {kind} {detail}, {time.monotonic() - began:.1f} s", flush=True)
            await asyncio.sleep(self._rng.uniform(*CALM_S))

    async def _strike_client(self, kind: str) -> str:
        running = [name for name, process in self._processes.items() if process.is_running]
        name = self._rng.choice(running or ["alone-1"])
        process = self._processes[name]
        if kind == "kill_client":
            process.kill_now()
            await process.wait_for_exit()
            self._start(name)
            return name
        process.pause()
        try:
            await asyncio.sleep(self._rng.uniform(*STOP_S))
        finally:
            process.resume()
        return name

    # The end

    async def _end(self) -> None:
        await self._end_copier(self._processes.pop(COPIER))
        await asyncio.gather(*(self._end_one(name, process) for name, process in self._processes.items()))
        await asyncio.gather(*(self._take_over(transactional_id) for transactional_id in ALL_IDS))

    async def _end_copier(self, copier: TiedProcess) -> None:
        """Wait for it as long as it gets anywhere; one that does not is a problem, and says what it waits for."""
        exited = asyncio.ensure_future(copier.wait_for_exit())
        before, offsets = list[int](), await self._copied()
        while offsets != before and not exited.done():
            await asyncio.wait([exited], timeout=END_S * 2)
            before, offsets = offsets, await self._copied()
        if not exited.done():
            copier.send_signal(signal.SIGUSR1)
            await asyncio.wait([exited], timeout=1)
            self.problems.append(f"the copier makes no progress at {offsets}: {copier.log_tail(200)}")
            copier.kill_now()
        await exited

    async def _copied(self) -> list[int]:
        return await asyncio.to_thread(group_offsets, self._arena.cluster.bootstrap_servers)

    async def _end_one(self, name: str, process: TiedProcess) -> None:
        """Send SIGTERM; a process that died before, or takes too long, is a problem."""
        if not process.is_running:
            self.problems.append(f"{name} died: {process.log_tail(20)}")
        elif not await process.end(END_S):
            self.problems.append(f"{name} did not end in {END_S:.0f} s: {process.log_tail(20)}")

    async def _take_over(self, transactional_id: str) -> None:
        """Abort what is open under this id."""
        async with Producer(self._arena.cluster.bootstrap_servers, transactional_id=transactional_id):
            """Starting does it."""
