"""A connection that authenticates before its first request, and again before its session ends (KIP-368).

    IDLE ──a request behind 85 to 95 % of the lifetime──► ASKING ──credentials there──► SILENT ──► BEHIND ──► IDLE
                                                                                      last token sent  accepted

ASKING: other requests pass while the session lasts. SILENT: from SaslHandshake to the last token the broker closes the
connection on any other request, so all are held, in order. BEHIND: they follow the last token at once, and the broker
serves them when it has accepted it. Mechanisms of one token (PLAIN, OAUTHBEARER) are never SILENT.

If there are no credentials, because a vault is down, the session goes on, and they are asked for again when half of the
time that is left is over.

A refusal leaves everything behind the token unprocessed. A broker, or a proxy, that closes the connection on what is
sent behind the token gets every request one after the other from then on, as do requests without a response (acks=0),
of which a refusal would say nothing.

Source: SaslClientAuthenticator, KafkaChannel and Selector in Apache Kafka, whose clients wait for the last response.
"""

from __future__ import annotations

import asyncio
import enum
import math
from collections import deque
from typing import TYPE_CHECKING, Final

from aioproducer._network.connection import (
    BrokerConnection,
    ClosedHereError,
    ConnectionState,
    OnClosed,
    how_closed,
    whole_request,
)
from aioproducer._network.requests import Answered, Lost, OutgoingRequest, RequestEnd
from aioproducer._protocol.framing import ResponseOutOfOrderError
from aioproducer._protocol.messages import SMALL_RESPONSE
from aioproducer._protocol.sasl_exchange import (
    BearerWanted,
    Exchange,
    NextResponse,
    PasswordWanted,
    RefusedError,
    Send,
    Session,
    Step,
    TicketWanted,
    Work,
)
from aioproducer.errors import AuthenticationError, BrokerConnectionError, KafkaError, PrincipalChangedError

if TYPE_CHECKING:
    from aioproducer._network.context import NetworkContext, TimerHandle
    from aioproducer._network.sasl_client import Place, SaslClient, Wish

EARLIEST_FRACTION: Final = 0.85  # of a session's lifetime, after which a request authenticates again; as in Kafka
LATEST_FRACTION: Final = 0.95
SHORTEST_INTERVAL_S: Final = 1.0  # brokers refuse to authenticate again sooner
_LAST_FRACTION: Final = 0.02  # of a lifetime, in which nothing but an authentication is sent, ...
_LAST_MOMENT_S: Final = 1.0  # ... and the longest such time
_LONGEST_LIFETIME_S: Final = 10 * 365 * 86_400.0


class _Phase(enum.Enum):
    """See the diagram above; also of the first authentication."""

    IDLE = "idle"
    ASKING = "asking"
    SILENT = "silent"
    BEHIND = "behind"


class SaslConnection(BrokerConnection):
    """A connection to a SASL listener; `place` is host and port as the cluster advertises them."""

    def __init__(
        self, context: NetworkContext, label: str, on_closed: OnClosed, *, place: Place, sasl: SaslClient
    ) -> None:
        super().__init__(context, label, on_closed)
        self._sasl = sasl
        self._place = place
        self._phase = _Phase.IDLE
        self._exchange: Exchange | None = None
        self._responses: deque[bytes] = deque()  # of SASL requests, not sent into the exchange yet
        self._is_answer_awaited = False
        self._asking: asyncio.Task[None] | None = None
        self._held: deque[OutgoingRequest] = deque()
        self._held_timer: TimerHandle | None = None
        self._is_session_open = False
        self._has_warned = False  # that this session could not be renewed
        self._is_patient = False  # in the current exchange
        self._is_throttled = False
        self._began_at = 0.0
        self._token_sent_at = 0.0
        self._token_end = 0  # position behind the last SASL request in the stream of bytes
        self._refused_at: int | None = None  # position behind which the broker has processed nothing
        self._look_at = math.inf  # when `send` must look closer; at any time during an exchange
        self._not_before = 0.0  # earliest start of the next exchange
        self._expires_at = math.inf

    # For the owner of the connection

    @property
    def can_send(self) -> bool:
        return not self._held and self._phase is not _Phase.SILENT and super().can_send

    @property
    def in_flight(self) -> int:
        return super().in_flight + len(self._held)

    def send(self, request: OutgoingRequest) -> None:
        """Hand a request to the transport, or hold it until the authentication allows it."""
        now = self._context.loop.time()
        if now < self._look_at and not self._held:
            super().send(request)
            return
        self._held.append(request)
        self._last_used = now
        if self._exchange is None and now >= self._look_at:
            if now >= self._not_before:
                self._authenticate_again(now)
            else:
                self._look_later()
        self._release(now)

    def pause_until(self, when: float) -> None:
        """As of the base class; requests that an authentication holds wait for the end of the pause, too."""
        super().pause_until(when)
        self._is_throttled = True

    def end_pause(self) -> None:
        """As of the base class, and send what was held."""
        super().end_pause()
        self._is_throttled = False
        self._release(self._context.loop.time())
        if self._held and self._exchange is None:  # the session has ended in the pause
            self._look_later()

    def withdraw(self, request: OutgoingRequest) -> None:
        """Forget a request that is still held, without calling its `on_end`."""
        if request not in self._held:
            return
        self._held.remove(request)
        if not self._held:
            self._context.events.wake()  # the connection may take other requests now
            self._close_if_drained()

    def close(self, error: KafkaError) -> None:
        """Close at once, and end the authentication."""
        if self._state is ConnectionState.CLOSED:
            return
        if isinstance(error, ResponseOutOfOrderError) and self._is_session_open and self._phase is _Phase.BEHIND:
            # Brokers serve what is behind the token of another principal before they refuse the token.
            self._fail(PrincipalChangedError(f"the credentials are now those of another principal: {error}"))
            return
        super().close(error)
        if self._asking is not None and self._asking is not asyncio.current_task(self._context.loop):
            self._asking.cancel()
        if self._held_timer is not None:
            self._held_timer.cancel()
        self._exchange = None

    # Which requests may pass

    def _release(self, now: float) -> None:
        """Send the held requests that may go now."""
        while self._held and self.is_open and self._may_pass(self._held[0], now):
            super().send(self._held.popleft())

    def _may_pass(self, request: OutgoingRequest, now: float) -> bool:
        if self._is_throttled:
            return False
        if self._phase is _Phase.BEHIND:
            return request.expects_response and not self._is_patient
        return self._phase is not _Phase.SILENT and now < self._expires_at

    def _look_later(self) -> None:
        """Authenticate as soon as the broker allows it: the session has ended, and a request is held."""
        if self._held_timer is None:
            self._held_timer = self._context.schedule(self._not_before, self._look_now)

    def _look_now(self, now: float) -> None:
        self._held_timer = None
        if self._exchange is None and self._held and self.is_open:
            self._authenticate_again(max(now, self._not_before))
            self._release(now)

    # The exchange

    def _use_versions(self) -> None:
        self._begin(self._context.loop.time(), is_patient=True)

    def _authenticate_again(self, now: float) -> None:
        self._look_at = -math.inf
        self._begin(now, is_patient=self._sasl.is_patient(self._place))

    def _begin(self, now: float, *, is_patient: bool) -> None:
        self._began_at = now
        self._is_patient = is_patient
        self._phase = _Phase.ASKING
        try:
            self._exchange = self._sasl.exchange(
                self._place[0], self.versions, repeats=self._is_session_open, is_patient=is_patient
            )
        except KafkaError as error:
            self.lacks_credentials = True
            self._lack(error)
            return
        self._advance(None)

    def _advance(self, result: object) -> None:
        """Carry out steps until one must be waited for, or the transport closes."""
        try:
            while self._exchange is not None and not self._transport.is_closing():
                result = self._carry_on(self._exchange.send(result))
                if result is None:
                    return
        except StopIteration as finished:
            self._end_exchange(finished.value)
        except RefusedError as refused:
            # Brokers serve what is behind the token of another principal, and refuse it after that.
            if not isinstance(refused.error, PrincipalChangedError):
                self._refused_at = self._token_end
            self._sasl.refused(refused.error)
            self._fail(refused.error)
        except KafkaError as error:
            self._lack(error)

    def _carry_on(self, step: Step) -> object:
        """Carry out a step; return its result, or None if that comes later."""
        if isinstance(step, Send | NextResponse):
            if isinstance(step, Send):
                self._send_sasl(step)
            if self._responses:
                return self._responses.popleft()
            self._is_answer_awaited = True
            return None
        try:
            result = self._sasl.at_once(step)
        except KafkaError:
            self.lacks_credentials = True
            raise
        if result is None:
            self._ask(step)
        return result

    def _send_sasl(self, step: Send) -> None:
        self._phase = _Phase.SILENT
        self.missing = f"the broker has not answered the authentication with {self._sasl.mechanism}"
        now = self._context.loop.time()
        for each in step.requests:
            request = whole_request(
                each.api, each.version, body=each.body, on_end=self._use_response, largest=SMALL_RESPONSE
            )
            super().send(request)
            self._token_end = request.end
        if step.is_last:
            self._token_sent_at = now
            self._phase = _Phase.BEHIND
            self._context.events.wake()  # for batches that found the connection silent: they need not wait for it

    def _use_response(self, end: RequestEnd) -> None:
        if not isinstance(end, Answered):
            return  # the end of the connection is reported by `on_closed`
        self.responses -= 1  # it does not show that the broker does any work
        self._responses.append(bytes(end.payload))
        if self._is_answer_awaited:
            self._is_answer_awaited = False
            self._advance(self._responses.popleft())
            self._release(end.now)

    def _ask(self, wish: Wish) -> None:
        if isinstance(wish, PasswordWanted):
            self.missing = "the function of sasl_password has not returned"
        elif isinstance(wish, BearerWanted):
            self.missing = "sasl_token_provider has not returned a token"
        elif isinstance(wish, TicketWanted | Work):
            self.missing = "no KDC of the realm has given a ticket (is one up, and reachable on its port, 88?)"
        name = f"aioproducer-sasl | {self._context.client_id} | {self.label}"
        self._asking = self._context.loop.create_task(self._carry_out(wish), name=name)

    async def _carry_out(self, wish: Wish) -> None:
        timeout_s = self._context.settings.connection_setup_timeout_max_ms / 1000
        timeout = asyncio.timeout(timeout_s)
        try:
            async with timeout:
                result = await self._sasl.carry_out(wish)
        except KafkaError as error:
            self._lack_credentials(error)
        except asyncio.CancelledError:
            self._asking = None
            if self._state is not ConnectionState.CLOSED:  # all tasks were cancelled, and the sender may go on
                self._lack(AuthenticationError("the authentication was cancelled", retriable=True))
            raise
        except Exception as error:  # noqa: BLE001  # of a provider
            is_over = isinstance(error, TimeoutError) and timeout.expired()
            text = f"{self.missing} within {timeout_s:g} s" if is_over else type(error).__name__
            failure = AuthenticationError(f"the authentication failed: {text}", retriable=True)
            failure.__cause__ = error
            self._lack_credentials(failure)
        else:
            self._asking = None
            self._advance(result)
            self._release(self._context.loop.time())

    def _lack_credentials(self, error: KafkaError) -> None:
        self._asking = None
        self.lacks_credentials = True
        self._lack(error)

    def _lack(self, error: KafkaError) -> None:
        """End the connection, since an exchange cannot go on; but go on with a session if nothing was sent yet."""
        now = self._context.loop.time()
        is_over = self._state is ConnectionState.CLOSED or now >= self._expires_at
        if is_over or not self._is_session_open or self._phase is not _Phase.ASKING:
            self._fail(error)
            return
        self._sasl.failed(error)
        self._context.counters.reauthentication_failures += 1
        self._exchange, self._phase = None, _Phase.IDLE
        left_s = self._expires_at - now
        self._not_before = self._look_at = now + min(max(left_s / 2, SHORTEST_INTERVAL_S), left_s)
        write = self._context.log.debug if self._has_warned else self._context.log.warning
        self._has_warned = True
        write("session_not_renewed", broker=self.label, reason=str(error), session_left_s=round(left_s, 1))
        self._release(now)
        self._context.events.wake()

    # The end of an exchange

    def _end_exchange(self, session: Session | None) -> None:
        now = self._context.loop.time()
        self._exchange, self._phase = None, _Phase.IDLE
        self._responses.clear()
        self._not_before = now + SHORTEST_INTERVAL_S
        if session is None:  # too soon for the broker: the current session goes on
            self._look_at = min(self._not_before, self._expires_at)
            self._release(now)
            if self._held:
                self._look_later()
        else:
            self._open_session(session, now)
            is_over = now >= self._expires_at and session.lifetime_ms >= 1000 * SHORTEST_INTERVAL_S
            if is_over and self._held:  # its response came late: on a request now the broker closes
                self._look_later()
            while self._held and not (is_over or self._is_throttled):  # however short the session is
                super().send(self._held.popleft())
        self._context.events.wake()

    def _open_session(self, session: Session, now: float) -> None:
        counters = self._context.counters
        self._has_warned = False
        if session.lifetime_ms > 0:
            # Counted from the token, not from the response: the broker's clock started in between.
            lifetime_s = min(session.lifetime_ms / 1000, _LONGEST_LIFETIME_S)
            fraction = self._context.random.uniform(EARLIEST_FRACTION, LATEST_FRACTION)
            # What is sent at the last moment may arrive behind the end, on which the broker closes.
            margin_s = min(_LAST_FRACTION * lifetime_s, _LAST_MOMENT_S)
            self._expires_at = self._token_sent_at + lifetime_s - margin_s
            due_at = self._token_sent_at + fraction * lifetime_s
            self._look_at = min(max(due_at, self._not_before), self._expires_at)
        else:
            self._look_at = self._expires_at = math.inf
        if self._is_session_open:
            counters.note_reauthentication(now - self._began_at)
            self._context.log.debug("reauthenticated", broker=self.label, lifetime_ms=session.lifetime_ms)
            return
        counters.authentications += 1
        self._is_session_open = True
        self._context.refusals.end(self._place)
        self._context.log.debug("authenticated", broker=self.label, lifetime_ms=session.lifetime_ms)
        self._become_ready()

    def _fail(self, error: KafkaError) -> None:
        if self._state is ConnectionState.CLOSED:
            return
        self._sasl.failed(error)
        if isinstance(error, PrincipalChangedError):
            self._context.log.info("principal_changed", broker=self.label)
            error = ClosedHereError(str(error))
        elif self._is_session_open:
            self._context.counters.reauthentication_failures += 1
        else:
            self._context.counters.authentication_failures += 1
        self.close(error)

    # The end of the connection

    def connection_lost(self, exc: Exception | None) -> None:
        """As of the base class; requests that the broker cannot have processed end as such."""
        if self.error is None and self._phase is _Phase.BEHIND and self._is_session_open and not self._is_patient:
            self._sasl.be_patient(self._place)
        super().connection_lost(exc)

    def _end(self) -> None:
        if self._asking is None:
            super()._end()
        else:  # the user's function may have something to tidy up
            self._asking.add_done_callback(lambda _: self.closed.set_result(None))

    def _ends_of_lost(self, lost: list[OutgoingRequest], error: KafkaError) -> list[tuple[OutgoingRequest, Lost]]:
        sent, unprocessed = Lost(error), Lost(error, is_unprocessed=True)
        refused_at = math.inf if self._refused_at is None else self._refused_at
        ends = [(request, unprocessed if request.end > refused_at else sent) for request in lost]
        ends += [(request, unprocessed) for request in self._held]
        self._held.clear()
        return ends

    def _is_unwelcome(self) -> bool:
        return False

    def _reason_of_loss(self, exc: Exception | None) -> KafkaError:
        how = how_closed(exc)
        if how and self._phase in {_Phase.SILENT, _Phase.BEHIND}:
            return BrokerConnectionError(
                f"the broker {how} the connection during the authentication with {self._sasl.mechanism}, without "
                "saying why: its log knows"
            )
        return super()._reason_of_loss(exc)
