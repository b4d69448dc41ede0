"""A database, a cluster behind a network of its own, writers, and the relays that are running."""

import argparse
import asyncio
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from time import monotonic
from typing import Final

from aiokafka import AIOKafkaConsumer
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from aioproducer.outbox import Outbox, OutboxError
from aioproducer.outbox._operations import Operations
from aioproducer.outbox._protocol import decode_claimed
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.kafka.server_properties import free_ports
from tests.outbox.mariadb import MariaDb
from tests.outbox.postgres import Postgres
from tests.programs.chaos.proxy import LOOPBACK, Link

TOPIC: Final = "outbox"
NODES: Final = 3
"""A cluster of one, killed, may lose the markers of a transaction: as it starts, no replica is there to take them."""
KEYS: Final = 6
PARTITIONS: Final = 3
LEASE_S: Final = 3.0
DRAIN_S: Final = 180.0
FORGETFUL: Final = {
    "transactional.id.expiration.ms": "30000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "1000",
}
SERVERS: Final = {"postgres": (Postgres, "asyncpg"), "mariadb": (MariaDb, "asyncmy")}
"""Each with the driver that is used."""


class Stage:
    """What a run consists of; a fault does something to it."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.random = Random(arguments.seed)
        self.server: Postgres | MariaDb | None = None
        self.url = f"sqlite+aiosqlite:///{folder / 'outbox.db'}"
        if arguments.database in SERVERS:
            make, driver = SERVERS[arguments.database]
            self.server = make()
            self.url = self.server.url(driver)
        self.engine: AsyncEngine = create_async_engine(self.url)
        quick = {
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
            "num.partitions": str(PARTITIONS),
        }
        if arguments.fault == "forget":
            quick |= FORGETFUL
        self._ports = free_ports(NODES)
        self.kafka = KafkaCluster(arguments.kafka, nodes=NODES, properties=quick, advertised_ports=self._ports)
        self.links: list[Link] = []
        """What is between the relays and the brokers."""
        self._seed: int = arguments.seed
        self.outbox = Outbox()
        self._most_shards: int = arguments.shards
        self.committed: list[bytes] = []
        self.undone: list[bytes] = []
        self.unknown: set[bytes] = set()
        """Of commits without an answer: they may be there once, or not at all."""
        self._relays: list[asyncio.subprocess.Process] = []
        self._ends = False

    async def open(self) -> None:
        """Start the brokers, behind a network of the stage's own, and make the tables."""
        await self.kafka.start()
        for node, port in zip(self.kafka.node_ids, self._ports, strict=True):
            proxied = self.kafka.node(node).ports.proxied
            assert proxied is not None
            self.links.append(Link(port, proxied.port, f"{self._seed} {node}"))
            await self.links[-1].open()
        await self.outbox.create(self.engine)

    # Writers

    async def write(self, key: int) -> None:
        """Write transactions of one key, one after another, as long as the stage runs."""
        random = Random(key)
        number = 0
        while not self._ends:
            values = [b"%d %d" % (key, number + more) for more in range(random.randint(1, 4))]
            number += len(values)
            is_undone = random.random() < 0.2
            try:
                await self._transaction(key, values, pause_s=random.choice([0.001, 0.01, 0.3]), is_undone=is_undone)
            except Exception as error:  # noqa: BLE001  # the database is away: it may be committed
                print(f"writer {key}: {type(error).__name__}", flush=True)
                self.unknown |= {*values}
                await asyncio.sleep(0.5)
            await asyncio.sleep(random.random() * 0.05)

    async def _transaction(self, key: int, values: list[bytes], *, pause_s: float, is_undone: bool) -> None:
        async with self.engine.connect() as connection:
            for value in values:
                await self.outbox.enqueue(connection, TOPIC, value, key=b"%d" % key)
            if self.server is not None:  # the one writer of SQLite would hold up all others
                await asyncio.sleep(pause_s)
            if is_undone:
                await connection.rollback()
                self.undone += values
            else:
                await connection.commit()
                self.committed += values

    # Relays

    async def start_relay(self, step: int | None = None) -> asyncio.subprocess.Process:
        command = ["-m", "tests.programs.outbox.relay", self.url, f"{LOOPBACK}:{self._ports[0]}", str(LEASE_S)]
        command.append(str(self.random.randint(1, self._most_shards)))
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, *([] if step is None else [str(step)]), stdout=asyncio.subprocess.DEVNULL
        )
        self._relays.append(process)
        return process

    async def kill_relays(self) -> None:
        for process in self._relays:
            if process.returncode is None:
                process.kill()
                await process.wait()
        self._relays.clear()

    # The end

    async def drain(self) -> float:
        """End the writers, and have one relay send what is left; returns the seconds that it took."""
        self._ends = True
        began = monotonic()
        await self.start_relay()
        rows = self.outbox.metadata.tables[self.outbox.name]
        try:
            async with asyncio.timeout(DRAIN_S), self.engine.connect() as connection:
                while (await connection.execute(select(func.count()).select_from(rows))).scalar_one():
                    await connection.rollback()
                    await self.decide()
                    await asyncio.sleep(0.2)
        except TimeoutError:
            print(await Operations(self.outbox, self.engine).status(), flush=True)
            raise
        await self.kill_relays()
        return monotonic() - began

    async def decide(self) -> None:
        """Do what a relay says about a batch in doubt: skip its rows that are in Kafka, and send the others."""
        operations = Operations(self.outbox, self.engine)
        for shard in (await operations.status()).shards:
            if "retry --batch" not in (shard.trouble or ""):
                continue
            print(shard.trouble, flush=True)
            tables = self.outbox.metadata.tables
            rows, relay = tables[self.outbox.name], tables[f"{self.outbox.name}_relay"]
            async with self.engine.connect() as connection:
                claimed = select(relay.c.claimed).where(relay.c.id == shard.shard)
                batches = decode_claimed((await connection.execute(claimed)).scalar_one())
                stored = (await connection.execute(select(rows.c.id, rows.c.value))).all()
            runs = [run for batch in batches for run in batch.runs]
            found = {value for _, value in await self.read()}
            sent = [
                number
                for number, value in stored
                if value in found and any(first <= number <= last for first, last in runs)
            ]
            with suppress(OutboxError):  # a relay looks again just now
                await operations.skip(sent)
                await operations.retry_batch(shard.shard, new_identity=False)

    async def read(self) -> list[tuple[bytes, bytes]]:
        committed = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
        consumer = AIOKafkaConsumer(TOPIC, bootstrap_servers=self.kafka.bootstrap_servers, **committed)
        await consumer.start()
        try:
            partitions = [*consumer.assignment()]
            assert len(partitions) == PARTITIONS
            found: list[tuple[bytes, bytes]] = []
            ends = await consumer.end_offsets(partitions)  # of what is committed
            while any([await consumer.position(each) < end for each, end in ends.items()]):
                batch = await consumer.getmany(timeout_ms=1_000)
                found += [(record.key or b"", record.value or b"") for records in batch.values() for record in records]
            return found
        finally:
            await consumer.stop()

    def verdict(self, found: list[tuple[bytes, bytes]]) -> dict[str, int]:
        """Count what is wrong, by kind."""
        counts = Counter(value for _, value in found)
        numbers: dict[bytes, list[int]] = {}
        for key, value in found:
            numbers.setdefault(key, []).append(int(value.split()[1]))
        return {
            "missing": sum(counts[value] == 0 for value in self.committed),
            "double": sum(count > 1 for count in counts.values()),
            "rolled back": sum(counts[value] > 0 for value in self.undone),
            "foreign": len(counts.keys() - {*self.committed, *self.undone, *self.unknown}),
            "out of order": sum(found != sorted(found) for found in numbers.values()),
        }

    async def close(self) -> None:
        self._ends = True  # a driver may lose the cancellation of a writer
        await self.kill_relays()
        await self.engine.dispose()
        for link in self.links:
            await link.close()
        await self.kafka.stop()
        if self.server is not None:
            self.server.stop()
