"""Largest valid size of a response: far less than the largest frame, except for descriptions of the cluster.

A response is held in memory until its frame is complete, so a hostile server could otherwise make the client hold a
hundred megabytes per connection.
"""

from __future__ import annotations

from typing import Final

SMALL_RESPONSE: Final = 64 * 1024
"""Bytes allowed for any response: ApiVersions of Kafka 4.3.1 has less than 1 KiB, an error message up to 32 KiB."""

_API_VERSIONS: Final = 18
_PER_REQUEST_BYTE: Final = 64  # a response repeats the names in the request, each with an error code or text
_PER_REQUEST_BYTE_OF_OFFSETS: Final = 2048
"""A partition takes four bytes of OffsetFetch; its response has 4 KiB (`offset.metadata.max.bytes`)."""

_BY_REQUEST: Final = {
    _API_VERSIONS: 0,
    9: _PER_REQUEST_BYTE_OF_OFFSETS,  # OffsetFetch
    10: _PER_REQUEST_BYTE,  # FindCoordinator
    22: _PER_REQUEST_BYTE,  # InitProducerId
    24: _PER_REQUEST_BYTE,  # AddPartitionsToTxn
    25: _PER_REQUEST_BYTE,  # AddOffsetsToTxn
    26: _PER_REQUEST_BYTE,  # EndTxn
    28: _PER_REQUEST_BYTE,  # TxnOffsetCommit
    71: _PER_REQUEST_BYTE,  # GetTelemetrySubscriptions
    72: 0,  # PushTelemetry
}
"""Response bytes per request byte, by api key; other requests describe any number of topics, nodes or transactions."""


def largest_response(api_key: int, request_bytes: int) -> int | None:
    """Return the largest valid size of a response; None for the largest frame.

    Args:
        api_key: of the request; for Produce see `largest_produce_response`.
    """
    per_byte = _BY_REQUEST.get(api_key)
    return None if per_byte is None else SMALL_RESPONSE + per_byte * request_bytes
