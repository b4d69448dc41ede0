"""Failures that nobody looked at, kept for the flush or close that raises them.

A failure is raised by every flush that was waiting for its record, else by the next one. What is kept between
flushes is bounded: the last hundred failed batches, and a count of the records of those before.

A batch that was trimmed to a count points to the tally that counts it, and not the other way round: a caller that still
holds a delivery of the batch, and looks at it however late, takes the record off the tally; of a batch that no caller
holds nothing is left but the number.

A count does not know its records: those that two flushes waited for are counted twice if one flush raised them and the
other was cancelled. It is never too small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer.errors import MAX_SUB_ERRORS, UndeliveredError

if TYPE_CHECKING:
    from aioproducer._native.delivery import BatchResult
    from aioproducer.errors import KafkaError

KEPT: Final = MAX_SUB_ERRORS


class FailedBatch:
    """A failed batch, and who will raise it: several flushes may have waited for it."""

    __slots__ = ("holders", "result", "was_raised")

    def __init__(self, result: BatchResult) -> None:
        """Be held by nobody."""
        self.result = result
        self.holders = 0
        self.was_raised = False


class Tally:
    """Number of failed records that only a count is left of; their results count down when a caller looks."""

    __slots__ = ("records",)

    def __init__(self) -> None:
        """Start at zero."""
        self.records = 0


class FailedBatches:
    """Failed batches in the order of their failing; the oldest give way to a count."""

    __slots__ = ("_alone", "_batches", "_example", "_shared")

    def __init__(self) -> None:
        """Start empty."""
        self._batches: list[FailedBatch] = []
        self._alone = [Tally()]  # of trimmed batches that no other flush holds; the first is this object's own, the
        self._shared = [Tally()]  # others were taken over; and of those that other flushes hold too
        self._example: KafkaError | None = None

    def add(self, batch: FailedBatch) -> None:
        """Keep a failed batch."""
        batch.holders += 1
        self._batches.append(batch)

    def add_all(self, later: FailedBatches) -> None:
        """Take over what another one holds."""
        self._alone += [tally for tally in later._alone if tally.records]  # of the same class
        self._shared += [tally for tally in later._shared if tally.records]
        self._example = self._example or later._example
        self._batches += later._batches

    @property
    def records(self) -> int:
        """How many records that failed nobody has looked at."""
        return self._trimmed + sum(batch.result.unseen() for batch in self._batches)

    def trim(self) -> None:
        """Keep no more than a hundred; call it when the tasks that wait for deliveries have been woken."""
        if len(self._batches) <= KEPT:
            return
        unseen = [batch for batch in self._batches if batch.result.unseen()]
        self._batches = unseen[-KEPT:]
        for batch in unseen[:-KEPT]:
            batch.holders -= 1
            tallies = self._shared if batch.holders else self._alone
            batch.result.count_in(tallies[0])
            self._example = batch.result.error

    def take_error(self) -> UndeliveredError | None:
        """Forget all, and return the error to raise for records nobody looked at; None if there are none."""
        unseen = [batch.result for batch in self._batches if batch.result.unseen()]
        count = self._trimmed + sum(result.unseen() for result in unseen)
        found = [result.error for result in unseen] if unseen else [self._example]
        for batch in self._batches:
            batch.was_raised = True
        self._batches, self._alone, self._shared, self._example = [], [Tally()], [Tally()], None
        errors = [error.fresh() for error in found if error is not None][-KEPT:]
        return UndeliveredError.of(errors, count=count) if count and errors else None

    def leave_to_others(self) -> None:
        """Forget what another flush has raised, or will raise: the caller of this one gave up."""
        alone = []
        for batch in self._batches:
            batch.holders -= 1
            if not batch.was_raised and not batch.holders:
                batch.holders = 1
                alone.append(batch)
        self._batches = alone
        self._shared = [Tally()]

    @property
    def _trimmed(self) -> int:
        return sum(tally.records for tally in (*self._alone, *self._shared))

    def __len__(self) -> int:
        """Return how many batches are kept, those that only a count is left of as one."""
        return len(self._batches) + bool(self._trimmed)


class UnseenFailures:
    """Hands each failed batch to the flushes that wait for it, or keeps it for the next."""

    def __init__(self) -> None:
        """Start with no failures and no flush."""
        self._kept = FailedBatches()
        self._flushes: dict[FailedBatches, int] = {}

    @property
    def keeps_any(self) -> bool:
        """Whether the next flush would raise, or look at, something that no flush has waited for."""
        return len(self._kept) > 0

    @property
    def records(self) -> int:
        """How many records have failed that the next flush would raise."""
        return self._kept.records

    def record(self, result: BatchResult, generation: int) -> None:
        """Note a failed batch of a flush generation."""
        waiting = [failed for failed, upto in self._flushes.items() if generation <= upto]
        batch = FailedBatch(result)
        for failed in waiting or [self._kept]:
            failed.add(batch)

    def trim(self) -> None:
        """Bound what is kept; call it when the tasks that wait for deliveries have been woken."""
        for failed in (self._kept, *self._flushes):
            failed.trim()

    def begin_flush(self, generation: int) -> FailedBatches:
        """Return what a flush up to `generation` will raise: what was kept, and what fails while it waits."""
        failed, self._kept = self._kept, FailedBatches()
        self._flushes[failed] = generation
        return failed

    def end_flush(self, failed: FailedBatches) -> None:
        """Collect no more for a flush.

        What it did not take, because it was cancelled, is kept for the next; but for what others took, or wait for.
        """
        del self._flushes[failed]
        failed.leave_to_others()
        if len(failed):
            failed.add_all(self._kept)
            self._kept = failed
