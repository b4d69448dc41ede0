"""SaslHandshake and SaslAuthenticate, compared with Kafka's own descriptions."""

import datetime as dt
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from aioproducer._protocol.sasl.messages import (
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
    decode_sasl_authenticate_response,
    decode_sasl_handshake_response,
    encode_sasl_authenticate_request,
    encode_sasl_handshake_request,
)
from aioproducer.errors import ProtocolError
from tests.testing.kio_classes import module_of, read, written


def test_handshake_request_names_the_mechanism() -> None:
    kind = module_of("sasl_handshake", 1, "request").SaslHandshakeRequest

    assert read(kind, encode_sasl_handshake_request("SCRAM-SHA-512")).mechanism == "SCRAM-SHA-512"


def test_handshake_response_lists_mechanisms() -> None:
    kind = module_of("sasl_handshake", 1, "response").SaslHandshakeResponse
    data = written(kind(error_code=ErrorCode.unsupported_sasl_mechanism, mechanisms=("PLAIN", "GSSAPI")))

    assert decode_sasl_handshake_response(data) == SaslHandshakeResponse(33, ("PLAIN", "GSSAPI"))


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("token", [b"", b"\x00u\x00p", b"x" * 300_000])
def test_authenticate_request_has_the_token(version: int, token: bytes) -> None:
    kind = module_of("sasl_authenticate", version, "request").SaslAuthenticateRequest

    assert read(kind, encode_sasl_authenticate_request(version, token)).auth_bytes == token


@pytest.mark.parametrize("version", [0, 1, 2])
def test_authenticate_response_has_token_words_and_lifetime(version: int) -> None:
    kind = module_of("sasl_authenticate", version, "response").SaslAuthenticateResponse
    lifetime = {"session_lifetime": dt.timedelta(seconds=60)} if version else {}
    data = written(
        kind(error_code=ErrorCode.sasl_authentication_failed, error_message="no", auth_bytes=b"token", **lifetime)
    )

    wanted = SaslAuthenticateResponse(58, "no", b"token", 60_000 if version else 0)
    assert decode_sasl_authenticate_response(version, data) == wanted


@given(st.integers(0, 2), st.binary(max_size=60))
def test_any_bytes_are_an_answer_or_an_error(version: int, payload: bytes) -> None:
    for decode in (partial(decode_sasl_authenticate_response, version), decode_sasl_handshake_response):
        try:
            decode(payload)
        except ProtocolError:
            continue
