"""An event loop whose clock jumps, and a network that is a dictionary.

Nothing sleeps: when no callback is ready, the clock moves to the next timer. A test that would wait for a day takes
a millisecond, and the same seed gives the same run.
"""

import asyncio
import selectors
import socket
from collections.abc import Callable, Coroutine
from typing import TypeVar

from tests.fakes.memory_transport import MemoryTransport, connect_in_memory

ResultT = TypeVar("ResultT")

ServerFactory = Callable[[], asyncio.Protocol | asyncio.BufferedProtocol]


class _JumpingSelector(selectors.SelectSelector):
    """Waits for nothing; reports to the loop how long it would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.turns = 0
        self.most_turns = 5_000_000

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.turns += 1
        if timeout is None:
            raise AssertionError("nothing will ever happen again: the test would hang")
        if self.turns > self.most_turns:
            raise AssertionError(f"the loop went round {self.most_turns} times, and there is no end to it")
        self.now += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop in virtual time, with servers by (address, port) and names by host."""

    def __init__(self) -> None:
        self._clock = _JumpingSelector()
        super().__init__(self._clock)
        self.servers: dict[tuple[str, int], ServerFactory] = {}
        self.names: dict[str, list[str]] = {"localhost": ["127.0.0.1"]}
        self.black_holes: set[str] = set()
        self.connects: list[tuple[float, str, int]] = []

    @property
    def turns(self) -> int:
        """Turns of the loop: in virtual time that is the whole cost."""
        return self._clock.turns

    @property
    def most_turns(self) -> int:
        """Turns of the loop without progress before the loop is reported as busy."""
        return self._clock.most_turns

    @most_turns.setter
    def most_turns(self, most: int) -> None:
        self._clock.most_turns = most

    @property
    def timers(self) -> int:
        return sum(not timer.cancelled() for timer in self._scheduled)  # type: ignore[attr-defined]  # the base class's

    def time(self) -> float:
        return self._clock.now

    async def getaddrinfo(  # type: ignore[override]  # as much of it as is used
        self, host: str, port: int, **_: object
    ) -> list[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int]]]:
        addresses = self.names.get(host, [host])
        if not addresses:
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    async def getnameinfo(self, *_: object) -> tuple[str, str]:  # type: ignore[override]
        """Raise an error: no address has a name."""
        raise socket.gaierror(-2, "Name or service not known")

    async def create_connection(  # type: ignore[override]  # as much of it as is used
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[MemoryTransport, asyncio.Protocol]:
        """Connect to one of `servers`, after a millisecond, or never to one of `black_holes`."""
        self.connects.append((self.time(), host, port))
        if host in self.black_holes:
            await self.create_future()
        await asyncio.sleep(0.001)
        server = self.servers.get((host, port))
        if server is None:
            raise ConnectionRefusedError(111, "Connection refused")
        return connect_in_memory(self, factory(), server())


def run(coroutine: Coroutine[object, object, ResultT]) -> ResultT:
    """Run a coroutine to its end on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)


def virtual_loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop
