"""Failures whose deliveries were not looked at, kept for the flush or close that raises them.

A failure is raised by every flush that was waiting for its record, else by the next flush. Kept between flushes are the
last hundred failed batches, and a count of the records of those before.

A trimmed batch points to the `FailureCount` that includes it: a caller that still holds a delivery of the batch and
looks at it, however late, lowers that number. Of a batch that no caller holds only the number is left.

A `FailureCount` does not know its records: those that two flushes waited for are counted twice if one flush raised them
and the other was cancelled. The number is never too small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aioproducer.errors import MAX_SUB_ERRORS, KafkaError, UndeliveredError

if TYPE_CHECKING:
    from aioproducer._native.delivery import BatchResult

KEPT: Final = MAX_SUB_ERRORS


@dataclass(slots=True, eq=False)
class FailedBatch:
    """A failed batch, and the number of flushes that will raise it."""

    result: BatchResult
    holders: int = 0
    was_raised: bool = False


@dataclass(slots=True, eq=False)
class FailureCount:
    """Number of failed records of trimmed batches; it falls when a caller looks at one of them."""

    records: int = 0


class FailedBatches:
    """Failed batches, oldest first; the oldest are trimmed to a count."""

    __slots__ = ("_alone", "_batches", "_example", "_shared")

    def __init__(self) -> None:
        self._batches: list[FailedBatch] = []
        # Of trimmed batches that no other flush holds, and of those that others hold; the first of each is its own, the
        # others were taken over.
        self._alone, self._shared = [FailureCount()], [FailureCount()]
        self._example: KafkaError | None = None

    def add(self, batch: FailedBatch) -> None:
        batch.holders += 1
        self._batches.append(batch)

    def add_all(self, later: FailedBatches) -> None:
        self._alone += [count for count in later._alone if count.records]  # of the same class
        self._shared += [count for count in later._shared if count.records]
        self._example = self._example or later._example
        self._batches += later._batches

    @property
    def records(self) -> int:
        """Number of failed records that were not looked at."""
        return self._trimmed + sum(batch.result.unseen() for batch in self._batches)

    def trim(self) -> None:
        """Keep at most a hundred batches; call it after the waiters of deliveries were woken."""
        if len(self._batches) <= KEPT:
            return
        unseen = [batch for batch in self._batches if batch.result.unseen()]
        self._batches = unseen[-KEPT:]
        for batch in unseen[:-KEPT]:
            batch.holders -= 1
            counts = self._shared if batch.holders else self._alone
            batch.result.count_in(counts[0])
            self._example = batch.result.error

    def take_error(self) -> UndeliveredError | None:
        """Forget all failures, and return the error to raise for those not looked at, if any."""
        unseen = [batch.result for batch in self._batches if batch.result.unseen()]
        count = self._trimmed + sum(result.unseen() for result in unseen)
        found = [result.error for result in unseen] if unseen else [self._example]
        for batch in self._batches:
            batch.was_raised = True
        self._batches, self._alone, self._shared, self._example = [], [FailureCount()], [FailureCount()], None
        errors = [error.fresh() for error in found if error is not None][-KEPT:]
        return UndeliveredError.of(errors, count=count) if count and errors else None

    def leave_to_others(self) -> None:
        """Forget what another flush has raised or will raise: the caller of this flush was cancelled."""
        alone = []
        for batch in self._batches:
            batch.holders -= 1
            if not batch.was_raised and not batch.holders:
                batch.holders = 1
                alone.append(batch)
        self._batches = alone
        self._shared = [FailureCount()]

    @property
    def _trimmed(self) -> int:
        return sum(count.records for count in (*self._alone, *self._shared))

    def __len__(self) -> int:
        """Return the number of kept batches; all trimmed ones count as one."""
        return len(self._batches) + bool(self._trimmed)


class UnseenFailures:
    """Assigns each failed batch to the flushes that wait for it, or keeps it for the next flush."""

    def __init__(self) -> None:
        self._kept = FailedBatches()
        self._flushes: dict[FailedBatches, int] = {}

    @property
    def keeps_any(self) -> bool:
        return len(self._kept) > 0

    @property
    def records(self) -> int:
        """Number of failed records that the next flush would raise."""
        return self._kept.records

    def record(self, result: BatchResult, generation: int) -> None:
        waiting = [failed for failed, upto in self._flushes.items() if generation <= upto]
        batch = FailedBatch(result)
        for failed in waiting or [self._kept]:
            failed.add(batch)

    def trim(self) -> None:
        """Bound what is kept; call it after the waiters of deliveries were woken."""
        for failed in (self._kept, *self._flushes):
            failed.trim()

    def begin_flush(self, generation: int) -> FailedBatches:
        """Return the failures that a flush up to `generation` will raise: those kept, and those while it waits."""
        failed, self._kept = self._kept, FailedBatches()
        self._flushes[failed] = generation
        return failed

    def end_flush(self, failed: FailedBatches) -> None:
        """End a flush; failures that it did not take, and that no other flush takes, are kept for the next one."""
        del self._flushes[failed]
        failed.leave_to_others()
        if len(failed):
            failed.add_all(self._kept)
            self._kept = failed
