"""Requests without a response (acks=0), which end when their bytes have left the transport.

No callback reports that, so it is polled: soon after the write, on `resume_writing`, and by a timer whose delay doubles
while no byte leaves.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from aioproducer._network.requests import WRITTEN, OutgoingRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer._network.context import NetworkContext, TimerHandle

_FIRST_POLL_S: Final = 0.001
_SLOWEST_POLL_S: Final = 0.1


class UnwrittenRequests:
    """Ends the requests of one connection that have no response, oldest first.

    Args:
        gone: returns the position behind the last byte that has left the transport.
        on_all_written: called when none is left.
        on_stall: called with a text when no byte has left for `request_timeout_ms`.
    """

    def __init__(
        self,
        context: NetworkContext,
        *,
        gone: Callable[[], int],
        on_all_written: Callable[[], None],
        on_stall: Callable[[str], None],
    ) -> None:
        self.requests: deque[OutgoingRequest] = deque()  # oldest first
        self._context = context
        self._position_gone = gone
        self._on_all_written = on_all_written
        self._on_stall = on_stall
        self._gone = 0  # as last seen
        self._moved_at = 0.0  # when `_gone` last grew, the queue stopped being empty, or a pause ends
        self._poll_timer: TimerHandle | None = None
        self._poll_delay_s = _FIRST_POLL_S
        self._is_poll_due_soon = False

    def add(self, request: OutgoingRequest, now: float) -> None:
        if not self.requests:
            self._moved_at = max(self._moved_at, now)
        self.requests.append(request)
        if not self._is_poll_due_soon:
            self._is_poll_due_soon = True
            self._context.loop.call_soon(self._poll_soon)

    def pause_until(self, when: float) -> None:
        """Count no stall before then: the broker reads nothing during the pause."""
        self._moved_at = max(self._moved_at, when)

    def settle(self, now: float) -> None:
        """End the requests whose bytes have left; poll again later for the others."""
        if not self.requests:
            return
        gone = self._position_gone()
        if gone > self._gone:
            self._gone, self._poll_delay_s = gone, _FIRST_POLL_S
            self._moved_at = max(self._moved_at, now)  # kernels accept bytes during a pause too
        while self.requests and self.requests[0].end <= gone:
            self.requests.popleft().on_end(WRITTEN)
        if self.requests:
            self._poll_later(now)
        else:
            self._on_all_written()

    def take_all(self) -> list[OutgoingRequest]:
        """Stop, and return those that have not ended, oldest first."""
        if self._poll_timer is not None:
            self._poll_timer.cancel()
        requests = list(self.requests)
        self.requests.clear()
        return requests

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
