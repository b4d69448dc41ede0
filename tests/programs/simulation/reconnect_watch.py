"""Looks at the pauses before a node is connected to again: PAUSE, exponential, bounded, and short again after success.

the n-th failure in a row: reconnect_backoff_ms x 2^(n-1), at most reconnect_backoff_max_ms, spread by a fifth
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aioproducer._network.connection import BrokerConnection
    from aioproducer._network.connection_pool import ConnectionPool, NodeConnection

SPREAD: Final = 0.2
_TICK_S: Final = 1e-6


class ReconnectWatch:
    """Hears of every link that was connected, or failed.

    Args:
        links: of one producer.
        violated: is told of an invariant that was broken, and how.
        now: virtual seconds.
    """

    def __init__(self, links: ConnectionPool, violated: Callable[[str, str], None], now: Callable[[], float]) -> None:
        self._links = links
        self._violated = violated
        self._now = now
        self._failures: dict[NodeConnection, int] = {}  # ever
        self._in_a_row: dict[NodeConnection, int] = {}
        self._connections: dict[NodeConnection, BrokerConnection | None] = {}
        self._announce = links._announce  # noqa: SLF001  # invariants are about what is inside
        links._announce = self.announce  # type: ignore[method-assign]  # noqa: SLF001  # as above
        self._look()

    def announce(self) -> None:
        """Look at the links, and let those who wait for a change go on."""
        self._look()
        self._announce()

    def _look(self) -> None:
        for link in self._links._links.values():  # noqa: SLF001  # as above
            before = self._connections.get(link)
            if before is not None and link.connection is not before and before.answers > 0:
                self._in_a_row[link] = 0
            failed = link.failures - self._failures.get(link, 0)
            if link not in self._failures:
                self._in_a_row[link] = link._failures_in_a_row  # noqa: SLF001  # as above
            elif failed:
                self._in_a_row[link] += failed
                if failed == 1:
                    self._look_at_pause(link, self._in_a_row[link])
            self._failures[link] = link.failures
            self._connections[link] = link.connection

    def _look_at_pause(self, link: NodeConnection, failures: int) -> None:
        settings = link._environment.settings  # noqa: SLF001  # as above
        first_ms, most_ms = settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms
        plain_s = min(first_ms << min(failures - 1, 20), most_ms) / 1000
        pause_s = link.retry_at - self._now()
        if not plain_s * (1 - SPREAD) - _TICK_S <= pause_s <= min(plain_s * (1 + SPREAD), most_ms / 1000) + _TICK_S:
            text = f"{link!r} is tried again after {pause_s:.6f} s: failure {failures} in a row, of {first_ms} ms"
            self._violated("PAUSE", text)
