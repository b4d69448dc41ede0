"""One session: a cluster, transacting processes, what is done to both, and what is found in the end.

What the brokers have is read by librdkafka, past the proxies, and compared with the histories.
"""

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import confluent_kafka

from aioproducer import Producer
from tests.integrations.worker_program import WorkerOrders
from tests.integrations.workers import GROUP
from tests.programs.chaos.arena import Arena, TiedProcess, now
from tests.programs.chaos.checker.cell_files import Topic
from tests.programs.chaos.checker.transaction_check import (
    CommittedRecord,
    check_balances,
    check_copies,
    check_transactions,
)
from tests.programs.chaos.checker.verdict import Verdict
from tests.programs.chaos.fault_injector import cut_off, known_faults
from tests.programs.chaos.transacting.bank import ACCOUNTS, AT_FIRST, TELLER, TRANSFER_RECORDS, decode_balance
from tests.programs.chaos.transacting.completing import COMPLETER
from tests.programs.chaos.transacting.life import PARTITIONS, RECORDS, What, connection_text, decode_value, read_lines

TOPIC, INPUT, OUTPUT = "chaos-transactions", "chaos-input", "chaos-input-out"
BANK = "chaos-bank"
INPUT_PARTITIONS = 4
COPIER = "copier"
PREPARED = 4  # transactions that each preparing process leaves
PRODUCERS = 32  # producers of each process that has its ids for itself: simultaneous transactions load brokers best

IDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "alone-1": tuple(f"alone-1-{number}" for number in range(PRODUCERS)),
        "alone-2": tuple(f"alone-2-{number}" for number in range(PRODUCERS)),
        "rival-1": ("rivals",),
        "rival-2": ("rivals",),
        TELLER: (TELLER,),
        COMPLETER: tuple(f"prepared-{number}" for number in range(PREPARED)),
    }
)
"""Transactional ids by process; the copier's is another program's choice."""

ALL_IDS = (*dict.fromkeys(each for ids in IDS.values() for each in ids), f"{INPUT}-{COPIER}")


WITHOUT_SECURITY = (COPIER, TELLER, COMPLETER)
"""Processes with consumers or children: where producers authenticate, these connect to brokers directly."""


def start(name: str, arena: Arena, *, copies: int, life: int) -> TiedProcess:
    log_file = arena.folder / f"printed-{name}-{life}.log"
    if arena.client_options and name in WITHOUT_SECURITY:
        servers = arena.cluster.bootstrap_servers
    else:
        servers = connection_text(arena.bootstrap, arena.client_options)
    if name == COPIER:
        orders = WorkerOrders(servers, INPUT, name, copies, batch=10, pause_s=0.02)
        return TiedProcess(*orders.command()[2:], log_file=log_file)
    topic = BANK if name == TELLER else TOPIC
    arguments = (str(arena.folder), servers, topic, name, *IDS[name])
    return TiedProcess("tests.programs.chaos.transacting", *arguments, log_file=log_file)


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
            print(f"    {now()} all processes have ended", flush=True)
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


# What a session has left on the brokers


END_OF_PARTITION = -191  # librdkafka's own code
CONSUME_S = 0.5  # time of one poll for a number of records


def check_session(bootstrap: str, folder: Path, copies: int) -> Verdict:
    """Check everything: what processes wrote into the folder, and what the cluster holds."""
    verdict = Verdict()
    found = [CommittedRecord(place, *decode_value(value)) for place, value in committed(bootstrap, TOPIC)]
    check_transactions(found, ends(folder, is_bank=False), records=RECORDS, verdict=verdict, figure="transactions")
    told = [(place, decode_balance(value)) for place, value in committed(bootstrap, BANK)]
    transfers = [CommittedRecord(place, *balance[:4]) for place, balance in told]
    check_transactions(
        transfers, ends(folder, is_bank=True), records=TRANSFER_RECORDS, verdict=verdict, figure="transfers"
    )
    check_balances(((balance.account, balance.amount) for _, balance in told), ACCOUNTS, AT_FIRST, verdict=verdict)
    seen = Counter(int(value) for _, value in committed(bootstrap, OUTPUT))
    check_copies(copies, seen, group_offsets(bootstrap), verdict=verdict)
    verdict.figures["copies"] = seen.total()
    return verdict


def ends(folder: Path, *, is_bank: bool) -> dict[tuple[str, int], str | None]:
    """Return the end of each transaction of the bank, or of the others; None if it was not written down."""
    return {
        (line.life, line.number): None if line.what == What.BEGIN else line.what
        for line in read_lines(folder)
        if (line.transactional_id == TELLER) == is_bank
    }


def committed(bootstrap: str, topic: str) -> Iterator[tuple[int, bytes]]:
    """Partition and value of every record that is committed, in each partition in the order of offsets."""
    consumer, ended = reader(bootstrap), 0
    partitions = list(consumer.list_topics(topic, 30).topics[topic].partitions)
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in partitions])
    while ended < len(partitions):
        for message in consumer.consume(1_000, CONSUME_S):
            if message.error() is None:
                yield message.partition(), message.value()
            elif message.error().code() == END_OF_PARTITION:
                ended += 1
    consumer.close()


def group_offsets(bootstrap: str) -> list[int]:
    consumer = reader(bootstrap)
    places = [confluent_kafka.TopicPartition(INPUT, number) for number in range(INPUT_PARTITIONS)]
    offsets = [place.offset for place in consumer.committed(places, 30)]
    consumer.close()
    return [max(offset, 0) for offset in offsets]


def reader(bootstrap: str) -> confluent_kafka.Consumer:
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
