"""Counts of unfinished work, so that a flush waits for exactly the records accepted before it.

Every unit of work (a batch, or a record in a wait queue) belongs to the generation in which it was accepted, and
counts there until it ends. A flush closes the current generation and waits until that one and all earlier ones are at
zero. Two plain counters of accepted and finished records would let later records stand in for an earlier one.

Source: RecordAccumulator.awaitFlushCompletion and IncompleteBatches in Apache Kafka, which copy the set instead.
"""

from __future__ import annotations

from collections.abc import Callable


class FlushGenerations:
    """Counts unfinished work by generation.

    Args:
        on_finished: called while `is_awaited` when a generation has ended; earlier ones may not have.
    """

    def __init__(self, on_finished: Callable[[], None]) -> None:
        self.current = 0
        self._unfinished: dict[int, int] = {}
        self.is_awaited = False  # some flush waits
        self._on_finished = on_finished

    def enter(self) -> int:
        self._unfinished[self.current] = self._unfinished.get(self.current, 0) + 1
        return self.current

    def enter_again(self, generation: int) -> None:
        """Count one more unit in an unfinished generation: a split batch, or a record that has waited."""
        self._unfinished[generation] = self._unfinished.get(generation, 0) + 1

    def leave(self, generation: int) -> None:
        left = self._unfinished[generation] - 1
        if left:
            self._unfinished[generation] = left
            return
        del self._unfinished[generation]
        if self.is_awaited:
            self._on_finished()

    def close(self) -> int:
        """End the current generation and return it; later work belongs to the next."""
        closed = self.current
        self.current += 1
        return closed

    def is_finished(self, generation: int) -> bool:
        return min(self._unfinished, default=generation + 1) > generation

    @property
    def unfinished(self) -> int:
        return sum(self._unfinished.values())

    def __repr__(self) -> str:
        return f"<FlushGenerations current={self.current} unfinished={self._unfinished}>"
