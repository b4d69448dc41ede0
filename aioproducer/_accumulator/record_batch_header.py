"""Header of a record batch, format v2: the 61 bytes before the records.

    offset  size  field
         0     8  baseOffset             0; the broker assigns it
         8     4  batchLength            bytes that follow this field
        12     4  partitionLeaderEpoch   -1; the broker assigns it
        16     1  magic                  2
        17     4  crc                    CRC-32C of everything from attributes on
        21     2  attributes             bits 0-2 compression, 3 timestamp type, 4 transactional, 5 control
        23     4  lastOffsetDelta        records - 1
        27     8  baseTimestamp          of the first record, ms
        35     8  maxTimestamp           ms
        43     8  producerId             -1 when not idempotent
        51     2  producerEpoch          -1 when not idempotent
        53     4  baseSequence           -1 when not idempotent
        57     4  recordsCount
        61        records

The header is separate from the records, so that a batch can get another identity while a transport still reads the
old header.

Source: DefaultRecordBatch in Apache Kafka.
"""

from __future__ import annotations

from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

HEADER_SIZE: Final = 61
MAX_SEQUENCE: Final = 2**31 - 1
NO_PRODUCER_ID: Final = -1

_BEFORE_CRC: Final = Struct(">qiibI")
_AFTER_CRC: Final = Struct(">hiqqqhii")
_NOT_COUNTED_IN_LENGTH: Final = 12
_TRANSACTIONAL: Final = 1 << 4


class BatchIdentity(NamedTuple):
    """Identity under which brokers deduplicate a batch."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False


NO_IDENTITY: Final = BatchIdentity()


@cache
def _checksum() -> Callable[[Buffer, int], int]:
    from crc32c import crc32c  # noqa: PLC0415  # its import costs a fifth of this package's own

    return crc32c


class StampedBatch(Protocol):
    """The parts of a batch that its partition's identity looks at."""

    order: int
    identity: BatchIdentity
    max_timestamp: int
    connection_number: int
    attempts: int
    sent_at: float


def encode_header(  # one per field
    records: bytes | memoryview,
    count: int,
    *,
    base_timestamp: int,
    max_timestamp: int,
    identity: BatchIdentity,
    compression: int,
) -> bytes:
    crc32c = _checksum()
    after = _AFTER_CRC.pack(
        compression | _TRANSACTIONAL if identity.is_transactional else compression,
        count - 1,
        base_timestamp,
        max_timestamp,
        identity.producer_id,
        identity.epoch,
        identity.base_sequence,
        count,
    )
    crc = crc32c(records, crc32c(after, 0))
    length = HEADER_SIZE - _NOT_COUNTED_IN_LENGTH + len(records)
    return _BEFORE_CRC.pack(0, length, -1, 2, crc) + after


def sequence_after(sequence: int, count: int) -> int:
    """Return the sequence number `count` records later; wraps from 2**31 - 1 to 0, as DefaultRecordBatch does."""
    return (sequence + count) % (MAX_SEQUENCE + 1)
