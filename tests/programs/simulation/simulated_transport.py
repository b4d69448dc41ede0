"""The client's end of one simulated connection; the network's end of it too.

                    write                     up, after a latency                    frames
    BrokerConnection ────► SimulatedTransport ─────────────────────► ServerEnd ─────────────► Broker (model)
          ▲                     kept while the node reads nothing        │
          └──────────── down, after a latency ───────────────────────────┘

Bytes that the node does not read stay in the transport as they were given, not copied, as CPython's own transports
do: if the program changes them meanwhile, the checksum taken at the write differs when they leave (SENT_BYTES).
"""

import asyncio
import socket
import zlib
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from aioproducer._network.connection import BrokerConnection

if TYPE_CHECKING:
    from tests.programs.simulation.simulated_network import Node, SimulatedNetwork
    from tests.programs.simulation.simulated_tls import TlsEnd

Buffer = bytes | bytearray | memoryview

_KEEP_ALIVE = (socket.SOL_SOCKET, socket.SO_KEEPALIVE)
_SCALE = 256  # divisor of real sizes: a transport has enough bytes in flight sooner than a real one


class SimulatedSocket:
    def __init__(self) -> None:
        self.options: dict[tuple[int, int], int] = {}

    def setsockopt(self, level: int, name: int, value: int) -> None:
        """Set an option, which must be a number that a system takes."""
        assert value >= 0, f"a socket option of {value}"
        self.options[level, name] = value


class SimulatedTransport(asyncio.Transport):  # noqa: PLR0904  # both ends of it
    """One connection of the producer to one node."""

    is_spoilt = False  # whether bytes on their way to the producer were changed, or never meant anything
    tls: "TlsEnd | None" = None  # the node's end of TLS, where there is TLS
    trusts_node = False  # whether the client must accept the node's certificate
    connected_at = 0.0
    is_seen_late = False  # whether requests may have waited in TLS before they were seen: the node has read nothing
    lost_race = False  # whether it never carried a request: another address of the name was quicker
    is_cut = False  # whether it breaks in the middle of what was written: nothing written afterwards arrives

    def __init__(self, network: "SimulatedNetwork", protocol: asyncio.Protocol, node: "Node", number: int) -> None:  # noqa: PLR0917
        super().__init__()
        self.node = node
        self.number = number
        self.way_up = (number, "up")
        self.way_down = (number, "down")
        self.protocol = protocol
        self.asked: dict[int, int] = {}
        """Requests that were written and not answered: correlation id -> number of the API."""
        self.up_at = 0.0  # arrival of the last bytes on their way up; later ones arrive later
        self.down_at = 0.0  # the same, on their way down; 0.0 as long as there were none
        self.unread = bytearray()  # arrived at the node, and no whole frame yet
        self.waiting: deque[bytes] = deque()  # arrived, and the broker has said that it reads no more for now
        self.is_paused_by_broker = False
        self.is_open_at_node = True
        self._network = network
        self._kept: deque[tuple[Buffer, int]] = deque()  # written and not left: the bytes, their checksum when written
        self._kept_size = 0
        self._high = 64 * 1024
        self._is_paused = False
        self._is_closing = False
        self._socket = SimulatedSocket()

    # What the producer does

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self.protocol = protocol

    def write(self, data: Buffer) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Send one frame in pieces; while the node reads nothing they stay here, as they are."""
        assert not self._is_closing, "written to a closed transport"
        pieces = list(list_of_data)
        frame = b"".join(pieces)
        self._network.note_written(self, frame)
        if not self.node.is_stalled and not self._kept:
            self._network.depart(self, frame)
            return
        for piece in pieces:
            self._kept.append((piece, zlib.crc32(piece)))
            self._kept_size += len(piece)
        if self._kept_size > self._high and not self._is_paused:
            self._is_paused = True
            self.protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self._kept_size

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:  # noqa: ARG002
        """Set the mark above which the protocol is paused; everything here is as much smaller than in life."""
        self._high = (64 * 1024 if high is None else high) // _SCALE

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._socket if name == "socket" else default

    @property
    def sends_at_once(self) -> bool:
        """Whether small frames do not wait for the acknowledgement of earlier ones, and a dead peer is noticed."""
        options = self._socket.options
        return options.get((socket.IPPROTO_TCP, socket.TCP_NODELAY)) == options.get(_KEEP_ALIVE) == 1

    def is_closing(self) -> bool:
        return self._is_closing

    def abort(self) -> None:
        """Close; what has not left is lost, what has left arrives all the same."""
        if not self._is_closing:
            self._end(None)
            self._network.closed_by_producer(self)

    def close(self) -> None:
        """Abort: the producer never closes while something is to be sent."""
        self.abort()

    # What the network does

    def leave(self, limit: int) -> None:
        """Let up to `limit` kept bytes leave: the node reads again, or its window had room."""
        if self._kept:
            self._network.wire_checker.left(self)
        while self._kept and limit > 0:
            piece, checksum = self._kept.popleft()
            if zlib.crc32(piece) != checksum:
                self._network.violated(
                    "SENT_BYTES", f"bytes on connection {self.number} changed while the transport held them"
                )
            sent = bytes(piece[:limit])
            if len(sent) < len(piece):
                rest = memoryview(piece)[limit:]
                self._kept.appendleft((rest, zlib.crc32(rest)))
            limit -= len(sent)
            self._kept_size -= len(sent)
            self._network.depart(self, sent)
        if self._is_closing:
            return  # the last bytes have ended the connection: as in asyncio, its protocol is not told of room
        if self._is_paused and self._kept_size <= self._high // 4:
            self._is_paused = False
            self.protocol.resume_writing()

    def receive(self, data: bytes, *, is_tampered: bool = False) -> None:
        """Hand bytes from the node to the producer, encrypted where there is TLS."""
        if self._is_closing:
            return
        if self.tls is None:
            self.protocol.data_received(data)
            return
        sealed = bytearray(self.tls.seal(data))
        if is_tampered:
            sealed[-1] ^= 1
        self.receive_sealed(bytes(sealed))
        if is_tampered and not self._is_closing:
            self._network.violated("PEER", f"connection {self.number} goes on after a record that was changed")

    def receive_sealed(self, data: bytes) -> None:
        """Hand TLS records to the producer, in two pieces that are cut anywhere."""
        cut = len(data) * (self.number % 7) // 7
        for piece in (data[:cut], data[cut:]):
            if piece and not self._is_closing:
                self.protocol.data_received(piece)

    def receive_end(self) -> None:
        if self.tls is not None:
            self.receive_sealed(self.tls.goodbye())
        if not self._is_closing and not self.protocol.eof_received() and not self._is_closing:
            self._end(None)

    @property
    def connection(self) -> Any:  # of the producer's connections; the simulation sees more than they show
        """The producer's connection: above TLS, where there is TLS and its handshake is done.

        None also for a connection that only looks at the names of a certificate.
        """
        if self.tls is None:
            return self.protocol
        inner = getattr(self.protocol, "_inner", None)
        return inner if isinstance(inner, BrokerConnection) else None

    def reset(self, reason: str) -> None:
        if not self._is_closing:
            self._end(ConnectionResetError(104, reason))

    def _end(self, error: Exception | None) -> None:
        self._is_closing = True
        self._kept.clear()
        self._kept_size = 0
        self._network.loop.call_soon(self._lost, error)

    def _lost(self, error: Exception | None) -> None:
        self.asked.clear()
        self._network.forget(self)
        self.protocol.connection_lost(error)
