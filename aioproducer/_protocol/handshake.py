"""Requests on a new connection before it may be used, as a generator without I/O.

    ApiVersions 4 ──ok──────────────► versions known ──► required requests are supported ──► done
         │ 35 (UNSUPPORTED_VERSION, answered in the shape of version 0)
         ▼
    ApiVersions 0 ──ok──────────────► (as above)

The generator yields requests, and their responses are sent into it. `sasl/exchange.py` goes on from there.

Source: KIP-35, KIP-511; NetworkClient.handleApiVersionsResponse in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeAlias

from aioproducer._protocol.api_versions import ApiVersions, FinalizedFeatures
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.messages import (
    API_VERSIONS,
    METADATA,
    PRODUCE,
    ApiVersionsResponse,
    HandshakeRequest,
    decode_api_versions_response,
    encode_api_versions_request,
)
from aioproducer.errors import BrokerError

Handshake: TypeAlias = Generator[HandshakeRequest, memoryview, ApiVersions]

_NEEDED: Final = (PRODUCE, METADATA)
_ERROR_CODE_BYTES: Final = 2


def handshake(software_version: str) -> Handshake:
    """Agree on versions with a broker.

    Yields:
        Requests; the payload of each response is sent in.
    """
    version = API_VERSIONS.max_version
    payload = yield _api_versions_request(version, software_version)
    if _error_code(payload) == ErrorCode.UNSUPPORTED_VERSION:
        # An old broker does not know the requested version, so it answers with the error in version 0. It is asked
        # only once more: a second error is final.
        version = 0
        payload = yield _api_versions_request(version, software_version)
    response = _checked(decode_api_versions_response(version, payload))
    versions = ApiVersions(response.versions, FinalizedFeatures(response.features_epoch, response.features))
    for api in _NEEDED:
        versions.highest_common(api)
    return versions


def _api_versions_request(version: int, software_version: str) -> HandshakeRequest:
    body = encode_api_versions_request(version, software_version=software_version)
    return HandshakeRequest(API_VERSIONS, version, body)


def _error_code(payload: memoryview) -> int:
    return int.from_bytes(payload[:_ERROR_CODE_BYTES], "big", signed=True)


def _checked(response: ApiVersionsResponse) -> ApiVersionsResponse:
    if response.error_code == 0:
        return response
    known = ErrorCode.of(response.error_code)
    raise BrokerError.of(
        response.error_code,
        f"the broker does not say which requests it speaks: {ErrorCode.in_words(response.error_code)}",
        retriable=known is not None and known.retriable,
    )
