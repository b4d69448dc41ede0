"""The broker's side of PLAIN, SCRAM and OAUTHBEARER: one object per exchange, which takes one token after another.

    evaluate(token) -> token to answer with, until `principal` is set; or `TokenRefusedError`, with Kafka's text

The texts are those of running brokers (3.9.1, 4.3.1), which the contract tests compare.
"""

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from aioproducer.testing.cluster_security import ClusterSecurity
from aioproducer.testing.fake_broker.security.credentials import SCRAM_HASHES, Credentials, ScramVerifier
from aioproducer.testing.tokens import DEFAULT_AUDIENCE, DEFAULT_ISSUER

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


class TokenRefusedError(Exception):
    """The token is refused with 58; the message is Kafka's own, or None for the one that says nothing."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or "invalid credentials")
        self.message = message


class TokenUnreadableError(Exception):
    """The token is one that Kafka fails on: the connection closes without an answer."""


class SaslServer(Protocol):
    """One exchange."""

    principal: str
    """Name of the user once the exchange is complete, else empty."""

    credential_ends_ms: float | None
    """Wall-clock time in ms at which the credential itself expires; None for never."""

    def evaluate(self, token: bytes) -> bytes: ...


class PlainServer:
    """RFC 4616."""

    def __init__(self, credentials: Credentials) -> None:
        self.principal: str = ""
        self.credential_ends_ms: float | None = None
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


class ScramServer:
    """RFC 5802 and 7677, without channel binding."""

    def __init__(self, mechanism: str, credentials: Credentials, random: Random) -> None:
        self.principal: str = ""
        self.credential_ends_ms: float | None = None
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
        answer = f"r={self._nonce},s={salt},i={verifier.iterations}"
        self._messages = f"{bare},{answer}"
        return answer.encode()

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
        self.principal = self._user
        return b"v=" + base64.b64encode(hmac.digest(verifier.server_key, messages, self._digest))


class BearerServer:
    """RFC 7628 with tokens that are JSON Web Tokens, unsecured or signed."""

    def __init__(self, read: Callable[[str], "tuple[str, float] | None"]) -> None:
        self.principal: str = ""
        self.credential_ends_ms: float | None = None
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
        return self._accept(credential[2], message[1])

    def _accept(self, token: str, authorization_id: str | None) -> bytes:
        found = self._read(token)
        if found is None:
            self._failure = '{"status":"invalid_token"}'
            return self._failure.encode()
        subject, ends_ms = found
        if authorization_id not in {None, subject}:
            raise TokenRefusedError(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
                f"from the token's principal name ({subject})"
            )
        self.principal, self.credential_ends_ms = subject, ends_ms
        return b""


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
