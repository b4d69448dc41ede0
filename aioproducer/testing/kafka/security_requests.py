"""Changes of a running broker's security over its plaintext listener: SCRAM passwords, and certificates read again.

Two requests that every supported broker answers, written by hand as in `readiness`:

    AlterUserScramCredentials 0 (flexible)  deletions [user, mechanism] | upsertions [user, mechanism, iterations,
                                            salt, salted password]
    IncrementalAlterConfigs 0               resources [type, name, configs [name, operation, value]] | validate only
"""

import asyncio
import hashlib
import os
import struct
from collections.abc import Mapping

from aioproducer.testing.kafka.errors import BrokerStartError
from aioproducer.testing.kafka.readiness import CLIENT_ID, exchange, frame
from aioproducer.testing.kafka.server_properties import LOOPBACK

ALTER_USER_SCRAM_CREDENTIALS, INCREMENTAL_ALTER_CONFIGS = 51, 44
SCRAM_HASHES: Mapping[str, tuple[int, str]] = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
BROKER_RESOURCE, SET = 4, 0
TIMEOUT_S = 30.0


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
    answer = await _ask(port, frame(INCREMENTAL_ALTER_CONFIGS, 0, body))
    (error_code,) = struct.unpack_from(">h", answer, 8)  # after throttle time and number of resources
    _require_success(error_code, answer)


async def _alter_users(port: int, body: bytes) -> None:
    header = struct.pack(">hhih", ALTER_USER_SCRAM_CREDENTIALS, 0, 0, len(CLIENT_ID)) + CLIENT_ID + b"\x00"
    request = header + body
    answer = await _ask(port, struct.pack(">i", len(request)) + request)
    position = 6  # header tags, throttle time, number of users
    position += answer[position]  # the user: a compact string shorter than 126 bytes
    (error_code,) = struct.unpack_from(">h", answer, position)
    _require_success(error_code, answer)


async def _ask(port: int, request: bytes) -> bytes:
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        try:
            return await exchange(reader, writer, request)
        finally:
            writer.close()


def _require_success(error_code: int, answer: bytes) -> None:
    if error_code:
        raise BrokerStartError(f"the broker refused with error {error_code}: {answer!r}")


def _compact(raw: bytes) -> bytes:
    """Bytes or a string in a flexible message; here they are always short."""
    return bytes([len(raw) + 1]) + raw


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw
