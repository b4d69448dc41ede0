"""One TCP connection to one broker: an asyncio protocol around a `FrameProtocol`.

    HANDSHAKING ──versions known──► READY ──close, error, loss──► CLOSED
         └──────────────────error, loss───────────────────────────►┘

Guarantees for the sender of a request:

* `on_end` is called exactly once for every request, on the loop: with `Answered` in the order of the requests, with
  `Lost` oldest first.
* At its end the transport holds none of the request's bytes any more.
* `Lost` comes from the transport's own `connection_lost`, never from inside `send` or `close`.

asyncio does not report when memory may be reused, but how many bytes its transport still holds, and bytes leave in
order. With positions counted from the start of the connection, all bytes before

    handed to the transport - held by the transport

have left. For a request with a response this is checked when the response comes.

An `on_end` that raises `ProtocolError` for an `Answered` (the response cannot be read) counts as not called: the
connection is closed, and the request is lost like the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import math
import socket
import sys
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from aioproducer._native.unraisable import report_unraisable
from aioproducer._network.repeated_closes import CLOSES_THAT_NAME
from aioproducer._network.requests import Answered, Lost, OutgoingRequest, RequestEnd
from aioproducer._network.socket_options import restore_user_timeout, set_socket_options, stop_user_timeout
from aioproducer._network.unwritten_requests import UnwrittenRequests
from aioproducer._protocol.api_versions import ApiVersions, handshake
from aioproducer._protocol.framing import FrameProtocol
from aioproducer._protocol.messages import PRODUCE, Api, HandshakeRequest, largest_response
from aioproducer._threads.calls import without_frames
from aioproducer.errors import (
    AuthenticationError,
    BrokerConnectionError,
    KafkaError,
    ProtocolError,
    UnsupportedVersionError,
    WrongListenerError,
)

if TYPE_CHECKING:
    from aioproducer._network.context import NetworkContext, TimerHandle
    from aioproducer._protocol.produce import Buffer


class ConnectionState(enum.Enum):
    """See the diagram above."""

    HANDSHAKING = "handshaking"
    READY = "ready"
    CLOSED = "closed"


_new = tuple.__new__  # a named tuple's own is Python code

_SIZE_FIELD_BYTES: Final = 4
_CHEAPER_THAN_A_VECTOR: Final = 4 * 1024
_CHEAPER_THAN_MANY_CALLS: Final = 64 * 1024
"""A request of up to this size is copied into one piece; a larger one is written piece by piece."""

_SHORTEST_WATCH_S: Final = 0.1
"""Shortest interval between checks of the time-outs, also with a small `connections_max_idle_ms`."""

TRANSITIONS: Final[Mapping[ConnectionState, frozenset[ConnectionState]]] = {
    ConnectionState.HANDSHAKING: frozenset((ConnectionState.READY, ConnectionState.CLOSED)),
    ConnectionState.READY: frozenset((ConnectionState.CLOSED,)),
    ConnectionState.CLOSED: frozenset(),
}


class ClosedHereError(BrokerConnectionError):
    """Closed by this side without a failure of the broker: unused, its TLS keys worn, or no longer needed."""


class UnansweredError(BrokerConnectionError):
    """The connection was closed because the broker did not answer, or read, within `request_timeout_ms`."""


OnClosed: TypeAlias = "Callable[[BrokerConnection, KafkaError], None]"


def whole_request(
    api: Api, version: int, *, body: bytes, on_end: Callable[[RequestEnd], None], largest: int | None = None
) -> OutgoingRequest:
    """Return a request in one piece; its response may have `largest` bytes, or the size that is valid for it."""
    return OutgoingRequest(
        api_key=api.key,
        version=version,
        flexible=api.is_flexible(version),
        buffers=[body],
        on_end=on_end,
        name=api.name,
        largest_response=largest_response(api.key, len(body)) if largest is None else largest,
    )


class BrokerConnection(asyncio.Protocol):  # noqa: PLR0904  # a third of them are the transport's to call
    """A connection, created by `NodeConnection` through `loop.create_connection`.

    Args:
        label: names the broker in errors: "broker 1 at host:9092".
        on_closed: called once, after all requests have ended.
    """

    # Set by `connection_made`.
    _transport: asyncio.Transport
    _socket: socket.socket | None = None  # the transport of a simulated network has none
    _in_one_piece: int
    _write_pieces: Callable[[list[Buffer]], None]

    number = 0  # never used twice; given when it is ready
    error: KafkaError | None = None  # reason of the close
    lacks_credentials = False  # whether it was closed because there was nothing to authenticate with
    responses = 0  # responses to requests other than the handshake's
    _has_versions = False
    _is_paused = False
    missing = "the port is open, but no Kafka broker has answered there"  # while it is not ready: what it waits for
    _held_bytes = 0  # of an incomplete response, as last reported
    _retires_with: KafkaError | None = None
    _watch_timer: TimerHandle | None = None

    def __init__(self, context: NetworkContext, label: str, on_closed: OnClosed) -> None:
        loop, settings = context.loop, context.settings
        self.versions = ApiVersions({})  # empty until ready
        self._produce_versions: dict[int, int] = {}  # by `at_most`
        self.ready: asyncio.Future[None] = loop.create_future()
        """Done after the handshake; fails if the connection closes before."""
        self.closed: asyncio.Future[None] = loop.create_future()
        """Done when the transport is closed and every request has ended."""
        self._on_closed = on_closed
        self._context = context
        self.label = label
        self._conversation: FrameProtocol[OutgoingRequest] = FrameProtocol(context.client_id, settings.max_frame_bytes)
        self._handshake = handshake(settings.software_version)
        self._state = ConnectionState.HANDSHAKING
        self._handed = 0  # position behind the last byte given to the transport
        self._unwritten = UnwrittenRequests(
            context, gone=self._gone, on_all_written=self._close_if_drained, on_stall=self._close_stalled
        )
        self._spoiled: list[OutgoingRequest] = []  # with an unreadable response: they end as lost
        self._request_timeout_s = settings.request_timeout_ms / 1000
        idle_s = settings.connections_max_idle_ms / 1000 if settings.connections_max_idle_ms >= 0 else math.inf
        self._look_again_s = max(min(self._request_timeout_s, idle_s), _SHORTEST_WATCH_S)
        self._max_in_flight = settings.max_in_flight
        self._oldest_since = 0.0  # when the oldest request became the oldest, or a pause ended
        self._last_used = loop.time()
        self._watch_at = 0.0

    # For the owner of the connection

    @property
    def can_send(self) -> bool:
        if self._is_paused or self._retires_with is not None or self._state is not ConnectionState.READY:
            return False
        # As `in_flight`, whose call would cost each request a frame.
        in_flight = self._conversation.in_flight + len(self._unwritten.requests)
        return in_flight < self._max_in_flight and not self._transport.is_closing()

    @property
    def is_open(self) -> bool:
        return self._state is ConnectionState.READY and not self._transport.is_closing()

    def extra_info(self, name: str) -> object:
        """Return what the transport knows about the connection, such as its `ssl_object`."""
        return self._transport.get_extra_info(name)

    @property
    def in_flight(self) -> int:
        return self._conversation.in_flight + len(self._unwritten.requests)

    def retire(self, error: KafkaError) -> None:
        """Close as soon as no request is in flight."""
        self._retires_with = error
        self._close_if_drained()

    def retire_worn(self) -> None:
        """Retire because TLS has encrypted as much as one key may."""
        self.retire(ClosedHereError("its TLS keys have encrypted as much as they may"))

    def pause_until(self, when: float) -> None:
        """Count no silence before then: the broker reads nothing during the pause (KIP-219)."""
        self._oldest_since = max(self._oldest_since, when)
        self._unwritten.pause_until(when)
        if self._socket is not None and not self._transport.is_closing():
            stop_user_timeout(self._socket)

    def end_pause(self) -> None:
        if self._socket is not None and not self._transport.is_closing():
            restore_user_timeout(self._socket, self._context.settings.request_timeout_ms)

    def silent_for_s(self, now: float) -> float:
        """Return for how long the oldest request has been the oldest; 0.0 or less with none."""
        return now - self._oldest_since if self._conversation.in_flight else 0.0

    def unanswered(self, now: float) -> str:
        """Return which request the broker has not answered, and for how long; empty if there is none."""
        oldest = self._conversation.oldest
        silent_s = self.silent_for_s(now)
        return "" if oldest is None else f"it has not answered {oldest.name} for {max(silent_s, 0.0):.1f} s"

    def produce_version(self, at_most: int) -> int:
        """Return the highest version of Produce that both sides speak, or raise UnsupportedVersionError."""
        version = self._produce_versions.get(at_most)
        if version is None:
            version = self._produce_versions[at_most] = self.versions.highest_common(PRODUCE, at_most=at_most)
        return version

    def send(self, request: OutgoingRequest) -> None:
        """Hand a request to the transport, in this call; never raises for a failure of the network."""
        now = self._context.loop.time()
        if request.expects_response and not self._conversation.in_flight:
            self._oldest_since = now
        pieces = self._conversation.send(
            request.api_key,
            request.version,
            request.buffers,
            flexible=request.flexible,
            context=request,
            expects_response=request.expects_response,
            largest_response=request.largest_response,
        )
        request.sent_at = self._last_used = now
        size = sum(map(len, pieces))
        self._handed += size
        request.end = self._handed
        request.size = size - _SIZE_FIELD_BYTES
        if not request.expects_response:
            self._unwritten.add(request, now)
        if size <= self._in_one_piece:
            self._transport.write(b"".join(pieces))
        else:
            self._write_pieces(pieces)
        counters = self._context.counters
        counters.requests += 1
        counters.bytes_out += size
        counters.recent_request_size = max(counters.recent_request_size, size)
        self._watch(now + self._look_again_s)

    def count_in(self, context: NetworkContext) -> None:
        """Count from now on in the counters of another context, otherwise the same."""
        self._context = context

    def withdraw(self, request: OutgoingRequest) -> None:
        """Do not send a request that nothing waits for any more. Here it is too late: its bytes are on their way."""

    def close(self, error: KafkaError) -> None:
        """Close at once; the loop ends the requests as lost a little later. A second call does nothing."""
        if self._state is ConnectionState.CLOSED:
            return
        # Kept as the reason of the close: a frame of its traceback would keep a request and its batches.
        self.error = without_frames(with_label(self.label, error))
        self._move_to(ConnectionState.CLOSED)
        self._handshake.close()
        self._conversation.drop_held()
        self._note_held()
        if self._watch_timer is not None:
            self._watch_timer.cancel()
        try:
            self._transport.abort()
        except RuntimeError:  # the loop is closed: the operating system ends the connection
            with contextlib.suppress(OSError):
                self._transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._context.counters.connections_created += 1
        try:
            self._prepare_to_write()
            self._send_step(next(self._handshake))
        except Exception as error:  # noqa: BLE001  # event loops log it, and leave the connection open and silent
            self.close(BrokerConnectionError(f"the connection cannot be used: {_named(error)}"))

    def data_received(self, data: bytes) -> None:
        if self._state is ConnectionState.CLOSED:
            return
        now = self._context.loop.time()
        self._context.counters.bytes_in += len(data)
        try:
            for request, payload in self._conversation.receive(data):
                self._end_with_answer(request, payload, now)
                if self.error is not None:  # a callback closed the connection: later requests are lost
                    return
            if self._retires_with is not None:
                self._close_if_drained()
            if self._conversation.held_bytes != self._held_bytes:
                self._note_held()
        except KafkaError as error:
            self.close(error)
        except Exception as error:
            # A defect of a callback, which may have left anything undone.
            # Only its class: its text or repr may hold what was being handled, such as a password.
            self.close(BrokerConnectionError(f"an answer could not be handled: {type(error).__name__}"))
            raise

    def eof_received(self) -> bool:
        """Close: the broker sends no more responses."""
        # Requests of acks=0 that were written are not lost: a broker that refuses one closes the connection.
        if self._state is not ConnectionState.CLOSED:
            self._unwritten.settle(self._context.loop.time())
        return False

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        if self._state is not ConnectionState.CLOSED:
            self._unwritten.settle(self._context.loop.time())
            self._context.events.wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """End every request, oldest first, then call `on_closed`."""
        is_ours = self.error is not None  # this side has closed it
        self.close(self._reason_of_loss(exc))
        self._context.counters.connections_closed += 1
        lost = [*self._spoiled, *self._conversation.take_in_flight(), *self._unwritten.take_all()]
        self._spoiled.clear()
        if not is_ours:
            self._name_size(lost)
        error = cast("KafkaError", self.error)
        for request, end in self._ends_of_lost(sorted(lost, key=attrgetter("end")), error):
            self._lose(request, end)
        if not self.ready.done():
            self.ready.set_exception(error)
            self.ready.exception()  # marks it as retrieved: a cancelled attempt does not retrieve it
        self._on_closed(self, error)
        self._end()

    def _end(self) -> None:
        self.closed.set_result(None)

    def __repr__(self) -> str:
        return f"<BrokerConnection {self.label} {self._state.value} in_flight={self._conversation.in_flight}>"

    def _prepare_to_write(self) -> None:
        settings, transport = self._context.settings, self._transport
        self._socket = transport.get_extra_info("socket")
        if self._socket is not None:
            set_socket_options(self._socket, settings)
        transport.set_write_buffer_limits(high=settings.write_buffer_bytes)
        gathers = honours_back_pressure(self._context.loop)
        self._in_one_piece = _CHEAPER_THAN_A_VECTOR if gathers else _CHEAPER_THAN_MANY_CALLS
        self._write_pieces = transport.writelines if gathers else self._write_each

    def _write_each(self, pieces: list[Buffer]) -> None:
        for piece in pieces:
            self._transport.write(piece)

    def _gone(self) -> int:
        """Return the position behind the last byte that has left the transport."""
        return self._handed - self._transport.get_write_buffer_size()

    def _note_held(self) -> None:
        self._held_bytes = self._conversation.held_bytes
        self._context.response_budget.note(self.close, self._held_bytes)

    # Handshake

    def _send_step(self, step: HandshakeRequest) -> None:
        self.send(whole_request(step.api, step.version, body=step.body, on_end=self._continue_handshake))

    def _continue_handshake(self, end: RequestEnd) -> None:
        if not isinstance(end, Answered):
            return  # the end of the connection is reported by `on_closed`
        self.responses -= 1  # the handshake does not show that the broker does any work
        try:
            self._send_step(self._handshake.send(end.payload))
        except StopIteration as finished:
            self.versions, self._has_versions = finished.value, True
            self._use_versions()

    def _use_versions(self) -> None:
        """End the handshake; `SaslConnection` authenticates first."""
        self._become_ready()

    def _become_ready(self) -> None:
        self._move_to(ConnectionState.READY)
        if not self.ready.done():
            self.ready.set_result(None)

    # The end of a request

    def _end_with_answer(self, request: OutgoingRequest, payload: memoryview, now: float) -> None:
        counters = self._context.counters
        self._oldest_since = self._last_used = now
        responses = self.responses
        self.responses += 1
        latency_s = now - request.sent_at
        counters.responses += 1
        counters.request_latency_s += latency_s
        if request.api_key == PRODUCE.key:
            counters.produce_responses += 1
            counters.produce_latency_s += latency_s
            counters.recent_produce_latency_s = max(counters.recent_produce_latency_s, latency_s)
        try:
            if request.end > self._gone():
                # The pool would get the memory back while the transport still sends it.
                raise ProtocolError("the broker answered a request before it had all of it")
            request.on_end(_new(Answered, (payload, now)))
            if self._context.repeated_closes.rows and request.api_key == PRODUCE.key:
                self._context.repeated_closes.answered(self.label, request.size)
        except KafkaError:
            self._spoiled.append(request)
            raise
        if self.responses > responses:  # else it was one of the handshake
            self._context.silence.answered_at = now

    def _ends_of_lost(self, lost: list[OutgoingRequest], error: KafkaError) -> list[tuple[OutgoingRequest, Lost]]:
        end = Lost(error)
        return [(request, end) for request in lost]

    def _name_size(self, lost: list[OutgoingRequest]) -> None:
        """Say so in the error if the broker closes connections under Produce requests of a certain size."""
        sizes = [each.size for each in lost if each.api_key == PRODUCE.key and each.expects_response]
        row = self._context.repeated_closes.lost(self.label, max(sizes)) if sizes else None
        if row is None:
            return
        error = cast("KafkaError", self.error)
        self.error = type(error)(f"{error}; {row}")
        self.error.__cause__ = error.__cause__
        if row.closes == CLOSES_THAT_NAME:
            self._context.log.warning(
                "request_closes_connection",
                broker=self.label,
                request_bytes=row.request_bytes,
                closes=row.closes,
                option="max_request_size",
            )

    def _lose(self, request: OutgoingRequest, end: Lost) -> None:
        try:
            request.on_end(end)
        except Exception as defect:  # noqa: BLE001  # the others must end all the same
            context = {"message": "a callback failed while requests were lost", "exception": defect, "protocol": self}
            try:
                self._context.loop.call_exception_handler(context)
            except Exception as raised:  # noqa: BLE001  # asyncio's handler logs, and a filter of the user may raise
                report_unraisable(raised, self)

    def _reason_of_loss(self, exc: Exception | None) -> KafkaError:
        if isinstance(exc, KafkaError):  # of TLS
            return exc
        how = how_closed(exc)
        if how and self._state is ConnectionState.HANDSHAKING and not self._has_versions:
            return BrokerConnectionError(
                f"the other end {how} the connection without saying which requests it speaks: is this a Kafka "
                "listener, and is it one without TLS?"
            )
        if how and self._is_unwelcome():
            kind = WrongListenerError if self._context.refusals.is_unwelcome(self.label) else BrokerConnectionError
            return kind(
                f"the broker {how} the connection at the first request, without a word, as a listener does that wants "
                "SASL: set security_protocol and sasl_mechanism, or use the port of a listener without SASL"
            )
        if exc is None:
            return BrokerConnectionError("the broker closed the connection")
        lost = BrokerConnectionError(f"the connection was lost: {exc}")
        lost.__cause__ = exc
        return lost

    def _is_unwelcome(self) -> bool:
        if self._state is not ConnectionState.READY or self.responses or not self._conversation.in_flight:
            return False
        return not self._context.refusals.has_answered(self.label)

    def _close_if_drained(self) -> None:
        if self._retires_with is not None and not self.in_flight:
            self.close(self._retires_with)

    # Time-outs: one timer for the oldest request and for idleness

    def _watch(self, deadline: float) -> None:
        # A timer that is due before the deadline stays, and checks again when it fires: so a busy connection sets one
        # timer per time-out, not one per request.
        if self._watch_timer is not None:
            if self._watch_at <= deadline:
                return
            self._watch_timer.cancel()
        self._watch_at = deadline
        self._watch_timer = self._context.schedule(deadline, self._look_at_clock)

    def _look_at_clock(self, now: float) -> None:
        self._watch_timer = None
        settings = self._context.settings
        if self._conversation.in_flight:
            text = f"no answer within request_timeout_ms={settings.request_timeout_ms}"
            too_late = self._oldest_since + self._request_timeout_s
            self._close_at(too_late, now, UnansweredError(text), look_at=now + self._look_again_s)
        elif self.in_flight:  # without a response: `UnwrittenRequests` detects a stall
            self._watch(now + self._look_again_s)
        elif settings.connections_max_idle_ms >= 0:
            text = f"unused for connections_max_idle_ms={settings.connections_max_idle_ms}"
            self._close_at(self._last_used + settings.connections_max_idle_ms / 1000, now, ClosedHereError(text))

    def _close_at(self, deadline: float, now: float, error: KafkaError, *, look_at: float = math.inf) -> None:
        if now < deadline:
            self._watch(min(deadline, look_at))
        else:
            self.close(error)

    def _close_stalled(self, text: str) -> None:
        self.close(UnansweredError(text))

    def _move_to(self, state: ConnectionState) -> None:
        assert state in TRANSITIONS[self._state], f"{self._state} to {state}"  # our own defect
        self._state = state


def honours_back_pressure(loop: asyncio.AbstractEventLoop, version: tuple[int, ...] = sys.version_info[:3]) -> bool:
    """Tell whether `transport.writelines` ever pauses its protocol.

    asyncio's own transports of CPython 3.12.0 to 3.12.8 and 3.13.0 to 3.13.1 fill their buffer without saying so;
    other loops bring their own transports.
    """
    if not type(loop).__module__.startswith("asyncio."):
        return True
    return not ((3, 12, 0) <= version < (3, 12, 9) or (3, 13, 0) <= version < (3, 13, 2))


def how_closed(exc: Exception | None) -> str:
    """Return how the other end ended a connection; empty if it was not the other end's doing."""
    # A service that closes with bytes unread, such as those of another protocol, resets the connection.
    return "closed" if exc is None else "reset" if isinstance(exc, ConnectionError) else ""


def _named(error: Exception) -> str:
    """Return what the system says, or the class of another error, whose text may hold a secret."""
    said = error.strerror if isinstance(error, OSError) else None
    return said or type(error).__name__


def with_label(label: str, error: KafkaError) -> KafkaError:
    # Errors raised without knowledge of the connection get its name.
    if isinstance(error, BrokerConnectionError | UnsupportedVersionError | AuthenticationError):
        labelled = type(error)(f"{label}: {error}")
        labelled.__cause__ = error.__cause__
        if isinstance(labelled, AuthenticationError) and isinstance(error, AuthenticationError):
            labelled.retriable = error.retriable
        return labelled
    return error
