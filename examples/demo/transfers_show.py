"""The demo of transactions: orders are carried out by a worker, and the ledger is added up again and again.

The worker is killed when a third of the orders is done, and started again; at two thirds the ledger's leader dies.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Iterator

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from aioproducer import Producer, UndeliveredError
from examples.demo.cluster import DemoCluster, Topics, topics_of
from examples.demo.screen import Screen
from examples.demo.transfers import LEDGER, ORDER_PARTITIONS, ORDERS, Entry, LedgerCheck, encode, made_up_orders

LOOK_EVERY_S = 0.1
STALL_S = 20.0
"""The demo gives up after this time without progress."""

TICKS_PER_S = 20
EXIT_TIMEOUT_S = 3.0
READ_PAUSE_S = 0.05
READ_TIMEOUT_S = 5.0
"""After this time a consumer counts as stuck."""

LEDGER_PARTITION = TopicPartition(LEDGER, 0)


class WorkerEndedError(RuntimeError):
    """The worker ended by itself."""


class TransfersShow:
    """Plays the demo on a cluster, and shows it on a screen."""

    def __init__(self, records: int, records_per_s: float | None, screen: Screen) -> None:
        self._orders = made_up_orders(records)
        self._orders_per_s = records_per_s
        self._screen = screen
        self._check = LedgerCheck(records)
        self._worker_line = "  the worker was not killed"
        self._broker_line = "  no broker was killed"
        self._has_killed_both = False

    async def run(self, cluster: DemoCluster) -> list[str]:
        """Play the demo; returns the verdict."""
        try:
            await cluster.start()
            async with topics_of(cluster.bootstrap_servers) as topics:
                await topics.create(ORDERS, ORDER_PARTITIONS)
                await topics.create(LEDGER, 1)
                await self._play(cluster, topics)
        finally:
            await asyncio.shield(cluster.stop())
        return list(self._verdict())

    async def _play(self, cluster: DemoCluster, topics: Topics) -> None:
        servers = cluster.bootstrap_servers
        self._screen.begin("transferring", len(self._orders))
        async with worker_of(servers) as worker, asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(Auditor(servers, self._check).run()),
                group.create_task(self._show()),
                group.create_task(self._send(servers)),
            ]
            await worker.start()
            await self._kill_worker_and_broker(worker, cluster, topics)
            await self._until(len(self._orders), worker)
            await worker.stop()
            await asyncio.sleep(LOOK_EVERY_S * 3)  # for a last cut
            for task in tasks:
                task.cancel()

    async def _send(self, servers: str) -> None:
        """Send the orders at the chosen pace."""
        rate = self._orders_per_s
        per_tick = len(self._orders) if rate is None else max(1, int(rate / TICKS_PER_S))
        producer = Producer(servers, client_id="demo")
        try:
            await producer.start()
            for first in range(0, len(self._orders), per_tick):
                for order in self._orders[first : first + per_tick]:
                    await producer.enqueue(ORDERS, encode(order), partition=order.number % ORDER_PARTITIONS)
                await asyncio.sleep(0 if rate is None else 1 / TICKS_PER_S)
            await producer.flush()
        finally:
            with contextlib.suppress(UndeliveredError):
                await asyncio.shield(producer.close(0))

    async def _kill_worker_and_broker(self, worker: "Worker", cluster: DemoCluster, topics: Topics) -> None:
        clock = asyncio.get_running_loop().time
        await self._until(len(self._orders) // 3, worker)
        died_at = clock()
        await worker.kill()
        self._screen.say("worker killed (kill -9) in the middle of a transaction")
        await asyncio.sleep(LOOK_EVERY_S * 3)  # until its last commit was read
        before = self._check.done
        await worker.start()
        await self._until(before + 1, worker)
        self._worker_line = f"  worker killed; back at work after {clock() - died_at:.1f} s"
        self._screen.say(f"worker back at work after {clock() - died_at:.1f} s")
        await self._until(len(self._orders) * 2 // 3, worker)
        leader = (await topics.leaders(LEDGER)).get(0, -1)
        if leader >= 0:
            await cluster.kill(leader)
            self._has_killed_both = True
            self._broker_line = f"  broker {leader} killed"
            self._screen.say(f"broker {leader} killed; it led the ledger")

    async def _until(self, done: int, worker: "Worker") -> None:
        """Wait until this many orders are done, or none was for `STALL_S`."""
        clock = asyncio.get_running_loop().time
        last, since = -1, clock()
        while self._check.done < done and clock() - since < STALL_S:
            if self._check.done != last:
                last, since = self._check.done, clock()
            await worker.check()
            await asyncio.sleep(LOOK_EVERY_S / 2)

    async def _show(self) -> None:
        """Show the figures until cancelled."""
        while True:
            self._screen.show(self._check.done, f"sum {self._check.total:,}")
            await asyncio.sleep(LOOK_EVERY_S)

    def _verdict(self) -> Iterator[str]:
        if not self._check.holds:
            yield "FAILED: the ledger does not add up, or is not complete."
        elif not self._has_killed_both:
            yield "FAILED: the worker or a broker was not killed."
        else:
            yield "PASSED: every order once, and the sum was constant."
        yield from self._check.lines()
        yield self._worker_line
        yield self._broker_line


class Worker:
    """The process that carries out the orders; made by `worker_of`."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the process, which connects by itself."""
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "examples.demo.transfer_worker", self._servers),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in the terminal reaches only the demo
        )

    async def check(self) -> None:
        """Return if the process runs.

        Raises:
            WorkerEndedError: it does not; with what it wrote to standard error.
        """
        if self._process is not None and self._process.returncode is not None:
            assert self._process.stderr is not None
            errors = await self._process.stderr.read()
            raise WorkerEndedError(f"the worker ended unexpectedly:\n{errors.decode(errors='replace')}")

    async def kill(self) -> None:
        """Kill the process as `kill -9` does."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def stop(self) -> None:
        """Let the process finish its transaction; kill it if that takes too long."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), EXIT_TIMEOUT_S)


@contextlib.asynccontextmanager
async def worker_of(servers: str) -> AsyncIterator[Worker]:
    """Yield a worker, which is killed after the block."""
    worker = Worker(servers)
    try:
        yield worker
    finally:
        await asyncio.shield(worker.kill())


class Auditor:
    """Reads the ledger with aiokafka's consumer, and adds it up."""

    def __init__(self, servers: str, check: LedgerCheck) -> None:
        self._servers = servers
        self._check = check
        self._read: list[ConsumerRecord] = []
        """Records that are not added up yet."""
        self._next_offset = 0

    async def run(self) -> None:
        """Add up what is committed, again and again, until cancelled."""
        while True:
            with _ignoring_lost_brokers():
                await self._read_until_trouble()
            await asyncio.sleep(READ_PAUSE_S)

    async def _read_until_trouble(self) -> None:
        """Read with a new consumer: one that lost its broker may wait forever."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._servers,
            isolation_level="read_committed",
            metadata_max_age_ms=1_000,
            request_timeout_ms=5_000,
        )
        try:
            await consumer.start()
            consumer.assign([LEDGER_PARTITION])
            consumer.seek(LEDGER_PARTITION, self._next_offset)
            while True:
                async with asyncio.timeout(READ_TIMEOUT_S):
                    await self._read_to_a_cut(consumer)
                await asyncio.sleep(READ_PAUSE_S)
        finally:
            await consumer.stop()

    async def _read_to_a_cut(self, consumer: AIOKafkaConsumer) -> None:
        """Add up everything that was committed when the end was asked for, and nothing later."""
        end = (await consumer.end_offsets([LEDGER_PARTITION]))[LEDGER_PARTITION]
        while await consumer.position(LEDGER_PARTITION) < end:
            for record in (await consumer.getmany(timeout_ms=100)).get(LEDGER_PARTITION, []):
                self._read.append(record)
                self._next_offset = record.offset + 1
        entries = [Entry(*json.loads(record.value)) for record in self._read if record.offset < end]
        self._read = self._read[len(entries) :]
        self._check.cut(entries)


@contextlib.contextmanager
def _ignoring_lost_brokers() -> Iterator[None]:
    """Suppress the errors of aiokafka when a broker dies, among them a cancellation that was not requested.

    Raises:
        asyncio.CancelledError: the task was cancelled.
    """
    try:
        yield
    except (KafkaError, TimeoutError):
        """Another broker will lead soon."""
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
