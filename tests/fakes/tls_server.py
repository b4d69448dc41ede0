"""A TLS server on loopback that does the handshake, tells why it refuses one, and answers nothing."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator


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
