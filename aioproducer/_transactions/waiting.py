"""Who waits for a transaction to come somewhere: each is woken when it is there, or when its time is over.

Whose transaction it is: a producer has one at a time, and its tasks take turns, first come, first served.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioproducer.errors import IllegalStateError, TransactionTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.errors import KafkaError


class TransactionResult:
    """One commit or abort; every call of the same kind joins it."""

    __slots__ = ("began_at", "error", "is_commit", "is_done", "is_left", "is_prepare", "is_told", "number")

    def __init__(self, number: int, *, is_commit: bool, began_at: float, is_prepare: bool = False) -> None:
        self.number = number
        self.is_prepare = is_prepare
        self.is_commit = is_commit
        self.began_at = began_at
        self.is_done = False
        self.is_told = False
        self.is_left = False
        """Whether a caller gave up, and may ask again."""
        self.error: KafkaError | None = None

    def end(self, error: KafkaError | None) -> None:
        """Note how it ended; None: as it was meant to."""
        self.is_done = True
        self.error = error

    @property
    def may_be_joined(self) -> bool:
        """Whether somebody may still want to know: under way, or ended and told to nobody."""
        return not (self.is_done and self.is_told)


@dataclass(slots=True)
class TransactionCounts:
    """Totals of transactions that ended, under Kafka's meanings."""

    committed: int = 0
    aborted: int = 0
    commit_total_s: float = 0.0
    abort_total_s: float = 0.0

    def note(self, ending: TransactionResult, now: float) -> None:
        """Count one that ended as it was meant to."""
        if ending.is_commit:
            self.committed += 1
            self.commit_total_s += now - ending.began_at
        else:
            self.aborted += 1
            self.abort_total_s += now - ending.began_at


class TransactionWaits:
    """Those who wait.

    Args:
        loop: makes their futures.
        max_block_s: how long a call waits.
        explain: says what went wrong last, for the text of time-outs.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, max_block_s: float, explain: Callable[[], str]) -> None:
        self._loop = loop
        self._max_block_s = max_block_s
        self._explain = explain
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}  # and what each waits for

    def deadline(self) -> float:
        """When a call that begins now gives up; monotonic seconds."""
        return self._loop.time() + self._max_block_s

    def tell(self) -> None:
        """Something has changed: wake those for whom what they wait for is so now."""
        for change, is_reached in self._waiting.items():
            if not change.done() and is_reached():
                change.set_result(None)

    async def join(self, ending: TransactionResult, deadline: float) -> None:
        """Wait until a transaction has ended.

        Raises:
            TransactionTimeoutError: not yet.
            KafkaError: what it ended in.
        """
        done = "prepared" if ending.is_prepare else "committed" if ending.is_commit else "aborted"
        what = f"the transaction is not {done}"
        await self.until(lambda: ending.is_done, deadline, what)
        ending.is_told = True
        if ending.error is not None:
            raise ending.error.fresh()

    async def until(self, is_reached: Callable[[], bool], deadline: float | None, what: str) -> None:
        """Wait until something is so.

        Args:
            is_reached: looked at now, and by `tell` at each change; raises nothing.
            deadline: monotonic seconds; None: for ever.
            what: is not so, for the error.

        Raises:
            TransactionTimeoutError: not yet.
        """
        if is_reached():  # an `asyncio.timeout` costs more than the rest of a begin
            return
        try:
            async with asyncio.timeout_at(deadline):
                while not is_reached():  # what was so at the change may be otherwise again
                    await self._change(is_reached)
        except TimeoutError:
            text = f"{what} after max_block_ms={self._max_block_s * 1000:.0f}; it goes on, and the same call joins it"
            reason = self._explain()
            raise TransactionTimeoutError(f"{text} ({reason})" if reason else text) from None

    async def pause(self, wait_s: float, deadline: float) -> None:
        """Wait a while, or until the next change.

        Raises:
            TransactionTimeoutError: there is not so much time.
        """
        is_short = self._loop.time() + wait_s > deadline
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(min(self._loop.time() + wait_s, deadline)):
                await self._change(_whatever_it_is)
        if is_short and self._loop.time() >= deadline:
            text = f"the next transaction may begin in {wait_s:.1f} s: a request of the last one may still arrive"
            raise TransactionTimeoutError(text)

    async def _change(self, is_reached: Callable[[], bool]) -> None:
        change = self._loop.create_future()
        self._waiting[change] = is_reached
        try:
            await change
        finally:
            del self._waiting[change]  # who gives up leaves: the next change may be long in coming

    def __repr__(self) -> str:
        """Show how many wait."""
        return f"<TransactionWaits {len(self._waiting)}>"


def _whatever_it_is() -> bool:
    """Any change will do."""
    return True


class LockHolder:
    """One task's turn; given back by whoever took it, or by the end of its transaction."""

    __slots__ = ("task", "transaction")

    def __init__(self, task: object) -> None:
        self.task = task
        self.transaction: int | None = None
        """Number of the transaction whose end gives it back, waited for or not; None: whoever took it does."""


class TransactionLock:
    """A line of tasks that want a transaction.

    Args:
        loop: makes their futures.
        is_open: tells whether the transaction with a number has not ended yet.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, is_open: Callable[[int], bool]) -> None:
        self._loop = loop
        self._is_open = is_open
        self._holder: LockHolder | None = None
        self._waiting: deque[tuple[asyncio.Future[None], LockHolder]] = deque()
        self._error: KafkaError | None = None

    async def take(self, deadline: float) -> LockHolder:
        """Wait for the turn.

        Args:
            deadline: monotonic seconds.

        Raises:
            IllegalStateError: the task has a transaction open already.
            TransactionTimeoutError: the others have not ended theirs in time.
            KafkaError: nobody gets one any more.
        """
        if self._error is not None:
            raise self._error.fresh()
        turn = LockHolder(asyncio.current_task(self._loop))
        if self._holder is not None and self._holder.task is turn.task:
            self.pass_on()
        if self._holder is None:
            self._holder = turn
            return turn
        self._refuse_nesting(turn.task)
        given: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((given, turn))
        try:
            async with asyncio.timeout_at(deadline):
                await given
        except TimeoutError:
            self._leave(turn)
            text = f"another task's transaction was still open after max_block_ms; {len(self._waiting)} more wait"
            raise TransactionTimeoutError(text) from None
        except BaseException:
            self._leave(turn)
            raise
        return turn

    def take_now(self) -> LockHolder:
        """Take the turn if nobody has it.

        Raises:
            IllegalStateError: somebody has.
        """
        if self._holder is not None:
            raise IllegalStateError("a transaction is open already: commit or abort it first")
        self._holder = LockHolder(asyncio.current_task(self._loop))
        return self._holder

    def give(self, turn: LockHolder) -> None:
        """Let the next one have it; nothing happens if it was given before."""
        if self._holder is not turn:
            return
        self._holder = None
        while self._waiting:
            given, following = self._waiting.popleft()
            if not given.done():
                self._holder = following
                given.set_result(None)
                return

    def pass_on(self) -> None:
        """Give the turn back if its transaction is over: whoever begins another will not ask for that end again."""
        held = self._holder
        if held is not None and held.transaction is not None and not self._is_open(held.transaction):
            self.give(held)

    @property
    def ends_with_transaction(self) -> bool:
        """Whether the end of a transaction gives the turn back."""
        return self._holder is not None and self._holder.transaction is not None

    def transaction_ended(self, number: int) -> None:
        """Give the turn back that was held for this transaction."""
        if self._holder is not None and self._holder.transaction == number:
            self.give(self._holder)

    def end(self, error: KafkaError) -> None:
        """Let nobody wait any more, now or later: the producer closes, or has failed."""
        self._error = error
        for given, _ in self._waiting:
            if not given.done():
                given.set_exception(error.fresh())
        self._waiting.clear()

    def _leave(self, turn: LockHolder) -> None:
        """Stand in line no more; a turn that was given in the same moment goes on to the next."""
        self.give(turn)
        self._waiting = deque(each for each in self._waiting if each[1] is not turn)

    def _refuse_nesting(self, task: object) -> None:
        if self._holder is not None and self._holder.task is task:
            raise IllegalStateError("this task has a transaction open already: a producer has one at a time")

    def __repr__(self) -> str:
        """Show how many wait."""
        return f"<TransactionTurns taken={self._holder is not None} waiting={len(self._waiting)}>"
