"""A client of a few requests, written by hand and without regard for what a good client does: for traces of brokers."""

import asyncio
import base64
import hashlib
import hmac
import ssl
import struct
from typing import NamedTuple, Self

METADATA, HANDSHAKE, API_VERSIONS, AUTHENTICATE = 3, 17, 18, 36
CLIENT_ID = b"raw"
TIMEOUT_S = 20.0


class Handshaken(NamedTuple):
    error: int
    mechanisms: tuple[str, ...]


class Authenticated(NamedTuple):
    error: int
    message: str | None
    token: bytes
    lifetime_ms: int


class RawClient:  # noqa: PLR0904 - a verb per request
    """One connection. Each question returns its answer, or None if the broker closed the connection instead."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._correlation_id = 0

    @classmethod
    async def connect(cls, host: str, port: int, context: ssl.SSLContext | None = None) -> Self:
        return cls(*await asyncio.open_connection(host, port, ssl=context))

    def abort(self) -> None:
        self._writer.transport.abort()

    @property
    def tls_version(self) -> str:
        return str(self._writer.get_extra_info("ssl_object").version())

    @property
    def peer_certificate(self) -> bytes:
        """The broker's certificate, as DER."""
        found = self._writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert isinstance(found, bytes)
        return found

    async def first_byte(self) -> bytes:
        """Wait for a byte, and raise what comes instead."""
        async with asyncio.timeout(TIMEOUT_S):
            return await self._reader.readexactly(1)

    def write(self, raw: bytes) -> None:
        self._writer.write(raw)

    def ask(self, api: int, version: int, body: bytes, *, flexible: bool = False) -> None:
        """Write a request; `answer` reads what comes for it."""
        self._correlation_id += 1
        header = struct.pack(">hhih", api, version, self._correlation_id, len(CLIENT_ID)) + CLIENT_ID
        request = header + b"\x00" * flexible + body
        self.write(struct.pack(">i", len(request)) + request)

    async def answer(self) -> bytes | None:
        """Return the body of the next answer."""
        return (await self.numbered_answer())[1]

    async def numbered_answer(self) -> tuple[int, bytes | None]:
        """Return the correlation id of the next answer, and its body."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                size, number = struct.unpack(">ii", await self._reader.readexactly(8))
                return int(number), await self._reader.readexactly(size - 4)
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            return -1, None

    async def rest(self) -> bytes:
        """Return all that comes until the broker closes the connection."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._reader.read()
        except ConnectionError:
            return b""

    async def versions(self) -> int | None:
        """Ask for ApiVersions, return its error code."""
        self.ask(API_VERSIONS, 0, b"")
        answer = await self.answer()
        return None if answer is None else int(struct.unpack_from(">h", answer)[0])

    async def metadata(self) -> bool:
        """Whether a question about no topic is answered."""
        self.ask_metadata()
        return await self.answer() is not None

    def ask_metadata(self) -> None:
        self.ask(METADATA, 1, struct.pack(">i", 0))

    async def handshake(self, mechanism: str, version: int = 1) -> Handshaken | None:
        self.ask_handshake(mechanism, version)
        return read_handshake(await self.answer())

    def ask_handshake(self, mechanism: str, version: int = 1) -> None:
        self.ask(HANDSHAKE, version, struct.pack(">h", len(mechanism)) + mechanism.encode())

    async def authenticate(self, token: bytes, version: int = 1) -> Authenticated | None:
        self.ask_authenticate(token, version)
        return read_authenticate(await self.answer(), version)

    def ask_authenticate(self, token: bytes, version: int = 1) -> None:
        """Write a token; version 2 is flexible."""
        if version < 2:
            self.ask(AUTHENTICATE, version, struct.pack(">i", len(token)) + token)
            return
        size, length = len(token) + 1, b""
        while size > 0x7F:
            length += bytes([size & 0x7F | 0x80])
            size >>= 7
        self.ask(AUTHENTICATE, version, length + bytes([size]) + token + b"\x00", flexible=True)


def read_handshake(answer: bytes | None) -> Handshaken | None:
    if answer is None:
        return None
    error, count = struct.unpack_from(">hi", answer)
    position, mechanisms = 6, []
    for _ in range(count):
        (length,) = struct.unpack_from(">h", answer, position)
        mechanisms.append(answer[position + 2 : position + 2 + length].decode())
        position += 2 + length
    return Handshaken(error, tuple(sorted(mechanisms)))


def read_authenticate(answer: bytes | None, version: int = 1) -> Authenticated | None:
    if answer is None:
        return None
    if version > 1:
        return _read_flexible(answer[1:])
    error, length = struct.unpack_from(">hh", answer)
    message = None if length < 0 else answer[4 : 4 + length].decode()
    position = 4 + max(length, 0)
    (size,) = struct.unpack_from(">i", answer, position)
    token = answer[position + 4 : position + 4 + size]
    lifetime = struct.unpack_from(">q", answer, position + 4 + size)[0] if version else 0
    return Authenticated(error, message, token, lifetime)


def _read_flexible(answer: bytes) -> Authenticated:
    """Read version 2, whose texts here are shorter than 127 bytes."""
    (error,) = struct.unpack_from(">h", answer)
    length = answer[2]
    message = None if length == 0 else answer[3 : 2 + length].decode()
    position = 2 + max(length, 1)
    size = answer[position] - 1
    token = answer[position + 1 : position + 1 + size]
    return Authenticated(error, message, token, struct.unpack_from(">q", answer, position + 1 + size)[0])


def plain(user: str, password: str, authorization_id: str = "") -> bytes:
    return f"{authorization_id}\x00{user}\x00{password}".encode()


def bearer(token: str, **extensions: str) -> bytes:
    pairs = [f"auth=Bearer {token}", *(f"{name}={value}" for name, value in extensions.items())]
    return ("n,,\x01" + "\x01".join(pairs) + "\x01\x01").encode()


class ScramClient:
    """The client's side of RFC 5802 in its plainest form."""

    def __init__(self, mechanism: str, user: str, password: str) -> None:
        self.hash = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
        self.password = password.encode()
        self.bare = f"n={user},r=clientnonce"
        self.signature = ""

    @property
    def first(self) -> bytes:
        return f"n,,{self.bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """Prove that we know the password, and note what the server must prove."""
        fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
        salted = hashlib.pbkdf2_hmac(self.hash, self.password, base64.b64decode(fields["s"]), int(fields["i"]))
        without_proof = f"c=biws,r={fields['r']}"
        message = f"{self.bare},{server_first.decode()},{without_proof}".encode()
        key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self.hash, key).digest(), message)
        proof = bytes(mine ^ theirs for mine, theirs in zip(key, signature, strict=True))
        self.signature = base64.b64encode(self._hmac(self._hmac(salted, b"Server Key"), message)).decode()
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self.hash).digest()
