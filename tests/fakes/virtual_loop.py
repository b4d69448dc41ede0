"""An event loop whose clock jumps, and a network in memory: for connections, or a producer and a `FakeCluster`.

Nothing sleeps: when no callback is ready, the clock moves to the next timer. A test that would wait for a day takes
a millisecond, and the same seed gives the same run.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
import socket
from collections.abc import Callable, Coroutine, Iterable
from itertools import count
from typing import Literal, ParamSpec, TypeVar

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


ArgumentsT = ParamSpec("ArgumentsT")


class VirtualServer:
    """The part of `asyncio.Server` that `FakeCluster` uses, and its only socket."""

    def __init__(self, loop: ClusterLoop, address: tuple[str, int], factory: ServerFactory) -> None:
        self.sockets = (self,)
        self._loop = loop
        self._address = address
        self._factory = factory

    def getsockname(self) -> tuple[str, int]:
        return self._address

    async def start_serving(self) -> None:
        self._loop.servers[self._address] = self._factory

    def close(self) -> None:
        self._loop.servers.pop(self._address, None)

    async def wait_closed(self) -> None:
        """Be closed at once."""


class ClusterLoop(VirtualLoop):
    """A virtual loop on which servers can be opened."""

    def __init__(self) -> None:
        super().__init__()
        self._free_ports = count(20_000)

    async def create_server(  # type: ignore[override]  # of what is used
        self,
        factory: ServerFactory,
        host: str,
        port: int,
        *,
        start_serving: Literal[False],  # noqa: ARG002
    ) -> VirtualServer:
        return VirtualServer(self, (host, port or next(self._free_ports)), factory)


def now() -> float:
    """Return the time of the running loop in seconds."""
    return asyncio.get_running_loop().time()


def in_virtual_time(story: Callable[ArgumentsT, Coroutine[object, object, None]]) -> Callable[ArgumentsT, None]:
    """Run an async test on a loop of its own whose clock jumps."""

    @functools.wraps(story)
    def test(*args: ArgumentsT.args, **kwargs: ArgumentsT.kwargs) -> None:
        with asyncio.Runner(loop_factory=ClusterLoop) as runner:
            runner.run(story(*args, **kwargs))

    return test


class MemoryTransport(asyncio.Transport):
    """Hands what is written to the other end in the loop's next turn, unless it is stuck."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol | asyncio.BufferedProtocol) -> None:
        super().__init__()
        self.loop = loop
        self.protocol = protocol
        self.peer: MemoryTransport | None = None
        self.is_stuck = False
        self.written = 0
        self._buffer = bytearray()
        self._high = 64 * 1024
        self._is_paused = False
        self._is_closing = False
        self._is_reading = True
        self._unread: list[bytes] = []

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol | asyncio.BufferedProtocol)
        self.protocol = protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self._is_closing
        self.written += len(data)
        self._buffer += data
        if len(self._buffer) > self._high and not self._is_paused:
            self._is_paused = True
            self.protocol.pause_writing()
        self.loop.call_soon(self.flush)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def flush(self, limit: int | None = None) -> None:
        if self._is_closing or not self._buffer or (self.is_stuck and limit is None):
            return
        sent = bytes(self._buffer[:limit])
        del self._buffer[:limit]
        if self._is_paused and len(self._buffer) <= self._high // 4:
            self._is_paused = False
            self.loop.call_soon(self.protocol.resume_writing)
        assert self.peer is not None
        self.loop.call_soon(self.peer.feed, sent)

    def feed(self, data: bytes) -> None:
        if self._is_closing:
            return
        if not self._is_reading:
            self._unread.append(data)
        elif isinstance(self.protocol, asyncio.BufferedProtocol):
            self._feed_buffered(self.protocol, memoryview(data))
        else:
            self.protocol.data_received(data)

    def _feed_buffered(self, protocol: asyncio.BufferedProtocol, data: memoryview) -> None:
        while len(data):
            room = memoryview(protocol.get_buffer(len(data)))
            size = min(len(room), len(data))
            room[:size] = data[:size]
            data = data[size:]
            protocol.buffer_updated(size)

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        """Hand over what came in meanwhile, and what comes."""
        self._is_reading = True
        unread, self._unread = self._unread, []
        for data in unread:
            self.loop.call_soon(self.feed, data)

    def abort(self) -> None:
        self._buffer.clear()
        self.close()

    def close(self) -> None:
        """Close both ends; what is in the buffer still leaves it."""
        if self._is_closing:
            return
        self.flush()
        self._is_closing = True
        self._buffer.clear()
        self.loop.call_soon(self.protocol.connection_lost, None)
        assert self.peer is not None
        self.loop.call_soon(self.peer.feed_end)

    def feed_end(self) -> None:
        if not self._is_closing and not self.protocol.eof_received():
            self.close()

    def is_closing(self) -> bool:
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:  # noqa: ARG002
        """Set the mark above which the protocol is paused; the lower one is a quarter of it."""
        self._high = 64 * 1024 if high is None else high

    def get_extra_info(self, name: str, default: object = None) -> object:  # noqa: ARG002
        return default


def connect_in_memory(
    loop: asyncio.AbstractEventLoop, client: asyncio.Protocol, server: asyncio.Protocol | asyncio.BufferedProtocol
) -> tuple[MemoryTransport, asyncio.Protocol]:
    ours, theirs = MemoryTransport(loop, client), MemoryTransport(loop, server)
    ours.peer, theirs.peer = theirs, ours
    server.connection_made(theirs)
    client.connection_made(ours)
    return ours, client
