"""What is known of the transaction that is open, or was last: what went out for it, and what was answered.

The offsets that a transaction still has to commit, in the order in which they were given.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.messages import INIT_PRODUCER_ID
from aioproducer._protocol.transaction_admin_messages import DESCRIBE_TRANSACTIONS, ONGOING
from aioproducer._protocol.transaction_messages import ADD_OFFSETS_TO_TXN, END_TXN, FIND_COORDINATOR

if TYPE_CHECKING:
    from aioproducer._protocol.transaction_admin_messages import TransactionDescription
    from aioproducer._transactions.requests import OffsetsToSend, TransactionRequest


_OF_NO_TRANSACTION: Final = frozenset((FIND_COORDINATOR, INIT_PRODUCER_ID, DESCRIBE_TRANSACTIONS))


@dataclass(slots=True)
class OpenTransaction:
    """Begins anew with each transaction."""

    is_flushed: bool = False
    """Every batch of it has ended; to abort under V2 they need not."""
    is_known: bool = False
    """The coordinator has been told of it, or brokers were that tell the coordinator."""
    is_commit_sent: bool = False
    """EndTxn to commit has gone out: its answer alone decides."""
    is_outdated: bool = False
    """A leader has a newer epoch."""
    has_stray: bool = False
    """A request went unanswered: a copy of it may arrive late."""
    is_open_again: bool = False
    """It has ended, and the coordinator has one open under its identity: a late copy of a V1 request has begun it."""
    asked: int = 0
    """So often a coordinator was; brokers that records went to may have told it, too."""
    commits_in_doubt: int = 0
    """So often EndTxn went out to commit without an answer that excludes it."""
    _was_ended_again: bool = False

    def sent(self, request: TransactionRequest) -> None:
        """Note that a request is handed to a connection."""
        self.asked += request.api not in _OF_NO_TRANSACTION
        if _is_commit(request):
            self.is_commit_sent = True
            self.commits_in_doubt += 1

    def may_be_done(self, request: TransactionRequest) -> None:
        """Note that a request had no answer, or one that leaves open whether it was done."""
        self.has_stray = self.has_stray or request.api not in _OF_NO_TRANSACTION

    def was_answered(self, request: TransactionRequest) -> None:
        """Note that the answer to a request says what became of it."""
        # One response is for one attempt: PRODUCER_FENCED to a repeated EndTxn leaves open whether the first one
        # committed.
        self.commits_in_doubt -= _is_commit(request)

    def went_unseen(self) -> None:
        """Note that a request was refused before the coordinator's transaction heard of it."""
        self.asked -= not self.has_stray

    def found(self, description: TransactionDescription | None) -> None:
        """Note what the coordinator says once the transaction has ended; InitProducerId would abort what is open.

        It would do so under an epoch that nobody is told of, and refuse the present one from then on.
        """
        self.is_open_again = description is not None and description.state == ONGOING and not self._was_ended_again

    def ended_again(self) -> None:
        """Note what has been answered to the end of what a late copy began; it is asked for once."""
        self.is_open_again, self._was_ended_again = False, True

    def is_broken_promise(self, code: int, *, is_v2: bool, is_abort: bool) -> bool:
        """Whether EndTxn was refused for want of a transaction that there should be.

        The coordinator had been told of it, and V1 gives no reason; or a commit of it was sent before this abort.
        """
        is_known_to_v1 = self.is_known and not is_v2
        return code == ErrorCode.INVALID_TXN_STATE and (is_known_to_v1 or (is_abort and self.is_commit_sent))

    def downgraded(self) -> None:
        """Note that it goes on as V1, of which the coordinator has not heard."""
        self.is_known, self.has_stray = False, True


def _is_commit(request: TransactionRequest) -> bool:
    return request.api is END_TXN and request.subject is True


class PendingOffsets:
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
        offsets = cast("OffsetsToSend", request.subject)
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
