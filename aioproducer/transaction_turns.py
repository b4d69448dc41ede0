"""Whose transaction it is: a producer has one at a time, and its tasks take turns, first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque

from aioproducer.errors import IllegalStateError, TransactionTimeoutError


class TransactionTurns:
    """A line of tasks that want a transaction.

    Args:
        loop: makes their futures.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._holder: object = None
        self._waiting: deque[tuple[asyncio.Future[None], object]] = deque()

    async def take(self, deadline: float) -> None:
        """Wait for the turn.

        Args:
            deadline: monotonic seconds.

        Raises:
            IllegalStateError: the task has a transaction open already.
            TransactionTimeoutError: the others have not ended theirs in time.
        """
        task = asyncio.current_task(self._loop)
        if self._holder is None:
            self._holder = task
            return
        self._refuse_nesting(task)
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((turn, task))
        try:
            async with asyncio.timeout_at(deadline):
                await turn
        except TimeoutError:
            self._leave(turn)
            text = f"another task's transaction was still open after max_block_ms; {len(self._waiting)} more wait"
            raise TransactionTimeoutError(text) from None
        except BaseException:
            self._leave(turn)
            raise

    def take_now(self) -> None:
        """Take the turn if nobody has it.

        Raises:
            IllegalStateError: somebody has.
        """
        if self._holder is not None:
            raise IllegalStateError("a transaction is open already: commit or abort it first")
        self._holder = asyncio.current_task(self._loop)

    def give(self) -> None:
        """Let the next one have it."""
        self._holder = None
        while self._waiting:
            turn, task = self._waiting.popleft()
            if not turn.done():
                self._holder = task
                turn.set_result(None)
                return

    def let_all_go(self) -> None:
        """Keep nobody in line: no transaction begins any more, and whoever tries is told why."""
        self._holder = None
        waiting, self._waiting = self._waiting, deque()
        for turn, _ in waiting:
            if not turn.done():
                turn.set_result(None)

    def _leave(self, turn: asyncio.Future[None]) -> None:
        """Stand in line no more; a turn that was given in the same moment goes on to the next."""
        if turn.done() and not turn.cancelled():
            self.give()
            return
        self._waiting = deque(each for each in self._waiting if each[0] is not turn)

    def _refuse_nesting(self, task: object) -> None:
        if self._holder is task:
            raise IllegalStateError("this task has a transaction open already: a producer has one at a time")

    def __repr__(self) -> str:
        """Show how many wait."""
        return f"<TransactionTurns taken={self._holder is not None} waiting={len(self._waiting)}>"
