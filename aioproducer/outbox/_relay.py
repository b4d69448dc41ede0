"""`Relay`: the task that sends an outbox's rows, or stands by while another process does."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from time import monotonic
from typing import TYPE_CHECKING, Final, Self

from sqlalchemy.exc import DBAPIError

from aioproducer._logs import event_log
from aioproducer._timing.retry_backoff import ExponentialBackoff
from aioproducer.metrics import Health, Metric, MetricKind
from aioproducer.outbox._errors import ForeignPositionError, InDoubtError, OutboxError, RelayFencedError
from aioproducer.outbox._kafka import ProducerLog
from aioproducer.outbox._protocol import Policy, Session
from aioproducer.outbox._store import Lease, SqlStore
from aioproducer.outbox._wake import Waker, forget, watch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioproducer.outbox._protocol import State

POLL_S: Final = (0.02, 1.0)
"""Between looks for rows: at first after there were some, and at most."""
BACKOFF_MS: Final = (100, 10_000)
LISTEN_AGAIN_S: Final = 1.0
CANCEL_AGAIN_S: Final = 1.0
"""Until a task that goes on after its cancellation is cancelled again."""
REFRESH_S: Final = 3_600.0
"""A position and a transactional id that are not used expire after days."""
_GROUP: Final = "aioproducer-metrics"


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayStatistics:
    """The result of `Relay.statistics()`. Totals count from the relay's start."""

    is_working: bool = False
    """Whether this relay sends; else another one does, or this one cannot."""

    rows_sent: int = 0
    """Rows that were committed in Kafka."""

    batches_sent: int = 0
    """Transactions that had rows."""

    rows_parked: int = 0
    """Rows that this relay has parked."""

    retries: int = 0
    """Attempts that ended with an error and were repeated."""

    rows_waiting: int | None = None
    """Rows in the table, counted every ten seconds up to 100,000; None before the first count."""

    oldest_age_s: float | None = None
    """Age of the oldest row, at that count; None without rows."""

    trouble: str = ""
    """Why nothing is sent; empty if rows are, or there are none."""


class Relay:
    """Sends the rows of an outbox: `async with outbox.relay(engine, "localhost:9092") as relay`.

    Made by `Outbox.relay`. Several may run, in as many processes: one works, the others stand by.
    """

    def __init__(
        self, store: SqlStore, log: ProducerLog, *, name: str, policy: Policy, is_exact: bool, lease_s: float
    ) -> None:
        self._store = store
        self._kafka = log
        self._name = name
        self._policy = policy
        self._is_exact = is_exact
        self._lease_s = lease_s
        self._events = event_log(self.label)
        self._backoff = ExponentialBackoff(*BACKOFF_MS, random=Random())  # noqa: S311  # jitter
        self._failures = 0
        self._trouble = ""
        self._is_begun = self._is_closed = False
        self._epoch: int | None = None  # while it works
        self._rows_sent = self._batches_sent = self._retries = 0
        self._waiting: tuple[int, float | None] | None = None
        self._waker: Waker | None = None
        self._task: asyncio.Task[None] | None = None
        self._refreshed_at = 0.0

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
        self._waker = Waker(self._name)
        watch(self._waker)
        self._task = asyncio.create_task(self._run(), name=f"aioproducer-outbox | {self._name}")
        return self

    async def close(self) -> None:
        """Send no more rows: the transaction that is open ends, and another relay may work at once."""
        self._is_closed = True
        task, self._task = self._task, None
        if self._waker is not None:
            forget(self._waker)
        if task is not None:
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
        """The name of the relay in metrics, logs and pages: `outbox` and the table."""
        return f"outbox {self._name}"

    def statistics(self) -> RelayStatistics:
        """Return a snapshot of counters and gauges."""
        rows, age = self._waiting if self._waiting is not None else (None, None)
        return RelayStatistics(
            is_working=self._epoch is not None,
            rows_sent=self._rows_sent,
            batches_sent=self._batches_sent,
            rows_parked=self._store.rows_parked,
            retries=self._retries,
            rows_waiting=rows,
            oldest_age_s=age,
            trouble=self._why_not_sent(),
        )

    def health(self) -> Health:
        """Return whether rows are sent: this relay works or stands by, met no error since, and brokers answer it."""
        if self._task is None:
            return Health(
                is_ready=False, reason="the relay is closed" if self._is_closed else "the relay is not started"
            )
        reason = self._why_not_sent()
        return Health(is_ready=not reason, reason=reason)

    def explain(self) -> str:
        """Return in one line what the relay does, or why it does not."""
        if self._task is None:
            return self.health().reason
        if reason := self._why_not_sent():
            return f"nothing is sent: {reason}"
        if self._epoch is None:
            return "another relay works; this one stands by"
        waiting = "" if self._waiting is None else f"; {self._waiting[0]:,} rows wait"
        return f"works: {self._rows_sent:,} rows sent{waiting}"

    def _why_not_sent(self) -> str:
        """Return the last error, or why the producer cannot send while it waits for brokers; empty without either."""
        producer = self._kafka.producer
        if self._trouble or self._epoch is None or producer is None:
            return self._trouble
        return producer.health().reason

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
        }
        return [
            Metric(name, _GROUP, tags, value, MetricKind.COUNTER if name.endswith("-total") else MetricKind.GAUGE)
            for name, value in values.items()
            if value is not None
        ]

    # Its task

    async def _run(self) -> None:
        try:
            while not self._is_closed:  # a driver may have lost the cancellation of `close` beside an error
                await self._once()
        finally:
            await self._kafka.close()
            await self._store.close()

    async def _once(self) -> None:
        """Work until an error, and wait before the next attempt."""
        try:
            await self._store.open()
            state = await self._taken_over()
            await self._work(state)
        except RelayFencedError:
            self._events.info("outbox_stands_by")
        except Exception as error:  # noqa: BLE001  # of a database, a driver or Kafka: each is tried again
            await self._failed(error)

    async def _failed(self, error: Exception) -> None:
        self._retries += 1
        text = _words(error)
        if text == self._trouble:
            pass
        elif isinstance(error, OutboxError):
            self._events.error("outbox_stopped", error=text)
        else:
            self._events.warning("outbox_not_sent", error=text)
        self._trouble = text
        is_for_people = isinstance(error, InDoubtError | ForeignPositionError)
        delay_s = BACKOFF_MS[1] / 1000 if is_for_people else self._backoff.delay_s(self._failures)
        self._failures += 1
        assert self._waker is not None
        await asyncio.sleep(delay_s)

    async def _taken_over(self) -> State:
        """Stand by until no other relay works, and raise the epoch."""
        seen: Lease | None = None
        seen_at = monotonic()
        while True:
            lease = await self._store.lease()
            if seen is None or (lease.epoch, lease.renewals) != (seen.epoch, seen.renewals):
                seen, seen_at = lease, monotonic()
            # The clock of the database may be set back: a lease that is not renewed ends by this process's clock too.
            is_free = lease.owner in {None, self._store.owner}
            is_over = is_free or lease.left_ms <= 0 or monotonic() - seen_at > self._lease_s
            if is_over and (state := await self._store.take_over(lease)) is not None:
                return state
            self._trouble = ""
            await asyncio.sleep(min(self._lease_s / 5, 1.0))

    async def _work(self, state: State) -> None:
        """Send until an error, or until another relay takes over."""
        self._epoch = state.epoch
        trouble: str | None = None
        works = (self._send(state), self._keep_lease(state.epoch), self._listen())
        tasks = [asyncio.create_task(work) for work in works]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        except Exception as error:
            trouble = _words(error)
            raise
        finally:
            self._epoch = None
            await _ended(tasks)
            await self._kafka.close()
            await self._store.close()
            with suppress(Exception):  # the lease ends by itself
                await self._store.release(state.epoch, trouble)

    async def _send(self, state: State) -> None:
        session = Session(
            self._store,
            self._kafka,
            state,
            token=secrets.token_hex(8),
            policy=self._policy,
            is_exact=self._is_exact,
            on_sent=self._note_sent,
        )
        await session.begin()
        self._events.info("outbox_works", epoch=state.epoch, batch=session.state.number)
        self._refreshed_at = monotonic()
        pause_s = POLL_S[0]
        while True:
            if await session.send_waiting():
                pause_s = POLL_S[0]
            self._failures, self._trouble = 0, ""
            if monotonic() - self._refreshed_at > REFRESH_S:
                await session.refresh()
                self._refreshed_at = monotonic()
            pause_s = await self._until_rows(pause_s)

    async def _until_rows(self, pause_s: float) -> float:
        """Wait until there are rows; returns the next pause."""
        assert self._waker is not None
        while True:
            pause_s = POLL_S[0] if await self._waker.wait(pause_s) else min(pause_s * 2, POLL_S[1])
            if monotonic() - self._refreshed_at > REFRESH_S or await self._store.first_rows():
                return pause_s

    async def _keep_lease(self, epoch: int) -> None:
        """Renew the lease, and count the rows that wait, until the epoch is not the last one."""
        while True:
            await asyncio.sleep(self._lease_s / 3)
            await self._store.renew(epoch, self._why_not_sent() or None)
            self._waiting = await self._store.counted()

    async def _listen(self) -> None:
        """Look for rows when the database notifies; without it, looks are as far apart as `POLL_S` says."""
        assert self._waker is not None
        while True:
            with suppress(Exception):  # of the database: `_send` meets it too, and says so
                await self._store.listen(self._waker.wake)
            await asyncio.sleep(LISTEN_AGAIN_S)

    def _note_sent(self, rows: int) -> None:
        self._rows_sent += rows
        self._batches_sent += 1
        self._failures, self._trouble = 0, ""


async def _ended(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks until they have ended: a driver that meets an error may lose a cancellation."""
    running = set(tasks)
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=CANCEL_AGAIN_S)


def _words(error: Exception) -> str:
    """Return what went wrong, without the statement and its values."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return str(cause) or type(cause).__name__


def owner_of_this_process() -> str:
    """Return a name for one relay of this process, for people who look who works."""
    return f"{socket.gethostname()} {os.getpid()} {secrets.token_hex(3)}"
