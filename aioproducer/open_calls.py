"""Calls that wait for answers of brokers, and end with the producer whatever those do."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class OpenCalls:
    """Those of one producer.

    Args:
        refuse: raises what a call gets when the producer closes or has failed.
    """

    __slots__ = ("_is_ended", "_open", "_refuse")

    def __init__(self, refuse: Callable[[], object]) -> None:
        self._refuse = refuse
        self._open: set[asyncio.Timeout] = set()
        self._is_ended = False

    @asynccontextmanager
    async def within(self, timeout_s: float) -> AsyncIterator[None]:
        """Give what is inside so much time, and no more than the producer has.

        Raises:
            TimeoutError: it took longer.
            KafkaError: the producer has come to its end meanwhile.
        """
        timeout = asyncio.timeout(timeout_s)
        try:
            async with timeout:
                self._open.add(timeout)
                yield
        except TimeoutError:
            if self._is_ended:
                self._refuse()
            raise
        finally:
            self._open.discard(timeout)

    def end(self) -> None:
        """Let all of them end: the producer closes, or has failed."""
        self._is_ended = True
        for timeout in self._open:
            if not timeout.expired():
                timeout.reschedule(asyncio.get_running_loop().time())

    def __repr__(self) -> str:
        """Show how many there are."""
        return f"<OpenCalls {len(self._open)}>"
