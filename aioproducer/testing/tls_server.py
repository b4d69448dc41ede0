"""The server's side of TLS over any transport: OpenSSL works on memory, so that simulated networks have it as well."""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeAlias, cast

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
        """Nothing to do: the brokers' answers are small."""

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
