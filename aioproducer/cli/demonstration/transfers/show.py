"""The demo of transactions from beginning to end.

orders are sent ──▶ worker ──▶ ledger ──▶ auditor adds up, again and again
                      │  a third done: kill -9, and started again
                      └─ two thirds done: the broker that leads the ledger is killed
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import anyio

from aioproducer import Producer, UndeliveredError
from aioproducer.cli.demonstration.clusters import ShowCluster
from aioproducer.cli.demonstration.leader_watch import LeaderWatch, leader_watch
from aioproducer.cli.demonstration.progress import Phase, Progress, RateMeter
from aioproducer.cli.demonstration.transfers.auditor import Auditor
from aioproducer.cli.demonstration.transfers.ledger_check import LedgerCheck, LedgerReport
from aioproducer.cli.demonstration.transfers.orders import (
    LEDGER,
    LEDGER_PARTITIONS,
    ORDER_PARTITIONS,
    ORDERS,
    Order,
    made_up_orders,
)
from aioproducer.cli.demonstration.transfers.worker_process import WorkerProcess

LOOK_EVERY_S = 0.1
STALL_S = 20.0
"""How long nothing may be carried out until the demo is given up."""

TICKS_PER_S = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferPlan:
    """What the user asked for."""

    orders: int
    orders_per_s: float | None
    """None for as fast as it goes."""
    loses_one: bool = False
    """Leave out one entry of what was read, to see the check fail."""


@dataclass(frozen=True, slots=True)
class TransferVerdict:
    """All that decides and all that is shown at the end."""

    report: LedgerReport
    worker_back_after_s: float | None
    """From its death until the next order was carried out; None if it did not die."""
    broker: int | None
    """Which was killed; None if none was."""

    @property
    def holds(self) -> bool:
        """Whether all that the demo promises was kept."""
        return self.report.holds and self.worker_back_after_s is not None and self.broker is not None


class TransferShow:
    """Plays a plan on a cluster, and tells `progress` about it."""

    def __init__(self, plan: TransferPlan, cluster: ShowCluster, progress: Progress) -> None:
        self._plan = plan
        self._cluster = cluster
        self._progress = progress
        self._check = LedgerCheck(plan.orders)
        self._began_at = 0.0
        self._worker_back_after_s: float | None = None
        self._broker: int | None = None

    async def run(self) -> TransferVerdict:
        """Play it all.

        Raises:
            KafkaError: a client could not go on.
            EmbeddedClusterError, BrokerStartError, MissingToolError: no cluster.
            WorkerEndedError: the worker ended by itself.
        """
        self._progress.noun = "orders"
        async with _stopping(self._cluster):
            await self._cluster.start()
            servers = self._cluster.bootstrap_servers
            async with leader_watch(servers, ORDERS) as orders, leader_watch(servers, LEDGER) as ledger:
                await orders.make_topic(ORDER_PARTITIONS)
                await ledger.make_topic(LEDGER_PARTITIONS)
                await self._play(servers, ledger)
        return TransferVerdict(self._check.report(), self._worker_back_after_s, self._broker)

    async def _play(self, servers: str, watch: LeaderWatch) -> None:
        self._progress.nodes = await watch.nodes()
        self._progress.begin(Phase.TRANSFERRING)
        self._began_at = self._now()
        auditor = Auditor(servers, self._check, loses_one=self._plan.loses_one)
        async with _killed_at_the_end(WorkerProcess(servers)) as worker, asyncio.TaskGroup() as group:
            jobs = [
                group.create_task(auditor.run()),
                group.create_task(self._follow(watch)),
                group.create_task(self._send(servers, made_up_orders(self._plan.orders))),
            ]
            await worker.start()
            await self._drama(worker, watch)
            await self._until(self._plan.orders, worker)
            await worker.stop()
            await asyncio.sleep(LOOK_EVERY_S * 3)  # a last cut
            for job in jobs:
                job.cancel()

    # Input

    async def _send(self, servers: str, orders: list[Order]) -> None:
        """Send the orders, at the pace that was asked for."""
        per_tick = (
            len(orders) if self._plan.orders_per_s is None else max(1, int(self._plan.orders_per_s / TICKS_PER_S))
        )
        producer = Producer(servers, client_id="demo")
        try:
            await producer.start()
            for first in range(0, len(orders), per_tick):
                for order in orders[first : first + per_tick]:
                    await producer.enqueue(ORDERS, order.encode(), partition=order.number % ORDER_PARTITIONS)
                await asyncio.sleep(0 if self._plan.orders_per_s is None else 1 / TICKS_PER_S)
            await producer.flush()
        finally:
            with anyio.CancelScope(shield=True), contextlib.suppress(UndeliveredError):
                await producer.close(0)

    # The drama

    async def _drama(self, worker: WorkerProcess, watch: LeaderWatch) -> None:
        """Kill the worker, then a broker, in the middle of it all."""
        await self._until(self._plan.orders // 3, worker)
        died_at = self._now()
        await worker.kill()
        self._progress.happened("worker killed (kill -9) in the middle of a transaction")
        await asyncio.sleep(LOOK_EVERY_S * 3)  # what it had committed is seen by now
        before = self._check.done
        await worker.start()
        await self._until(before + 1, worker)
        self._worker_back_after_s = self._now() - died_at
        self._progress.happened(f"worker back at work after {self._worker_back_after_s:.1f} s")
        await self._until(self._plan.orders * 2 // 3, worker)
        leader = (await watch.leaders()).get(0, -1)
        if leader >= 0:
            await self._cluster.kill(leader)
            self._broker = self._progress.killed = leader
            self._progress.happened(f"broker {leader} killed; it led the ledger")

    async def _until(self, done: int, worker: WorkerProcess) -> None:
        """Wait until that many orders are carried out, or none has been for long.

        Raises:
            WorkerEndedError: the worker has ended by itself.
        """
        last, since = -1, self._now()
        while self._check.done < done and self._now() - since < STALL_S:
            if self._check.done != last:
                last, since = self._check.done, self._now()
            worker.check()
            await asyncio.sleep(LOOK_EVERY_S / 2)

    # What is seen

    async def _follow(self, watch: LeaderWatch) -> None:
        """Tell the screens, until cancelled."""
        meter, looks = RateMeter(), 0
        while True:
            progress, report = self._progress, self._check.report()
            progress.done, progress.elapsed_s = report.done, self._now() - self._began_at
            progress.records_per_s, _ = meter.rates(self._now(), report.done, 0)
            progress.source = f"sum of all accounts {report.total:,}, added up {report.cuts:,} times"
            if looks % 10 == 0:
                progress.leaders = await watch.leaders() or progress.leaders
            looks += 1
            await asyncio.sleep(LOOK_EVERY_S)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


@contextlib.asynccontextmanager
async def _stopping(cluster: ShowCluster) -> AsyncIterator[None]:
    """Stop a cluster at the end, whatever happens, also in the middle of its start."""
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await cluster.stop()


@contextlib.asynccontextmanager
async def _killed_at_the_end(worker: WorkerProcess) -> AsyncIterator[WorkerProcess]:
    """A worker that does not outlive the demo."""
    try:
        yield worker
    finally:
        with anyio.CancelScope(shield=True):
            await worker.kill()
