"""OAUTHBEARER: a bearer token with extensions.

A broker refuses a token with an answer without an error code whose content is JSON; the error code comes only after a
single 0x01 was sent.

Source: RFC 7628; OAuthBearerSaslClient, OAuthBearerClientInitialResponse and SaslExtensions in Apache Kafka; KIP-255,
KIP-342.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from aioproducer._protocol.cluster_text import printable
from aioproducer._protocol.sasl.steps import Bearer, BearerWanted, Conversation, Message
from aioproducer.errors import AuthenticationError, TokenError

LONGEST_TOKEN: Final = 500_000
"""Brokers close the connection on more than `sasl.server.max.receive.size`, 524,288 bytes."""

_TOKEN: Final = re.compile(r"[-._~+/A-Za-z0-9]+=*")  # RFC 6750
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t]+")
_SEPARATOR: Final = "\x01"
_LAST_TIME: Final = 253_402_300_799  # the end of year 9999
_PARTS_OF_JWT: Final = 3


class OAuthBearer:
    """One authentication with OAUTHBEARER."""

    name: Final = "OAUTHBEARER"

    def __init__(self) -> None:
        self._bearer: Bearer | None = None

    def converse(self) -> Conversation:
        bearer = yield BearerWanted()
        assert isinstance(bearer, Bearer)
        self._bearer = bearer
        pairs = (f"{name}={value}" for name, value in bearer.extensions.items())
        fields = _SEPARATOR.join((f"auth=Bearer {bearer.token}", *pairs))
        refused = yield Message(f"n,,{_SEPARATOR}{fields}{_SEPARATOR}{_SEPARATOR}".encode(), is_last=True)
        assert isinstance(refused, bytes)
        if refused:
            yield Message(_SEPARATOR.encode(), is_last=True)
            raise self.refusal(f' ("{printable(refused.decode(errors="replace"))}")')

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
    if not _TOKEN.fullmatch(token):
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
