"""Failures that nobody looked at, kept for the flush or close that raises them.

A failure is raised by every flush that was waiting for its record, else by the next one. What is kept between
flushes is bounded: the last hundred failed batches, and a count of the records of those before.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from aioproducer.errors import MAX_SUB_ERRORS, UndeliveredError

if TYPE_CHECKING:
    from aioproducer._native.delivery import BatchResult

KEPT: Final = MAX_SUB_ERRORS


class FailedBatches:
    """Failed batches in the order of their failing; the oldest give way to a count."""

    __slots__ = ("_results", "_uncounted")

    def __init__(self) -> None:
        """Start empty."""
        self._results: deque[BatchResult] = deque()
        self._uncounted = 0

    def add(self, result: BatchResult) -> None:
        """Keep a failed batch."""
        self._results.append(result)
        if len(self._results) > KEPT:
            self._uncounted += self._results.popleft().unseen()

    def add_all(self, later: FailedBatches) -> None:
        """Take over what another one holds."""
        self._uncounted += later._uncounted  # of the same class
        for result in later._results:
            self.add(result)

    def take_error(self) -> UndeliveredError | None:
        """Forget all, and return the error to raise for records nobody looked at; None if there are none."""
        unseen = [result for result in self._results if result.unseen()]
        count = self._uncounted + sum(result.unseen() for result in unseen)
        self._results.clear()
        self._uncounted = 0
        errors = [result.error.fresh() for result in unseen if result.error is not None]
        return UndeliveredError.of(errors, count=count) if count and errors else None

    def __len__(self) -> int:
        """How many batches are kept."""
        return len(self._results)


class UnseenFailures:
    """Hands each failed batch to the flushes that wait for it, or keeps it for the next."""

    def __init__(self) -> None:
        """Start with no failures and no flush."""
        self._kept = FailedBatches()
        self._flushes: dict[FailedBatches, int] = {}

    def record(self, result: BatchResult, generation: int) -> None:
        """Note a failed batch of a flush generation."""
        waiting = [failed for failed, upto in self._flushes.items() if generation <= upto]
        for failed in waiting or [self._kept]:
            failed.add(result)

    def begin_flush(self, generation: int) -> FailedBatches:
        """Return what a flush up to `generation` will raise: what was kept, and what fails while it waits."""
        failed, self._kept = self._kept, FailedBatches()
        self._flushes[failed] = generation
        return failed

    def end_flush(self, failed: FailedBatches) -> None:
        """Collect no more for a flush. What it did not take, because it was cancelled, is kept for the next."""
        del self._flushes[failed]
        if len(failed):
            failed.add_all(self._kept)
            self._kept = failed
