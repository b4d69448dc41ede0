"""HTTPS connections to token endpoints: direct, or through a proxy of the producer or of the environment.

The variables are those of curl and urllib: `HTTPS_PROXY` and `NO_PROXY`, in capitals or not. This machine is always
asked directly.
"""

from __future__ import annotations

import base64
import http.client
import re
import socket
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.request import getproxies_environment, proxy_bypass

from aioproducer.errors import TokenError
from aioproducer.security._secret import Secret, is_unicode

if TYPE_CHECKING:
    import ssl

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_VARIABLE: Final = "https"  # as urllib names HTTPS_PROXY
_HTTPS_PORT: Final = 443
_HTTP_PORT: Final = 80
_STATUS_OF_TUNNEL: Final = re.compile(r"Tunnel connection failed: (\d{3})")
_WANTS_CREDENTIALS: Final = "407"

OpenSocket: TypeAlias = Callable[[str, int, float], socket.socket]
"""Connects to host and port within seconds each for a step; raises TokenError, TimeoutError or another OSError."""


class HttpsConnection(http.client.HTTPSConnection):
    """As the standard library's, on a socket that `open_socket` connects; without one through the environment's proxy.

    Raises:
        TokenError: the proxy cannot be used, or gives no connection; at the first request.
    """

    def __init__(
        self, host: str, port: int | None, *, timeout_s: float, context: ssl.SSLContext, open_socket: OpenSocket | None
    ) -> None:
        super().__init__(host, port or _HTTPS_PORT, timeout=timeout_s, context=context)
        self._seconds = timeout_s
        self._tls = context
        self._open_socket: OpenSocket = open_socket or _open_by_environment
        if host in LOOPBACK:
            self._open_socket = _open_directly

    def connect(self) -> None:
        plain = self._open_socket(self.host, self.port, self._seconds)
        try:
            self.sock = self._tls.wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise


def _open_directly(host: str, port: int, timeout_s: float) -> socket.socket:
    return socket.create_connection((host, port), timeout_s)


def _open_by_environment(host: str, port: int, timeout_s: float) -> socket.socket:
    if _VARIABLE not in getproxies_environment() or proxy_bypass(f"{host}:{port}"):
        return _open_directly(host, port, timeout_s)
    proxy = _parsed(getproxies_environment()[_VARIABLE])  # no frame keeps the URL, which may have a password
    if proxy is None:
        text = "HTTPS_PROXY is not like http://user:password@host:3128; for SOCKS give proxy_url"
        raise TokenError(text, retriable=False)
    tunnel = proxy.tunnel(host, port, timeout_s)
    if isinstance(tunnel, str):
        # Raised here, where no frame holds the credentials.
        raise TokenError(f"{host}:{port} cannot be reached through the proxy {proxy} of HTTPS_PROXY: {tunnel}")
    return tunnel


@dataclass(frozen=True, slots=True)
class _HttpProxy:
    """A proxy that is asked with CONNECT; shown without its credentials."""

    host: str
    port: int
    credentials: Secret | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"http://{self.host}:{self.port}"

    def tunnel(self, host: str, port: int, timeout_s: float) -> socket.socket | str:
        """Return a connection through the proxy, or why there is none, without what the proxy says."""
        headers: dict[str, str] = {}
        if self.credentials is not None:
            headers["Proxy-Authorization"] = f"Basic {base64.b64encode(self.credentials.reveal().encode()).decode()}"
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)
        connection.set_tunnel(host, port, headers)
        try:
            connection.connect()
        except TimeoutError:
            connection.close()
            return "it has not answered in time"
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return self._refusal(error)
        return connection.sock

    def _refusal(self, error: Exception) -> str:
        status = _STATUS_OF_TUNNEL.match(str(error))
        if status is not None and status[1] == _WANTS_CREDENTIALS:
            if self.credentials is None:
                return "it wants a user and a password (407)"
            # Which schemes it offers is not to be had from `http.client`.
            return "it refuses the user or the password (407), or wants Negotiate, NTLM or Digest instead of Basic"
        if status is not None:
            return f"it refuses: {status[1]}"
        return error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__


def _parsed(url: str) -> _HttpProxy | None:
    try:
        parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or _HTTP_PORT
    except ValueError:
        return None
    if parts.scheme != "http" or not parts.hostname:
        return None
    credentials = None
    if parts.username is not None:
        user, password = urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or "")
        if not is_unicode(user + password):
            return None
        credentials = Secret(f"{user}:{password}")
    return _HttpProxy(parts.hostname, port, credentials)
