"""Tokens of OAUTHBEARER for tests: unsecured ones, which a broker takes as they are, and signed ones (RS256)."""

import base64
import json
import time
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

KEY_ID = "aioproducer"
RSA_BITS = 2048
DEFAULT_AUDIENCE = "kafka"
DEFAULT_ISSUER = "https://issuer.test"
LIFETIME_S = 3600.0


def unsecured_token(subject: str, *, lifetime_s: float = LIFETIME_S, issued_ago_s: float = 0.0) -> str:
    """Make a token without a signature, as Kafka's brokers accept it where no validator is configured."""
    return f"{_encoded({'alg': 'none'})}.{_encoded(_claims(subject, lifetime_s, issued_ago_s))}."


class TokenSigner:
    """An identity provider in memory: signs tokens, and publishes the key that checks them.

    Needs the package `cryptography` (extra `testing`).
    """

    def __repr__(self) -> str:
        return "<TokenSigner, its key hidden>"

    def token(
        self,
        subject: str,
        *,
        audience: str = DEFAULT_AUDIENCE,
        issuer: str = DEFAULT_ISSUER,
        lifetime_s: float = LIFETIME_S,
        issued_ago_s: float = 0.0,
    ) -> str:
        """Make a signed token that expires `lifetime_s` after it was issued."""
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415 - an extra

        claims = {**_claims(subject, lifetime_s, issued_ago_s), "aud": audience, "iss": issuer}
        signed = f"{_encoded({'alg': 'RS256', 'typ': 'JWT', 'kid': KEY_ID})}.{_encoded(claims)}"
        return f"{signed}.{_base64url(self._key.sign(signed.encode(), PKCS1v15(), SHA256()))}"

    def is_valid(self, token: str) -> bool:
        """Whether this signer made the token, whatever it claims."""
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415 - an extra

        signed, _, signature = token.rpartition(".")
        try:
            raw = base64.urlsafe_b64decode(signature + "==")
            self._key.public_key().verify(raw, signed.encode(), PKCS1v15(), SHA256())
        except (InvalidSignature, ValueError):
            return False
        return True

    def jwks(self) -> str:
        """The public key as a JSON Web Key Set, which a broker reads."""
        numbers = self._key.public_key().public_numbers()
        key = {
            "kty": "RSA",
            "use": "sig",
            "alg": "RS256",
            "kid": KEY_ID,
            "n": _base64url(numbers.n.to_bytes(RSA_BITS // 8, "big")),
            "e": _base64url(numbers.e.to_bytes(3, "big")),
        }
        return json.dumps({"keys": [key]})

    @cached_property
    def _key(self) -> "RSAPrivateKey":
        from cryptography.hazmat.primitives.asymmetric import rsa  # noqa: PLC0415 - an extra

        return rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS)


def _claims(subject: str, lifetime_s: float, issued_ago_s: float) -> dict[str, object]:
    issued = time.time() - issued_ago_s  # noqa: TID251 - brokers compare with the clock on the wall
    return {"sub": subject, "iat": int(issued), "exp": int(issued + lifetime_s)}


def _encoded(part: Mapping[str, object]) -> str:
    return _base64url(json.dumps(part, separators=(",", ":")).encode())


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
