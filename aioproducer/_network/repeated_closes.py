"""Requests at whose size brokers close their connection again and again, as a service with a limit does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CLOSES_THAT_NAME: Final = 3
"""A broker that restarts, or a network that breaks, closes fewer connections in a row under requests of one size."""


@dataclass(slots=True)
class _Row:
    closes: int
    smallest: int  # largest request of the connection that had the smallest one
    largest_answered: int = 0  # since the row began


class RepeatedCloses:
    """Connections in a row that were lost under Produce requests of a size that the broker never answers.

    A row ends when the broker answers a request as large, or when a connection is lost under a smaller one than those
    that it answers: then it is not the size that it minds.
    """

    def __init__(self) -> None:
        self.rows: dict[str, _Row] = {}  # by the label of the broker; nearly always empty

    def answered(self, label: str, size: int) -> None:
        """Note that a broker has answered a Produce request of `size` bytes."""
        row = self.rows.get(label)
        if row is None:
            return
        row.largest_answered = max(row.largest_answered, size)
        if size >= row.smallest:
            del self.rows[label]

    def lost(self, label: str, size: int) -> RepeatedClose | None:
        """Note a lost connection, by the size of its largest Produce request; return the row if it is long."""
        row = self.rows.get(label)
        if row is None or size <= row.largest_answered:
            self.rows[label] = _Row(1, size)
            return None
        row.closes += 1
        row.smallest = min(row.smallest, size)
        return RepeatedClose(row.smallest, row.closes) if row.closes >= CLOSES_THAT_NAME else None


@dataclass(frozen=True, slots=True)
class RepeatedClose:
    """A row of connections that were closed under requests of at least `request_bytes`."""

    request_bytes: int
    closes: int

    def __str__(self) -> str:
        """Return what is the case, and the option to change."""
        return (
            f"a request of {self.request_bytes} bytes closed the connection {self.closes} times in a row, and none as "
            f"large was answered: if the service limits requests, set max_request_size below {self.request_bytes}"
        )
