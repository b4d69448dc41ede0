"""The mechanisms of SASL, without I/O: PLAIN, SCRAM, OAUTHBEARER and GSSAPI.

Source: RFC 4616 (PLAIN), RFC 5802 and RFC 7677 (SCRAM), RFC 7628 (OAUTHBEARER), RFC 4752 (GSSAPI); PlainSaslServer,
ScramFormatter, ScramMessages, ScramSaslClient, OAuthBearerSaslClient, OAuthBearerClientInitialResponse, SaslExtensions,
SaslServerAuthenticator and SaslServerCallbackHandler in Apache Kafka; KIP-48 (tokenauth), KIP-255, KIP-342.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, Protocol

from aioproducer._protocol.cluster_text import printable
from aioproducer._protocol.sasl_exchange import (
    Bearer,
    BearerWanted,
    Conversation,
    Message,
    PasswordWanted,
    SaltedPasswordWanted,
    TicketWanted,
    Work,
)
from aioproducer._protocol.sent_secrets import SentSecrets
from aioproducer.errors import AuthenticationError, CredentialsError, TicketError, TokenError

_NUL: Final = "\0"


class Plain:
    """PLAIN: user and password in one token."""

    name: Final = "PLAIN"

    def __init__(self, username: str, *, sent: SentSecrets | None = None) -> None:
        self._username = username
        self.sent = sent or SentSecrets()

    def converse(self) -> Conversation:
        password = yield PasswordWanted()
        assert isinstance(password, str)
        self.sent.add(password)
        if _NUL in password:
            raise CredentialsError("sasl_password contains a NUL character, which PLAIN cannot send")
        yield Message(f"{_NUL}{self._username}{_NUL}{password}".encode(), is_last=True)

    def refusal(self, words: str) -> AuthenticationError:
        return credentials_refused(self._username, words)


def credentials_refused(username: str, words: str) -> CredentialsError:
    return CredentialsError(
        f"the broker refused user {username!r}{words}: check sasl_username and sasl_password, and that the user exists "
        "in this cluster for this mechanism"
    )


HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Mechanism -> hash function."""

FEWEST_ITERATIONS: Final = 4096  # as Kafka's client: fewer would let a false broker guess the password from the proof
MOST_ITERATIONS: Final = 1_000_000  # 0.2 s of computing
_LONGEST_SALT: Final = 1024
_LONGEST_NONCE: Final = 1024

_GS2_HEADER: Final = "n,,"  # no channel binding, no other user to act for
_CHANNEL_BINDING: Final = "biws"  # the header in base64
_ATTRIBUTE_START: Final = 2  # a letter and "="


class Scram:
    """SCRAM-SHA-256 and SCRAM-SHA-512: each side proves that it knows the password, and neither sends it.

    As Kafka does it: user and password are taken as they are (UTF-8, no SASLprep), without channel binding. The
    server's signature is required, so that only a broker that knows the password is accepted.

    Args:
        username: of the user; with `is_token`, the id of a delegation token, whose HMAC is then the password.
        nonce: at least 144 random bits in printable ASCII without a comma; of this run only.
    """

    def __init__(
        self, name: str, username: str, *, nonce: str, is_token: bool = False, sent: SentSecrets | None = None
    ) -> None:
        self.name = name
        self.sent = sent or SentSecrets()
        self._username = username
        self._nonce = nonce
        self._is_token = is_token
        self._hash = HASHES[name]

    def converse(self) -> Conversation:
        password = yield PasswordWanted()
        assert isinstance(password, str)
        self.sent.add(password)  # never sent, and still the broker may know and say it
        user = self._username.replace("=", "=3D").replace(",", "=2C")
        bare = f"n={user},r={self._nonce}"
        if self._is_token:
            bare += ",tokenauth=true"
        challenge = yield Message((_GS2_HEADER + bare).encode())
        assert isinstance(challenge, bytes)
        nonce, salt, iterations = _challenge(challenge, self._nonce, self.sent)
        salted = yield SaltedPasswordWanted(self._hash, password, salt, iterations, hashlib.pbkdf2_hmac)
        assert isinstance(salted, bytes)
        without_proof = f"c={_CHANNEL_BINDING},r={nonce}"
        signed = b",".join((bare.encode(), challenge, without_proof.encode()))
        proof, server_signature = self._proof(salted, signed)
        self.sent.add(proof)
        response = yield Message(f"{without_proof},p={proof}".encode(), is_last=True)
        assert isinstance(response, bytes)
        self._check_server(response, server_signature)

    def refusal(self, words: str) -> AuthenticationError:
        if self._is_token:
            return CredentialsError(
                f"the broker refused delegation token {self._username!r}{words}: it may have expired, or not be known "
                "in this cluster"
            )
        return credentials_refused(self._username, words)

    def _proof(self, salted: bytes, signed: bytes) -> tuple[str, bytes]:
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = self._hmac(stored_key, signed)
        proof = bytes(key ^ mask for key, mask in zip(client_key, signature, strict=True))
        server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return base64.b64encode(proof).decode(), server_signature

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)

    def _check_server(self, response: bytes, expected: bytes) -> None:
        attributes = _scram_attributes(response, "last")
        if "e" in attributes:
            raise self.refusal(f' ("{self.sent.shown(attributes["e"])}")')
        if not hmac.compare_digest(_from_base64(attributes.get("v", ""), "v"), expected):
            raise AuthenticationError(
                f"the broker accepted user {self._username!r} and did not prove that it knows the password: it is not "
                "the broker that it claims to be, or its user database is damaged; nothing was sent to it"
            )


def _challenge(challenge: bytes, own_nonce: str, sent: SentSecrets) -> tuple[str, bytes, int]:
    """Return nonce, salt and iterations of the broker's first message."""
    attributes = _scram_attributes(challenge, "first")
    if "m" in attributes:
        raise _invalid_scram("requires an extension that this client does not know (m=)")
    nonce = attributes.get("r", "")
    if not nonce.startswith(own_nonce) or len(nonce) == len(own_nonce) or len(nonce) > _LONGEST_NONCE:
        raise _invalid_scram("does not extend this client's nonce (r=)")
    if not (nonce.isascii() and nonce.isprintable()):
        raise _invalid_scram("has a nonce with invalid characters (r=)")
    salt = _from_base64(attributes.get("s", ""), "s")
    if not 0 < len(salt) <= _LONGEST_SALT:
        raise _invalid_scram(f"has a salt of {len(salt)} bytes; 1 to {_LONGEST_SALT} are allowed (s=)")
    text = attributes.get("i", "")
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(MOST_ITERATIONS))
    iterations = int(text) if is_number else 0
    if not FEWEST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise _invalid_scram(
            f"asks for {sent.shown(text, 20) or 'no'} iterations; {FEWEST_ITERATIONS} to {MOST_ITERATIONS} are allowed"
        )
    return nonce, salt, iterations


def _scram_attributes(message: bytes, which: str) -> dict[str, str]:
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError:
        raise _invalid_scram("is not UTF-8", which) from None
    attributes: dict[str, str] = {}
    for part in parts:
        name = part[:1]
        if part[1:_ATTRIBUTE_START] != "=" or not (name.isascii() and name.isalpha()):
            raise _invalid_scram("is not a list of attributes", which)
        if name in attributes:
            raise _invalid_scram(f"has the attribute {name}= twice", which)
        attributes[name] = part[_ATTRIBUTE_START:]
    return attributes


def _from_base64(text: str, attribute: str) -> bytes:
    try:
        return base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, ValueError):
        raise _invalid_scram(f"has invalid base64 ({attribute}=)") from None


def _invalid_scram(what: str, which: str = "") -> AuthenticationError:
    return AuthenticationError(
        f"the broker's {which and which + ' '}SCRAM message {what}: it is no Kafka broker, or its answers are changed "
        "on the way"
    )


LONGEST_TOKEN: Final = 500_000
"""Brokers close the connection on more than `sasl.server.max.receive.size`, 524,288 bytes."""

_BEARER_TOKEN: Final = re.compile(r"[-._~+/A-Za-z0-9]+=*")  # RFC 6750
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t]+")
_SEPARATOR: Final = "\x01"
_LAST_TIME: Final = 253_402_300_799  # the end of year 9999
_PARTS_OF_JWT: Final = 3


class OAuthBearer:
    """OAUTHBEARER: a bearer token with extensions.

    A broker refuses a token with a response whose error code is 0 and whose content is JSON; the error code comes after
    a single 0x01 was sent.
    """

    name: Final = "OAUTHBEARER"

    def __init__(self, *, sent: SentSecrets | None = None) -> None:
        self._bearer: Bearer | None = None
        self.sent = sent or SentSecrets()

    def converse(self) -> Conversation:
        bearer = yield BearerWanted()
        assert isinstance(bearer, Bearer)
        self._bearer = bearer
        self.sent.add(bearer.token)
        pairs = (f"{name}={value}" for name, value in bearer.extensions.items())
        fields = _SEPARATOR.join((f"auth=Bearer {bearer.token}", *pairs))
        refused = yield Message(f"n,,{_SEPARATOR}{fields}{_SEPARATOR}{_SEPARATOR}".encode(), is_last=True)
        assert isinstance(refused, bytes)
        if refused:
            yield Message(_SEPARATOR.encode(), is_last=True)
            raise self.refusal(f' ("{self.sent.shown(refused.decode(errors="replace"))}")')

    def refusal(self, words: str) -> AuthenticationError:
        claims = "" if self._bearer is None else describe_claims(self._bearer.token, self._bearer.fetched_at)
        return TokenError(
            f"the broker refused the token{words}; {claims}: compare with the audience, issuer and keys that the "
            "broker is configured for"
        )


def check_token(token: str) -> None:
    """Raise `TokenError` unless brokers can read the token."""
    if len(token) > LONGEST_TOKEN:
        raise TokenError(f"the token has {len(token)} characters; brokers take at most {LONGEST_TOKEN}")
    if not _BEARER_TOKEN.fullmatch(token):
        raise TokenError(
            "the token is empty"
            if not token
            else "the token has characters that no bearer token may have, such as "
            "blanks or line breaks: was it read from a file, with its line end?"
        )


def check_extensions(extensions: Mapping[str, str]) -> None:
    """Raise `TokenError` unless brokers can read the extensions."""
    for name, value in extensions.items():
        if not _EXTENSION_NAME.fullmatch(name) or name.lower() == "auth":
            raise TokenError(f"the extension {name[:40]!r} is invalid: a name has letters only, and is not 'auth'")
        if not _EXTENSION_VALUE.fullmatch(value):
            raise TokenError(f"the value of extension {name[:40]!r} is empty, or has control or non-ASCII characters")


def claims_of(token: str) -> Mapping[str, object]:
    """Return the claims of a JSON web token, unverified; none if it is not one."""
    parts = token.split(".")
    if len(parts) != _PARTS_OF_JWT:
        return {}
    try:
        content = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        claims: object = json.loads(content)
    except (binascii.Error, ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def time_claim(claims: Mapping[str, object], name: str) -> float | None:
    """Return a claim that is a time, in seconds since the epoch."""
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= _LAST_TIME else None


def describe_claims(token: str, now: float) -> str:
    """Return what a token says of itself, for an error: `exp`, `aud`, `iss` and `sub`, nothing else."""
    claims = claims_of(token)
    if not claims:
        return "it is not a JSON web token, so nothing can be said about it"
    found = []
    expires_at = time_claim(claims, "exp")
    if expires_at is not None:
        ago = "expired" if expires_at <= now else "valid then"
        found.append(f"exp={datetime.fromtimestamp(expires_at, UTC).isoformat()} ({ago})")
    found += [f"{name}={printable(json.dumps(claims[name]), 100)}" for name in ("aud", "iss", "sub") if name in claims]
    return f"it says {', '.join(found)}" if found else "it has none of the claims exp, aud, iss, sub"


NO_LAYER: Final = 1  # a bit of the broker's offer, and the client's choice
_OFFER_BYTES: Final = 4  # the layers, and the longest message that they take
_MOST_ROUNDS: Final = 5  # Kerberos needs two


class SecurityContext(Protocol):
    """The client's side of GSS-API with one broker; its methods raise `TicketError`."""

    @property
    def is_established(self) -> bool:
        """Whether both sides have proved who they are."""

    def first_token(self) -> bytes:
        """Return the token with the ticket; may ask the KDC, and so block."""

    def next_token(self, response: bytes) -> bytes:
        """Return the token that follows the broker's response; empty at the end."""

    def wrap(self, message: bytes) -> bytes: ...

    def unwrap(self, message: bytes) -> bytes: ...


class Gssapi:
    """GSSAPI: a Kerberos ticket for the broker, which proves that it has the key of its principal.

        ticket for the broker ──► its proof ──► (empty) ──► layers that it offers ──► none of them

    Kafka knows no security layer: TLS protects the connection. No authorization identity is sent, so the principal of
    the ticket is the user. `open_context` makes a new context, from the result of `TicketWanted`.
    """

    name: Final = "GSSAPI"

    def __init__(
        self,
        open_context: Callable[[object], SecurityContext],
        *,
        user: str,
        service: str,
        sent: SentSecrets | None = None,
    ) -> None:
        self._open_context = open_context
        self.sent = sent or SentSecrets()
        self._user = user
        self._service = service

    def converse(self) -> Conversation:
        context = self._open_context((yield TicketWanted()))
        token = yield Work(context.first_token)
        for _ in range(_MOST_ROUNDS):
            assert isinstance(token, bytes)
            response = yield Message(token)
            assert isinstance(response, bytes)
            if context.is_established:
                yield Message(context.wrap(_layer_choice(context.unwrap(response))), is_last=True)
                return
            token = context.next_token(response)
        raise AuthenticationError("the broker's side of GSSAPI comes to no end: it is no Kafka broker")

    def refusal(self, words: str) -> AuthenticationError:
        return TicketError(
            f"the broker refused the ticket of {self._user} for {self._service}{words}: the key in the broker's keytab "
            "is not the one that the KDC has, the clocks of both machines differ by more than five minutes, or no rule "
            "of sasl.kerberos.principal.to.local.rules fits; its log says which"
        )


def _layer_choice(offer: bytes) -> bytes:
    """Return the response to the broker's offer of security layers."""
    if len(offer) != _OFFER_BYTES:
        raise AuthenticationError(f"the broker's offer of security layers has {len(offer)} bytes, not {_OFFER_BYTES}")
    if not offer[0] & NO_LAYER:
        raise AuthenticationError(
            "the broker demands a security layer of GSSAPI, which Kafka's protocol does not have: it is no Kafka broker"
        )
    return bytes((NO_LAYER, 0, 0, 0))
