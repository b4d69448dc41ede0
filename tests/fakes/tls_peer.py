"""Servers of TLS: in memory, where a test empties the buffer byte by byte; on loopback; and one that breaks rules."""

import asyncio
import contextlib
import hashlib
import hmac
import socket
import ssl
import struct
import tempfile
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from aioproducer._network.tls import TlsProtocol
from aioproducer._network.tls_errors import TlsAttempt
from aioproducer.errors import TlsError
from aioproducer.testing.certificates import Certificate, CertificateAuthority

AUTHORITY = CertificateAuthority("test CA", rsa=True)  # RSA, for ciphers of TLS 1.2
HOST = "broker-1.example"


@cache
def server_certificate() -> Certificate:
    return AUTHORITY.issue(HOST)


@cache
def _shared_context(ciphers: str) -> ssl.SSLContext:
    return server_context(ciphers=ciphers)


def server_context(certificate: Certificate | None = None, *, ciphers: str = "") -> ssl.SSLContext:
    """Return the context of a server; with ciphers, of TLS 1.2."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "pem")
        path.write_text((certificate or server_certificate()).pem, encoding="utf-8")
        context.load_cert_chain(path)
    if ciphers:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(ciphers)
    return context


@cache
def client_context(trusted: CertificateAuthority = AUTHORITY) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=trusted.certificate)
    return context


class TlsPeer:
    """The server's side, without I/O."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = (context or _shared_context("")).wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.received = bytearray()
        self.is_shaken = self.got_close_notify = False

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the client; returns what the server answers."""
        self._incoming.write(data)
        if not self.is_shaken:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                return self._outgoing.read()
            self.is_shaken = True
        self._read()
        return self._outgoing.read()

    def write(self, data: bytes) -> bytes:
        self.tls.write(data)
        return self._outgoing.read()

    def close_notify(self) -> bytes:
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        return self._outgoing.read()

    def _read(self) -> None:
        while True:
            try:
                data = self.tls.read(65536)
            except ssl.SSLWantReadError:
                return
            except ssl.SSLZeroReturnError:
                data = b""
            if not data:
                self.got_close_notify = True
                return
            self.received += data


class SlowTransport(asyncio.Transport):
    """Keeps what is written until a test takes it."""

    def __init__(self) -> None:
        super().__init__()
        self.held = bytearray()
        self.most_held = 0
        self.is_aborted = self._is_closing = self._is_full = False
        self._low, self._high = 16 * 1024, 64 * 1024
        self.protocol: asyncio.Protocol | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self._is_closing
        self.held += data
        self.most_held = max(self.most_held, len(self.held))
        if len(self.held) > self._high and not self._is_full and self.protocol is not None:
            self._is_full = True
            self.protocol.pause_writing()

    def take(self, size: int | None = None) -> bytes:
        """Let bytes leave."""
        taken = bytes(self.held[:size])
        del self.held[:size]
        if self._is_full and len(self.held) <= self._low and self.protocol is not None:
            self._is_full = False
            self.protocol.resume_writing()
        return taken

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high, self._low = high or 0, low or 0

    def get_write_buffer_size(self) -> int:
        return len(self.held)

    def get_extra_info(self, name: str, default: object = None) -> object:
        del name
        return default

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True

    def abort(self) -> None:
        self._is_closing = self.is_aborted = True
        self.held.clear()


class Inner:
    """The protocol above TLS, which notes what it is told."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.received = bytearray()
        self.lost: Exception | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.calls.append("made")

    def data_received(self, data: bytes) -> None:
        self.received += data

    def eof_received(self) -> bool:
        self.calls.append("eof")
        return False

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = exc
        self.calls.append("lost")

    def retire_worn(self) -> None:
        self.calls.append("worn")


class Scene:
    """A client's TLS protocol on a slow transport, and the server that it talks to."""

    def __init__(self, peer: TlsPeer | None = None, *, context: ssl.SSLContext | None = None, host: str = HOST) -> None:
        attempt = TlsAttempt(host, has_certificate=False, has_truststore=True)
        self.raw = SlowTransport()
        self.peer = peer or TlsPeer()
        self.protocol = TlsProtocol(context or client_context(), attempt, Inner)
        self.raw.protocol = self.protocol
        self.protocol.connection_made(self.raw)

    def shake_hands(self) -> Inner:
        """Carry bytes both ways until nothing is left."""
        while self.raw.held:
            self.answer(self.peer.feed(self.raw.take()))
        return self.protocol.done.result()

    def answer(self, data: bytes) -> None:
        if data and not self.raw.is_closing():
            self.protocol.data_received(data)

    def end(self, error: Exception | None = None) -> TlsError | None:
        """Let the transport report its end; returns the error of the handshake."""
        self.protocol.connection_lost(error)
        failure = self.protocol.done.exception()
        assert failure is None or isinstance(failure, TlsError)
        return failure

    @property
    def transport(self) -> asyncio.Transport:
        found = self.protocol.done.result().transport
        assert found is not None
        return found


HANDSHAKE = 22
KEY_UPDATE = b"\x18\x00\x00\x01"
"""Its last byte follows: 1 asks the other end to change its keys, too."""
HELLO_REQUEST = b"\x00\x00\x00\x00"
"""The beginning of a renegotiation (TLS 1.2)."""
NEW_SESSION_TICKET = b"\x04\x00\x00\x2d" + bytes(8) + b"\x00\x00\x20" + bytes(32 + 2)


class ServerKeys13:
    """The server's side of a connection with TLS 1.3 and AES-256-GCM that has sent nothing behind the handshake.

    OpenSSL writes the secrets of a connection to a key log. From them come the server's key and the counter of its
    records, so that a test can send any message that TLS allows, or forbids.
    """

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


class SilentTlsServer:
    """Takes connections in threads; `received` is the plaintext of all."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.received = bytearray()
        self.got_something = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"localhost:{self._listening.getsockname()[1]}"

    def close(self) -> None:
        with contextlib.suppress(OSError):  # wakes the thread that accepts
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        wrap = self._context.wrap_socket
        with contextlib.suppress(OSError), connection, wrap(connection, server_side=True) as tls:
            while data := tls.recv(65536):
                self.received += data
                self.got_something.set()


@contextlib.contextmanager
def silent_tls_server(context: ssl.SSLContext) -> Iterator[SilentTlsServer]:
    server = SilentTlsServer(context)
    try:
        yield server
    finally:
        server.close()
