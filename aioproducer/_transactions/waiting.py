"""Callers that wait for a state of the transaction, and the lock that gives a producer one transaction at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from aioproducer._native.measures import TIMES, Histogram
from aioproducer.errors import IllegalStateError, KafkaError, TransactionTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable


class TransactionResult:
    """One commit or abort, which every call of the same kind joins."""

    __slots__ = ("began_at", "error", "is_commit", "is_done", "is_left", "is_prepare", "is_reported", "number")

    def __init__(self, number: int, *, is_commit: bool, began_at: float, is_prepare: bool = False) -> None:
        self.number = number
        self.is_prepare = is_prepare
        self.is_commit = is_commit
        self.began_at = began_at
        self.is_done = False
        self.is_reported = False
        self.is_left = False  # a caller gave up, and may call again
        self.error: KafkaError | None = None

    def end(self, error: KafkaError | None) -> None:
        self.is_done = True
        self.error = error

    @property
    def may_be_joined(self) -> bool:
        """Whether it is running, or no caller has its result."""
        return not (self.is_done and self.is_reported)


def _times() -> Histogram:
    return Histogram(TIMES)


@dataclass(slots=True)
class TransactionCounts:
    """Times of the calls of transactions in seconds, and so their number, as Kafka's metrics define them."""

    init_time: Histogram = field(default_factory=_times)
    begin_time: Histogram = field(default_factory=_times)
    send_offsets_time: Histogram = field(default_factory=_times)
    prepare_time: Histogram = field(default_factory=_times)
    commit_time: Histogram = field(default_factory=_times)
    abort_time: Histogram = field(default_factory=_times)

    def note(self, result: TransactionResult, now: float) -> None:
        ended = self.prepare_time if result.is_prepare else self.commit_time if result.is_commit else self.abort_time
        ended.record(now - result.began_at)


class TransactionWait(NamedTuple):
    """Reason of calls of a transaction to wait, at one moment."""

    is_over: bool  # the last transaction has ended on the brokers, or never will
    is_for_records: bool
    request: str  # Kafka's name of the one that is under way; empty if there is none
    pause_until: float | None  # monotonic seconds; None without a pause
    trouble: str  # why there is a pause, or why the last request is sent again


class TransactionWaits:
    """Callers that wait; `explain` returns what they wait for and `last_error` the last error, for time-outs."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        max_block_s: float,
        explain: Callable[[], str],
        *,
        last_error: Callable[[], KafkaError | None] = lambda: None,
    ) -> None:
        self._loop = loop
        self._max_block_s = max_block_s
        self._explain = explain
        self._last_error = last_error
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}  # with the condition of each

    def deadline(self) -> float:
        """Return when a call that begins now gives up; monotonic seconds."""
        return self._loop.time() + self._max_block_s

    def notify(self) -> None:
        for change, is_reached in self._waiting.items():
            if not change.done() and is_reached():
                change.set_result(None)

    async def join(self, result: TransactionResult, deadline: float) -> None:
        """Wait until a transaction has ended; raises the error of its commit or abort."""
        done = "prepared" if result.is_prepare else "committed" if result.is_commit else "aborted"
        what = f"the transaction is not {done}"
        await self.until(lambda: result.is_done, deadline, what)
        result.is_reported = True
        if result.error is not None:
            raise result.error.fresh()

    async def until(self, is_reached: Callable[[], bool], deadline: float | None, what: str) -> None:
        """Wait until a condition is true, which is checked now and by `notify` at each change, and raises nothing."""
        if is_reached():  # an `asyncio.timeout` costs more than the rest of a begin
            return
        try:
            async with asyncio.timeout_at(deadline):
                while not is_reached():  # it may have become false again
                    await self._change(is_reached)
        except TimeoutError:
            text = f"{what} after max_block_ms={self._max_block_s * 1000:.0f}; it goes on, and the same call joins it"
            reason = self._explain()
            text = f"{text} ({reason})" if reason else text
            raise TransactionTimeoutError(text, last_broker_error=self._last_error()) from None

    async def pause(self, wait_s: float, deadline: float) -> None:
        """Wait for some time, or until the next change."""
        is_short = self._loop.time() + wait_s > deadline
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(min(self._loop.time() + wait_s, deadline)):
                await self._change(lambda: True)
        if is_short and self._loop.time() >= deadline:
            text = f"the next transaction may begin in {wait_s:.1f} s: a request of the last one may still arrive"
            raise TransactionTimeoutError(text)

    async def _change(self, is_reached: Callable[[], bool]) -> None:
        change = self._loop.create_future()
        self._waiting[change] = is_reached
        try:
            await change
        finally:
            del self._waiting[change]  # also if cancelled: the next change may be far off


class LockHolder:
    """One task's possession of the lock, released by the task or by the end of its transaction."""

    __slots__ = ("task", "transaction")

    def __init__(self, task: object) -> None:
        self.task = task
        self.transaction: int | None = None
        """Transaction that releases the lock when it ends; None if the holder releases it itself."""


class TransactionLock:
    """Lock that gives tasks one transaction after another, first come, first served."""

    def __init__(self, loop: asyncio.AbstractEventLoop, is_open: Callable[[int], bool]) -> None:
        self._loop = loop
        self._is_open = is_open
        self._holder: LockHolder | None = None
        self._waiting: deque[tuple[asyncio.Future[None], LockHolder]] = deque()
        self._error: KafkaError | None = None

    async def take(self, deadline: float) -> LockHolder:
        if self._error is not None:
            raise self._error.fresh()
        holder = LockHolder(asyncio.current_task(self._loop))
        if self._holder is not None and self._holder.task is holder.task:
            self.pass_on()
        if self._holder is None:
            self._holder = holder
            return holder
        self._refuse_nesting(holder.task)
        given: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((given, holder))
        try:
            async with asyncio.timeout_at(deadline):
                await given
        except TimeoutError:
            self._leave(holder)
            text = f"another task's transaction was still open after max_block_ms; {len(self._waiting)} more wait"
            raise TransactionTimeoutError(text) from None
        except BaseException:
            self._leave(holder)
            raise
        return holder

    def take_now(self) -> LockHolder:
        if self._holder is not None:
            raise IllegalStateError("a transaction is open already: commit or abort it first")
        self._holder = LockHolder(asyncio.current_task(self._loop))
        return self._holder

    def give(self, holder: LockHolder) -> None:
        """Release the lock, and give it to the next task; does nothing if it was released before."""
        if self._holder is not holder:
            return
        self._holder = None
        while self._waiting:
            given, following = self._waiting.popleft()
            if not given.done():
                self._holder = following
                given.set_result(None)
                return

    def pass_on(self) -> None:
        """Release the lock if its transaction is over: the task begins another, so will not wait for that end again."""
        holder = self._holder
        if holder is not None and holder.transaction is not None and not self._is_open(holder.transaction):
            self.give(holder)

    @property
    def ends_with_transaction(self) -> bool:
        return self._holder is not None and self._holder.transaction is not None

    def transaction_ended(self, number: int) -> None:
        if self._holder is not None and self._holder.transaction == number:
            self.give(self._holder)

    def end(self, error: KafkaError) -> None:
        """Fail all waiting tasks, and later ones: the producer closes, or has failed."""
        self._error = error
        for given, _ in self._waiting:
            if not given.done():
                given.set_exception(error.fresh())
        self._waiting.clear()

    def _leave(self, holder: LockHolder) -> None:
        """Stop waiting; if the lock was given in the same moment, give it to the next task."""
        self.give(holder)
        self._waiting = deque(each for each in self._waiting if each[1] is not holder)

    def _refuse_nesting(self, task: object) -> None:
        if self._holder is not None and self._holder.task is task:
            raise IllegalStateError("this task has a transaction open already: a producer has one at a time")
