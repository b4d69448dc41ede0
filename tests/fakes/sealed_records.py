"""Records that a server's TLS library would never send, encrypted under the keys of a live connection.

OpenSSL writes the secrets of a connection to a key log. From them come the server's key and the counter of its records,
so that a test can send any message that TLS allows, or forbids, behind the handshake.
"""

import hashlib
import hmac
import struct
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

HANDSHAKE = 22
KEY_UPDATE = b"\x18\x00\x00\x01"
"""Its last byte follows: 1 asks the other end to change its keys, too."""
HELLO_REQUEST = b"\x00\x00\x00\x00"
"""The beginning of a renegotiation (TLS 1.2)."""
NEW_SESSION_TICKET = b"\x04\x00\x00\x2d" + bytes(8) + b"\x00\x00\x20" + bytes(32 + 2)


class ServerKeys13:
    """The server's side of a connection with TLS 1.3 and AES-256-GCM that has sent nothing behind the handshake."""

    def __init__(self, key_log: Path) -> None:
        self._secret = secret_of(key_log, "SERVER_TRAFFIC_SECRET_0")
        self._take_keys()

    def seal(self, message: bytes, kind: int = HANDSHAKE) -> bytes:
        """Return the record with a message."""
        inner = message + bytes((kind,))
        header = b"\x17\x03\x03" + struct.pack(">H", len(inner) + 16)
        nonce = (int.from_bytes(self._iv) ^ self._sequence).to_bytes(12)
        self._sequence += 1
        return header + self._cipher.encrypt(nonce, inner, header)

    def update(self, *, is_asked_back: bool) -> bytes:
        """Return a KeyUpdate, and go on with the next keys."""
        record = self.seal(KEY_UPDATE + bytes((is_asked_back,)))
        self._secret = expanded(self._secret, "traffic upd", 48)
        self._take_keys()
        return record

    def _take_keys(self) -> None:
        self._cipher = AESGCM(expanded(self._secret, "key", 32))
        self._iv = expanded(self._secret, "iv", 12)
        self._sequence = 0


class ServerKeys12:
    """The server's side of a connection with TLS 1.2 and ECDHE-RSA-AES128-GCM-SHA256, likewise.

    Args:
        key_log: of the server.
        client_hello: the first record of the client.
        server_hello: the first record of the server.
    """

    def __init__(self, key_log: Path, client_hello: bytes, server_hello: bytes) -> None:
        seed = b"key expansion" + server_hello[11:43] + client_hello[11:43]
        block = _prf(secret_of(key_log, "CLIENT_RANDOM"), seed, 40)
        self._cipher, self._iv = AESGCM(block[16:32]), block[36:40]
        self._sequence = 1  # Finished was the first

    def seal(self, message: bytes, kind: int = HANDSHAKE) -> bytes:
        explicit = self._sequence.to_bytes(8)
        associated = explicit + bytes((kind, 3, 3)) + struct.pack(">H", len(message))
        self._sequence += 1
        body = explicit + self._cipher.encrypt(self._iv + explicit, message, associated)
        return bytes((kind, 3, 3)) + struct.pack(">H", len(body)) + body


def secret_of(key_log: Path, label: str) -> bytes:
    lines = [line.split() for line in key_log.read_text("ascii").splitlines()]
    return next(bytes.fromhex(line[2]) for line in lines if line[0] == label)


def expanded(secret: bytes, label: str, size: int) -> bytes:
    """HKDF-Expand-Label of TLS 1.3 with SHA-384, for sizes up to that of one hash."""
    name = f"tls13 {label}".encode()
    info = struct.pack(">H", size) + bytes((len(name),)) + name + b"\x00"
    return hmac.digest(secret, info + b"\x01", hashlib.sha384)[:size]


def _prf(secret: bytes, seed: bytes, size: int) -> bytes:
    made, link = b"", seed
    while len(made) < size:
        link = hmac.digest(secret, link, hashlib.sha256)
        made += hmac.digest(secret, link + seed, hashlib.sha256)
    return made[:size]
