"""The two requests of an authentication.

    SaslHandshake      1      names the mechanism; version 0 is for Kafka before 1.0
    SaslAuthenticate   0-2    one token of the mechanism

Source: the JSON descriptions of the messages in Apache Kafka 4.3; KIP-43, KIP-152, KIP-368.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from aioproducer._protocol.messages import Api
from aioproducer._protocol.primitives import NO_TAGGED_FIELDS, ResponseReader, bytes_length, decode, string

SASL_HANDSHAKE: Final = Api(17, "SaslHandshake", 1, 1, 2)  # no version is flexible
SASL_AUTHENTICATE: Final = Api(36, "SaslAuthenticate", 0, 2, 2)

_FIRST_WITH_LIFETIME: Final = 1
_INT64 = struct.Struct(">q")


class SaslHandshakeResponse(NamedTuple):
    """Answer to the name of a mechanism."""

    error_code: int
    mechanisms: tuple[str, ...]  # enabled on the listener


class SaslAuthenticateResponse(NamedTuple):
    """Answer to one token."""

    error_code: int
    error_message: str | None
    token: bytes
    lifetime_ms: int  # of the session, in the last answer only; 0 or less if it has no end


def encode_sasl_handshake_request(mechanism: str) -> bytes:
    return string(mechanism, flexible=False)


def decode_sasl_handshake_response(payload: bytes | memoryview) -> SaslHandshakeResponse:
    return decode("SaslHandshake v1", payload, flexible=False, read=_handshake)


def encode_sasl_authenticate_request(version: int, token: bytes) -> bytes:
    flexible = SASL_AUTHENTICATE.is_flexible(version)
    body = bytes_length(len(token), flexible=flexible) + token
    return body + NO_TAGGED_FIELDS if flexible else body


def decode_sasl_authenticate_response(version: int, payload: bytes | memoryview) -> SaslAuthenticateResponse:
    def read(reader: ResponseReader) -> SaslAuthenticateResponse:
        error_code, error_message = reader.int16(), reader.string()
        token = reader.take(reader.array_length())  # bytes have the length of an array of one-byte elements
        lifetime_ms = 0
        if version >= _FIRST_WITH_LIFETIME:
            (lifetime_ms,) = _INT64.unpack(reader.take(_INT64.size))
        reader.skip_tagged_fields()
        return SaslAuthenticateResponse(error_code, error_message, token, lifetime_ms)

    return decode(f"SaslAuthenticate v{version}", payload, flexible=SASL_AUTHENTICATE.is_flexible(version), read=read)


def _handshake(reader: ResponseReader) -> SaslHandshakeResponse:
    error_code = reader.int16()
    return SaslHandshakeResponse(error_code, tuple(reader.string() or "" for _ in range(reader.array_length())))
