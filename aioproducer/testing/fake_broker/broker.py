"""One broker: its connections, each served one request at a time, with responses in order.

connected -> (frame)* -> closed
a frame waits while the request before it is being served; with several waiting the connection is not read
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from aioproducer.testing.fake_broker.apis.sasl import refuse_between_tokens
from aioproducer.testing.fake_broker.apis.table import ANSWERS
from aioproducer.testing.fake_broker.exchange import (
    Close,
    Exchange,
    PauseReading,
    ResumeReading,
    SeenRequest,
    Send,
    SharedState,
    read_payload,
    read_request_header,
)
from aioproducer.testing.fake_broker.faults import Fault, FaultKind
from aioproducer.testing.fake_broker.security import SaslSession, SessionVerdict
from aioproducer.testing.fake_broker.wire.api_keys import API_BY_NUMBER, ApiKey
from aioproducer.testing.fake_broker.wire.primitives import Buffer, MalformedRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioproducer.testing.fake_broker.log.partition import Partition

PLAINTEXT = "PLAINTEXT"
_FRAMES_READ_AHEAD = 8
_MAX_BYTES_BEFORE_LOGIN = 524_288  # `sasl.server.max.receive.size`
_SIZE_AND_CORRELATION_ID = struct.Struct(">ii")


@dataclass(slots=True, eq=False)
class _Connection:
    number: int
    listener: str
    session: SaslSession | None
    waiting: deque[memoryview] = field(default_factory=deque)
    current: Exchange | None = None
    is_serving: bool = False
    is_paused: bool = False


class Broker:
    """One node of the cluster, whose state it shares."""

    def __init__(self, node_id: int, cluster: SharedState) -> None:
        self.node_id = node_id
        self.cluster = cluster
        self.host = ""
        self.port = 0
        self.endpoints: dict[str, tuple[str, int]] = {}
        """Host and port of each listener but the first, which is `host` and `port`."""

        self.is_alive: bool = True
        self.is_in_metadata: bool = True
        """Whether Metadata names it; FindCoordinator may name one that has just come up before."""
        self.incarnation: int = 0
        """Incremented by every death, so that requests held for a dead broker do not reach its successor."""
        self.stale_leaders: Mapping[Partition, tuple[int, int]] = {}
        """Leader and leader epoch in this broker's Metadata, where it lags behind the controller."""

        self.header_tags = b"\x00"  # tagged fields of its response headers; Kafka has none so far
        self._connections: dict[int, _Connection] = {}
        self._stalled: list[tuple[Fault, Exchange]] = []

    def __repr__(self) -> str:
        state = "up" if self.is_alive else "down"
        return f"<Broker {self.node_id} {self.host}:{self.port} {state}, {len(self._connections)} connections>"

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    # Called by the network

    def connected(self, connection_id: int, listener: str = PLAINTEXT) -> None:
        session = self.cluster.new_session(listener)
        self._connections[connection_id] = _Connection(connection_id, listener, session)

    def disconnected(self, connection_id: int) -> None:
        """Forget a connection; a request that is being served continues, its response is dropped."""
        self._connections.pop(connection_id, None)

    def receive(self, connection_id: int, frame: memoryview, now: float) -> None:
        """Take one frame, without its length; serve it after those before it."""
        connection = self._connections.get(connection_id)
        if connection is None:
            return
        connection.waiting.append(frame)
        self._serve(connection, now)
        if len(connection.waiting) >= _FRAMES_READ_AHEAD and not connection.is_paused:
            connection.is_paused = True
            self.cluster.emit(PauseReading(connection_id))

    def session_of(self, connection_id: int) -> SaslSession | None:
        connection = self._connections.get(connection_id)
        return None if connection is None else connection.session

    def listener_of(self, connection_id: int) -> str:
        connection = self._connections.get(connection_id)
        return PLAINTEXT if connection is None else connection.listener

    def end_sessions(self, now: float) -> None:
        """Let every session expire now."""
        for connection in self._connections.values():
            if connection.session is not None:
                connection.session.end(now)

    def die(self) -> None:
        self.is_alive = False
        self.incarnation += 1
        self._stalled.clear()
        for number in self._connections:
            self.cluster.emit(Close(number, "the broker died", is_abrupt=True))
        self._connections.clear()

    # Serving

    def _serve(self, connection: _Connection, now: float) -> None:
        if connection.is_serving:
            return
        connection.is_serving = True
        try:
            while connection.waiting and connection.current is None and connection.number in self._connections:
                self._begin(connection, connection.waiting.popleft(), now)
        finally:
            connection.is_serving = False
        if connection.is_paused and not connection.waiting:
            connection.is_paused = False
            self.cluster.emit(ResumeReading(connection.number))

    def _begin(self, connection: _Connection, frame: memoryview, now: float) -> None:
        try:
            exchange = self._open(connection, frame, now)
        except MalformedRequestError as error:
            self.hang_up(connection.number, f"malformed request: {error}")
            return
        if exchange is None:
            self.hang_up(connection.number, "unknown or unsupported request")
            return
        connection.current = exchange
        if connection.session is not None and not self._admit(exchange, connection.session, now):
            return
        if not self.cluster.faults._kinds:
            self._answer(exchange, now)
        elif (fault := exchange.fault(FaultKind.STALL)) is not None:
            self._stalled.append((fault, exchange))
        elif (fault := exchange.fault(FaultKind.DELAY_REQUEST)) is not None:
            self.cluster.schedule.at(now + fault.amount, partial(self._answer, exchange))
        else:
            self._answer(exchange, now)

    def _admit(self, exchange: Exchange, session: SaslSession, now: float) -> bool:
        """Whether to serve a request of a SASL listener; else the connection ends."""
        if not session.is_open and len(exchange.payload) > _MAX_BYTES_BEFORE_LOGIN:
            exchange.hang_up("too many bytes before authentication")
            return False
        match session.admit(exchange.api, now):
            case SessionVerdict.SERVED:
                return True
            case SessionVerdict.REFUSED:
                self.cluster.intruders.append(self.cluster.requests[-1])
                refuse_between_tokens(exchange)
            case SessionVerdict.CLOSED:
                exchange.hang_up("a request without authentication")
        return False

    def _open(self, connection: _Connection, frame: memoryview, now: float) -> Exchange | None:
        header, reader = read_request_header(frame)
        api = API_BY_NUMBER.get(header.api_number)
        if api is None:
            return None
        is_served = self.cluster.settings.profile.supports(api, header.version)
        if not is_served and api is not ApiKey.API_VERSIONS:
            return None
        payload = read_payload(api, header, reader) if is_served else memoryview(b"")
        self.cluster.note(
            SeenRequest(api, header.version, self.node_id, header.client_id, now, len(frame), connection.number)
        )
        return Exchange(self, connection.number, header, payload=payload, now=now)

    def _answer(self, exchange: Exchange, now: float) -> None:
        if exchange.incarnation != self.incarnation:
            return
        exchange.now = now
        self.cluster.transactions.forget_expired(now)
        if self.cluster.faults._kinds:
            if exchange.fault(FaultKind.DROP_REQUEST) is not None:
                exchange.hang_up("fault: dropped before it was served")
                return
            throttle = exchange.fault(FaultKind.THROTTLE)
            exchange.throttle_ms = round(throttle.amount) if throttle else 0
        try:
            ANSWERS[exchange.api](exchange)
        except MalformedRequestError as error:
            exchange.hang_up(f"malformed request: {error}")

    def release(self, fault: Fault, now: float) -> None:
        """Serve the requests that a stall has held."""
        held = [exchange for rule, exchange in self._stalled if rule is fault]
        self._stalled = [(rule, exchange) for rule, exchange in self._stalled if rule is not fault]
        for exchange in held:
            self._answer(exchange, now)

    # Ending

    def finish(self, exchange: Exchange, parts: Sequence[Buffer] | None, now: float) -> None:
        """End an exchange with a response, or without one (`acks=0`), and serve the next request."""
        connection = self._connections.get(exchange.connection_id)
        if connection is None or connection.current is not exchange:
            return
        if not self.cluster.faults._kinds:
            self._send(exchange, parts, now)
        elif exchange.fault(FaultKind.DROP_RESPONSE) is not None:
            exchange.hang_up("fault: dropped before the answer")
        elif (fault := exchange.fault(FaultKind.DELAY_RESPONSE)) is not None:
            self.cluster.schedule.at(now + fault.amount, partial(self._send, exchange, parts))
        else:
            self._send(exchange, parts, now)

    def _send(self, exchange: Exchange, parts: Sequence[Buffer] | None, now: float) -> None:
        connection = self._connections.get(exchange.connection_id)
        if connection is None:
            return
        if parts is not None and not self._send_spoiled(exchange, parts):
            self.cluster.emit(Send(exchange.connection_id, framed(exchange, parts)))
        if exchange.is_last:
            self.hang_up(exchange.connection_id, "refused")
            return
        if exchange.throttle_ms:
            self.cluster.schedule.at(now + exchange.throttle_ms / 1000, partial(self._next, connection))
        else:
            self._next(connection, now)

    def _send_spoiled(self, exchange: Exchange, parts: Sequence[Buffer]) -> bool:
        """Send something other than the response, if a rule says so."""
        number = exchange.connection_id
        if not self.cluster.faults._kinds:
            return False
        if exchange.fault(FaultKind.HALF_FRAME) is not None:
            whole = b"".join(framed(exchange, parts))
            self.cluster.emit(Send(number, [whole[: len(whole) // 2]]))
            exchange.hang_up("fault: half a frame")
        elif exchange.fault(FaultKind.WRONG_CORRELATION_ID) is not None:
            self.cluster.emit(Send(number, framed(exchange, parts, correlation_shift=1_000_000)))
        elif (fault := exchange.fault(FaultKind.GARBAGE)) is not None:
            self.cluster.emit(Send(number, [fault.data or b""]))
        elif (fault := exchange.fault(FaultKind.OVERSIZED_FRAME)) is not None:
            whole = b"".join(framed(exchange, parts))
            self.cluster.emit(Send(number, [struct.pack(">i", round(fault.amount)), whole[4:]]))
        else:
            return False
        return True

    def send_last(self, exchange: Exchange, parts: Sequence[Buffer]) -> None:
        """Send a response out of order, and close the connection."""
        if exchange.connection_id in self._connections:
            self.cluster.emit(Send(exchange.connection_id, framed(exchange, parts)))
            self.hang_up(exchange.connection_id, "refused")

    def _next(self, connection: _Connection, now: float) -> None:
        connection.current = None
        self._serve(connection, now)

    def hang_up(self, connection_id: int, reason: str) -> None:
        """Close a connection; its waiting requests are dropped."""
        if self._connections.pop(connection_id, None) is not None:
            self.cluster.emit(Close(connection_id, reason))


def framed(exchange: Exchange, parts: Sequence[Buffer], *, correlation_shift: int = 0) -> list[Buffer]:
    has_tags = exchange.is_flexible and exchange.api is not ApiKey.API_VERSIONS
    tags = exchange.broker.header_tags if has_tags else b""
    size = 4 + len(tags) + sum(map(len, parts))
    correlation_id = (exchange.header.correlation_id + correlation_shift) & 0x7FFFFFFF
    return [_SIZE_AND_CORRELATION_ID.pack(size, correlation_id) + tags, *parts]
