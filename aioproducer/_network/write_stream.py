"""Outgoing bytes of one connection: those handed to the transport, and those that have left it.

asyncio does not report when memory may be reused, but how many bytes it still holds, and bytes leave in order. With
positions counted from the start of the connection, all bytes before

    handed to the transport - held by the transport

have left. For a request with a response this is checked when the response comes. A request without one (acks=0) ends
when its bytes have left. No callback reports that, so it is polled: soon after the write, on `resume_writing`, and by a
timer whose delay doubles while no byte leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from aioproducer._network.requests import WRITTEN, OutgoingRequest

if TYPE_CHECKING:
    from aioproducer._network.context import NetworkContext, NetworkSettings, TimerHandle
    from aioproducer._protocol.produce import Buffer

_SIZE_FIELD_BYTES: Final = 4
_FIRST_POLL_S: Final = 0.001
_SLOWEST_POLL_S: Final = 0.1
PROBES: Final = 3
_LONGEST_PROBE_S: Final = 32_767  # of Linux
_LONGEST_USER_TIMEOUT_MS: Final = 2**31 - 1  # an int of C
_CHEAPER_THAN_A_VECTOR: Final = 4 * 1024
_CHEAPER_THAN_MANY_CALLS: Final = 64 * 1024
"""A request of up to this size is copied into one piece; a larger one is written piece by piece."""


class WriteStream:
    """Writes requests to a transport, sets its socket options, and ends requests that have no response.

    Args:
        on_all_written: called when no request without a response is left.
        on_stall: called with a text when no byte has left for `request_timeout_ms`.
    """

    def __init__(
        self,
        context: NetworkContext,
        transport: asyncio.Transport,
        *,
        on_all_written: Callable[[], None],
        on_stall: Callable[[str], None],
    ) -> None:
        self._context = context
        self._transport = transport
        self._on_all_written = on_all_written
        self._on_stall = on_stall
        self._handed = 0  # position behind the last byte given to the transport
        self._gone = 0  # position behind the last byte known to have left it
        self._moved_at = 0.0  # when `_gone` last grew, the queue stopped being empty, or a pause ends
        self._unwritten: deque[OutgoingRequest] = deque()  # without a response, oldest first
        self._poll_timer: TimerHandle | None = None
        self._poll_delay_s = _FIRST_POLL_S
        self._is_poll_due_soon = False
        settings = context.settings
        # The transport of a simulated network has no socket.
        self._socket: socket.socket | None = transport.get_extra_info("socket")
        if self._socket is not None:
            _set_socket_options(self._socket, settings)
        transport.set_write_buffer_limits(high=settings.write_buffer_bytes)
        gathers = honours_back_pressure(context.loop)
        self._in_one_piece = _CHEAPER_THAN_A_VECTOR if gathers else _CHEAPER_THAN_MANY_CALLS
        self._write_pieces: Callable[[list[Buffer]], None] = transport.writelines if gathers else self._write_each

    @property
    def unwritten(self) -> int:
        return len(self._unwritten)

    def send(self, request: OutgoingRequest, pieces: list[Buffer], now: float) -> int:
        """Hand a request to the transport; return its bytes."""
        size = sum(map(len, pieces))
        self._handed += size
        request.end = self._handed
        request.size = size - _SIZE_FIELD_BYTES
        if not request.expects_response:
            self._queue(request, now)
        if size <= self._in_one_piece:
            self._transport.write(b"".join(pieces))
        else:
            self._write_pieces(pieces)
        return size

    def pause_until(self, when: float) -> None:
        """Count no stall before then: the broker reads nothing during the pause."""
        self._moved_at = max(self._moved_at, when)
        # Linux counts a peer that acknowledges its probes and takes no bytes as dead, too.
        self._set_user_timeout(0)

    def end_pause(self) -> None:
        """Let the system notice a dead peer again."""
        self._set_user_timeout(_user_timeout_ms(self._context.settings.request_timeout_ms))

    def _set_user_timeout(self, milliseconds: int) -> None:
        if self._socket is not None and hasattr(socket, "TCP_USER_TIMEOUT") and not self._transport.is_closing():
            with contextlib.suppress(OSError):  # the connection is lost
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)

    def has_left(self, request: OutgoingRequest) -> bool:
        return request.end <= self._handed - self._transport.get_write_buffer_size()

    def settle(self, now: float) -> None:
        """End the requests without a response whose bytes have left; poll again later for the others."""
        if not self._unwritten:
            return
        gone = self._handed - self._transport.get_write_buffer_size()
        if gone > self._gone:
            self._gone, self._poll_delay_s = gone, _FIRST_POLL_S
            self._moved_at = max(self._moved_at, now)  # kernels accept bytes during a pause too
        while self._unwritten and self._unwritten[0].end <= gone:
            self._unwritten.popleft().on_end(WRITTEN)
        if self._unwritten:
            self._poll_later(now)
        else:
            self._on_all_written()

    def take_unwritten(self) -> list[OutgoingRequest]:
        """Stop, and return the requests that have not ended, oldest first."""
        if self._poll_timer is not None:
            self._poll_timer.cancel()
        unwritten = list(self._unwritten)
        self._unwritten.clear()
        return unwritten

    def _queue(self, request: OutgoingRequest, now: float) -> None:
        if not self._unwritten:
            self._moved_at = max(self._moved_at, now)
        self._unwritten.append(request)
        if not self._is_poll_due_soon:
            self._is_poll_due_soon = True
            self._context.loop.call_soon(self._poll_soon)

    def _poll_soon(self) -> None:
        self._is_poll_due_soon = False
        self.settle(self._context.loop.time())

    def _poll_by_timer(self, now: float) -> None:
        self._poll_timer = None
        self.settle(now)

    def _poll_later(self, now: float) -> None:
        stalled_for_s = now - self._moved_at
        if stalled_for_s >= self._context.settings.request_timeout_ms / 1000:
            self._on_stall(f"the broker has read nothing for {stalled_for_s:.1f} s (request_timeout_ms)")
        elif self._poll_timer is None:
            self._poll_timer = self._context.schedule(now + self._poll_delay_s, self._poll_by_timer)
            self._poll_delay_s = min(2 * self._poll_delay_s, _SLOWEST_POLL_S)

    def _write_each(self, pieces: list[Buffer]) -> None:
        for piece in pieces:
            self._transport.write(piece)


def honours_back_pressure(loop: asyncio.AbstractEventLoop, version: tuple[int, ...] = sys.version_info[:3]) -> bool:
    """Tell whether `transport.writelines` ever pauses its protocol.

    asyncio's own transports of CPython 3.12.0 to 3.12.8 and 3.13.0 to 3.13.1 fill their buffer without saying so;
    other loops bring their own transports.
    """
    if not type(loop).__module__.startswith("asyncio."):
        return True
    return not ((3, 12, 0) <= version < (3, 12, 9) or (3, 13, 0) <= version < (3, 13, 2))


def _set_socket_options(tcp: socket.socket, settings: NetworkSettings) -> None:
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
