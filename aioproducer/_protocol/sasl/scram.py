"""SCRAM-SHA-256 and SCRAM-SHA-512: each side proves that it knows the password, and neither sends it.

As Kafka does it: user and password are taken as they are (UTF-8, no SASLprep), without channel binding. The server's
signature is required, so that only a broker that knows the password is accepted.

Source: RFC 5802, RFC 7677; ScramFormatter, ScramMessages and ScramSaslClient in Apache Kafka; KIP-48 (tokenauth).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from aioproducer._protocol.cluster_text import printable
from aioproducer._protocol.sasl.plain import credentials_refused
from aioproducer._protocol.sasl.steps import Conversation, Message, PasswordWanted, SaltedPasswordWanted
from aioproducer.errors import AuthenticationError, CredentialsError

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
    """One authentication with SCRAM.

    Args:
        name: `SCRAM-SHA-256` or `SCRAM-SHA-512`.
        username: of the user; with `is_token`, the id of a delegation token, whose HMAC is then the password.
        nonce: at least 144 random bits in printable ASCII without a comma; of this run only.
    """

    def __init__(self, name: str, username: str, *, nonce: str, is_token: bool = False) -> None:
        self.name = name
        self._username = username
        self._nonce = nonce
        self._is_token = is_token
        self._hash = HASHES[name]

    def converse(self) -> Conversation:
        password = yield PasswordWanted()
        assert isinstance(password, str)
        user = self._username.replace("=", "=3D").replace(",", "=2C")
        bare = f"n={user},r={self._nonce}"
        if self._is_token:
            bare += ",tokenauth=true"
        challenge = yield Message((_GS2_HEADER + bare).encode())
        assert isinstance(challenge, bytes)
        nonce, salt, iterations = _first(challenge, self._nonce)
        salted = yield SaltedPasswordWanted(self._hash, password, salt, iterations, hashlib.pbkdf2_hmac)
        assert isinstance(salted, bytes)
        without_proof = f"c={_CHANNEL_BINDING},r={nonce}"
        signed = b",".join((bare.encode(), challenge, without_proof.encode()))
        proof, server_signature = self._proof(salted, signed)
        answer = yield Message(f"{without_proof},p={proof}".encode(), is_last=True)
        assert isinstance(answer, bytes)
        self._check_server(answer, server_signature)

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

    def _check_server(self, answer: bytes, expected: bytes) -> None:
        attributes = _attributes(answer, "last")
        if "e" in attributes:
            raise self.refusal(f' ("{printable(attributes["e"])}")')
        if not hmac.compare_digest(_from_base64(attributes.get("v", ""), "v"), expected):
            raise AuthenticationError(
                f"the broker accepted user {self._username!r} and did not prove that it knows the password: it is not "
                "the broker that it claims to be, or its user database is damaged; nothing was sent to it"
            )


def _first(challenge: bytes, own_nonce: str) -> tuple[str, bytes, int]:
    """Return nonce, salt and iterations of the broker's first message."""
    attributes = _attributes(challenge, "first")
    if "m" in attributes:
        raise _invalid("requires an extension that this client does not know (m=)")
    nonce = attributes.get("r", "")
    if not nonce.startswith(own_nonce) or len(nonce) == len(own_nonce) or len(nonce) > _LONGEST_NONCE:
        raise _invalid("does not extend this client's nonce (r=)")
    if not (nonce.isascii() and nonce.isprintable()):
        raise _invalid("has a nonce with invalid characters (r=)")
    salt = _from_base64(attributes.get("s", ""), "s")
    if not 0 < len(salt) <= _LONGEST_SALT:
        raise _invalid(f"has a salt of {len(salt)} bytes; 1 to {_LONGEST_SALT} are allowed (s=)")
    text = attributes.get("i", "")
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(MOST_ITERATIONS))
    iterations = int(text) if is_number else 0
    if not FEWEST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise _invalid(
            f"asks for {printable(text, 20) or 'no'} iterations; {FEWEST_ITERATIONS} to {MOST_ITERATIONS} are allowed"
        )
    return nonce, salt, iterations


def _attributes(message: bytes, which: str) -> dict[str, str]:
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError:
        raise _invalid("is not UTF-8", which) from None
    attributes: dict[str, str] = {}
    for part in parts:
        name = part[:1]
        if part[1:_ATTRIBUTE_START] != "=" or not (name.isascii() and name.isalpha()):
            raise _invalid("is not a list of attributes", which)
        if name in attributes:
            raise _invalid(f"has the attribute {name}= twice", which)
        attributes[name] = part[_ATTRIBUTE_START:]
    return attributes


def _from_base64(text: str, attribute: str) -> bytes:
    try:
        return base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, ValueError):
        raise _invalid(f"has invalid base64 ({attribute}=)") from None


def _invalid(what: str, which: str = "") -> AuthenticationError:
    return AuthenticationError(
        f"the broker's {which and which + ' '}SCRAM message {what}: it is no Kafka broker, or its answers are changed "
        "on the way"
    )
