"""A broker with scripted answers."""

import asyncio
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

SPOKEN = ((0, 3, 13), (3, 0, 13), (18, 0, 4), (22, 0, 5))


class Heard(NamedTuple):
    api_key: int
    version: int
    correlation_id: int
    body: bytes


class ScriptedBroker(asyncio.Protocol):
    """Answers ApiVersions, and keeps everything else for the test, which answers, garbles, or hangs up."""

    def __init__(
        self,
        on_request: "Callable[[ScriptedBroker, Heard], None] | None" = None,
        *,
        spoken: Sequence[tuple[int, int, int]] = SPOKEN,
        greets: bool = True,
    ) -> None:
        self.requests: list[Heard] = []
        self.is_connected = False
        self._on_request = on_request
        self._spoken = spoken
        self._greets = greets
        self._bytes = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's does not inherit from it
        self.is_connected = True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.is_connected = False

    def data_received(self, data: bytes) -> None:
        self._bytes += data
        while len(self._bytes) >= 4 and len(self._bytes) >= 4 + int.from_bytes(self._bytes[:4], "big"):
            end = 4 + int.from_bytes(self._bytes[:4], "big")
            frame, self._bytes = self._bytes[4:end], self._bytes[end:]
            self._handle(frame)

    def answer(self, heard: Heard, body: bytes, *, header: bytes = b"\x00") -> None:
        self.say(struct.pack(">ii", 4 + len(header) + len(body), heard.correlation_id) + header + body)

    def say(self, data: bytes) -> None:
        self.transport.write(data)

    def _handle(self, frame: bytes) -> None:
        api_key, version, correlation_id, name_size = struct.unpack_from(">hhih", frame)
        heard = Heard(api_key, version, correlation_id, frame[10 + name_size :])
        if api_key == 18 and self._greets:
            self.answer(heard, api_versions_body(self._spoken), header=b"")
            return
        self.requests.append(heard)
        if self._on_request is not None:
            self._on_request(self, heard)


def api_versions_body(spoken: Sequence[tuple[int, int, int]] = SPOKEN, error_code: int = 0) -> bytes:
    rows = b"".join(struct.pack(">hhh", *row) + b"\x00" for row in spoken)
    return struct.pack(">h", error_code) + bytes((len(spoken) + 1,)) + rows + struct.pack(">i", 0) + b"\x00"


def metadata_body(
    nodes: Sequence[tuple[int, str, int]],
    topics: Sequence[tuple[int, str, bytes, Sequence[tuple[int, int]]]] = (),
    error_code: int = 0,
    *,
    cluster_id: str = "cluster",
) -> bytes:
    """The answer to Metadata 13: nodes (id, host, port); topics (error code, name, id, (leader, epoch) by number)."""
    body = bytearray(struct.pack(">i", 0) + _varint(len(nodes) + 1))
    for node_id, host, port in nodes:
        body += struct.pack(">i", node_id) + _text(host) + struct.pack(">i", port) + b"\x00\x00"
    body += _text(cluster_id) + struct.pack(">i", 1) + _varint(len(topics) + 1)
    for code, name, topic_id, partitions in topics:
        body += struct.pack(">h", code) + _text(name) + topic_id + b"\x00" + _varint(len(partitions) + 1)
        for number, (leader, epoch) in enumerate(partitions):
            body += struct.pack(">hiii", 0, number, leader, epoch) + b"\x01\x01\x01\x00"
        body += struct.pack(">i", 0) + b"\x00"
    return bytes(body) + struct.pack(">h", error_code) + b"\x00"


def _text(text: str) -> bytes:
    return _varint(len(text.encode()) + 1) + text.encode()


def _varint(value: int) -> bytes:
    more = bytearray()
    while value > 0x7F:
        more.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(more) + bytes((value,))
