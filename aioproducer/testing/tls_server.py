"""The server's side of TLS: the certificates of an embedded cluster's listeners, and TLS over any transport.

OpenSSL works on memory here, so that simulated networks have TLS as well.
"""

import asyncio
import ssl
import tempfile
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias, cast

from aioproducer.testing.certificates import Certificate
from aioproducer.testing.cluster_security import LISTENERS, ClusterSecurity, write_client_files
from aioproducer.testing.fake_broker.faults import Fault, FaultKind

_READ_BYTES = 256 * 1024
_HANDSHAKE_RECORD = 0x16
_INTERNAL_ERROR = bytes.fromhex("15030300020250")
_WANTS = (ssl.SSLWantReadError, ssl.SSLWantWriteError)

Ended: TypeAlias = Callable[["TlsServerProtocol"], None]


class TlsServerProtocol(asyncio.Protocol):
    """Handshakes with a client, then is the transport of `inner` and feeds it.

    Args:
        inner: connected once the handshake is done.
        context: with the server's certificate.
        fault: what to do instead of the handshake.
        ended: called with this object when the connection is lost.
    """

    def __init__(
        self, inner: asyncio.BufferedProtocol, context: ssl.SSLContext, *, fault: Fault | None, ended: Ended
    ) -> None:
        self.inner = inner
        self._fault = fault
        self._ended = ended
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_ready = False
        self._is_greeted = False
        self._is_spoiled = False
        self._raw: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the client's first message."""
        self._raw = cast("asyncio.Transport", transport)  # uvloop's is none by its class

    def data_received(self, data: bytes) -> None:
        """Decrypt, once the handshake is done."""
        assert self._raw is not None
        if not self._is_greeted and data[0] != _HANDSHAKE_RECORD:
            self._raw.write(_INTERNAL_ERROR)  # as Java answers to plaintext; OpenSSL says nothing
            self._raw.close()
            return
        self._is_greeted = True
        self._incoming.write(data)
        if self._fault is None:
            self._step()
        elif not self._is_spoiled:
            self._is_spoiled = True
            self._spoil(self._fault)

    def _spoil(self, fault: Fault) -> None:
        """Do what a rule says instead of the handshake, at the client's first message."""
        assert self._raw is not None
        match fault.kind:
            case FaultKind.CLOSE_TLS:
                self._raw.close()
            case FaultKind.GARBAGE_TLS:
                self._raw.write(fault.data or b"")
            case FaultKind.DELAY_TLS:
                asyncio.get_running_loop().call_later(fault.amount, self._go_on)

    def _go_on(self) -> None:
        self._fault = None
        if self._raw is not None:
            self._step()

    def _step(self) -> None:
        try:
            if not self._is_ready:
                self._tls.do_handshake()
                self._is_ready = True
                self.inner.connection_made(TlsServerTransport(self))
            self._feed()
        except _WANTS:
            pass
        except ssl.SSLError:
            self.flush()  # the alert that says why
            self.close()
        self.flush()

    def _feed(self) -> None:
        while self._raw is not None and not self._raw.is_closing():
            room = memoryview(self.inner.get_buffer(_READ_BYTES))
            # given a buffer, it returns how many bytes it has read
            size = cast("int", self._tls.read(len(room), room))  # type: ignore[redundant-cast,unused-ignore]
            if not size:  # the client's close_notify
                self.close()
                return
            self.inner.buffer_updated(size)

    def eof_received(self) -> bool:
        """Close with the client."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the inner protocol, if it was told of the connection."""
        self._raw = None
        self._ended(self)
        if self._is_ready:
            self.inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """Nothing to do: the brokers' responses are small."""

    def resume_writing(self) -> None:
        """As `pause_writing`."""

    def write(self, data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Encrypt and send."""
        for part in data:
            if part:
                self._tls.write(part)
        self.flush()

    def flush(self) -> None:
        """Send what OpenSSL has ready."""
        if self._outgoing.pending and self._raw is not None and not self._raw.is_closing():
            self._raw.write(self._outgoing.read())

    def close(self, *, is_abrupt: bool = False) -> None:
        """Close the connection, with a close_notify unless it is abrupt."""
        raw = self._raw
        if raw is None or is_abrupt:
            if raw is not None:
                raw.abort()
            return
        if self._is_ready:
            with suppress(ssl.SSLError):
                self._tls.unwrap()
            self.flush()
        raw.close()

    def read_on(self, *, is_reading: bool) -> None:
        """Stop or resume reading."""
        if self._raw is not None and not self._raw.is_closing():
            (self._raw.resume_reading if is_reading else self._raw.pause_reading)()

    def is_closing(self) -> bool:
        """Whether the connection is closed, or about to be."""
        return self._raw is None or self._raw.is_closing()


class TlsServerTransport(asyncio.Transport):
    """The transport that a broker's connection writes to: everything goes to its `TlsServerProtocol`."""

    def __init__(self, tls: TlsServerProtocol) -> None:
        super().__init__()
        self._tls = tls

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send."""
        self._tls.write([data])

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Encrypt and send."""
        self._tls.write(list_of_data)

    def close(self) -> None:
        """Close with a close_notify."""
        self._tls.close()

    def abort(self) -> None:
        """Close at once."""
        self._tls.close(is_abrupt=True)

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._tls.is_closing()

    def pause_reading(self) -> None:
        """Stop reading."""
        self._tls.read_on(is_reading=False)

    def resume_reading(self) -> None:
        """Resume reading."""
        self._tls.read_on(is_reading=True)


_REQUIREMENTS = {"required": ssl.CERT_REQUIRED, "requested": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
BROKER_FILE = "broker.pem"


class ListenerCertificates:
    """Writes what clients need to a temporary folder, and keeps one TLS context per listener."""

    def __init__(self, security: ClusterSecurity) -> None:
        self._security = security
        self._temporary = tempfile.TemporaryDirectory(prefix="aioproducer-fake-")
        self.folder: Path = Path(self._temporary.name)
        self._certificate = security.broker_certificate or security.authority.issue()
        self._trusted = security.authority.certificate
        self._contexts: dict[str, ssl.SSLContext] = {}
        self.names_asked: deque[str | None] = deque(maxlen=1000)
        """The names that clients sent in their first message (SNI), oldest first."""

        write_client_files(security, self.folder)
        self.change()

    def context(self, listener: str) -> ssl.SSLContext | None:
        """Return the context of new connections to a listener; None for one without TLS."""
        return self._contexts.get(listener)

    def change(self, certificate: Certificate | None = None, trusted: str | None = None) -> None:
        """Replace the brokers' certificate, the authorities they trust, or both, for new connections."""
        self._certificate = certificate or self._certificate
        self._trusted = trusted or self._trusted
        path = self.folder / BROKER_FILE
        path.write_text(self._certificate.pem, "utf-8")
        for listener in self._security.listeners:
            if LISTENERS[listener].endswith("SSL"):
                self._contexts[listener] = self._made(path, self._security.client_auth.get(listener, "none"))

    def _made(self, path: Path, client_auth: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        versions = [_VERSIONS[name] for name in self._security.tls_versions]
        context.minimum_version, context.maximum_version = min(versions), max(versions)
        context.load_cert_chain(path)
        context.load_verify_locations(cadata=self._trusted)
        context.verify_mode = _REQUIREMENTS[client_auth]
        context.sni_callback = lambda _tls, name, _context: self.names_asked.append(name)
        return context

    def remove(self) -> None:
        """Remove the folder."""
        self._temporary.cleanup()
