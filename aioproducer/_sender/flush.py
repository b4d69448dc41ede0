"""Who waits for a flush generation to end; the counting is `_accumulator/flush_generations.py`'s."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

from aioproducer._accumulator.flush_generations import FlushGenerations


class FlushWaiters:
    """Wakes those who wait.

    Args:
        loop: makes their futures.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.generations = FlushGenerations(self._generation_finished)
        self._loop = loop
        self._waiting: dict[asyncio.Future[None], int] = {}
        self.drain_timeout_s = math.inf
        """The shortest that was asked for."""
        self._drain_by = math.inf
        self._draining: asyncio.Timeout | None = None

    async def wait_for(self, generation: int) -> None:
        """Wait until nothing accepted up to this generation is unfinished."""
        finished = self.when_finished(generation)
        try:
            await finished
        finally:
            self._waiting.pop(finished, None)  # who gives up leaves: the end may be long in coming

    def when_finished(self, generation: int) -> asyncio.Future[None]:
        """Return a future that is done once nothing accepted up to this generation is unfinished."""
        finished = self._loop.create_future()
        if self.generations.is_finished(generation):
            finished.set_result(None)
        else:
            self._waiting[finished] = generation
        return finished

    def drain_within(self, timeout_s: float) -> None:
        """Bound the wait of `drain`, also one under way; the shortest bound counts."""
        self.drain_timeout_s = min(self.drain_timeout_s, timeout_s)
        self._drain_by = min(self._drain_by, self._loop.time() + timeout_s)
        if self._draining is not None and not self._draining.expired():
            self._draining.reschedule(self._drain_by)

    async def drain(self, before: Callable[[], Awaitable[None]] | None = None) -> bool:
        """Wait until nothing that was accepted is unfinished; False: the time is over.

        Args:
            before: waited for first, within the same time.
        """
        try:
            async with asyncio.timeout_at(self._drain_by) as self._draining:
                if before is not None:
                    await before()
                await self.wait_for(self.generations.current)
        except TimeoutError:
            return False
        finally:
            self._draining = None
        return True

    def _generation_finished(self) -> None:
        for finished, generation in [*self._waiting.items()]:
            if self.generations.is_finished(generation):
                del self._waiting[finished]
                if not finished.done():
                    finished.set_result(None)

    def __repr__(self) -> str:
        """Show how many wait."""
        return f"<FlushWaiters {len(self._waiting)} {self.generations!r}>"
