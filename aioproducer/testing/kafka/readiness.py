"""Whether a broker is ready: ApiVersions answers, and Metadata names a controller and enough brokers.

An open port is not enough: KRaft brokers listen before they have caught up. Two requests of fixed old versions that
every broker from 2.1 to 4.x answers, so this needs no negotiation and no message library:

    frame       size int32 | api_key int16 | api_version int16 | correlation_id int32 | client_id string | body
    ApiVersions 0  body: nothing            answer: error_code int16 | ...
    Metadata 1     body: topics [] int32=0  answer: brokers [node int32, host string, port int32, rack string?]
                                                    | controller_id int32 | topics []
"""

import asyncio
import contextlib
import struct
from dataclasses import dataclass

API_VERSIONS, METADATA = 18, 3
CLIENT_ID = b"aioproducer-ready"
CORRELATION_ID_BYTES = 4
MAX_ANSWER_BYTES = 1 << 20
ATTEMPT_S = 5.0  # how long one question may take before it counts as unanswered


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A broker's report about its cluster."""

    brokers: int  # how many brokers are alive
    controller_id: int  # node id of a broker to send administration requests to; -1 while there is none


async def ask_for_cluster(host: str, port: int) -> ClusterView | None:
    """Return the broker's current report, or `None` while it does not listen, answer or accept requests."""
    try:
        async with asyncio.timeout(ATTEMPT_S):
            return await _ask(host, port)
    except (OSError, EOFError, struct.error):  # OSError: also TimeoutError
        return None


async def _ask(host: str, port: int) -> ClusterView | None:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        accepts = await _accepts_requests(reader, writer)
        return await _cluster_view(reader, writer) if accepts else None
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _accepts_requests(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    answer = await exchange(reader, writer, frame(API_VERSIONS, 0, b""))
    (error_code,) = struct.unpack_from(">h", answer)
    return bool(error_code == 0)


async def _cluster_view(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> ClusterView:
    answer = await exchange(reader, writer, frame(METADATA, 1, struct.pack(">i", 0)))
    (brokers,) = struct.unpack_from(">i", answer)
    position = 4
    for _ in range(brokers):
        position = _after_string(answer, position + 4) + 4  # node id, host, port
        position = _after_string(answer, position)  # rack
    (controller_id,) = struct.unpack_from(">i", answer, position)
    return ClusterView(brokers, controller_id)


def frame(api_key: int, version: int, body: bytes) -> bytes:
    """A request frame with a fixed correlation id; there is never more than one on its way."""
    header = struct.pack(">hhih", api_key, version, api_key, len(CLIENT_ID)) + CLIENT_ID
    return struct.pack(">i", len(header) + len(body)) + header + body


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bytes:
    """Send one frame and return the body of its answer, after the correlation id."""
    writer.write(request)
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    if not CORRELATION_ID_BYTES <= size <= MAX_ANSWER_BYTES:
        raise EOFError("not a Kafka broker")
    return (await reader.readexactly(size))[CORRELATION_ID_BYTES:]


def _after_string(answer: bytes, position: int) -> int:
    """Return where the string that starts at `position` ends; a null string has length -1."""
    (length,) = struct.unpack_from(">h", answer, position)
    return position + 2 + max(0, int(length))
