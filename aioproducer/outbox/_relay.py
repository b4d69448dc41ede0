"""`Relay`: the tasks that send an outbox's rows, or stand by while another process does."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from aioproducer._logs import event_log
from aioproducer.metrics import Health, Metric, MetricKind
from aioproducer.outbox._attempts import Attempts, words_of
from aioproducer.outbox._errors import OutboxError, RelayFencedError, ShardsChangedError
from aioproducer.outbox._wake import wake_all
from aioproducer.outbox._worker import Counts, ShardWorker, ended_tasks, total_of

if TYPE_CHECKING:
    from aioproducer.outbox._leases import Leases
    from aioproducer.outbox._protocol import State
    from aioproducer.outbox._upkeep import Upkeep

LISTEN_AGAIN_S: Final = 1.0
SHARED_EVENLY: Final = 2
"""Shards that another relay has more, from which on it is asked for one."""
STARTS: Final = "starts: waits for the database to say whether another relay works"
_GROUP: Final = "aioproducer-metrics"


class Parts(NamedTuple):
    """Parts that a relay is made of, by `Outbox.relay`."""

    leases: Leases
    upkeep: Upkeep
    worker: Callable[[int, int, Callable[[], object]], ShardWorker]
    """Makes the worker of a shard, of so many, which calls the third argument each time it begins to send."""
    listen: Callable[[Callable[[], object]], Coroutine[object, object, None]]
    """Calls its argument when there may be new rows, until its connection is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayStatistics:
    """The result of `Relay.statistics()`. Totals count from the relay's start."""

    is_working: bool = False
    """Whether this relay sends; else another one does, or this one cannot."""

    shards_working: int = 0
    """Shards whose rows this relay sends; 1 for an outbox that is not divided."""

    rows_sent: int = 0
    """Rows that were committed in Kafka."""

    batches_sent: int = 0
    """Transactions, also those whose rows were all parked."""

    rows_parked: int = 0
    """Rows that this relay has parked."""

    retries: int = 0
    """Attempts that ended with an error and were repeated."""

    rows_waiting: int | None = None
    """Rows in the table, up to 100,000, counted every third of `lease_s`, also while this relay cannot send them; None
    before the first count, and while another relay works."""

    oldest_age_s: float | None = None
    """Age of the oldest row, at that count; None without rows."""

    trouble: str = ""
    """Why nothing is sent; empty if rows are, or there are none."""


class Relay:
    """Sends the rows of an outbox: `async with outbox.relay(engine, "localhost:9092") as relay`.

    Made by `Outbox.relay`. Several may run, in as many processes: one works, the others stand by; with `shards`, they
    share them.
    """

    def __init__(
        self, name: str, parts: Parts, *, label: str, shards: int = 1, lease_s: float, keep_s: float | None = None
    ) -> None:
        self._name = name
        self._label = label
        self._leases, self._upkeep, self._make_worker, self._listening = parts
        self._shards = shards
        self._lease_s = lease_s
        self._keep_s = keep_s
        self._has_worked = asyncio.Event()
        self._workers = [self._make_worker(shard, shards, self._has_worked.set) for shard in range(shards)]
        self._done_before = Counts()  # by workers on shards of another number
        self._events = event_log(label)
        self._attempts = Attempts(self._events)
        self._stored_shards = shards
        self._is_begun = self._is_closed = False
        self._waiting: tuple[int, float | None] | None = None
        self._upkeep_trouble = ""
        self._task: asyncio.Task[None] | None = None

    # Start and close

    async def start(self) -> Self:
        """Begin to work or to stand by; a relay is started once. Waits for nothing: `health` says what is wrong.

        Raises:
            OutboxError: the relay is closed.
        """
        if self._is_closed:
            raise OutboxError(f"relay {self._name!r} is closed: make another one with `outbox.relay`")
        if self._is_begun:
            return self
        self._is_begun = True
        self._leases.owner = owner_of_this_process()  # not before: a process with a relay may fork
        self._task = asyncio.create_task(self._run(), name=f"aioproducer-outbox | {self._name}")
        return self

    async def close(self) -> None:
        """Send no more rows: the transaction that is open ends, and another relay may work at once.

        Raises:
            OutboxError: the relay was started on another event loop, which runs.
        """
        task = self._task
        if task is not None and not task.done() and task.get_loop() is not asyncio.get_running_loop():
            if not task.get_loop().is_closed():
                raise OutboxError(f"relay {self._name!r} was started on another event loop: close it there")
            task = None
        self._is_closed, self._task, self._waiting = True, None, None
        if task is None:
            return
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    async def __aenter__(self) -> Self:
        """Start."""
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    # What it does

    @property
    def label(self) -> str:
        """The name of the relay in metrics, logs and pages: `outbox` and the table; that of a spool has the spool's."""
        return self._label

    def statistics(self) -> RelayStatistics:
        """Return a snapshot of counters and gauges."""
        rows, age = self._waiting if self._waiting is not None else (None, None)
        working = len(self._working())
        done = total_of([self._done_before, *(worker.counts for worker in self._workers)])
        return RelayStatistics(
            is_working=working > 0,
            shards_working=working,
            rows_sent=done.rows_sent,
            batches_sent=done.batches_sent,
            rows_parked=done.rows_parked,
            retries=self._attempts.retries + sum(worker.attempts.retries for worker in self._workers),
            rows_waiting=rows,
            oldest_age_s=age,
            trouble=self._why_ended() or self._why_not_sent(),
        )

    def health(self) -> Health:
        """Return whether rows are sent: this relay works or stands by, met no error since, and brokers answer it."""
        if self._task is None:
            return Health(
                is_ready=False, reason="the relay is closed" if self._is_closed else "the relay is not started"
            )
        reason = self._why_ended() or self._why_not_sent() or ("" if self._knows_who_works() else STARTS)
        return Health(is_ready=not reason, reason=reason)

    def explain(self) -> str:
        """Return in one line what the relay does, or why it does not."""
        if reason := self.health().reason:
            return reason if self._task is None or reason == STARTS else f"nothing is sent: {reason}"
        if self._stored_shards != self._shards:
            return (
                f"another relay works, with shards={self._stored_shards}; this one, with shards={self._shards}, stands "
                "by until none does, and then divides the outbox again"
            )
        working = self._working()
        if not working:
            return "another relay works; this one stands by"
        of = "" if self._shards == 1 else f" for {len(working)} of {self._shards} shards"
        found = self.statistics()
        parked = f"; {rows_text(found.rows_parked)} parked" if found.rows_parked else ""
        waiting = "" if self._waiting is None else f"; {rows_text(self._waiting[0])} waiting"
        return f"works{of}: {rows_text(found.rows_sent)} sent{parked}{waiting}"

    def _working(self) -> list[int]:
        if self._why_ended():
            return []
        return [shard for shard, worker in enumerate(self._workers) if worker.is_working]

    def _knows_who_works(self) -> bool:
        is_divided_otherwise = self._stored_shards != self._shards
        return is_divided_otherwise or any(worker.knows_who_works for worker in self._workers)

    def _why_ended(self) -> str:
        """Return why nothing runs any more of a relay that was not closed; empty without."""
        if self._task is None:
            return ""
        reason = ""
        if self._task.get_loop().is_closed():
            reason = "the event loop on which the relay was started is closed"
        elif self._task.cancelled():
            reason = "the task of the relay was cancelled"
        elif self._task.done():
            reason = f"the task of the relay has ended: {self._task.exception()!r}"
        return reason and f"{reason}; make another one with `outbox.relay`"

    def _why_not_sent(self) -> str:
        """Return what keeps rows of any shard from being sent; empty without."""
        if self._attempts.trouble:
            return self._attempts.trouble
        reasons = [worker.why_not_sent() for worker in self._workers]
        if self._shards == 1 or len(set(reasons)) == 1:
            return reasons[0]
        return "; ".join(f"shard {shard}: {reason}" for shard, reason in enumerate(reasons) if reason)

    def metrics(self) -> list[Metric]:
        """Return the relay's metrics; `ProducerCollector(relay)` shows them to Prometheus."""
        found = self.statistics()
        tags = {"client-id": self.label}
        values = {
            "outbox-rows-sent-total": found.rows_sent,
            "outbox-batches-sent-total": found.batches_sent,
            "outbox-rows-parked-total": found.rows_parked,
            "outbox-retries-total": found.retries,
            "outbox-rows-waiting": found.rows_waiting,
            "outbox-oldest-age-seconds": found.oldest_age_s,
            "outbox-is-working": int(found.is_working),
            "outbox-shards-working": found.shards_working,
        }
        return [
            Metric(name, _GROUP, tags, value, MetricKind.COUNTER if name.endswith("-total") else MetricKind.GAUGE)
            for name, value in values.items()
            if value is not None
        ]

    # Its tasks

    async def _run(self) -> None:
        try:
            while not self._is_closed:  # a driver may have lost the cancellation of `close` beside an error
                await self._once()
        finally:
            await self._leases.close()
            await self._upkeep.close()

    async def _once(self) -> None:
        """Work or stand by, until the number of shards changes or cannot be known."""
        try:
            await self._agree()
            self._attempts.succeeded()
            await self._work()
        except (RelayFencedError, ShardsChangedError):
            self._events.info("outbox_stands_by")
        except Exception as error:  # noqa: BLE001  # of a database, a driver or Kafka: each is tried again
            await self._attempts.failed(error)

    async def _agree(self) -> None:
        """Have the outbox divided into this relay's number of shards.

        What shards of another number have claimed is finished before. With nothing claimed, every row that was sent is
        in Kafka, so rows of a key that go to another shard then follow those of before.
        """
        while (stored := await self._leases.number()) != self._shards:
            if not stored:
                await self._leases.create(self._shards)
                continue
            self._stored_shards = stored
            finished = [await self._finish(shard, stored) for shard in range(stored)]
            if await self._leases.resize(finished, self._shards):
                self._events.info("outbox_divided", shards=self._shards, before=stored)
        self._stored_shards = self._shards

    async def _finish(self, shard: int, shards: int) -> State:
        worker = self._make_worker(shard, shards, self._has_worked.set)
        try:
            return await worker.finish()
        finally:
            self._done_before = total_of([self._done_before, worker.counts])

    async def _work(self) -> None:
        """Run the workers until one finds another number of shards."""
        works = [*(worker.run() for worker in self._workers), self._look_after(), self._listen()]
        tasks = [asyncio.create_task(work) for work in works]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            await ended_tasks(tasks)

    async def _listen(self) -> None:
        """Look for rows when the database notifies; without it, looks are as far apart as `POLL_S` says."""
        while True:
            while not self._working():
                self._has_worked.clear()
                await self._has_worked.wait()
            with suppress(Exception):  # of the database: workers meet it too, and say so
                await self._listening(lambda: wake_all(self._name))
            await asyncio.sleep(LISTEN_AGAIN_S)

    async def _look_after(self) -> None:
        """Count rows, delete those that were kept for long enough, and share the shards with other relays."""
        while True:
            await asyncio.sleep(self._lease_s / 3)
            try:
                await self._look()
            except Exception as error:  # noqa: BLE001  # of the database: workers meet it too, or it keeps nothing from being sent
                if words_of(error) != self._upkeep_trouble:
                    self._upkeep_trouble = words_of(error)
                    self._events.warning("outbox_not_looked_after", error=self._upkeep_trouble)

    async def _look(self) -> None:
        workers = [worker.attempts for worker in self._workers]
        is_own = bool(self._working() or any(each.trouble for each in (self._attempts, *workers)))
        self._waiting = None  # also where they cannot be counted
        if is_own:
            self._waiting = await self._upkeep.counted()
        if self._shards > 1:
            await self._share()
        if self._keep_s is not None and self._working():
            await self._upkeep.delete_sent(self._keep_s)

    async def _share(self) -> None:
        """Leave a shard to a relay that asks and has less of them, or ask the one that has more: one at a time."""
        own = self._leases.owner
        holders = await self._leases.holders()
        held = Counter(holder.owner for holder in holders if holder.owner is not None)
        for holder in holders:
            asks = holder.wanted_by if holder.owner == own else None
            if asks is not None and held[own] - held[asks] >= SHARED_EVENLY:
                self._workers[holder.shard].leave()
                return
        if any(holder.wanted_by == own for holder in holders):
            return
        most = max(held, key=lambda owner: held[owner], default=own)
        if held[most] - held[own] >= SHARED_EVENLY:
            await self._leases.want(next(holder for holder in reversed(holders) if holder.owner == most))


def rows_text(number: int) -> str:
    """Return a number of rows in words."""
    return f"{number:,} row{'s' * (number != 1)}"


def owner_of_this_process() -> str:
    """Return a name for one relay of this process, for people who look who works, and for other relays."""
    return f"{socket.gethostname()} {os.getpid()} {secrets.token_hex(3)}"
