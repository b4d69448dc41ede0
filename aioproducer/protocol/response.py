"""What every answer says besides what was asked: how long to leave the broker alone, and which codes stand in it.

Source: AbstractResponse in Apache Kafka (`throttleTimeMs`, `errorCounts`); KIP-219.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class Response(Protocol):
    """A decoded answer to any request; `NodeLink.heed` acts on it, whoever asked."""

    @property
    def throttle_time_ms(self) -> int:
        """How long the broker reads nothing from this connection; 0 also where the message has no such field."""

    @property
    def error_codes(self) -> Collection[int]:
        """Every code in it, of whatever it speaks: the whole answer, topics, partitions. 0 may be among them or not."""
