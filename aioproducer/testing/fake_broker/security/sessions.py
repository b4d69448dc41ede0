"""The session of each connection of a SASL listener: what it lets in, and until when.

    FIRST --ApiVersions--> ASKED --SaslHandshake--> TOKENS --last token--> OPEN --SaslHandshake--> TOKENS ...

Anything else closes the connection: at once before the handshake, and after a refusal in its own shape (34) between
handshake and last token. After the end of a session only SaslHandshake is let in (KIP-368).
"""

from __future__ import annotations

from enum import Enum, auto
from functools import partial
from random import Random
from typing import NamedTuple

from aioproducer.testing.cluster_security import ClusterSecurity
from aioproducer.testing.fake_broker.security.credentials import Credentials
from aioproducer.testing.fake_broker.security.mechanisms import (
    BearerServer,
    PlainServer,
    SaslServer,
    ScramServer,
    TokenRefusedError,
    read_signed,
    read_unsecured,
)
from aioproducer.testing.fake_broker.wire.api_keys import ApiKey

_BETWEEN_REAUTHENTICATIONS_S = 1.0


class SeenAuthentication(NamedTuple):
    """One authentication that a broker accepted or refused."""

    node_id: int
    connection_id: int
    listener: str
    mechanism: str
    user: str
    """Empty if it was refused."""

    is_again: bool
    """Whether the connection had been authenticated before (KIP-368)."""

    error_code: int
    at: float
    """In seconds of the driver's clock."""


class OtherPrincipalError(TokenRefusedError):
    """The credentials are valid, and those of another user.

    Brokers (3.9.1, 4.3.1) take the exchange for complete: until they send the refusal, after the delay, they serve what
    arrives behind the token, and so answer out of order.
    """


class SessionVerdict(Enum):
    """The ways in which a request is treated."""

    SERVED = auto()
    REFUSED = auto()
    """Answered with 34 in its own shape, after the delay; then the connection closes."""

    CLOSED = auto()
    """The connection closes without an answer."""


class _Step(Enum):
    FIRST = auto()
    ASKED = auto()
    TOKENS = auto()
    OPEN = auto()


class SaslSession:
    """The authentication of one connection.

    Args:
        expires: whether sessions end, as they do since Kafka 2.2 (KIP-368).
    """

    def __init__(
        self,
        listener: str,
        security: ClusterSecurity,
        credentials: Credentials,
        *,
        random: Random,
        expires: bool = True,
    ) -> None:
        self.listener = listener
        self.principal: str = ""
        self.mechanism: str = ""
        self.ends_at: float | None = None
        """When it expires, in seconds of the driver's clock; None for never."""

        self.is_other_mechanism: bool = False
        """Re-authentication has begun with another mechanism: the next token closes the connection."""

        self._security = security
        self._credentials = credentials
        self._random = random
        self._expires = expires
        self._step = _Step.FIRST
        self._server: SaslServer | None = None
        self._began_again_at: float | None = None

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return ("OAUTHBEARER",) if self.listener == "SIGNED" else self._security.mechanisms

    @property
    def is_open(self) -> bool:
        """Whether the client is authenticated and no exchange is going on."""
        return self._step is _Step.OPEN

    @property
    def is_again(self) -> bool:
        """Whether the exchange going on is a re-authentication."""
        return bool(self.principal)

    def admit(self, api: ApiKey, now: float) -> SessionVerdict:
        match self._step:
            case _Step.TOKENS:
                return SessionVerdict.SERVED if api is ApiKey.SASL_AUTHENTICATE else SessionVerdict.REFUSED
            case _Step.OPEN:
                return self._admit_to_open(api, now)
            case _Step.FIRST if api is ApiKey.API_VERSIONS:
                return SessionVerdict.SERVED
        return SessionVerdict.SERVED if api is ApiKey.SASL_HANDSHAKE else SessionVerdict.CLOSED

    def _admit_to_open(self, api: ApiKey, now: float) -> SessionVerdict:
        if api is ApiKey.SASL_HANDSHAKE and self._may_begin_again(now):
            self._began_again_at = now
            self._step = _Step.ASKED
        elif self.ends_at is not None and now >= self.ends_at:
            return SessionVerdict.CLOSED
        return SessionVerdict.SERVED

    def _may_begin_again(self, now: float) -> bool:
        began = self._began_again_at
        return self.ends_at is not None and (began is None or now - began >= _BETWEEN_REAUTHENTICATIONS_S)

    def versions_answered(self) -> None:
        """Note that the client knows our versions; it must not ask again."""
        if self._step is _Step.FIRST:
            self._step = _Step.ASKED

    def begin(self, mechanism: str, wall_clock_ms: float) -> None:
        """Start an exchange with one of `mechanisms`."""
        self.is_other_mechanism = bool(self.mechanism) and mechanism != self.mechanism
        if not self.is_other_mechanism:
            self.mechanism = mechanism
            self._server = self._made(mechanism, wall_clock_ms)
        self._step = _Step.TOKENS

    def _made(self, mechanism: str, wall_clock_ms: float) -> SaslServer:
        if mechanism == "PLAIN":
            return PlainServer(self._credentials)
        if mechanism == "OAUTHBEARER" and self.listener == "SIGNED":
            return BearerServer(partial(read_signed, now_ms=wall_clock_ms, security=self._security))
        if mechanism == "OAUTHBEARER":
            return BearerServer(partial(read_unsecured, now_ms=wall_clock_ms))
        return ScramServer(mechanism, self._credentials, self._random)

    def evaluate(self, token: bytes, now: float, wall_clock_ms: float) -> tuple[bytes, int | None]:
        """Take a token; returns the broker's own, and the lifetime in ms of the session if it was the last token.

        Raises:
            TokenRefusedError: the credentials are not valid, or (`OtherPrincipalError`) those of another user.
            TokenUnreadableError: the connection closes without an answer.
        """
        server = self._server
        assert server is not None
        answer = server.evaluate(token)
        if not server.principal:
            return answer, None
        if self.principal not in {"", server.principal}:
            text = f"Cannot change principals during re-authentication from User.{self.principal}: "
            self._step, self.ends_at = _Step.OPEN, None
            raise OtherPrincipalError(f"{text}User.{server.principal}")
        self.principal = server.principal
        self._step = _Step.OPEN
        return answer, self._lifetime_ms(server, now, wall_clock_ms)

    def _lifetime_ms(self, server: SaslServer, now: float, wall_clock_ms: float) -> int:
        bounds = [float(self._security.session_lifetime_ms)] if self._security.session_lifetime_ms > 0 else []
        if server.credential_ends_ms is not None:
            bounds.append(server.credential_ends_ms - wall_clock_ms)
        if not bounds or not self._expires:
            self.ends_at = None
            return 0
        lifetime = max(0, int(min(bounds)))
        self.ends_at = now + lifetime / 1000
        return lifetime

    def end(self, now: float) -> None:
        """Let the session expire now."""
        if self._step is _Step.OPEN:
            self.ends_at = now
