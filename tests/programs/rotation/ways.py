"""Ways to a secured broker that can be cut and moved: the name stays, the addresses behind it change.

client ── "localhost" is now 127.0.0.2 ──► Way on 127.0.0.2, the broker's port ──► broker on 127.0.0.1
"""

from __future__ import annotations

import asyncio
import socket

from tests.programs.chaos.proxy import LOOPBACK, Link

FIRST, SECOND = "127.0.0.2", "127.0.0.3"
NAME = "localhost"  # as the brokers' listeners advertise it


class Way(Link):
    """A proxy on another address of this machine, with the port of the listener behind it."""

    def __init__(self, address: str, port: int) -> None:
        super().__init__(port, port, f"{address}:{port}")
        self.address = address

    async def open(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._accepted, self.address, self.port)

    async def cut(self) -> None:
        """Refuse new connections, and reset those that are open."""
        await self.refuse()
        self.reset_all()


class MovingLoop(asyncio.SelectorEventLoop):
    """An event loop with a resolver of its own, for the one name that moves."""

    address = FIRST

    async def getaddrinfo(  # type: ignore[override]  # as much of it as is used
        self, host: str, port: int, **options: int
    ) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        address = self.address if host == NAME else host
        found = await super().getaddrinfo(address, port, **options)
        return [(*entry[:4], (str(entry[4][0]), port)) for entry in found if entry[0] == socket.AF_INET]


def moving_loop() -> MovingLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, MovingLoop)
    return loop


__all__ = ["FIRST", "LOOPBACK", "SECOND", "MovingLoop", "Way", "moving_loop"]
