"""The brokers' side of SASL: the session of each connection, the mechanisms, and who may log in.

The texts are those of running brokers (3.9.1, 4.4.0), which the contract tests compare.
"""

from __future__ import annotations

import abc
import base64
import binascii
import hashlib
import hmac
import json
import re
from enum import Enum, auto
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.testing.fake_broker.wire.api_keys import ApiKey
from aioproducer.testing.tokens import DEFAULT_AUDIENCE, DEFAULT_ISSUER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from aioproducer.testing.cluster_security import ClusterSecurity

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


class TokenRefusedError(Exception):
    """The token is refused with 58; the message is Kafka's own, or None for the one that says nothing."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or "invalid credentials")
        self.message = message


class TokenUnreadableError(Exception):
    """The token is one that Kafka fails on: the connection closes without a response."""


class OtherPrincipalError(TokenRefusedError):
    """The credentials are valid, and those of another user.

    Brokers (3.9.1, 4.4.0) take the exchange for complete: until they send the refusal, after the delay, they serve what
    arrives behind the token, and so answer out of order.
    """


class SessionVerdict(Enum):
    """The ways in which a request is treated."""

    SERVED = auto()
    REFUSED = auto()
    """Answered with 34 in its own shape, after the delay; then the connection closes."""

    CLOSED = auto()
    """The connection closes without a response."""


class _Step(Enum):
    FIRST = auto()
    ASKED = auto()
    TOKENS = auto()
    OPEN = auto()


class SaslSession:
    """The authentication of one connection: what it lets in, and until when.

        FIRST --ApiVersions--> ASKED --SaslHandshake--> TOKENS --last token--> OPEN --SaslHandshake--> TOKENS ...

    Anything else closes the connection: at once before the handshake, and after a refusal in its own shape (34) between
    handshake and last token. After the end of a session only SaslHandshake is let in (KIP-368).

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
        self._evaluated_at_ms = 0.0

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

    def begin(self, mechanism: str) -> None:
        """Start an exchange with one of `mechanisms`."""
        self.is_other_mechanism = bool(self.mechanism) and mechanism != self.mechanism
        if not self.is_other_mechanism:
            self.mechanism = mechanism
            self._server = self._made(mechanism)
        self._step = _Step.TOKENS

    def _made(self, mechanism: str) -> SaslServer:
        if mechanism == "PLAIN":
            return PlainServer(self._credentials)
        if mechanism == "OAUTHBEARER" and self._security.check_token is not None:
            return BearerServer(partial(_read_by, self._security.check_token))
        if mechanism == "OAUTHBEARER" and self.listener == "SIGNED":
            return BearerServer(lambda token, _: read_signed(token, self._evaluated_at_ms, self._security))
        if mechanism == "OAUTHBEARER":
            return BearerServer(lambda token, _: read_unsecured(token, self._evaluated_at_ms))
        return ScramServer(mechanism, self._credentials, self._random)

    def evaluate(self, token: bytes, now: float, wall_clock_ms: float) -> tuple[bytes, int | None]:
        """Take a token; returns the broker's own, and the lifetime in ms of the session if it was the last token.

        Raises:
            TokenRefusedError: the credentials are not valid, or (`OtherPrincipalError`) those of another user.
            TokenUnreadableError: the connection closes without a response.
        """
        server = self._server
        assert server is not None
        self._evaluated_at_ms = wall_clock_ms  # not the time of the handshake: the token may be younger
        response = server.evaluate(token)
        if not server.principal:
            return response, None
        if self.principal not in {"", server.principal}:
            text = f"Cannot change principals during re-authentication from User.{self.principal}: "
            self._step, self.ends_at = _Step.OPEN, None
            raise OtherPrincipalError(f"{text}User.{server.principal}")
        self.principal = server.principal
        self._step = _Step.OPEN
        return response, self._lifetime_ms(server, now, wall_clock_ms)

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


_SASL_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)?"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"
_CLIENT_FIRST = re.compile(
    rf"n,(?:a=({_SASL_NAME}))?,((?:m={_VALUE},)?n=({_SASL_NAME}),r=({_PRINTABLE})({_EXTENSIONS}))"
)
_CLIENT_FINAL = re.compile(rf"(c={_BASE64},r=({_PRINTABLE}){_EXTENSIONS}),p=({_BASE64})")
_BEARER = re.compile(
    rf"n,(?:a=({_SASL_NAME}))?,\x01((?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01",
)
_AUTHORIZATION = re.compile(r"(\w+) +([-_.a-zA-Z0-9]+)")
_PLAIN_PARTS = 3
_NONCE_BITS = 130
_CLOCK_SKEW_MS = 30_000
"""Difference that Kafka allows to the clock of a token's signer, in ms; none for unsecured tokens."""

_OTHER_AUTHORIZATION_ID: Final = "Client requested an authorization id that is different from username"


class SaslServer(abc.ABC):
    """One exchange: takes one token after another, until `principal` is set or it raises `TokenRefusedError`."""

    principal: str = ""
    """Name of the user once the exchange is complete, else empty."""

    credential_ends_ms: float | None = None
    """Wall-clock time in ms at which the credential itself expires; None for never."""

    @abc.abstractmethod
    def evaluate(self, token: bytes) -> bytes:
        """Return the broker's own token."""


class PlainServer(SaslServer):
    """RFC 4616."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def evaluate(self, token: bytes) -> bytes:
        parts = token.decode("utf-8", "replace").split("\x00")
        if len(parts) != _PLAIN_PARTS:
            raise TokenRefusedError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            raise TokenRefusedError("Authentication failed: username not specified")
        if not password:
            raise TokenRefusedError("Authentication failed: password not specified")
        if not self._credentials.is_password(user, password):
            raise TokenRefusedError("Authentication failed: Invalid username or password")
        if authorization_id not in {"", user}:
            raise TokenRefusedError(f"Authentication failed: {_OTHER_AUTHORIZATION_ID}")
        self.principal = user
        return b""


class ScramServer(SaslServer):
    """RFC 5802 and 7677, without channel binding."""

    def __init__(self, mechanism: str, credentials: Credentials, random: Random) -> None:
        self._mechanism = mechanism
        self._digest = SCRAM_HASHES[mechanism]
        self._credentials = credentials
        self._nonce = _in_base_36(random.getrandbits(_NONCE_BITS))
        self._user = ""
        self._verifier: ScramVerifier | None = None
        self._messages = ""

    def evaluate(self, token: bytes) -> bytes:
        text = token.decode("utf-8", "replace")
        return self._finish(text, self._verifier) if self._verifier else self._begin(text)

    def _begin(self, text: str) -> bytes:
        first = _CLIENT_FIRST.fullmatch(text)
        if first is None:
            raise TokenRefusedError
        authorization_id, bare, user, nonce, extensions = first.groups()
        self._user = user.replace("=2C", ",").replace("=3D", "=")
        verifier = self._credentials.verifier(self._user, self._mechanism)
        if verifier is None or "tokenauth=true" in extensions:  # there are no delegation tokens here
            raise TokenRefusedError
        if authorization_id is not None and authorization_id != user:
            raise TokenRefusedError(f"Authentication failed: {_OTHER_AUTHORIZATION_ID}")
        self._verifier = verifier
        self._nonce = nonce + self._nonce
        salt = base64.b64encode(verifier.salt).decode()
        response = f"r={self._nonce},s={salt},i={verifier.iterations}"
        self._messages = f"{bare},{response}"
        return response.encode()

    def _finish(self, text: str, verifier: ScramVerifier) -> bytes:
        final = _CLIENT_FINAL.fullmatch(text)
        if final is None or final[2] != self._nonce:
            raise TokenRefusedError
        messages = f"{self._messages},{final[1]}".encode()
        signature = hmac.digest(verifier.stored_key, messages, self._digest)
        proof = base64.b64decode(final[3])
        if len(proof) != len(signature):
            raise TokenUnreadableError("a proof of another length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._digest, client_key).digest(), verifier.stored_key):
            raise TokenRefusedError
        self.principal: str = self._user
        return b"v=" + base64.b64encode(hmac.digest(verifier.server_key, messages, self._digest))


class BearerServer(SaslServer):
    """RFC 7628 with tokens that are JSON Web Tokens, unsecured or signed."""

    def __init__(self, read: Callable[[str, Mapping[str, str]], tuple[str, float | None] | None]) -> None:
        self._read = read
        self._failure: str | None = None

    def evaluate(self, token: bytes) -> bytes:
        if self._failure is not None and token == b"\x01":
            raise TokenRefusedError(self._failure)
        self._failure = None
        message = _BEARER.fullmatch(token.decode("utf-8", "replace"))
        if message is None:
            raise TokenRefusedError
        pairs = dict(pair.split("=", 1) for pair in message[2].split("\x01") if pair)
        credential = _AUTHORIZATION.fullmatch(pairs.get("auth", ""))
        if credential is None:
            raise TokenRefusedError
        if credential[1].lower() != "bearer":
            raise TokenUnreadableError(f"the scheme {credential[1]}")
        del pairs["auth"]
        return self._accept(credential[2], pairs, message[1])

    def _accept(self, token: str, extensions: Mapping[str, str], authorization_id: str | None) -> bytes:
        found = self._read(token, extensions)
        if found is None:
            self._failure = '{"status":"invalid_token"}'
            return self._failure.encode()
        subject, ends_ms = found
        if authorization_id not in {None, subject}:
            raise TokenRefusedError(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
                f"from the token's principal name ({subject})"
            )
        self.principal: str = subject
        self.credential_ends_ms: float | None = ends_ms
        return b""


def _read_by(
    check: Callable[[str, Mapping[str, str]], str | None], token: str, extensions: Mapping[str, str]
) -> tuple[str, None] | None:
    user = check(token, extensions)
    return None if user is None else (user, None)


def read_unsecured(token: str, now_ms: float) -> tuple[str, float] | None:
    """Return subject and end, in wall-clock ms, of a valid token without a signature."""
    parts = token.split(".")
    if len(parts) != 3 or parts[2] or _decoded(parts[0]).get("alg") != "none":  # noqa: PLR2004 - of a JWT
        return None
    claims = _decoded(parts[1])
    issued = claims.get("iat", 0)
    if not isinstance(issued, int | float) or issued * 1000 > now_ms:
        return None
    return _subject_and_end(claims, now_ms)


def read_signed(token: str, now_ms: float, security: ClusterSecurity) -> tuple[str, float] | None:
    """Return subject and end, in wall-clock ms, of a valid token of the cluster's signer."""
    claims = _decoded(token.split(".")[1]) if token.count(".") == 2 else {}  # noqa: PLR2004 - of a JWT
    if not claims or not security.signer.is_valid(token):
        return None
    if (claims.get("aud"), claims.get("iss")) != (DEFAULT_AUDIENCE, DEFAULT_ISSUER):
        return None
    return _subject_and_end(claims, now_ms - _CLOCK_SKEW_MS)


def _subject_and_end(claims: dict[str, object], now_ms: float) -> tuple[str, float] | None:
    subject, ends = claims.get("sub"), claims.get("exp")
    if not isinstance(subject, str) or not subject or not isinstance(ends, int | float) or ends * 1000 <= now_ms:
        return None
    return subject, ends * 1000.0


def _decoded(part: str) -> dict[str, object]:
    """Return a part of a token, which is JSON in URL-safe base64; nothing if it is not."""
    try:
        decoded = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, binascii.Error):
        return {}
    return decoded if isinstance(decoded, dict) else {}


def _in_base_36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits or "0"


SCRAM_HASHES: Mapping[str, str] = MappingProxyType({"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"})
_SALT_BYTES = 20


class ScramVerifier(NamedTuple):
    """The keys that the broker keeps for one user and mechanism (RFC 5802)."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


class Credentials:
    """The users of a cluster and their passwords, of which SCRAM keeps only what can check them.

    A change applies to authentications that begin later.
    """

    def __init__(self, security: ClusterSecurity, random: Random) -> None:
        self._passwords = dict(security.users)
        self._iterations = security.scram_iterations
        self._random = random
        self._verifiers: dict[tuple[str, str], ScramVerifier] = {}

    def change_password(self, user: str, password: str) -> None:
        """Set a user's password for every mechanism; a new user is created."""
        self.delete_user(user)
        self._passwords[user] = password

    def delete_user(self, user: str) -> None:
        self._passwords.pop(user, None)
        for mechanism in SCRAM_HASHES:
            self._verifiers.pop((user, mechanism), None)

    def is_password(self, user: str, password: str) -> bool:
        return user in self._passwords and hmac.compare_digest(self._passwords[user].encode(), password.encode())

    def verifier(self, user: str, mechanism: str) -> ScramVerifier | None:
        """Return what SCRAM checks a user by; None for an unknown user."""
        password = self._passwords.get(user)
        if password is None:
            return None
        found = self._verifiers.get((user, mechanism))
        if found is None:
            found = self._verifiers[user, mechanism] = self._made(password, SCRAM_HASHES[mechanism])
        return found

    def _made(self, password: str, digest: str) -> ScramVerifier:
        salt = self._random.randbytes(_SALT_BYTES)
        salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, self._iterations)
        client_key = hmac.digest(salted, b"Client Key", digest)
        stored_key = hashlib.new(digest, client_key).digest()
        return ScramVerifier(salt, self._iterations, stored_key, hmac.digest(salted, b"Server Key", digest))
