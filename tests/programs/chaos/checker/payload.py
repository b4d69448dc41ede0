"""The value of every record that chaos sends: its client, number and destination, and a digest over all that.

0   magic            4 bytes
4   client           uint32   one per producer object
8   stream           uint16   the task within the client
10  topic            uint16   number of the topic within the cell
12  partition        int16    where the client wants it; -1: the producer's choice
14  n                uint64   position in the client's history, from 0 without gaps
22  send time        int64    ms since the epoch; also the record's timestamp
30  filler           any length, so that sizes differ
end SHA-256          32 bytes over all before it
"""

import hashlib
import struct
from typing import NamedTuple

MAGIC = b"aiop"
HEADER = struct.Struct("<4sIHHhQq")
DIGEST_BYTES = 32


class Payload(NamedTuple):
    client: int
    stream: int
    topic: int
    partition: int
    n: int
    sent_ms: int


def encode(payload: Payload, filler: bytes = b"") -> bytes:
    client, stream, topic, partition, n, sent_ms = payload
    body = HEADER.pack(MAGIC, client, stream, topic, partition, n, sent_ms) + filler
    return body + hashlib.sha256(body).digest()


def decode(value: bytes | None) -> Payload | None:
    """Return what the record says, or None if its bytes are not those that were sent."""
    if value is None or len(value) < HEADER.size + DIGEST_BYTES:
        return None
    body, digest = value[:-DIGEST_BYTES], value[-DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        return None
    magic, client, stream, topic, partition, n, sent_ms = HEADER.unpack_from(body)
    return Payload(client, stream, topic, partition, n, sent_ms) if magic == MAGIC else None
