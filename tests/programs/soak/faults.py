"""One harm a minute: a crash, a freeze, a restart, connections reset. Leaders move with it."""

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable

from aioproducer.testing.kafka import KafkaCluster
from tests.programs.chaos.administration import Administration

DOWN_S = 10.0
PAUSE_BETWEEN_S = 60.0
FIRST_AFTER_S = 20.0
RESETS = 10


class FaultInjector:
    """Does one harm a minute, in an order drawn from the seed, each kind as often as the others."""

    def __init__(
        self, kafka: KafkaCluster, administration: Administration, *, seed: int, say: Callable[[str], None]
    ) -> None:
        self._kafka = kafka
        self._administration = administration
        self._chance = random.Random(seed)
        self._say = say
        self._kinds: list[Callable[[int], Awaitable[None]]] = []
        self.faults = 0

    async def run(self, until: float) -> None:
        """Go on until a loop time, and leave the brokers in good health."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(FIRST_AFTER_S)
        while (next_at := loop.time() + PAUSE_BETWEEN_S) and loop.time() < until - 2 * DOWN_S:
            if not self._kinds:
                self._kinds = [self.kill, self.freeze, self.restart, self.reset]
                self._chance.shuffle(self._kinds)
            node_id = self._chance.choice(self._kafka.node_ids)
            fault = self._kinds.pop()
            self._say(f"{fault.__name__} node {node_id}")
            await fault(node_id)
            self.faults += 1
            await asyncio.sleep(max(0.0, min(next_at, until) - loop.time()))

    async def kill(self, node_id: int) -> None:
        """Kill -9, back after ten seconds, then every leader in its first place again."""
        await self._kafka.kill(node_id)
        await self._come_back(node_id)

    async def restart(self, node_id: int) -> None:
        await self._kafka.kill(node_id, signal.SIGTERM)
        await self._come_back(node_id)

    async def freeze(self, node_id: int) -> None:
        """SIGSTOP: connections stay open, and nothing is answered."""
        self._kafka.pause(node_id)
        await asyncio.sleep(DOWN_S)
        self._kafka.resume(node_id)

    async def reset(self, node_id: int) -> None:
        """End every connection to the node, once a second, as a firewall does (`ss -K`; needs root)."""
        port = self._kafka.node(node_id).address.rpartition(":")[2]
        for _ in range(RESETS):
            command = ("ss", "-K", "dst", "127.0.0.1", "dport", "=", port)
            process = await asyncio.create_subprocess_exec(*command, stdout=-3, stderr=-3)
            if await process.wait():
                self._say("reset: ss -K does not work on this machine")
            await asyncio.sleep(1)

    async def _come_back(self, node_id: int) -> None:
        await asyncio.sleep(DOWN_S)
        await self._kafka.restart(node_id)
        await asyncio.sleep(DOWN_S)
        await self._administration.elect_preferred()
