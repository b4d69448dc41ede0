"""Who waits for a flush generation to end; the counting is `core/flush_generations.py`'s."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.core.flush_generations import FlushGenerations

if TYPE_CHECKING:
    import asyncio


class FlushWaiters:
    """Wakes those who wait.

    Args:
        loop: makes their futures.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.generations = FlushGenerations(self._generation_finished)
        self._loop = loop
        self._waiting: dict[asyncio.Future[None], int] = {}

    async def wait_for(self, generation: int) -> None:
        """Wait until nothing accepted up to this generation is unfinished."""
        while not self.generations.is_finished(generation):
            finished = self._loop.create_future()
            self._waiting[finished] = generation
            try:
                await finished
            finally:
                del self._waiting[finished]

    def _generation_finished(self) -> None:
        for finished, generation in self._waiting.items():
            if not finished.done() and self.generations.is_finished(generation):
                finished.set_result(None)

    def __repr__(self) -> str:
        """Show how many wait."""
        return f"<FlushWaiters {len(self._waiting)} {self.generations!r}>"
