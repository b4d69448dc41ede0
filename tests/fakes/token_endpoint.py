"""A token endpoint of OAuth on loopback, which says what a test wants."""

import contextlib
import json
import ssl
import threading
import time
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = tuple[int, dict[str, str], bytes]


class Endpoint(ThreadingHTTPServer):
    """A token endpoint; `answer` is what it says next."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing when a client has had enough."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.answer: Answer = granted()
        self.drips_s = 0.0
        self.heard: list[tuple[str, dict[str, str], dict[str, list[str]]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/token"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, Endpoint)
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        server.heard.append((self.path, dict(self.headers), urllib.parse.parse_qs(body)))
        status, headers, content = server.answer
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        for byte in content if server.drips_s else [content]:
            self.wfile.write(byte if isinstance(byte, bytes) else bytes((byte,)))
            self.wfile.flush()
            time.sleep(server.drips_s)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Print nothing."""


def granted(**fields: object) -> Answer:
    return (
        200,
        {"Content-Type": "application/json"},
        json.dumps({"access_token": "abc", "expires_in": 60} | fields).encode(),
    )


@contextlib.contextmanager
def token_endpoint(tls: ssl.SSLContext | None = None) -> Iterator[Endpoint]:
    server = Endpoint(tls)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
