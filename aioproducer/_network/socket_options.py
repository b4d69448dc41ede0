"""Options of a connection's socket: buffers, and how the system notices a dead peer."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer._network.context import NetworkSettings

PROBES: Final = 3
_LONGEST_PROBE_S: Final = 32_767  # of Linux
_LONGEST_USER_TIMEOUT_MS: Final = 2**31 - 1  # an int of C


def set_socket_options(tcp: socket.socket, settings: NetworkSettings) -> None:
    tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if settings.send_buffer_bytes >= 0:
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.send_buffer_bytes)
    if settings.receive_buffer_bytes >= 0:
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)
    for option, value in _keepalive(settings.request_timeout_ms):
        with contextlib.suppress(OSError):  # some systems have the name and not the option, or another range
            tcp.setsockopt(socket.IPPROTO_TCP, option, value)


def _keepalive(request_timeout_ms: int) -> Iterator[tuple[int, int]]:
    """Yield the options by which the system notices a dead peer at four fifths of `request_timeout_ms`.

    A load balancer that forgets a connection, or loses its backend, says nothing. Unanswered probes show that while
    nothing is sent; while bytes wait for an acknowledgement there are no probes, and TCP_USER_TIMEOUT ends the wait.
    """
    probe_s = max(1, request_timeout_ms // 1000 // (2 * PROBES - 1))
    idle = "TCP_KEEPIDLE" if hasattr(socket, "TCP_KEEPIDLE") else "TCP_KEEPALIVE"  # macOS has the other name
    values = {
        idle: min(probe_s, _LONGEST_PROBE_S),
        "TCP_KEEPINTVL": min(probe_s, _LONGEST_PROBE_S),
        "TCP_KEEPCNT": PROBES,
        "TCP_USER_TIMEOUT": _user_timeout_ms(request_timeout_ms),
    }
    for name, value in values.items():
        option: int | None = getattr(socket, name, None)
        if option is not None:
            yield option, value


def _user_timeout_ms(request_timeout_ms: int) -> int:
    return min(max(1, request_timeout_ms // 5 * 4), _LONGEST_USER_TIMEOUT_MS)


def stop_user_timeout(tcp: socket.socket) -> None:
    """Let a peer that takes no bytes live: Linux counts it as dead although it acknowledges its probes."""
    _set_user_timeout(tcp, 0)


def restore_user_timeout(tcp: socket.socket, request_timeout_ms: int) -> None:
    """Let the system notice a dead peer again."""
    _set_user_timeout(tcp, _user_timeout_ms(request_timeout_ms))


def _set_user_timeout(tcp: socket.socket, milliseconds: int) -> None:
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        with contextlib.suppress(OSError):  # the connection is lost
            tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
