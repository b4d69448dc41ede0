"""The embedded cluster on real sockets: an asyncio server for each broker, one clock for all of them.

Frames go from the sockets into the model, and its effects back out; of the bytes only their length is read here.
"""

import asyncio
from collections.abc import Callable
from itertools import count
from typing import cast

from aioproducer.errors import IllegalStateError
from aioproducer.testing.fake_broker.broker import PLAINTEXT
from aioproducer.testing.fake_broker.cluster import ModelCluster
from aioproducer.testing.fake_broker.exchange import Close, Effect, PauseReading, ResumeReading, Send
from aioproducer.testing.fake_broker.faults import FaultKind, Where
from aioproducer.testing.fake_broker.wire.primitives import Buffer
from aioproducer.testing.tls_server import ListenerCertificates, TlsServerProtocol

_RECEIVE_BYTES = 256 * 1024
_OWN_BUFFER_FROM = 16 * 1024
_LENGTH_BYTES = 4
_TLS_FAULTS = (FaultKind.STALL_TLS, FaultKind.CLOSE_TLS, FaultKind.GARBAGE_TLS, FaultKind.DELAY_TLS)
SECURED_HOST = "localhost"  # a name, so that clients of TLS have one to check


class FrameReader:
    """Cuts a stream of bytes into frames; large ones are received straight into their own memory.

    Args:
        max_frame_bytes: a frame that claims more, or a negative length, ends the connection.
    """

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._buffer = bytearray(_RECEIVE_BYTES)
        self._filled = 0
        self._frame: bytearray | None = None
        self._frame_filled = 0

    def room(self) -> memoryview:
        """Return the memory for the next bytes."""
        if self._frame is not None:
            return memoryview(self._frame)[self._frame_filled :]
        return memoryview(self._buffer)[self._filled :]

    def received(self, size: int) -> list[memoryview]:
        """Note bytes written into `room()`; returns the frames that are complete now.

        Raises:
            ValueError: a length is negative or too large.
        """
        if self._frame is not None:
            return self._grow_frame(self._frame, size)
        self._filled += size
        frames: list[memoryview] = []
        start = 0
        while (end := self._end_of_frame(start)) is not None:
            frames.append(memoryview(bytes(memoryview(self._buffer)[start + _LENGTH_BYTES : end])))
            start = end
        self._keep_from(start)
        return frames

    def _grow_frame(self, frame: bytearray, size: int) -> list[memoryview]:
        self._frame_filled += size
        if self._frame_filled < len(frame):
            return []
        self._frame = None
        return [memoryview(frame)]

    def _end_of_frame(self, start: int) -> int | None:
        if self._filled - start < _LENGTH_BYTES:
            return None
        end = start + _LENGTH_BYTES + self._length_at(start)
        return end if end <= self._filled else None

    def _length_at(self, start: int) -> int:
        length = int.from_bytes(self._buffer[start : start + _LENGTH_BYTES], "big", signed=True)
        if not 0 <= length <= self._max_frame_bytes:
            raise ValueError(f"a frame of {length} bytes")
        return length

    def _keep_from(self, start: int) -> None:
        """Move an incomplete frame to the front, or into memory of its own."""
        left = self._filled - start
        rest = bytes(self._buffer[start : self._filled])
        self._filled = 0
        if left >= _LENGTH_BYTES and (length := int.from_bytes(rest[:_LENGTH_BYTES], "big")) >= _OWN_BUFFER_FROM:
            self._frame = bytearray(length)
            self._frame_filled = left - _LENGTH_BYTES
            self._frame[: self._frame_filled] = rest[_LENGTH_BYTES:]
        else:
            self._buffer[:left] = rest
            self._filled = left


class ClientConnection(asyncio.BufferedProtocol):
    """One client's socket, as its broker's server sees it."""

    def __init__(self, driver: "ClusterDriver", node_id: int, listener: str = PLAINTEXT) -> None:
        self._driver = driver
        self.node_id = node_id
        self.listener = listener
        self._number = 0
        self._reader = FrameReader(driver.model.settings.max_request_bytes)
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register with the broker."""
        self.transport = cast("asyncio.Transport", transport)
        self._number = self._driver.connected(self.node_id, self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory the loop may write to."""
        del sizehint
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Hand complete frames to the broker."""
        try:
            frames = self._reader.received(nbytes)
        except ValueError:
            self.close(is_abrupt=True)
            return
        self._driver.received(self.node_id, self._number, frames)

    def eof_received(self) -> bool:
        """Close with the client."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the broker."""
        del exc
        self._driver.disconnected(self.node_id, self._number)

    def send(self, buffers: list[Buffer]) -> None:
        """Write a response."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.writelines(buffers)

    def close(self, *, is_abrupt: bool) -> None:
        """Close the socket, after pending bytes are sent or at once."""
        if self.transport is not None:
            (self.transport.abort if is_abrupt else self.transport.close)()

    def read_on(self, *, is_reading: bool) -> None:
        """Stop or resume reading."""
        if self.transport is not None and not self.transport.is_closing():
            (self.transport.resume_reading if is_reading else self.transport.pause_reading)()


class ClusterDriver:
    """Runs a model on a loop: its clock is the loop's."""

    def __init__(
        self,
        model: ModelCluster,
        loop: asyncio.AbstractEventLoop,
        certificates: ListenerCertificates | None = None,
    ) -> None:
        self.model = model
        self.is_running: bool = True
        self._loop = loop
        self.certificates = certificates
        self._servers: dict[tuple[int, str], asyncio.Server] = {}
        self._tls: set[tuple[int, TlsServerProtocol]] = set()
        self._connections: dict[int, ClientConnection] = {}
        self._numbers = count(1)
        self._timer: asyncio.TimerHandle | None = None

    def check_loop_runs(self) -> None:
        """Check that the brokers can answer.

        Raises:
            IllegalStateError: the ports are open, and the event loop that serves them does not run.
        """
        if self.is_running and not self._loop.is_running():
            state = "is closed" if self._loop.is_closed() else "is not running now"
            raise IllegalStateError(
                f"the event loop that started this cluster {state}, so its brokers do not answer: use "
                "FakeCluster.in_thread() in sync code, and in fixtures whose event loop is not the test's"
            )

    def check_caller(self) -> None:
        """Check that the cluster may be changed from here.

        Raises:
            IllegalStateError: called in another thread, or on another event loop, than the cluster's.
        """
        current = asyncio._get_running_loop()  # noqa: SLF001  # None where no loop runs, instead of an exception
        if current is not self._loop and (current is not None or self._loop.is_running()):
            raise IllegalStateError(
                "a cluster is changed on the event loop that started it: the methods of FakeCluster.in_thread() may be "
                "called from any thread"
            )

    async def listen(self, node_id: int, *, host: str, port: int, listener: str = PLAINTEXT) -> None:
        """Open a port of a broker, 0: one the system chooses; the model learns which.

        Raises:
            OSError: the port is taken.
        """
        server = await self._loop.create_server(
            lambda: self._accepted(node_id, listener), host, port, start_serving=False
        )
        # before `start_serving`: if that is cancelled, `stop` closes the server
        self._servers[node_id, listener] = server
        broker = self.model.brokers[node_id]
        port = int(server.sockets[0].getsockname()[1])
        if listener == PLAINTEXT:
            broker.host, broker.port = host, port
        else:
            broker.endpoints[listener] = (SECURED_HOST, port)
        await server.start_serving()

    def _accepted(self, node_id: int, listener: str) -> asyncio.BaseProtocol:
        """Return the protocol of a new connection."""
        connection = ClientConnection(self, node_id, listener)
        context = None if self.certificates is None else self.certificates.context(listener)
        if context is None:
            return connection
        faults, request = self.model.faults, Where(node_id=node_id)
        fault = next((found for kind in _TLS_FAULTS if (found := faults._take(kind, request)) is not None), None)
        tls = TlsServerProtocol(connection, context, fault=fault, ended=lambda over: self._tls.discard((node_id, over)))
        self._tls.add((node_id, tls))
        return tls

    async def close_port(self, node_id: int) -> None:
        """Close a broker's ports and, at once, its connections."""
        for connection in list(self._connections.values()):
            if connection.node_id == node_id:
                connection.close(is_abrupt=True)
        for node, tls in list(self._tls):
            if node == node_id:
                tls.close(is_abrupt=True)  # also those that have not ended their handshake
        for node, listener in list(self._servers):
            if node == node_id:
                server = self._servers.pop((node, listener))
                server.close()
                await server.wait_closed()

    async def stop(self) -> None:
        """Close every port and connection, and cancel the timer."""
        self.is_running = False
        for node_id in {node_id for node_id, _ in self._servers}:
            await self.close_port(node_id)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.certificates is not None:
            self.certificates.remove()

    def do(self, act: Callable[[float], None]) -> None:
        """Change the model by `act(now)`, and carry out the effects."""
        act(self._loop.time())
        self._settle()

    # Called by connections

    def connected(self, node_id: int, connection: ClientConnection) -> int:
        """Number a new connection."""
        number = next(self._numbers)
        self._connections[number] = connection
        self.model.brokers[node_id].connected(number, connection.listener)
        return number

    def received(self, node_id: int, number: int, frames: list[memoryview]) -> None:
        """Pass frames to a broker and carry out the effects."""
        broker = self.model.brokers[node_id]
        now = self._loop.time()
        for frame in frames:
            broker.receive(number, frame, now)
        self._settle()

    def disconnected(self, node_id: int, number: int) -> None:
        """Forget a connection."""
        self._connections.pop(number, None)
        self.model.brokers[node_id].disconnected(number)

    # Carrying out

    def _settle(self) -> None:
        for effect in self.model.take_effects():
            connection = self._connections.get(effect.connection_id)
            if connection is not None:
                _carry_out(effect, connection)
        self._plan()

    def _plan(self) -> None:
        when = self.model.next_wakeup() if self.is_running else None
        if self._timer is not None:
            if when is not None and self._timer.when() <= when:
                return
            self._timer.cancel()
            self._timer = None
        if when is not None:
            self._timer = self._loop.call_at(when, self._wake)

    def wake_soon(self) -> None:
        """Run what is due in the next iteration of the loop."""
        if self.is_running:
            self._loop.call_soon(self._wake)

    def _wake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.do(self.model.advance)


def _carry_out(effect: Effect, connection: ClientConnection) -> None:
    match effect:
        case Send():
            connection.send(list(effect.buffers))
        case Close():
            connection.close(is_abrupt=effect.is_abrupt)
        case PauseReading():
            connection.read_on(is_reading=False)
        case ResumeReading():
            connection.read_on(is_reading=True)
