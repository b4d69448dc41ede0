"""Record batches that are wrong in one way each."""

import struct
import time
from collections.abc import Sequence

from crc32c import crc32c

from aioproducer._protocol.compression import CompressionType, compress
from tests.reference.record_batch import encode_varint

NOW_MS = time.time_ns() // 1_000_000
HOUR_MS = 3_600_000
SECTION = struct.Struct(">hiqqqhii")


def record(
    delta: int,
    *,
    key: bytes | None = b"k",
    value: bytes = b"v",
    time_delta: int = 0,
    trailing: bytes = b"",
    claims: int = 0,
) -> bytes:
    key_bytes = encode_varint(-1) if key is None else encode_varint(len(key)) + key
    times = encode_varint(time_delta) + encode_varint(delta)
    body = b"\0" + times + key_bytes + encode_varint(len(value)) + value + encode_varint(0) + trailing
    return encode_varint(len(body) + claims) + body


def odd_batch(records: Sequence[bytes] = (record(0), record(1)), **wrong: int) -> bytes:
    """A batch of these records, right but for what `wrong` names.

    Args:
        records: encoded; what stands at the end need not be one.
        wrong: base_offset, magic, crc, attributes, count, last_delta, timestamp, max_timestamp, producer_id, epoch,
            sequence, codec.
    """
    codec = wrong.get("codec", 0)
    body = b"".join(records)
    if codec:
        body = compress(CompressionType(codec), None, body)
    count = wrong.get("count", len(records))
    first_time = wrong.get("timestamp", NOW_MS)
    section = body_of(wrong, codec=codec, count=count, first_time=first_time) + body
    front = struct.pack(">qiib", wrong.get("base_offset", 0), 9 + len(section), -1, wrong.get("magic", 2))
    return front + struct.pack(">I", wrong.get("crc", crc32c(section))) + section


def body_of(wrong: dict[str, int], *, codec: int, count: int, first_time: int) -> bytes:
    return SECTION.pack(
        wrong.get("attributes", 0) | codec,
        wrong.get("last_delta", count - 1),
        first_time,
        wrong.get("max_timestamp", first_time),
        wrong.get("producer_id", -1),
        wrong.get("epoch", -1),
        wrong.get("sequence", -1),
        count,
    )
