"""Checks authentications and sessions on every secured connection, as they are on the wire.

* SESSION: nothing but an authentication is sent before the first, or after the end of a session; the next exchange
  begins behind 85 % of it, and a second after the one before. What has no response is not sent behind a token.
* REFUSED: requests behind a refused token end as unprocessed, and no request that was served does.
* PROOF: nothing is sent to a broker that has not proved what it must.
* PEER: no plaintext goes to someone with a wrong certificate, and none goes unencrypted.
* PATIENCE: where a connection was cut on what came behind a token, nothing does again.
* CERTIFICATE: a new connection shows the newest certificate, and trusts the brokers' newest.
* SECRET: a token that has expired, or a password that was replaced, is not sent.
* STORM: at most ten authentications a minute are refused by a broker.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from aioproducer._network.connection import ClosedHereError
from aioproducer._network.requests import Lost, OutgoingRequest
from aioproducer.errors import AuthenticationError, PrincipalChangedError, TlsVerificationError
from aioproducer.testing import ApiKey
from tests.programs.simulation.history import History
from tests.programs.simulation.secured import TICK_S, Secured

if TYPE_CHECKING:
    from tests.programs.simulation.plan import Plan
    from tests.programs.simulation.simulated_transport import SimulatedTransport

_HEAD: Final = struct.Struct(">ihhi")
_CORRELATION: Final = struct.Struct(">ii")
_HANDSHAKE, _TOKEN = int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE)
_VERSIONS, _PRODUCE = int(ApiKey.API_VERSIONS), int(ApiKey.PRODUCE)
EARLIEST: Final = 0.85
SHORTEST_S: Final = 1.0
_ASKED_WITHIN_S: Final = 3.5  # from the client's function to the handshake, whose answer may be late: set-up time-out
_FLEXIBLE, _WITH_LIFETIME = 2, 1  # first versions of SaslAuthenticate
_MOST_A_MINUTE: Final = 10
_MINUTE_S: Final = 60.0
_ROUNDS: Final = {"PLAIN": 1, "OAUTHBEARER": 1}  # tokens of the client until it is accepted; SCRAM has 2


class _Talk:
    """What has been said on one connection."""

    def __init__(self) -> None:
        self.is_open = False  # authenticated
        self.is_in_exchange = False
        self.answered = 0  # tokens of this exchange
        self.has_token = False  # whether one of this exchange was written
        self.token_at = 0.0  # when the last token was written
        self.token_end = 0  # position in the stream of plaintext
        self.lifetime_s = 0.0
        self.expires_at = float("inf")
        self.not_before = 0.0  # of the next exchange
        self.versions: dict[int, int] = {}  # of SaslAuthenticate, by correlation id
        self.position = 0
        self.ends: dict[int, int] = {}  # position behind a Produce request -> its correlation id
        self.is_refused = self.was_forged = self.was_behind = self.was_cut = False


class SessionChecker:
    def __init__(
        self, plan: Plan, secured: Secured, history: History, *, was_served: Callable[[tuple[int, int]], bool]
    ) -> None:
        self._plan = plan
        self._secured = secured
        self._history = history
        self._violated = history.violated
        self._clock = history.clock
        self._was_served = was_served
        self._asked_within_s = _ASKED_WITHIN_S + plan.number("request_timeout_ms") / 1000
        self._rounds = _ROUNDS.get(plan.mechanism, 2)
        self._talks: dict[int, _Talk] = {}
        self._impatient: set[int] = set()  # nodes at which a connection was cut for it
        self._refusals: dict[int, deque[float]] = {}

    # Requests

    def written(self, transport: SimulatedTransport, frame: bytes) -> None:
        _, api, version, correlation_id = _HEAD.unpack_from(frame)
        talk = self._talk(transport)
        talk.position += len(frame)
        now = self._clock()
        if talk.was_forged:
            self._violated("PROOF", f"API {api} is sent on connection {transport.number} after a forged answer")
        if api == _HANDSHAKE:
            self._check_beginning(transport, talk, now)
            talk.is_in_exchange, talk.has_token, talk.answered = True, False, 0
        elif api == _TOKEN:
            talk.has_token, talk.token_at, talk.token_end = True, now, talk.position
            talk.versions[correlation_id] = version
            self._check_secret(frame)
        else:
            self._check_request(transport, talk, api)
        if api == _HANDSHAKE:
            talk.token_end = talk.position
        if api == _PRODUCE:
            talk.ends[talk.position] = correlation_id

    def _check_beginning(self, transport: SimulatedTransport, talk: _Talk, now: float) -> None:
        if now < talk.not_before - TICK_S:
            self._violated(
                "SESSION", f"connection {transport.number} authenticates {talk.not_before - now:.3f} s early"
            )
        if not talk.is_open:
            return
        if not talk.lifetime_s:
            self._violated("SESSION", f"connection {transport.number} authenticates again, and its session has no end")
        elif now < talk.expires_at - (1 - EARLIEST) * talk.lifetime_s - TICK_S:
            left_s = talk.expires_at - now
            text = f"{left_s:.3f} s before the end of {talk.lifetime_s:.3f} s"
            self._violated("SESSION", f"connection {transport.number} authenticates again {text}")

    def _check_request(self, transport: SimulatedTransport, talk: _Talk, api: int) -> None:
        if not talk.is_open and api != _VERSIONS:
            self._violated("SESSION", f"API {api} is sent on connection {transport.number} before authentication")
        if talk.is_in_exchange:
            if not talk.has_token:
                self._violated("SESSION", f"API {api} follows a handshake, and no token, on {transport.number}")
            if api == _PRODUCE and self._plan.acks == 0:
                self._violated("SESSION", f"a request without a response follows a token on {transport.number}")
            if transport.node.number in self._impatient:
                self._violated("PATIENCE", f"API {api} follows a token on connection {transport.number}")
            talk.was_behind = True
        elif (now := self._clock()) > talk.expires_at + TICK_S and not transport.is_seen_late:
            if talk.lifetime_s < SHORTEST_S and now < talk.not_before - SHORTEST_S + TICK_S:
                return  # no connection can renew so short a session in time: what was held goes when it opens
            late_s = now - talk.expires_at
            self._violated(
                "SESSION", f"API {api} is sent on connection {transport.number} {late_s:.3f} s after its end"
            )

    def _check_secret(self, frame: bytes) -> None:
        if self._plan.mechanism == "PLAIN":
            password = frame.rstrip(b"\0").rpartition(b"\0")[2].decode()  # tagged fields end with a zero
            if not self._secured.passwords.may_be_sent(password, self._asked_within_s):
                self._violated("SECRET", "a password is sent that was replaced long ago")
        elif self._plan.mechanism == "OAUTHBEARER" and b"auth=Bearer " in frame:
            token = frame.partition(b"auth=Bearer ")[2].partition(b"\x01")[0].decode()
            if self._secured.tokens.has_expired(token, within_s=self._asked_within_s):
                self._violated("SECRET", "a token is sent that has expired")

    # Answers

    def answered(self, transport: SimulatedTransport, frame: bytes) -> None:
        """Look at an answer that arrives; before the other checkers do."""
        size, correlation_id = _CORRELATION.unpack_from(frame) if len(frame) >= _CORRELATION.size else (0, 0)
        api = transport.asked.get(correlation_id)
        if size != len(frame) - 4 or api not in {_HANDSHAKE, _TOKEN}:
            return
        talk = self._talk(transport)
        if api == _HANDSHAKE:
            (code,) = struct.unpack_from(">h", frame, 8)
            if code:
                self._end_without_session(transport, talk, code)
            return
        version = talk.versions.pop(correlation_id)
        code, token, lifetime_ms = _authentication(frame, version)
        if code:
            self._secured.tokens.was_refused()
            self._end_without_session(transport, talk, code)
            return
        talk.answered += 1
        if self._rounds == 1 and token:
            self._secured.tokens.was_refused()
            return
        if talk.answered < self._rounds:
            return
        self._open(talk, lifetime_ms)

    def _open(self, talk: _Talk, lifetime_ms: int) -> None:
        talk.is_in_exchange, talk.is_open = False, True
        talk.was_behind = False
        talk.not_before = self._clock() + SHORTEST_S
        talk.lifetime_s = max(lifetime_ms, 0) / 1000
        talk.expires_at = talk.token_at + talk.lifetime_s if talk.lifetime_s else float("inf")

    def _end_without_session(self, transport: SimulatedTransport, talk: _Talk, code: int) -> None:
        now = self._clock()
        if talk.is_open and code == _TOO_SOON and talk.answered == 0 and not talk.is_refused:
            talk.not_before = now + SHORTEST_S
            if not talk.versions:
                talk.is_in_exchange = False
            return
        talk.is_refused = True
        refusals = self._refusals.setdefault(transport.node.number, deque(maxlen=_MOST_A_MINUTE))
        if len(refusals) == _MOST_A_MINUTE and now < refusals[0] + _MINUTE_S - TICK_S:
            self._violated("STORM", f"node {transport.node.number} has refused {_MOST_A_MINUTE + 1} times in a minute")
        refusals.append(now)

    def forged(self, transport: SimulatedTransport) -> None:
        """Note an answer that proves nothing, and has arrived."""
        self._talk(transport).was_forged = True

    def was_impatient(self, transport: SimulatedTransport) -> bool:
        """Whether something follows a token before its answer, for which a strict proxy cuts the connection."""
        talk = self._talk(transport)
        if not (talk.is_open and talk.is_in_exchange and talk.was_behind):
            return False
        talk.was_cut = True
        return True

    # Ends

    def lost(self, transport: SimulatedTransport) -> None:
        """A connection is gone; its requests end in a moment."""
        talk = self._talks.pop(transport.number, None) or _Talk()
        connection = transport.connection
        self._check_certificates(transport)
        if connection is None:
            return
        error = getattr(connection, "error", None)
        if talk.was_cut and error is None:
            self._impatient.add(transport.node.number)
        is_given_up = any(text in str(error) for text in ("was closed", "was not finished in time"))  # not needed
        is_expected = isinstance(error, ClosedHereError) or transport.lost_race or is_given_up
        if not self._plan.enabled and not is_expected:
            self._violated("CALM", f"connection {transport.number} is lost where nothing goes wrong: {error}")
        is_refusal = isinstance(error, AuthenticationError) and not isinstance(error, PrincipalChangedError)
        behind = talk.token_end if talk.is_refused and talk.is_open and is_refusal else None
        self._watch_ends(transport, talk, behind)

    def _watch_ends(self, transport: SimulatedTransport, talk: _Talk, behind: int | None) -> None:
        connection, number = transport.connection, transport.number
        lose = connection._lose  # noqa: SLF001  # invariants are about what is inside

        def seen(request: OutgoingRequest, end: Lost) -> None:
            correlation_id = talk.ends.get(request.end)
            is_served = correlation_id is not None and self._was_served((number, correlation_id))
            if end.is_unprocessed and is_served:
                self._violated("REFUSED", f"Produce #{number}.{correlation_id} was served, and ends as unprocessed")
            if behind is not None and request.end > behind and not end.is_unprocessed:
                self._violated("REFUSED", f"request behind a refused token on connection {number} ends as processed")
            lose(request, end)

        connection._lose = seen  # noqa: SLF001  # as above

    def _check_certificates(self, transport: SimulatedTransport) -> None:
        certificates, tls = self._secured.certificates, transport.tls
        if certificates is None or tls is None:
            return
        protocol = transport.protocol
        failure = getattr(protocol, "_failure", None)
        is_honest = not (tls.impostor or tls.trouble)
        if isinstance(failure, TlsVerificationError) and is_honest and transport.trusts_node:
            self._violated(
                "CERTIFICATE", f"connection {transport.number} refuses a broker that it must trust: {failure}"
            )

    def shook_hands(self, transport: SimulatedTransport) -> None:
        """Look at the client's certificate, where there is one."""
        certificates, tls = self._secured.certificates, transport.tls
        assert certificates is not None
        assert tls is not None
        generation = tls.client_generation
        if generation is not None and not certificates.may_be_client(generation, transport.connected_at):
            text = f"certificate {generation}, and {certificates.client} is the newest"
            self._violated("CERTIFICATE", f"connection {transport.number} shows {text}")

    def _talk(self, transport: SimulatedTransport) -> _Talk:
        talk = self._talks.get(transport.number)
        if talk is None:
            talk = self._talks[transport.number] = _Talk()
        return talk


_TOO_SOON: Final = 34


def _authentication(frame: bytes, version: int) -> tuple[int, bytes, int]:
    """Return error code, token and lifetime of an answer to SaslAuthenticate."""
    if version >= _FLEXIBLE:
        at = _CORRELATION.size + 1  # the header has tagged fields: none
        (code,) = struct.unpack_from(">h", frame, at)
        length, at = _varint(frame, at + 2)
        size, at = _varint(frame, at + max(length - 1, 0))
        size -= 1
    else:
        code, length = struct.unpack_from(">hh", frame, _CORRELATION.size)
        at = _CORRELATION.size + 8 + max(length, 0)
        (size,) = struct.unpack_from(">i", frame, at - 4)
    token, at = frame[at : at + size], at + size
    lifetime_ms = struct.unpack_from(">q", frame, at)[0] if version >= _WITH_LIFETIME else 0
    return code, token, lifetime_ms


def _varint(frame: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (frame[at] & 127) << shift
        at += 1
        if frame[at - 1] < 128:
            return value, at
        shift += 7
