"""A connection through `proxy_url` for the thread that asks a token endpoint: the exchange of `proxy`, on a socket."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from aioproducer._network.addresses import place_text
from aioproducer._network.proxy import (
    LARGEST_HTTP_RESPONSE,
    Exchange,
    Proxy,
    ProxyAuthenticationError,
    ProxyError,
    Step,
    ask,
)
from aioproducer.errors import TokenError

if TYPE_CHECKING:
    from aioproducer.security._https import OpenSocket


def opens_through(proxy: Proxy | Callable[[], Proxy]) -> OpenSocket:
    """Return a function that connects through a proxy.

    Args:
        proxy: the proxy, or a function that returns the current one.
    """

    def open_socket(host: str, port: int, timeout_s: float) -> socket.socket:
        found = proxy() if callable(proxy) else proxy
        opened = _open(found, (host, port), timeout_s)
        if isinstance(opened, str):
            # Raised here, where no frame holds the credentials.
            raise TokenError(f"{place_text(host, port)} cannot be reached through the proxy {found}: {opened}")
        return opened

    return open_socket


def _open(proxy: Proxy, place: tuple[str, int], timeout_s: float) -> socket.socket | str:
    """Return the connection, or why there is none."""
    host, port = place
    try:
        connection = socket.create_connection((proxy.host, proxy.port), timeout_s)
    except OSError as error:
        return f"it cannot be reached: {error.strerror or type(error).__name__}"
    try:
        address = host if proxy.resolves_names else _resolved(host, port)
        _go_through(ask(proxy, address, port), connection)
    except TimeoutError:
        reason = "it has not answered in time"
    except (ProxyError, ProxyAuthenticationError) as error:
        reason = str(error)
    except OSError as error:
        reason = error.strerror or type(error).__name__
    else:
        return connection
    connection.close()
    return reason


def _resolved(host: str, port: int) -> str:
    try:
        return str(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise ProxyError(f"{host} cannot be resolved here: {error.strerror}; socks5h:// lets the proxy do it") from None


def _go_through(exchange: Exchange, connection: socket.socket) -> None:
    try:
        step = next(exchange)
        while True:
            connection.sendall(step.send)
            step = exchange.send(_answer(step, connection))
    except StopIteration:
        return


def _answer(step: Step, connection: socket.socket) -> bytes:
    """Read what a step waits for, and not a byte more: what follows belongs to TLS."""
    response = b""
    largest = LARGEST_HTTP_RESPONSE if step.size is None else step.size
    while len(response) < largest and not (step.size is None and response.endswith(b"\r\n\r\n")):
        byte = connection.recv(1)
        if not byte:
            raise ProxyError("it closed the connection in the middle of its answer" if response else "it hung up")
        response += byte
    return response
