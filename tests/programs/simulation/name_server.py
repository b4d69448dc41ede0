"""The name server of a simulation: it knows the bootstrap name, takes every other name for an address, and may fail."""

import asyncio
import socket
from collections.abc import Callable

BOOTSTRAP_NAME = "kafka"


class NameServer:
    """Tells addresses."""

    def __init__(self, addresses: Callable[[], list[str]]) -> None:
        self.is_failing = False
        self.is_silent = False
        self._addresses = addresses
        self._waiting: list[asyncio.Future[None]] = []

    async def look_up(self, host: str) -> list[str]:
        """The addresses of a name."""
        while self.is_silent:
            answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(answer)
            await answer
        if self.is_failing:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return self._addresses() if host == BOOTSTRAP_NAME else [host]

    def clear_up(self) -> None:
        """Answer everybody, those who wait too."""
        self.is_failing = self.is_silent = False
        waiting, self._waiting = self._waiting, []
        for answer in waiting:
            if not answer.done():
                answer.set_result(None)
