"""The task of one shard: it sends the shard's rows, or stands by while another relay does."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer._logs import event_log
from aioproducer.outbox._attempts import Attempts, words_of
from aioproducer.outbox._calls import CANCEL_AGAIN_S, CLOSE_S, fetch_error, to_the_end
from aioproducer.outbox._errors import DECISIONS, RelayFencedError, ShardsChangedError, waits_for
from aioproducer.outbox._protocol import Policy, Session
from aioproducer.outbox._wake import Waker, forget, watch

if TYPE_CHECKING:
    from aioproducer.outbox._kafka import ProducerLog
    from aioproducer.outbox._leases import Lease, Leases
    from aioproducer.outbox._protocol import State
    from aioproducer.outbox._store import SqlStore

POLL_S: Final = (0.02, 1.0)
"""Between looks for rows: at first after there were some, and at most."""
REFRESH_S: Final = 3_600.0
"""A position and a transactional id that are not used expire after days."""


class Choices(NamedTuple):
    """Choices of a relay's user for each shard."""

    policy: Policy
    is_exact: bool
    lease_s: float


class Counts(NamedTuple):
    """Sums of what the workers of a relay have done."""

    rows_sent: int = 0
    batches_sent: int = 0
    rows_parked: int = 0


class Sides(NamedTuple):
    """The database and Kafka, as one shard uses them."""

    leases: Leases
    store: SqlStore
    kafka: ProducerLog


class ShardWorker:
    """Sends the rows of one shard.

    Args:
        outbox: name of the table.
        label: of the relay, for logs.
        shard: number, from 0.
        shards: how many there are.
        on_work: called each time this begins to send.
    """

    def __init__(  # noqa: PLR0913  # its names, its place, and what it works with
        self,
        outbox: str,
        shard: int,
        shards: int,
        *,
        label: str,
        sides: Sides,
        choices: Choices,
        on_work: Callable[[], object],
    ) -> None:
        self._outbox = outbox
        self._shard = shard
        self._shards = shards
        self._leases, self._store, self._kafka = sides
        self._choices = choices
        self._on_work = on_work
        self._events = event_log(label if shards == 1 else f"{label} shard {shard}")
        self.attempts: Attempts = Attempts(self._events)
        self.is_working: bool = False
        self.knows_who_works: bool = False
        """Whether this has worked, or has seen that another relay does."""
        self._trouble_of_other = ""
        self._rows_sent = 0
        self._batches_sent = 0
        self._has_succeeded = False  # in this attempt
        self._left = asyncio.Event()
        self._refreshed_at = 0.0

    @property
    def counts(self) -> Counts:
        """Sums of what this has done."""
        return Counts(self._rows_sent, self._batches_sent, self._store.rows_parked)

    def why_not_sent(self) -> str:
        """Return the last error, or why the producer cannot send while it waits for brokers; empty without either.

        While another relay works, and until this one has sent after it: what has kept that one from it.
        """
        return self._own_trouble() or self._trouble_of_other

    def _own_trouble(self) -> str:
        producer = self._kafka.producer
        if self.attempts.trouble or not self.is_working or producer is None:
            return self.attempts.trouble
        return producer.health().reason or self._kafka.missing_topic()

    def leave(self) -> None:
        """End to send, and let another relay work for as long as it may take to begin."""
        self._left.set()

    async def run(self) -> None:
        """Work or stand by, without an end.

        Raises:
            ShardsChangedError: there is another number of shards.
        """
        waker = Waker(self._outbox)
        watch(waker)
        try:
            while True:
                await self._once(waker)
        finally:
            forget(waker)

    async def finish(self) -> State:
        """Stand by until no other relay works, commit and confirm what is claimed, and return the state then.

        Raises:
            ShardsChangedError: there is another number of shards.
            Exception: of a database, a driver or Kafka.
        """
        state = await self._taken_over()
        session = self._session(state)
        await self._work(state, session.finish())
        return session.state

    async def _once(self, waker: Waker) -> None:
        """Work until an error, and wait before the next attempt."""
        try:
            state = await self._taken_over()
            await self._work(state, self._send(state, waker))
        except RelayFencedError:
            self._events.info("outbox_stands_by")
        except ShardsChangedError:
            raise
        except Exception as error:  # noqa: BLE001  # of a database, a driver or Kafka: each is tried again
            await self.attempts.failed(error)
        if self._left.is_set():
            await asyncio.sleep(self._choices.lease_s)
            self._left.clear()

    async def _taken_over(self) -> State:
        """Stand by until no other relay works, and raise the epoch."""
        seen: Lease | None = None
        seen_at = monotonic()
        while True:
            lease = await self._leases.lease(self._shard, self._shards)
            if seen is None or (lease.epoch, lease.renewals) != (seen.epoch, seen.renewals):
                seen, seen_at = lease, monotonic()
            self._trouble_of_other = lease.trouble or ""
            # The clock of the database may be set back: a lease that is not renewed ends by this process's clock too.
            is_free = lease.owner in {None, self._leases.owner}
            is_over = is_free or lease.left_ms <= 0 or monotonic() - seen_at > self._choices.lease_s
            if is_over and (state := await self._leases.take_over(self._shard, self._shards, lease)) is not None:
                return state
            self.attempts.leave_to_another()
            self.knows_who_works = True
            await asyncio.sleep(min(self._choices.lease_s / 5, 1.0))

    async def _work(self, state: State, sending: Coroutine[object, object, None]) -> None:
        """Open the store and run until an error, until the end, or until another relay takes over."""
        trouble: str | None = None
        self._has_succeeded = False
        tasks = [
            asyncio.create_task(work) for work in (self._opened(sending), self._keep_lease(state), self._until_left())
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        except Exception as error:
            trouble = words_of(error)
            raise
        finally:
            self.is_working = False
            await to_the_end(self._end_work(state, trouble or self._nothing_to_say(), tasks))
            sending.close()  # where it was not begun

    def _nothing_to_say(self) -> str | None:
        """Return what clears the stored trouble; None, which leaves it, as long as it may come again."""
        return "" if self._has_succeeded else None

    async def _end_work(self, state: State, trouble: str | None, tasks: Iterable[asyncio.Task[None]]) -> None:
        await ended_tasks(tasks)
        await self._kafka.close()
        await self._store.close()
        with suppress(Exception):  # the lease ends by itself
            async with asyncio.timeout(CLOSE_S):
                await self._leases.release(state, trouble)

    async def _opened(self, sending: Coroutine[object, object, None]) -> None:
        await self._store.open()
        self.is_working = self.knows_who_works = True
        self._on_work()
        await sending

    async def _until_left(self) -> None:
        await self._left.wait()

    def _session(self, state: State, on_claim: Callable[[], None] = lambda: None) -> Session:
        policy, is_exact, _ = self._choices
        return Session(
            self._store,
            self._kafka,
            state,
            outbox=self._outbox,
            token=secrets.token_hex(8),
            policy=policy,
            is_exact=is_exact,
            on_claim=on_claim,
            on_sent=self._note_sent,
        )

    async def _send(self, state: State, waker: Waker) -> None:
        session = self._session(state, waker.clear)
        await session.begin()
        self._events.info("outbox_works", epoch=state.epoch, batch=session.state.number)
        self._refreshed_at = monotonic()
        pause_s = POLL_S[0]
        while True:
            if has_sent := await session.send_waiting():
                pause_s = POLL_S[0]
            self._succeeded()
            if monotonic() - self._refreshed_at > REFRESH_S:
                await session.refresh()
                self._refreshed_at = monotonic()
            pause_s = await self._until_rows(waker, pause_s, trusts=has_sent and self._shards == 1)

    async def _until_rows(self, waker: Waker, pause_s: float, *, trusts: bool) -> float:
        """Wait until there are rows; returns the next pause.

        A claim writes, and a wake-up may be of another shard's rows, or of a table of this name in another schema.

        Args:
            trusts: that a wake-up means rows: the last one did.
        """
        while True:
            is_woken = await waker.wait(pause_s)
            pause_s = POLL_S[0] if is_woken else min(pause_s * 2, POLL_S[1])
            if is_woken and trusts:
                return pause_s
            if monotonic() - self._refreshed_at > REFRESH_S or await self._store.first_rows():
                return pause_s

    async def _keep_lease(self, state: State) -> None:
        """Renew the lease until the epoch is not the last one."""
        while True:
            await asyncio.sleep(self._choices.lease_s / 3)
            said = self._own_trouble()
            # A doubt of an earlier attempt may be over; the one that finds it again says it.
            is_doubt = waits_for(DECISIONS, said)
            await self._leases.renew(state, None if is_doubt else said or self._nothing_to_say())

    def _note_sent(self, rows: int) -> None:
        self._rows_sent += rows
        self._batches_sent += 1
        self._succeeded()

    def _succeeded(self) -> None:
        self._has_succeeded = True
        self.attempts.succeeded()
        self._trouble_of_other = ""


def total_of(counts: Iterable[Counts]) -> Counts:
    """Return what several workers have done together."""
    return Counts(*map(sum, zip(*counts, strict=True)))


async def ended_tasks(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks until they have ended: a driver that meets an error may lose a cancellation."""
    running = set(tasks)
    for task in running:
        task.add_done_callback(fetch_error)
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=CANCEL_AGAIN_S)
