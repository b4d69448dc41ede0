"""Bound of the memory for incomplete responses, over all connections of a producer.

If all connections together hold more than the bound, the one that holds most is closed: so a broker that begins large
responses and does not end them does not affect the others. Responses that come in one piece are not counted.
"""

from __future__ import annotations

from collections.abc import Callable

from aioproducer.errors import BrokerConnectionError, KafkaError


class ResponseBudget:
    """Bytes of incomplete responses, by connection.

    Args:
        largest_frame: largest size of one response in bytes; all together may hold a quarter more.
    """

    def __init__(self, largest_frame: int) -> None:
        self.bound = largest_frame + largest_frame // 4
        self.total = 0
        self._held: dict[Callable[[KafkaError], None], int] = {}

    def note(self, close: Callable[[KafkaError], None], held: int) -> None:
        """Note how much a connection holds now; `close` closes the connection, and identifies it."""
        self.total += held - self._held.pop(close, 0)
        if held:
            self._held[close] = held
        while self.total > self.bound:
            largest = max(self._held, key=self._held.__getitem__)
            text = (
                f"{self._held[largest]} bytes of an answer have come, and its end has not; the answers under way on "
                f"all connections have {self.total} bytes, more than the {self.bound} allowed"
            )
            self.total -= self._held.pop(largest)
            largest(BrokerConnectionError(text))
