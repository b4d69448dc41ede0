"""What the producers of a trace know of themselves: producer id, epoch and next sequences of a transactional id.

They learn it from the broker's answers, as a client does: the same trace goes on with other epochs on brokers that
give others.
"""

from dataclasses import dataclass, field

NO_ID = 4_000_000_000
"""Identity of a transactional id that was never initialized: an unused producer id."""


@dataclass(slots=True)
class TransactionalProducer:
    """One transactional id, as its producer sees it."""

    producer_id: int = NO_ID
    epoch: int = 0
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)
    """The next one of each partition."""

    def become(self, producer_id: int, epoch: int) -> None:
        """Take another identity; its sequences begin at 0."""
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = producer_id, epoch
            self.sequences.clear()


class TransactionalProducers:
    """All transactional ids of a trace, by symbol."""

    def __init__(self) -> None:
        self._by_symbol: dict[str, TransactionalProducer] = {}

    def named(self, symbol: str) -> TransactionalProducer:
        """The producer of a transactional id."""
        return self._by_symbol.setdefault(symbol, TransactionalProducer())
