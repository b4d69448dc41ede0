"""The requests to a real broker: is it ready, and changes of its security. By hand, for no library speaks them all.

An open port is not enough: KRaft brokers listen before they have caught up. All are of fixed versions that every
supported broker answers, so this needs no negotiation:

    frame          size int32 | api_key int16 | api_version int16 | correlation_id int32 | client_id string | body
    ApiVersions 0  body: nothing            answer: error_code int16 | ...
    Metadata 1     body: topics [] int32=0  answer: brokers [node int32, host string, port int32, rack string?]
                                                    | controller_id int32 | topics []
    AlterUserScramCredentials 0 (flexible)  deletions [user, mechanism] | upsertions [user, mechanism, iterations,
                                            salt, salted password]
    IncrementalAlterConfigs 0               resources [type, name, configs [name, operation, value]] | validate only
"""

import asyncio
import contextlib
import hashlib
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from aioproducer.testing.kafka.programs import BrokerStartError
from aioproducer.testing.kafka.server_properties import LOOPBACK

API_VERSIONS, METADATA = 18, 3
ALTER_USER_SCRAM_CREDENTIALS, INCREMENTAL_ALTER_CONFIGS = 51, 44
CLIENT_ID = b"aioproducer-ready"
SCRAM_HASHES: Mapping[str, tuple[int, str]] = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}

BROKER_RESOURCE, SET = 4, 0
CORRELATION_ID_BYTES = 4
MAX_ANSWER_BYTES = 1 << 20
ATTEMPT_S = 5.0  # how long one question may take before it counts as unanswered
TIMEOUT_S = 30.0


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
    response = await exchange(reader, writer, frame(API_VERSIONS, 0, b""))
    (error_code,) = struct.unpack_from(">h", response)
    return bool(error_code == 0)


async def _cluster_view(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> ClusterView:
    response = await exchange(reader, writer, frame(METADATA, 1, struct.pack(">i", 0)))
    (brokers,) = struct.unpack_from(">i", response)
    position = 4
    for _ in range(brokers):
        position = _after_string(response, position + 4) + 4  # node id, host, port
        position = _after_string(response, position)  # rack
    (controller_id,) = struct.unpack_from(">i", response, position)
    return ClusterView(brokers, controller_id)


async def set_scram_password(port: int, user: str, password: str, *, mechanism: str, iterations: int = 4096) -> None:
    """Create a user, or change the password.

    Raises:
        BrokerStartError: the broker refused.
    """
    number, digest = SCRAM_HASHES[mechanism]
    salt = os.urandom(20)
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    upsertion = _compact(user.encode()) + struct.pack(">bi", number, iterations) + _compact(salt) + _compact(salted)
    await _alter_users(port, b"\x01\x02" + upsertion + b"\x00\x00")


async def delete_scram_user(port: int, user: str, *, mechanism: str) -> None:
    """Forget a user's password of one mechanism.

    Raises:
        BrokerStartError: the broker refused; there is no such user, for example.
    """
    deletion = _compact(user.encode()) + struct.pack(">b", SCRAM_HASHES[mechanism][0])
    await _alter_users(port, b"\x02" + deletion + b"\x00\x01\x00")


async def set_broker_configs(port: int, node_id: int, configs: Mapping[str, str]) -> None:
    """Set dynamic configurations of a broker; one that has its value already is read again.

    Raises:
        BrokerStartError: the broker refused.
    """
    entries = b"".join(_string(name) + struct.pack(">b", SET) + _string(value) for name, value in configs.items())
    resource = struct.pack(">b", BROKER_RESOURCE) + _string(str(node_id)) + struct.pack(">i", len(configs)) + entries
    body = struct.pack(">i", 1) + resource + b"\x00"
    response = await _answer_to(port, frame(INCREMENTAL_ALTER_CONFIGS, 0, body))
    (error_code,) = struct.unpack_from(">h", response, 8)  # after throttle time and number of resources
    _require_success(error_code, response)


async def _alter_users(port: int, body: bytes) -> None:
    header = struct.pack(">hhih", ALTER_USER_SCRAM_CREDENTIALS, 0, 0, len(CLIENT_ID)) + CLIENT_ID + b"\x00"
    request = header + body
    response = await _answer_to(port, struct.pack(">i", len(request)) + request)
    position = 6  # header tags, throttle time, number of users
    position += response[position]  # the user: a compact string shorter than 126 bytes
    (error_code,) = struct.unpack_from(">h", response, position)
    _require_success(error_code, response)


async def _answer_to(port: int, request: bytes) -> bytes:
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        try:
            return await exchange(reader, writer, request)
        finally:
            writer.close()


def _require_success(error_code: int, response: bytes) -> None:
    if error_code:
        raise BrokerStartError(f"the broker refused with error {error_code}: {response!r}")


def frame(api_key: int, version: int, body: bytes) -> bytes:
    """A request frame with a fixed correlation id; there is never more than one on its way."""
    header = struct.pack(">hhih", api_key, version, api_key, len(CLIENT_ID)) + CLIENT_ID
    return struct.pack(">i", len(header) + len(body)) + header + body


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bytes:
    """Send one frame and return the body of its response, after the correlation id."""
    writer.write(request)
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    if not CORRELATION_ID_BYTES <= size <= MAX_ANSWER_BYTES:
        raise EOFError("not a Kafka broker")
    return (await reader.readexactly(size))[CORRELATION_ID_BYTES:]


def _after_string(response: bytes, position: int) -> int:
    """Return where the string that starts at `position` ends; a null string has length -1."""
    (length,) = struct.unpack_from(">h", response, position)
    return position + 2 + max(0, int(length))


def _compact(raw: bytes) -> bytes:
    """Bytes or a string in a flexible message; here they are always short."""
    return bytes([len(raw) + 1]) + raw


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw
