"""One TCP connection to one broker: the shell around a `FrameProtocol`.

    HANDSHAKING ──versions known──► READY ──close, error, loss──► CLOSED
         └──────────────────error, loss───────────────────────────►┘

Guarantees for the sender of a request:

* `on_end` is called exactly once for every request, on the loop: with `Answered` in the order of the requests, with
  `Lost` oldest first.
* At its end the transport holds none of the request's bytes any more.
* `Lost` comes from the transport's own `connection_lost`, never from inside `send` or `close`.

An `on_end` that raises `ProtocolError` for an `Answered` (the response cannot be read) counts as not called: the
connection is closed, and the request is lost like the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import math
import socket
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from aioproducer._native.unraisable import report_unraisable
from aioproducer._network.requests import Answered, Lost, OutgoingRequest, RequestEnd
from aioproducer._network.write_stream import WriteStream
from aioproducer._protocol.api_versions import ApiVersions
from aioproducer._protocol.framing import FrameProtocol
from aioproducer._protocol.handshake import HandshakeRequest, handshake
from aioproducer._protocol.messages import PRODUCE
from aioproducer._protocol.response_limits import largest_response
from aioproducer.errors import BrokerConnectionError, KafkaError, ProtocolError, UnsupportedVersionError

if TYPE_CHECKING:
    from aioproducer._network.context import NetworkContext, Timer


class ConnectionState(enum.Enum):
    """See the picture at the top of this file."""

    HANDSHAKING = "handshaking"
    READY = "ready"
    CLOSED = "closed"


_SHORTEST_WATCH_S: Final = 0.1
"""Between two looks at the clock, however short `connections_max_idle_ms` is."""

TRANSITIONS: Final[Mapping[ConnectionState, frozenset[ConnectionState]]] = {
    ConnectionState.HANDSHAKING: frozenset((ConnectionState.READY, ConnectionState.CLOSED)),
    ConnectionState.READY: frozenset((ConnectionState.CLOSED,)),
    ConnectionState.CLOSED: frozenset(),
}


class IdleConnectionError(BrokerConnectionError):
    """Closed by this side because nobody used it; not a failure of the broker."""


class UnansweredError(BrokerConnectionError):
    """The connection was closed because the broker did not answer, or read, within `request_timeout_ms`."""


OnClosed: TypeAlias = "Callable[[BrokerConnection, KafkaError], None]"


class BrokerConnection(asyncio.Protocol):  # noqa: PLR0904  # a third of them are the transport's to call
    """An asyncio protocol; made by `NodeConnection` through `loop.create_connection`.

    Args:
        environment: shared by all connections.
        label: names the broker in errors: "broker 1 at host:9092".
        on_closed: called once, after all requests have ended.
    """

    # Set when the connection is made, before anything else can happen to it.
    _transport: asyncio.Transport
    _stream: WriteStream

    error: KafkaError | None = None
    """Why it is closed."""
    answers = 0
    """To requests other than the handshake's."""
    _is_paused = False
    _held = 0
    """Bytes of an answer whose end has not come, as last noted."""
    _retires_with: KafkaError | None = None
    _watch_timer: Timer | None = None

    def __init__(self, environment: NetworkContext, label: str, on_closed: OnClosed) -> None:
        loop, settings = environment.loop, environment.settings
        self.versions = ApiVersions({})
        """Empty until ready."""
        self._produce_versions: dict[int, int] = {}  # by the bound that was asked for: one answer per connection
        self.ready: asyncio.Future[None] = loop.create_future()
        """Done when the handshake is; fails when the connection closes before."""
        self.closed: asyncio.Future[None] = loop.create_future()
        """Done when the transport is gone and every request has ended."""
        self._on_closed = on_closed
        self._environment = environment
        self.label = label
        self._conversation: FrameProtocol[OutgoingRequest] = FrameProtocol(
            environment.client_id, settings.max_frame_bytes
        )
        self._handshake = handshake(settings.software_version)
        self._state = ConnectionState.HANDSHAKING
        self._spoiled: list[OutgoingRequest] = []  # answered with bytes that cannot be read: to be lost
        self._request_timeout_s = settings.request_timeout_ms / 1000
        idle_s = settings.connections_max_idle_ms / 1000 if settings.connections_max_idle_ms >= 0 else math.inf
        self._look_again_s = max(min(self._request_timeout_s, idle_s), _SHORTEST_WATCH_S)
        self._max_in_flight = settings.max_in_flight
        self._oldest_since = 0.0  # when the request that is the oldest became it, or a pause was over
        self._last_used = loop.time()
        self._watch_at = 0.0

    # What the owner of the connection asks and says

    @property
    def can_send(self) -> bool:
        """Whether another request may be sent now: open, to stay so, not full, the transport not choked."""
        if self._is_paused or self._retires_with is not None or self._state is not ConnectionState.READY:
            return False
        return self.in_flight < self._max_in_flight and not self._transport.is_closing()

    @property
    def is_open(self) -> bool:
        """Whether the handshake is done and nothing has closed the connection since."""
        return self._state is ConnectionState.READY and not self._transport.is_closing()

    @property
    def in_flight(self) -> int:
        """Requests that have not ended."""
        return self._conversation.in_flight + self._stream.unwritten

    def retire(self, error: KafkaError) -> None:
        """Close as soon as no request is in flight."""
        self._retires_with = error
        self._close_if_drained()

    def pause_until(self, when: float) -> None:
        """Count no silence before then: the broker has said that it reads nothing until it is over (KIP-219)."""
        self._oldest_since = max(self._oldest_since, when)
        self._stream.pause_until(when)

    def silent_for_s(self, now: float) -> float:
        """Return for how long the oldest request has been waiting as the oldest; 0.0 or less with none."""
        return now - self._oldest_since if self._conversation.in_flight else 0.0

    def produce_version(self, at_most: int) -> int:
        """Return the highest version of Produce that both sides speak.

        Raises:
            UnsupportedVersionError: there is none.
        """
        version = self._produce_versions.get(at_most)
        if version is None:
            version = self._produce_versions[at_most] = self.versions.highest_common(PRODUCE, at_most=at_most)
        return version

    def send(self, request: OutgoingRequest) -> None:
        """Hand a request to the transport, in this call. Never raises for what the network does."""
        now = self._environment.loop.time()
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
        self._environment.counters.requests += 1
        self._stream.send(request, pieces, now)
        self._watch(now + self._look_again_s)

    def close(self, error: KafkaError) -> None:
        """Close at once. Requests are lost a little later, from the loop; a second call does nothing."""
        if self._state is ConnectionState.CLOSED:
            return
        self.error = _without_frames(_with_label(self.label, error))
        self._move_to(ConnectionState.CLOSED)
        self._handshake.close()
        self._conversation.drop_held()
        self._note_held()
        if self._watch_timer is not None:
            self._watch_timer.cancel()
        try:
            self._transport.abort()
        except RuntimeError:  # its loop is closed, and never calls `connection_lost`: the system tells the broker
            with contextlib.suppress(OSError):
                self._transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    # What the transport says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport, and begin the handshake."""
        self._transport = cast("asyncio.Transport", transport)
        self._stream = WriteStream(
            self._environment, self._transport, on_all_written=self._close_if_drained, on_stall=self._close_stalled
        )
        self._environment.counters.connections_created += 1
        self._send_step(next(self._handshake))

    def data_received(self, data: bytes) -> None:
        """Cut answers out of the bytes and hand each to its request."""
        if self._state is ConnectionState.CLOSED:
            return
        now = self._environment.loop.time()
        self._environment.counters.bytes_in += len(data)
        try:
            for request, payload in self._conversation.receive(data):
                self._end_with_answer(request, payload, now)
                if self.error is not None:  # a callback closed the connection: what follows is lost
                    return
            if self._retires_with is not None:
                self._close_if_drained()
            self._note_held()
        except KafkaError as error:
            self.close(error)
        except Exception as error:
            # A defect of a callback. The stream would go on, but nobody knows what the callback left undone.
            self.close(BrokerConnectionError(f"an answer could not be handled: {error!r}"))
            raise

    def eof_received(self) -> bool:
        """Close: a broker that has said its last word answers nothing any more.

        What it had all of by then was not lost: without acknowledgements a broker that refuses a request hangs up.
        """
        if self._state is not ConnectionState.CLOSED:
            self._stream.settle(self._environment.loop.time())
        return False

    def pause_writing(self) -> None:
        """Take no further request: the transport holds enough."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Take requests again."""
        self._is_paused = False
        if self._state is not ConnectionState.CLOSED:
            self._stream.settle(self._environment.loop.time())
            self._environment.events.wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """End every request, oldest first, then tell the owner."""
        self.close(self._reason_of_loss(exc))
        error = cast("KafkaError", self.error)
        self._environment.counters.connections_closed += 1
        lost = [*self._spoiled, *self._conversation.take_in_flight(), *self._stream.take_unwritten()]
        self._spoiled.clear()
        for request in sorted(lost, key=attrgetter("end")):
            self._lose(request, error)
        if not self.ready.done():
            self.ready.set_exception(error)
            self.ready.exception()  # seen: an attempt that was called off has nobody left who would look
        self._on_closed(self, error)
        self.closed.set_result(None)

    def __repr__(self) -> str:
        """Show state and load."""
        return f"<BrokerConnection {self.label} {self._state.value} in_flight={self._conversation.in_flight}>"

    def _note_held(self) -> None:
        held = self._conversation.held_bytes
        if held != self._held:
            self._held = held
            self._environment.held_answers.note(self.close, held)

    # Handshake

    def _send_step(self, step: HandshakeRequest) -> None:
        self.send(
            OutgoingRequest(
                api_key=step.api.key,
                version=step.version,
                flexible=step.api.is_flexible(step.version),
                buffers=[step.body],
                on_end=self._continue_handshake,
                largest_response=largest_response(step.api.key, len(step.body)),
            )
        )

    def _continue_handshake(self, end: RequestEnd) -> None:
        if not isinstance(end, Answered):
            return  # the end of the connection is reported by `on_closed`
        self.answers -= 1  # this one does not show that the broker does any work
        try:
            self._send_step(self._handshake.send(end.payload))
        except StopIteration as finished:
            self.versions = finished.value
            self._move_to(ConnectionState.READY)
            if not self.ready.done():
                self.ready.set_result(None)

    # The end of a request

    def _end_with_answer(self, request: OutgoingRequest, payload: memoryview, now: float) -> None:
        counters = self._environment.counters
        self._oldest_since = self._last_used = now
        self.answers += 1
        counters.responses += 1
        counters.request_latency_s += now - request.sent_at
        try:
            if not self._stream.has_left(request):
                # Its bytes would be given back to the pool while the transport still sends them.
                raise ProtocolError("the broker answered a request before it had all of it")
            request.on_end(Answered(payload, now))
        except KafkaError:
            self._spoiled.append(request)
            raise

    def _lose(self, request: OutgoingRequest, error: KafkaError) -> None:
        try:
            request.on_end(Lost(error))
        except Exception as defect:  # noqa: BLE001  # the others must end all the same
            context = {"message": "a callback failed while requests were lost", "exception": defect, "protocol": self}
            try:
                self._environment.loop.call_exception_handler(context)
            except Exception as raised:  # noqa: BLE001  # asyncio's handler logs, and a filter may raise
                report_unraisable(raised, self)

    def _reason_of_loss(self, exc: Exception | None) -> KafkaError:
        if exc is not None:
            lost = BrokerConnectionError(f"the connection was lost: {exc}")
            lost.__cause__ = exc
            return lost
        if self._state is ConnectionState.HANDSHAKING:
            return BrokerConnectionError(
                "the other end closed the connection without saying which requests it speaks: is this a Kafka "
                "listener, and is it one without TLS?"
            )
        return BrokerConnectionError("the broker closed the connection")

    def _close_if_drained(self) -> None:
        if self._retires_with is not None and not self.in_flight:
            self.close(self._retires_with)

    # Time-outs: one timer for the oldest request and for idleness, set ahead lazily

    def _watch(self, deadline: float) -> None:
        # A timer that is due before the deadline stays: it looks again when it fires. So a connection that is
        # busy sets one timer a time-out, the shorter of the two, not one a request.
        if self._watch_timer is not None:
            if self._watch_at <= deadline:
                return
            self._watch_timer.cancel()
        self._watch_at = deadline
        self._watch_timer = self._environment.schedule(deadline, self._look_at_clock)

    def _look_at_clock(self, now: float) -> None:
        self._watch_timer = None
        settings = self._environment.settings
        if self._conversation.in_flight:
            text = f"no answer within request_timeout_ms={settings.request_timeout_ms}"
            too_late = self._oldest_since + self._request_timeout_s
            self._close_at(too_late, now, UnansweredError(text), look_at=now + self._look_again_s)
        elif self._stream.unwritten:  # the stream itself closes what does not move
            self._watch(now + self._look_again_s)
        elif settings.connections_max_idle_ms >= 0:
            text = f"unused for connections_max_idle_ms={settings.connections_max_idle_ms}"
            self._close_at(self._last_used + settings.connections_max_idle_ms / 1000, now, IdleConnectionError(text))

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


def _with_label(label: str, error: KafkaError) -> KafkaError:
    # Those raised without knowing the connection get its name; others (an error code) say enough.
    if isinstance(error, BrokerConnectionError | UnsupportedVersionError):
        labelled = type(error)(f"{label}: {error}")
        labelled.__cause__ = error.__cause__
        return labelled
    return error


def _without_frames(error: KafkaError) -> KafkaError:
    """Let go of every frame that an error has come through: one of them holds a request, and so the batches in it.

    The error itself is kept for as long as anybody wants to know why the connection was closed.
    """
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
    return error
