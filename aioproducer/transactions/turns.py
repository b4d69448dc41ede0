"""Whose transaction it is: a producer has one at a time, and its tasks take turns, first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from aioproducer.errors import IllegalStateError, TransactionTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.errors import KafkaError


class Turn:
    """One task's turn; given back by whoever took it, or by the end of its transaction."""

    __slots__ = ("task", "transaction")

    def __init__(self, task: object) -> None:
        self.task = task
        self.transaction: int | None = None
        """Number of the transaction whose end gives it back, waited for or not; None: whoever took it does."""


class TransactionTurns:
    """A line of tasks that want a transaction.

    Args:
        loop: makes their futures.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._holder: Turn | None = None
        self._waiting: deque[tuple[asyncio.Future[None], Turn]] = deque()
        self._error: KafkaError | None = None
        self.is_over: Callable[[int], bool] = lambda _: False
        """Says of the number of a transaction whether that has ended."""

    async def take(self, deadline: float) -> Turn:
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
        turn = Turn(asyncio.current_task(self._loop))
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

    def take_now(self) -> Turn:
        """Take the turn if nobody has it.

        Raises:
            IllegalStateError: somebody has.
        """
        if self._holder is not None:
            raise IllegalStateError("a transaction is open already: commit or abort it first")
        self._holder = Turn(asyncio.current_task(self._loop))
        return self._holder

    def give(self, turn: Turn) -> None:
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
        if held is not None and held.transaction is not None and self.is_over(held.transaction):
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

    def _leave(self, turn: Turn) -> None:
        """Stand in line no more; a turn that was given in the same moment goes on to the next."""
        self.give(turn)
        self._waiting = deque(each for each in self._waiting if each[1] is not turn)

    def _refuse_nesting(self, task: object) -> None:
        if self._holder is not None and self._holder.task is task:
            raise IllegalStateError("this task has a transaction open already: a producer has one at a time")

    def __repr__(self) -> str:
        """Show how many wait."""
        return f"<TransactionTurns taken={self._holder is not None} waiting={len(self._waiting)}>"
