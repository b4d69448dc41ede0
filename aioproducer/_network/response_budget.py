"""Memory for answers of which a part has come, over all connections of a producer.

A broker that begins large answers and does not end them is closed once all connections hold more than the bound: the
connection that holds most goes, so those of other brokers are not hit. Answers that come in one piece count nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from aioproducer.errors import BrokerConnectionError, KafkaError


class HeldAnswers:
    """Bytes held, by connection.

    Args:
        largest_frame: bytes that one answer may have; all together may hold a quarter more.
    """

    def __init__(self, largest_frame: int) -> None:
        self.bound = largest_frame + largest_frame // 4
        self.total = 0
        self._held: dict[Callable[[KafkaError], None], int] = {}

    def note(self, close: Callable[[KafkaError], None], held: int) -> None:
        """Note how much a connection holds now; `close` closes it, and stands for it."""
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

    def __repr__(self) -> str:
        """Show how much is held."""
        return f"<HeldAnswers {self.total} of {self.bound} bytes, {len(self._held)} connections>"
