"""The brokers' side of TLS, on memory."""

import asyncio
import contextlib
import ssl
from pathlib import Path

from aioproducer.testing import CertificateAuthority
from aioproducer.testing.tls_server import TlsServerProtocol

AUTHORITY = CertificateAuthority()


class Wire(asyncio.Transport):
    """Keeps what the server sends."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def take(self) -> bytes:
        sent, self.sent = self.sent, b""
        return sent

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


class Inner(asyncio.BufferedProtocol):
    """Counts how often it is asked for room."""

    def __init__(self) -> None:
        self.asked = 0

    def get_buffer(self, _sizehint: int) -> bytearray:
        self.asked += 1
        assert self.asked < 10, "it is asked without end"
        return bytearray(100)


def test_goodbye_of_a_client_ends_its_connection(tmp_path: Path) -> None:
    """OpenSSL raises nothing at close_notify, but says again and again that there are no bytes."""
    path = tmp_path / "server.pem"
    path.write_text(AUTHORITY.issue().pem, encoding="utf-8")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    wire, inner = Wire(), Inner()
    server = TlsServerProtocol(inner, context, fault=None, ended=lambda _: None)
    server.connection_made(wire)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = ssl.create_default_context(cadata=AUTHORITY.certificate)
    client = trusting.wrap_bio(incoming, outgoing, server_hostname="localhost")
    for end in (client.do_handshake, client.do_handshake, client.unwrap):
        with contextlib.suppress(ssl.SSLWantReadError):
            end()
        server.data_received(outgoing.read())
        incoming.write(wire.take())

    assert wire.is_closed
