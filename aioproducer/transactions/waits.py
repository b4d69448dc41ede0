"""Who waits for a transaction to come somewhere: each is woken when it is there, or when its time is over."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioproducer.errors import TransactionTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.errors import KafkaError


class Ending:
    """One commit or abort; every call of the same kind joins it."""

    __slots__ = ("began_at", "error", "is_commit", "is_done", "is_left", "is_told", "number")

    def __init__(self, number: int, *, is_commit: bool, began_at: float) -> None:
        self.number = number
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

    def note(self, ending: Ending, now: float) -> None:
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

    async def join(self, ending: Ending, deadline: float) -> None:
        """Wait until a transaction has ended.

        Raises:
            TransactionTimeoutError: not yet.
            KafkaError: what it ended in.
        """
        what = "the transaction is not committed" if ending.is_commit else "the transaction is not aborted"
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
