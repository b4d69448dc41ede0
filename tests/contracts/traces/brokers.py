"""Brokers that traces are played to: the model with its own clock, and a broker that listens on a port.

Both take frames and give back frames; a connection that the broker closed gives None.
"""

import socket
import struct
import time
from collections.abc import Sequence
from random import Random
from typing import Protocol

from aioproducer.testing.fake_broker.cluster import ModelCluster
from aioproducer.testing.fake_broker.exchange import Close, Send
from aioproducer.testing.fake_broker.settings import ClusterSettings, counted_from
from aioproducer.testing.fake_broker.version_profiles import VersionProfile

ANSWER_TIMEOUT_S = 10.0


class Broker(Protocol):
    """A broker that responds to requests."""

    host: str
    port: int

    def now_ms(self) -> int:
        """Wall-clock time in ms since 1970."""

    def send(self, connection: int, frames: Sequence[bytes]) -> None:
        """Send requests, without waiting; a new connection is opened where it is needed."""

    def receive(self, connection: int) -> bytes | None:
        """The next answer without its length; None: the connection was closed; TimeoutError: neither comes."""

    def wait(self, seconds: float) -> None:
        """Let time pass."""

    def close(self) -> None:
        """Close every connection."""


class ModelBroker:
    """One node of the model, alone, with the settings of the real broker that traces are recorded from."""

    host = "model"
    port = 9092

    def __init__(self, profile: VersionProfile) -> None:
        self._now = 100.0
        settings = ClusterSettings(
            profile=profile, wall_clock=counted_from(1_700_000_000_000), offsets_topic_partitions=1
        )
        self._model = ModelCluster(1, settings, random=Random(1))
        self._model.brokers[1].host, self._model.brokers[1].port = self.host, self.port
        self._numbers: dict[int, int] = {}
        self._received: dict[int, bytearray] = {}
        self._closed: set[int] = set()

    def now_ms(self) -> int:
        return self._model.settings.wall_clock_ms(self._now)

    def send(self, connection: int, frames: Sequence[bytes]) -> None:
        """As `Broker.send`; every request takes a millisecond."""
        if connection not in self._numbers:
            self._numbers[connection] = number = len(self._received) + 1
            self._received[number] = bytearray()
            self._model.brokers[1].connected(number)
        for frame in frames:
            self._now += 0.001
            self._model.brokers[1].receive(self._numbers[connection], memoryview(frame), self._now)
            self._settle()

    def receive(self, connection: int) -> bytes | None:
        number = self._numbers[connection]
        deadline = self._now + ANSWER_TIMEOUT_S
        while not self._received[number] and number not in self._closed:
            self._advance(deadline)
        data = self._received[number]
        if data:
            (size,) = struct.unpack_from(">i", data)
            frame = bytes(data[4 : 4 + size])
            del data[: 4 + size]
            return frame
        del self._numbers[connection]
        return None

    def wait(self, seconds: float) -> None:
        end = self._now + seconds
        while (when := self._model.next_wakeup()) is not None and when <= end:
            self._advance(end)
        self._now = end

    def close(self) -> None:
        for number in self._numbers.values():
            self._model.brokers[1].disconnected(number)
        self._numbers.clear()

    def _advance(self, deadline: float) -> None:
        when = self._model.next_wakeup()
        if when is None or when > deadline:
            raise TimeoutError
        self._now = max(self._now, when)
        self._model.advance(self._now)
        self._settle()

    def _settle(self) -> None:
        for effect in self._model.take_effects():
            match effect:
                case Send():
                    self._received[effect.connection_id] += b"".join(effect.buffers)
                case Close():
                    self._closed.add(effect.connection_id)


class SocketBroker:
    """A broker that listens somewhere."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.host, _, port = bootstrap_servers.split(",", maxsplit=1)[0].partition(":")
        self.port = int(port)
        self._sockets: dict[int, socket.socket] = {}

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def send(self, connection: int, frames: Sequence[bytes]) -> None:
        if connection not in self._sockets:
            self._sockets[connection] = made = socket.create_connection((self.host, self.port), ANSWER_TIMEOUT_S)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._sockets[connection].sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
        except (BrokenPipeError, ConnectionResetError):
            return  # `receive` tells

    def receive(self, connection: int) -> bytes | None:
        try:
            (size,) = struct.unpack(">i", self._exactly(connection, 4))
            return self._exactly(connection, size)
        except (ConnectionError, EOFError):
            self._sockets.pop(connection).close()
            return None

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        for opened in self._sockets.values():
            opened.close()
        self._sockets.clear()

    def _exactly(self, connection: int, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            received = self._sockets[connection].recv(size - len(data))
            if not received:
                raise EOFError
            data += received
        return bytes(data)
