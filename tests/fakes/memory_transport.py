"""Two transports joined back to back, in memory, with a buffer that a test can stop from emptying."""

import asyncio
from collections.abc import Iterable


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
