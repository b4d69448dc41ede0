"""Versions of requests to use with a broker, and the handshake in which a new connection learns them.

    ApiVersions 4 ──ok──────────────► versions known ──► required requests are supported ──► done
         │ 35 (UNSUPPORTED_VERSION, answered in the shape of version 0)
         ▼
    ApiVersions 0 ──ok──────────────► (as above)

`sasl_exchange.py` goes on from there.

Source: KIP-35, KIP-511; NetworkClient.handleApiVersionsResponse in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

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
from aioproducer.errors import BrokerError, UnsupportedVersionError

if TYPE_CHECKING:
    from aioproducer._protocol.messages import Api


class FinalizedFeatures(NamedTuple):
    """Features that the cluster has finalized, as one broker knew them (KIP-584)."""

    epoch: int = -1  # a larger one is newer; -1 if the broker reports no features
    levels: Mapping[str, int] = MappingProxyType({})

    @property
    def transaction_version(self) -> int:
        """Level of transactions: from 2 on, Produce itself adds partitions (KIP-890)."""
        return self.levels.get("transaction.version", 0)


NO_FEATURES: Final = FinalizedFeatures()


class ApiVersions:
    """Versions that one broker supports, from the start of its connection.

    Args:
        ranges: lowest and highest version by api key. Invalid ranges (negative, or upside down) are dropped: the broker
            then counts as not supporting that request.
    """

    __slots__ = ("_ranges", "features")

    def __init__(self, ranges: Mapping[int, tuple[int, int]], features: FinalizedFeatures = NO_FEATURES) -> None:
        self.features = features
        self._ranges = MappingProxyType({key: pair for key, pair in ranges.items() if 0 <= pair[0] <= pair[1]})

    def highest_common(self, api: Api, *, at_most: int | None = None) -> int:
        """Return the highest version of a request that both sides support, and that is at most `at_most`.

        Never the lowest: Kafka 4 lists Produce versions from 0 on that it refuses (KAFKA-18659).
        """
        ours = api.max_version if at_most is None else min(at_most, api.max_version)
        lowest, highest = self._ranges.get(api.key, (0, -1))
        version = min(highest, ours)
        if version < max(lowest, api.min_version):
            raise UnsupportedVersionError(self._complaint(api, ours))
        return version

    def __repr__(self) -> str:
        return f"ApiVersions({len(self._ranges)} requests)"

    def _complaint(self, api: Api, ours: int) -> str:
        needed = f"Kafka {api.since} or newer is needed"
        if api.key not in self._ranges:
            return f"the broker does not speak {api.name} at all; {needed}"
        lowest, highest = self._ranges[api.key]
        spoken = f"it speaks {api.name} {lowest} to {highest}, this client {api.min_version} to {ours}"
        if highest < api.min_version:
            return f"the broker is too old: {spoken}; {needed}"
        return f"the broker is too new for this client: {spoken}"


Handshake: TypeAlias = Generator[HandshakeRequest, memoryview, ApiVersions]

_NEEDED: Final = (PRODUCE, METADATA)
_ERROR_CODE_BYTES: Final = 2


def handshake(software_version: str) -> Handshake:
    """Agree on versions with a broker: yields requests; the payload of each response is sent in."""
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
