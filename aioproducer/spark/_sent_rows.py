"""Rows of a task that are on their way, so that the error of one that is not delivered names its row."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.errors import InvalidRecordError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer import BulkDelivery


class SentPart(NamedTuple):
    """Rows of one topic that were appended by one call."""

    topic: str
    delivery: BulkDelivery
    row_of: Callable[[int], int]
    """Turns a position in the call into the row of the task."""


class UndeliveredRow(NamedTuple):
    """A row that was not delivered."""

    topic: str
    row: int
    error: Exception


class SentRows:
    """Parts in their order; those that are delivered are dropped while others follow."""

    def __init__(self) -> None:
        self._parts: Final[deque[SentPart]] = deque()
        self._has_failed = False

    async def add(self, part: SentPart) -> None:
        """Keep a part until it is delivered."""
        self._parts.append(part)
        while self._parts and not self._has_failed and self._parts[0].delivery.done():
            self._has_failed = bool(await _failures_of(self._parts[0]))
            if not self._has_failed:
                self._parts.popleft()

    async def first_failure(self) -> tuple[UndeliveredRow, int] | None:
        """Return the row that was not delivered first, and how many were not; None if all were that have ended."""
        parts = [part for part in self._parts if part.delivery.done()]
        found = [(part, position, error) for part in parts for position, error in await _failures_of(part)]
        if not found:
            return None
        place = found[0][0].topic, _partition(found[0][2])
        # In a transaction the broker refuses a batch as a whole, and says which record was the cause.
        behind_first = found[0][2].record_index or 0 if isinstance(found[0][2], InvalidRecordError) else 0
        of_place = (each for each in found if (each[0].topic, _partition(each[2])) == place)
        part, position, error = next(islice(of_place, behind_first, None), found[0])
        return UndeliveredRow(part.topic, part.row_of(position), error), len(found)


def _partition(error: Exception) -> int | None:
    return getattr(error, "partition", None)


async def _failures_of(part: SentPart) -> list[tuple[int, Exception]]:
    """Return the rows of a part that has ended and their errors; a row that was refused at once is not one of them."""
    result = await part.delivery
    refused = part.delivery.refused
    return [(position, error) for position, error in result.errors.items() if position not in refused]
