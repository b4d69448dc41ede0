"""A token endpoint on this machine that is down for half of each token's life."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Self

from aioproducer.testing.tokens import unsecured_token

LIFETIME_S: Final = 6.0
DOWN: Final = 503


class TokenEndpoint:
    """Serves the grant `client_credentials`; `with` starts and stops it."""

    def __init__(self, subject: str) -> None:
        self.tokens = self.failures = 0
        self._began: float | None = None
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                if endpoint.is_down:
                    endpoint.failures += 1
                    self.send_error(DOWN)
                    return
                endpoint.tokens += 1
                token = unsecured_token(subject, lifetime_s=LIFETIME_S)
                body = json.dumps({"access_token": token, "expires_in": LIFETIME_S, "token_type": "Bearer"}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # of the base class
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def begin(self) -> None:
        """Be down for half of the time from now on."""
        self._began = time.monotonic()

    @property
    def is_down(self) -> bool:
        return self._began is not None and (time.monotonic() - self._began) % LIFETIME_S > LIFETIME_S / 2

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/token"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
