"""Relays of an outbox are killed, stopped and run beside each other, on a real database and real Kafka.

usage: nox -s outbox -- [--database postgres|mariadb|sqlite] [--kafka 4.4.0] [--rounds 40] [--seed 1] [--shards 3]
    [--fault die_at_random]

With --shards, each relay divides the rows into another number of shards, of up to so many.

Writers commit out of the order of their ids, and roll back. At the end, each row of a committed transaction must be in
Kafka once for readers of committed records, none of one that was rolled back, and those of a key in order.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from time import monotonic
from typing import Final

from aiokafka import AIOKafkaConsumer
from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from aioproducer.outbox import Outbox
from aioproducer.testing.kafka import KafkaCluster
from tests.outbox.mariadb import MariaDb
from tests.outbox.postgres import Postgres

TOPIC: Final = "outbox"
KEYS: Final = 6
PARTITIONS: Final = 3
LEASE_S: Final = 3.0
STEPS: Final = 26
"""Of a relay, from its start through the first batches."""
DRAIN_S: Final = 600.0
EXPIRED_S: Final = 75.0
"""Until brokers with these settings have forgotten a transactional id and the offsets of a group."""
FORGETFUL: Final = {
    "transactional.id.expiration.ms": "30000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "1000",
}
SERVERS: Final = {"postgres": (Postgres, "asyncpg"), "mariadb": (MariaDb, "asyncmy")}
"""Each with the driver that is used."""
CUT: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL"
)


class Stage:
    """A database, a cluster, writers, and the relays that are running."""

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
        self.kafka = KafkaCluster(arguments.kafka, nodes=1, properties=quick)
        self.outbox = Outbox()
        self._most_shards: int = arguments.shards
        self.committed: list[bytes] = []
        self.undone: list[bytes] = []
        self.unknown: set[bytes] = set()
        """Of commits without an answer: they may be there once, or not at all."""
        self._relays: list[asyncio.subprocess.Process] = []
        self._ends = False

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
            except Exception as error:  # noqa: BLE001  # the database is away: nobody knows whether it was committed
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
        command = ["-m", "tests.programs.outbox.relay", self.url, self.kafka.bootstrap_servers, str(LEASE_S)]
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

    # Faults

    async def die_at_step(self, step: int) -> None:
        process = await self.start_relay(step)
        try:
            await asyncio.wait_for(process.wait(), 25)
        except TimeoutError:
            print(f"step {step} was not reached", flush=True)
        await self.kill_relays()

    async def die_at_random(self, _round: int) -> None:
        await self.start_relay()
        await asyncio.sleep(1.5 + self.random.random() * 3)
        await self.kill_relays()

    async def sleep_past_the_lease(self, _round: int) -> None:
        """Stop a relay for longer than its lease and its transaction may last; it goes on beside its successor."""
        first = await self.start_relay()
        await asyncio.sleep(2 + self.random.random())
        first.send_signal(signal.SIGSTOP)
        await self.start_relay()
        await asyncio.sleep(LEASE_S + 4)
        first.send_signal(signal.SIGCONT)
        await asyncio.sleep(2)
        await self.kill_relays()

    async def two_at_once(self, _round: int) -> None:
        await asyncio.gather(self.start_relay(), self.start_relay())
        await asyncio.sleep(2 + self.random.random())
        await self.kill_relays()

    async def kill_database(self, _round: int) -> None:
        if self.server is not None:
            await self.start_relay()
            await asyncio.sleep(2 + self.random.random())
            await asyncio.to_thread(self.server.kill)
            await asyncio.to_thread(self.server.start)
            await asyncio.sleep(2)
            await self.kill_relays()

    async def cut_database(self, _round: int) -> None:
        """Have PostgreSQL end all connections, of writers too, in the midst of what they do."""
        if isinstance(self.server, Postgres):
            await self.start_relay()
            await asyncio.sleep(1.5)
            for _ in range(5):
                await asyncio.sleep(self.random.random() / 2)
                async with self.engine.connect() as connection:
                    await connection.execute(text(CUT))
            await asyncio.sleep(1)
            await self.kill_relays()

    async def kill_broker(self, _round: int) -> None:
        await self.start_relay()
        await asyncio.sleep(2 + self.random.random())
        await self.kafka.kill(1)
        await self.kafka.restart(1)
        await asyncio.sleep(3)
        await self.kill_relays()

    async def forget(self, _round: int) -> None:
        """Let the transactional id and the position of a relay that has ended expire."""
        process = await self.start_relay()
        await asyncio.sleep(3)
        process.send_signal(signal.SIGINT)
        await process.wait()
        await asyncio.sleep(EXPIRED_S)
        await self.start_relay()
        await asyncio.sleep(3)
        await self.kill_relays()

    # The end

    async def drain(self) -> float:
        """End the writers, and have one relay send what is left; returns the seconds that it took."""
        self._ends = True
        began = monotonic()
        await self.start_relay()
        rows = self.outbox.metadata.tables[self.outbox.name]
        async with asyncio.timeout(DRAIN_S), self.engine.connect() as connection:
            while (await connection.execute(select(func.count()).select_from(rows))).scalar_one():
                await connection.rollback()
                await asyncio.sleep(0.2)
        await self.kill_relays()
        return monotonic() - began

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

    async def close(self) -> None:
        await self.kill_relays()
        await self.engine.dispose()
        await self.kafka.stop()
        if self.server is not None:
            self.server.stop()


def verdict(stage: Stage, found: list[tuple[bytes, bytes]]) -> dict[str, int]:
    """Count what is wrong, by kind."""
    counts = Counter(value for _, value in found)
    numbers: dict[bytes, list[int]] = {}
    for key, value in found:
        numbers.setdefault(key, []).append(int(value.split()[1]))
    return {
        "missing": sum(counts[value] == 0 for value in stage.committed),
        "double": sum(count > 1 for count in counts.values()),
        "rolled back": sum(counts[value] > 0 for value in stage.undone),
        "foreign": len(counts.keys() - {*stage.committed, *stage.undone, *stage.unknown}),
        "out of order": sum(found != sorted(found) for found in numbers.values()),
    }


async def main(arguments: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(arguments, Path(folder))
        try:
            return await run(stage, arguments)
        finally:
            await stage.close()


async def run(stage: Stage, arguments: argparse.Namespace) -> int:
    await stage.kafka.start()
    await stage.outbox.create(stage.engine)
    writers = [asyncio.create_task(stage.write(key)) for key in range(KEYS)]
    others: list[Callable[[int], Coroutine[object, object, None]]] = [
        stage.die_at_random,
        stage.two_at_once,
        stage.sleep_past_the_lease,
        stage.kill_database,
        stage.cut_database,
        stage.kill_broker,
    ]
    if arguments.fault is not None:
        others = [getattr(stage, arguments.fault)]
    plan = [(stage.die_at_step, step) for step in range(STEPS)] if arguments.fault in {None, "die_at_step"} else []
    plan += [(others[number % len(others)], number) for number in range(arguments.rounds)]
    stage.random.shuffle(plan)
    for fault, number in plan[: arguments.rounds]:
        print(f"{fault.__name__} {number}; {len(stage.committed):,} rows committed", flush=True)
        await fault(number)
    took_s = await stage.drain()
    await asyncio.gather(*writers)
    took_s += await stage.drain()  # what the writers committed meanwhile
    wrong = verdict(stage, await stage.read())
    print(f"{arguments.database}, Kafka {arguments.kafka}: {len(stage.committed):,} rows, drained in {took_s:.1f} s")
    print(wrong)
    return any(wrong.values())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", choices=["postgres", "mariadb", "sqlite"], default="postgres")
    parser.add_argument("--kafka", default="4.4.0")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--fault", help="only this one, by the name of its method, such as die_at_random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shards", type=int, default=1)
    sys.exit(asyncio.run(main(parser.parse_args())))
