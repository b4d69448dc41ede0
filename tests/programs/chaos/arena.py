"""One cell's battlefield: three brokers, a proxy in front of each, topics, and the processes that send."""

import asyncio
import datetime as dt
import json
import random
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.kafka.broker_requests import ask_for_cluster
from aioproducer.testing.kafka.kafka_node import KafkaNode
from aioproducer.testing.kafka.programs import JavaProcess
from tests.programs.chaos.administration import Administration
from tests.programs.chaos.checker.cell_files import ROW, Event, Kind, Topic, read_history
from tests.programs.chaos.plans import Orders
from tests.programs.chaos.proxy import LOOPBACK, Link


def now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


class ProgramFailedError(Exception):
    """A program that had to succeed did not."""


class TiedProcess(JavaProcess):
    """`python -m MODULE ARGUMENTS`, tied to us as brokers are; what it prints goes to a file."""

    def __init__(self, module: str, *arguments: str, log_file: Path) -> None:
        super().__init__([sys.executable, "-m", module, *arguments], log_file)

    def pause(self) -> None:
        self.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.send_signal(signal.SIGCONT)

    async def end(self, timeout_s: float) -> bool:
        self.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(timeout_s):
                await self.wait_for_exit()
        except TimeoutError:
            self.kill_now()
            return False
        return True


async def run_to_end(module: str, *arguments: str, out: Path, log_file: Path) -> None:
    process = TiedProcess(module, *arguments, log_file=log_file)
    try:
        await process.wait_for_exit()
    finally:
        process.kill_now()
    if not out.exists():
        raise ProgramFailedError(f"{module} {' '.join(arguments)}:\n{process.log_tail(40)}")


HEAL_TIMEOUT_S = 120.0
LOOK_S = 0.2


class NotHealedError(Exception):
    """The cluster itself did not come back, so nothing can be said of the producer."""


def now_us() -> int:
    """The machine's clock, as histories have it."""
    return time.time_ns() // 1000


@dataclass(slots=True)
class TopicInPlay:
    """A topic of the cell, and its present life."""

    number: int
    described: Topic
    partitions: int
    life: int = 0
    invoked_from_us: int = 0  # records invoked from then on can only go to this life of it

    @property
    def name(self) -> str:
        return self.described["name"]


@dataclass(slots=True)
class Sender:
    orders: Orders
    process: TiedProcess


@dataclass(slots=True)
class Arena:
    folder: Path
    cluster: KafkaCluster
    links: Mapping[int, Link]
    admin: Administration
    rng: random.Random
    topics: dict[int, TopicInPlay] = field(default_factory=dict)
    senders: dict[str, Sender] = field(default_factory=dict)
    client_options: Mapping[str, str] = field(default_factory=dict)
    """Options of producers that connect through the proxies; nothing: they need none."""

    @property
    def nodes(self) -> list[KafkaNode]:
        return [self.cluster.node(node_id) for node_id in self.cluster.node_ids]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{LOOPBACK}:{link.port}" for link in self.links.values())

    # Topics and logs

    async def make_topic(self, number: int, described: Topic, partitions: int) -> None:
        await self.admin.create(described["name"], partitions, {"min.insync.replicas": "2"})
        self.topics[number] = TopicInPlay(number, described, partitions)

    async def leaders(self) -> dict[str, dict[str, int]]:
        found = await self.admin.leaders()
        return {
            str(number): {str(partition): node for partition, node in found.get(topic.name, {}).items()}
            for number, topic in self.topics.items()
        }

    async def read_log(self, topic: TopicInPlay, acknowledged_until_us: int | None = None) -> None:
        """Have the present life of a topic read by the independent reader; while it is still written, up to a time."""
        out = self.folder / f"log-{topic.number}-{topic.life}.bin"
        topic_id = await self.admin.topic_id(topic.name)
        until = () if acknowledged_until_us is None else (f"--acknowledged-until-us={acknowledged_until_us}",)
        await run_to_end(
            "tests.programs.chaos.checker.read_log",
            f"--bootstrap={self.cluster.bootstrap_servers}",
            f"--topic={topic.name}",
            f"--topic-id={topic_id}",
            f"--number={topic.number}",
            f"--invoked-from-us={topic.invoked_from_us}",
            *until,
            *(("--still-written",) if until else ()),
            f"--out={out}",
            out=out.with_suffix(".json"),
            log_file=self.folder / "read_log.log",
        )

    # Producer processes

    def start_sender(self, orders: Orders) -> None:
        process = TiedProcess(
            "tests.programs.chaos.producing", orders.dumps(), log_file=self.folder / f"printed-{orders.name}.log"
        )
        self.senders[orders.name] = Sender(orders, process)

    def kill_senders(self) -> None:
        for sender in self.senders.values():
            sender.process.kill_now()

    # Healing

    async def wait_until_healed(self) -> int:
        """Return when every port answers and every partition has a leader; the time of that."""
        try:
            async with asyncio.timeout(HEAL_TIMEOUT_S):
                while not await self._is_healed():  # noqa: ASYNC110 - brokers have no events
                    await asyncio.sleep(LOOK_S)
        except TimeoutError as late:
            raise NotHealedError(f"{self.cluster} did not heal in {HEAL_TIMEOUT_S:.0f} s") from late
        return now_us()

    async def _is_healed(self) -> bool:
        direct = [node.ports.broker_port for node in self.nodes]
        proxied = [] if self.client_options else [link.port for link in self.links.values()]  # these ask in plaintext
        for port in [*direct, *proxied]:
            view = await ask_for_cluster(LOOPBACK, port)
            if view is None or view.brokers < len(self.nodes):
                return False
        leaders = await self.leaders()
        return all(
            len(leaders[str(number)]) == topic.partitions and min(leaders[str(number)].values()) > 0
            for number, topic in self.topics.items()
        )

    async def wait_until_acknowledged(self, since_us: int, bound_s: float) -> None:
        """Return when each steady sender was acknowledged something since then; after the bound in any case."""
        left_s = bound_s - (now_us() - since_us) / 1e6
        steady = [sender.orders for sender in self.senders.values() if sender.orders.workload == "steady"]
        waits = [asyncio.create_task(acknowledged(orders.history_file, since_us)) for orders in steady]
        _, late = await asyncio.wait(waits, timeout=max(0.0, left_s))
        for wait in late:
            wait.cancel()

    def tell(self, event: Event) -> None:
        with (self.folder / "events.jsonl").open("a", encoding="utf-8") as events:
            events.write(json.dumps(event) + "\n")


async def acknowledged(history: Path, since_us: int) -> None:
    """Return when a history has an acknowledgement since then; reads only what is new."""
    while not history.exists():  # noqa: ASYNC110  # its process is still starting
        await asyncio.sleep(LOOK_S)
    start = max(0, history.stat().st_size // ROW.size - 10_000) * ROW.size
    while True:
        for row in read_history(history, start):
            start += ROW.size
            if row.kind == Kind.OK and row.time_us >= since_us:
                return
        await asyncio.sleep(LOOK_S)
