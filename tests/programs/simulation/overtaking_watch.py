"""Looks at records that wait for memory: OVERTAKEN, one of them is overtaken by later ones in a way that has no end.

In each queue the earliest call is placed first. Once the earliest call of all queues got no memory, nothing is taken
from the memory that all nodes share but by it and by records of earlier calls: so however large it is, it gets its room
when what was lent before has come back. Others may take what is reserved for their own nodes, for as long as they like.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioproducer._accumulator.buffer_pool import BufferPool
    from aioproducer._accumulator.memory_wait_queues import BufferWaiters, Place
    from aioproducer._accumulator.open_batches import OpenBatches
    from aioproducer._accumulator.wait_queue import WaitingRecord
    from aioproducer._native.append import OpenPartition

_by_call = attrgetter("call_order")


class OvertakingWatch:
    """Stands before what serves those who wait, and what lends memory to batches.

    Args:
        memory: the lines.
        open_batches: take the memory.
        pool: lends it.
        violated: is told of an invariant that was broken, and how.
    """

    def __init__(
        self,
        memory: BufferWaiters,
        open_batches: OpenBatches,
        pool: BufferPool,
        *,
        violated: Callable[[str, str], None],
    ) -> None:
        self._memory = memory
        self._pool = pool
        self._violated = violated
        self._claimant: WaitingRecord | None = None
        """The earliest of all waiting calls, once it was tried and got no memory."""
        self._placing: WaitingRecord | None = None
        self._serve, self._place, self._make_room = memory.serve, memory._place, open_batches.make_room  # noqa: SLF001  # invariants are about what is inside
        memory.serve = self.serve  # type: ignore[method-assign]  # to see who is left
        memory._place = self.place  # type: ignore[method-assign]  # noqa: SLF001  # to see who is placed
        open_batches.make_room = self.make_room  # type: ignore[method-assign]  # to see what is lent

    def serve(self) -> None:
        """Serve, and note who has the first claim from now on."""
        self._serve()
        self._claimant = min(self._memory, key=_by_call, default=None)

    def place(self, record: WaitingRecord, place: Place) -> bool:
        """Place a record, which must be the first of its line."""
        first = min(self._memory._lines[place], key=_by_call)  # noqa: SLF001  # as above
        if record is not first:
            self._violated("OVERTAKEN", f"call {record.call_order} is placed before {first.call_order} of its line")
        self._placing = record
        try:
            return self._place(record, place)
        finally:
            self._placing = None

    def make_room(self, slot: OpenPartition, size: int) -> bool:
        """Lend memory to a batch: common memory only to callers before the one with the first claim."""
        claimant, before = self._claimant, self._pool._used[None]  # noqa: SLF001  # as above
        is_made = self._make_room(slot, size)
        taken = self._pool._used[None] - before  # noqa: SLF001  # as above
        if claimant is None or not claimant.is_waiting or taken <= 0:
            return is_made
        if self._placing is None or self._placing.call_order > claimant.call_order:
            who = "a record that did not wait" if self._placing is None else f"call {self._placing.call_order}"
            text = f"{who} takes {taken} bytes that call {claimant.call_order} with {claimant.size} bytes waits for"
            self._violated("OVERTAKEN", text)
        return is_made
