"""How large the answer to a request may be: far less than the largest frame, but for what describes the cluster.

What a broker sends is held in memory until a frame is complete, so a broker that is not what it seems could have a
hundred megabytes of it held on each connection.
"""

from __future__ import annotations

from typing import Final

SMALL_RESPONSE: Final = 64 * 1024
"""Bytes that an answer to any request may have. ApiVersions of Kafka 4.3.1 has less than a kilobyte; an error message,
which many answers have, may be 32 KiB."""

_API_VERSIONS: Final = 18
_PER_REQUEST_BYTE: Final = 64
"""An answer names what the request has named, with an error code or an error's text for each."""
_PER_REQUEST_BYTE_OF_OFFSETS: Final = 2048
"""A partition takes four bytes of OffsetFetch, and its answer has metadata that `offset.metadata.max.bytes` bounds to
4 KiB by default."""

_BY_REQUEST: Final = {
    _API_VERSIONS: 0,
    9: _PER_REQUEST_BYTE_OF_OFFSETS,  # OffsetFetch
    10: _PER_REQUEST_BYTE,  # FindCoordinator
    22: _PER_REQUEST_BYTE,  # InitProducerId
    24: _PER_REQUEST_BYTE,  # AddPartitionsToTxn
    25: _PER_REQUEST_BYTE,  # AddOffsetsToTxn
    26: _PER_REQUEST_BYTE,  # EndTxn
    28: _PER_REQUEST_BYTE,  # TxnOffsetCommit
}
"""Bytes of the answer for each of the request, by api key; the others describe topics, nodes or transactions, of which
there may be any number."""


def largest_response(api_key: int, request_bytes: int) -> int | None:
    """Return the most bytes that an answer may have; None: as many as a frame may have at all.

    Args:
        api_key: of the request; not Produce, see `largest_produce_response`.
        request_bytes: of its body.
    """
    per_byte = _BY_REQUEST.get(api_key)
    return None if per_byte is None else SMALL_RESPONSE + per_byte * request_bytes
