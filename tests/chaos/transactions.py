"""Transactions on real brokers that are killed, frozen and cut off: `python -m tests.chaos.transactions --minutes 60`.

| workload | processes |
|---|---|
| W3 | `alone-1`, `alone-2`: transactions of 10 records over 3 partitions, 30% aborted, each with an id of its own |
| W4 | `copier`: consume, transform, produce (`tests/integrations`) |
| W5 | `teller`: transfers between ten accounts, whose sum stays |
| W6 | `rival-1`, `rival-2`: as W3, with one id between them: each fences the other, again and again |
| W7 | any of them is stopped (SIGSTOP), also for longer than its transaction may be open, and goes on |
| W8 | any of them is killed (SIGKILL) and started again with the same id |

At the end of each session an independent client reads what is committed (C7, C8, C9 of the checker). Prints a summary;
exit code 1 if anything was violated.
"""

import argparse
import asyncio
import itertools
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka

from aioproducer import Producer
from tests.chaos.arena import Arena
from tests.chaos.cell import open_arena
from tests.chaos.checker.transaction_check import (
    CommittedRecord,
    check_balances,
    check_copies,
    check_transactions,
)
from tests.chaos.checker.verdict import Verdict
from tests.chaos.faults.networks import cut_off
from tests.chaos.nemesis import known_faults
from tests.chaos.tied_process import TiedProcess
from tests.chaos.transacting.bank import ACCOUNTS, AT_FIRST, TELLER, TRANSFER_RECORDS, decode_balance
from tests.chaos.transacting.history import PARTITIONS, RECORDS, What, decode_value, read_lines
from tests.integrations.worker_program import WorkerOrders
from tests.integrations.workers import GROUP
from tests.kafka_releases import RELEASES

TOPIC, INPUT, OUTPUT = "chaos-transactions", "chaos-input", "chaos-input-out"
BANK = "chaos-bank"
IDS = {"alone-1": "alone-1", "alone-2": "alone-2", "rival-1": "rivals", "rival-2": "rivals", TELLER: TELLER}
"""Transactional id by process."""

BROKER_FAULTS = ("kill_leader", "kill_controller", "kill_two", "freeze_leader", "rolling_restart", "elect_leaders")
NETWORK_FAULTS = ("resets", "delay", "thin_line", "half_open", "single_bytes", "cut_off")
CLIENT_FAULTS = ("kill_client", "stop_client")
CALM_S = (2.0, 5.0)
LONGEST_STOP_S = 12.0
STOP_S = (4.0, 14.0)
END_S = 60.0
END_OF_PARTITION = -191
"""librdkafka's own code."""


class Session:
    """One cluster, its processes, and what was done to them.

    Args:
        arena: of brokers and proxies.
        rng: chooses.
        copies: how many records the copier has to copy.
    """

    def __init__(self, arena: Arena, rng: random.Random, copies: int) -> None:
        self.faults: Counter[str] = Counter()
        self.problems: list[str] = []
        self._arena = arena
        self._rng = rng
        self._copies = copies
        self._processes: dict[str, TiedProcess] = {}
        self._starts: Counter[str] = Counter()

    async def run(self, seconds: float) -> Verdict:
        """Fight, let everybody end, and check."""
        for topic, partitions in ((TOPIC, PARTITIONS), (BANK, PARTITIONS), (INPUT, 4), (OUTPUT, 4)):
            await self._arena.admin.create(topic, partitions, {"min.insync.replicas": "2"})
        await self._arena.wait_until_healed()
        await self._fill_input()
        for name in (*IDS, "copier"):
            self._start(name)
        try:
            await self._fight(time.monotonic() + seconds)
            await self._end()
        finally:
            for process in self._processes.values():
                process.kill_now()
        return await asyncio.to_thread(self._check)

    async def _fill_input(self) -> None:
        async with Producer(self._arena.cluster.bootstrap_servers) as producer:
            for number in range(self._copies):
                await producer.enqueue(INPUT, b"%d" % number, partition=number % 4)

    def _start(self, name: str) -> None:
        """A process, in its first life or a later one."""
        self._starts[name] += 1
        log_file = self._arena.folder / f"printed-{name}-{self._starts[name]}.log"
        if name == "copier":
            orders = WorkerOrders(self._arena.bootstrap, INPUT, name, self._copies, batch=10, pause_s=0.02)
            self._processes[name] = TiedProcess(*orders.command()[2:], log_file=log_file)
        else:
            self._processes[name] = TiedProcess(
                "tests.chaos.transacting",
                *(str(self._arena.folder), self._arena.bootstrap, BANK if name == TELLER else TOPIC, IDS[name], name),
                log_file=log_file,
            )

    # Faults

    async def _fight(self, until: float) -> None:
        """Strike until the time is over; all is well when this returns."""
        known, deck = {**known_faults(LONGEST_STOP_S), "cut_off": cut_off}, list[str]()
        while time.monotonic() < until:
            deck = deck or self._rng.sample(every := [*BROKER_FAULTS, *NETWORK_FAULTS, *CLIENT_FAULTS * 3], len(every))
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
            print(f"    {kind} {detail}, {time.monotonic() - began:.1f} s", flush=True)
            await asyncio.sleep(self._rng.uniform(*CALM_S))

    async def _strike_client(self, kind: str) -> str:
        """W7 or W8, of one process."""
        name = self._rng.choice(
            [name for name, process in self._processes.items() if process.is_running] or ["alone-1"]
        )
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
        """Let the copier finish and the others end; then abort what killed ones have left open."""
        copier = self._processes.pop("copier")
        try:
            async with asyncio.timeout(END_S * 2):
                await copier.wait_for_exit()
        except TimeoutError:
            self.problems.append(f"the copier did not finish: {copier.log_tail(20)}")
            copier.kill_now()
        for name, process in self._processes.items():
            if not process.is_running:
                self.problems.append(f"{name} died: {process.log_tail(20)}")
            elif not await process.end(END_S):
                self.problems.append(f"{name} did not end in {END_S:.0f} s: {process.log_tail(20)}")
        for transactional_id in (*dict.fromkeys(IDS.values()), f"{INPUT}-copier"):
            async with Producer(self._arena.cluster.bootstrap_servers, transactional_id=transactional_id):
                """Whatever was open under this id is aborted."""

    def _check(self) -> Verdict:
        verdict, servers = Verdict(), self._arena.cluster.bootstrap_servers
        found = [
            CommittedRecord(message.partition(), *decode_value(message.value()))
            for message in committed(servers, TOPIC)
        ]
        check_transactions(found, self._ends(is_bank=False), records=RECORDS, verdict=verdict)
        self._check_bank(committed(servers, BANK), verdict)
        copies = Counter(int(message.value()) for message in committed(servers, OUTPUT))
        check_copies(self._copies, copies, group_offsets(servers), verdict=verdict)
        return verdict

    def _check_bank(self, messages: Sequence[confluent_kafka.Message], verdict: Verdict) -> None:
        of_others = verdict.figures["transactions"], verdict.figures["visible"]
        told = [decode_balance(message.value()) for message in messages]
        found = [
            CommittedRecord(message.partition(), *balance[:4]) for message, balance in zip(messages, told, strict=True)
        ]
        check_transactions(found, self._ends(is_bank=True), records=TRANSFER_RECORDS, verdict=verdict)
        check_balances(((it.account, it.amount) for it in told), ACCOUNTS, AT_FIRST, verdict=verdict)
        verdict.figures["transfers"] = verdict.figures["transactions"]
        verdict.figures["transactions"], verdict.figures["visible"] = of_others

    def _ends(self, *, is_bank: bool) -> dict[tuple[str, int], str | None]:
        """How each transaction of the bank, or of the others, ended; None: nobody wrote that down."""
        return {
            (line.life, line.number): None if line.what == What.BEGIN else line.what
            for line in read_lines(self._arena.folder)
            if (line.transactional_id == TELLER) == is_bank
        }


# Somebody else's view


def reader(bootstrap: str) -> confluent_kafka.Consumer:
    """Of what is committed."""
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{GROUP}-{INPUT}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )


def committed(bootstrap: str, topic: str) -> list[confluent_kafka.Message]:
    """Every record that is committed, in each partition in the order of offsets."""
    consumer, found, ended = reader(bootstrap), list[confluent_kafka.Message](), 0
    partitions = list(consumer.list_topics(topic, 30).topics[topic].partitions)
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in partitions])
    while ended < len(partitions):
        for message in consumer.consume(1_000, 30):
            if message.error() is None:
                found.append(message)
            elif message.error().code() == END_OF_PARTITION:
                ended += 1
    consumer.close()
    return found


def group_offsets(bootstrap: str) -> int:
    """How far the copier's group has come, all partitions together."""
    consumer = reader(bootstrap)
    places = [confluent_kafka.TopicPartition(INPUT, number) for number in range(4)]
    offsets = [place.offset for place in consumer.committed(places, 30)]
    consumer.close()
    return sum(max(offset, 0) for offset in offsets)


# The command


@dataclass(slots=True)
class Totals:
    """Of all sessions."""

    sessions: int = 0
    transactions: Counter[str] = field(default_factory=Counter)
    """By how they ended."""
    faults: Counter[str] = field(default_factory=Counter)
    violations: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    async def add_session(self, release: str, seed: int, *, seconds: float, folder: Path) -> None:
        """Run one, and say what came of it; its folder is kept if that was not all right."""
        folder.mkdir(parents=True)
        print(f"Kafka {release}, seed {seed}, {folder}", flush=True)
        async with open_arena(release, seed, folder) as arena:
            this = Session(arena, random.Random(seed), copies=int(seconds * 20))
            verdict = await this.run(seconds)
        self.sessions += 1
        self.transactions.update(verdict.figures["transactions"])  # type: ignore[arg-type]
        self.transactions.update(verdict.figures["transfers"])  # type: ignore[arg-type]
        self.faults += this.faults
        self.violations += verdict.violations
        self.problems += this.problems
        print(json.dumps({**verdict.as_json(), "problems": this.problems}), flush=True)
        if verdict.is_clean and not this.problems:
            shutil.rmtree(folder)

    def as_json(self) -> dict[str, object]:
        """For the end of the output."""
        counts = {"transactions": self.transactions, "faults": self.faults, "violations": self.violations}
        return {
            "sessions": self.sessions,
            **{name: {str(key): count for key, count in counter.items()} for name, counter in counts.items()},
            "problems": self.problems,
        }

    @property
    def is_clean(self) -> bool:
        """Whether nothing was violated, and nothing else went wrong."""
        return not self.violations and not self.problems


def main(given: Sequence[str]) -> int:
    """Sessions until the time is over, one at least, of each release in turn; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.transactions", description=__doc__)
    parser.add_argument("--kafka", choices=[*RELEASES], action="append", help="only this release; may be given again")
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--seconds", type=float, default=90, help="of each session, its start and end not counted")
    parser.add_argument("--seed", type=int, default=None, help="of the first session; each other has the next one")
    asked = parser.parse_args(given)
    first = random.randrange(10**6) if asked.seed is None else asked.seed
    folder = Path(tempfile.mkdtemp(prefix="chaos-transactions-"))
    until, totals = time.monotonic() + asked.minutes * 60, Totals()
    for seed, release in enumerate(itertools.cycle(asked.kafka or RELEASES), first):
        asyncio.run(totals.add_session(release, seed, seconds=asked.seconds, folder=folder / f"{release}-{seed}"))
        if time.monotonic() >= until:
            break
    print(json.dumps(totals.as_json(), indent=1))
    return 0 if totals.is_clean else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
