"""Tasks that wait for a flush or for the close."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

from aioproducer._accumulator.flush_generations import FlushGenerations


class FlushWaiters:
    """Tasks that wait for a flush or for the close, until their generations of work have ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.generations = FlushGenerations(self._generation_finished)
        self._loop = loop
        self._waiting: dict[asyncio.Future[None], int] = {}
        self.drain_timeout_s = math.inf  # the shortest timeout of all calls of `close`
        self.drain_by = math.inf  # monotonic seconds
        self._draining: asyncio.Timeout | None = None

    async def wait_for(self, generation: int) -> None:
        """Wait until nothing accepted up to this generation is unfinished."""
        finished = self.when_finished(generation)
        try:
            await finished
        finally:
            self._waiting.pop(finished, None)  # a cancelled waiter: the generation may take long to end
            self.generations.is_awaited = bool(self._waiting)

    def when_finished(self, generation: int) -> asyncio.Future[None]:
        """Return a future that is done once nothing accepted up to this generation is unfinished."""
        finished = self._loop.create_future()
        if self.generations.is_finished(generation):
            finished.set_result(None)
        else:
            self._waiting[finished] = generation
            self.generations.is_awaited = True
        return finished

    def drain_within(self, timeout_s: float) -> None:
        """Bound the wait of `drain`, also of one that is under way; the shortest bound counts."""
        self.drain_timeout_s = min(self.drain_timeout_s, timeout_s)
        self.drain_by = min(self.drain_by, self._loop.time() + timeout_s)
        if self._draining is not None and not self._draining.expired():
            self._draining.reschedule(self.drain_by)

    async def drain(self, before: Callable[[], Awaitable[None]] | None = None) -> bool:
        """Wait until everything accepted has ended; False if the time ran out. `before` is awaited within that time."""
        try:
            async with asyncio.timeout_at(self.drain_by) as self._draining:
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
        self.generations.is_awaited = bool(self._waiting)

    def __repr__(self) -> str:
        return f"<FlushWaiters {len(self._waiting)} {self.generations!r}>"
