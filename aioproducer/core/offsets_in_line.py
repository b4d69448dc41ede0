"""The offsets that a transaction still has to commit, in the order in which they were given."""

from __future__ import annotations

from collections import deque

from aioproducer.core.transaction_requests import OffsetsToSend, TransactionRequest
from aioproducer.protocol.transaction_messages import ADD_OFFSETS_TO_TXN


class OffsetsInLine:
    """First come, first served; one that was given is asked until it is answered, whoever still waits for it."""

    __slots__ = ("_line",)

    def __init__(self) -> None:
        self._line: deque[OffsetsToSend] = deque()

    def put(self, offsets: OffsetsToSend) -> OffsetsToSend:
        """Add offsets, or return those in line that say the same.

        A caller that timed out asks for the same again, and would have them sent once for each call. What is last
        of a group in line counts alone: were others of the group given after them, they would be overwritten.
        """
        for last in reversed(self._line):
            if last.group.group_id == offsets.group.group_id:
                if (last.group, last.offsets) == (offsets.group, offsets.offsets):
                    return last
                break
        self._line.append(offsets)
        return offsets

    @property
    def first(self) -> OffsetsToSend:
        """What is to be asked for now."""
        return self._line[0]

    def forward(self, request: TransactionRequest) -> None:
        """Note that a request for offsets was answered: their group is added, or they are committed."""
        offsets = request.subject
        assert isinstance(offsets, OffsetsToSend)
        if request.api is ADD_OFFSETS_TO_TXN:
            offsets.is_added = True
            return
        offsets.is_done = True
        if offsets in self._line:
            self._line.remove(offsets)

    def clear(self) -> None:
        """Forget what was not asked yet."""
        self._line.clear()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._line)

    def __repr__(self) -> str:
        """Show how many."""
        return f"<OffsetsInLine {len(self._line)}>"
