"""State of the open transaction, or else of the last: its requests and their responses, and offsets to commit."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.messages import INIT_PRODUCER_ID
from aioproducer._protocol.transaction_admin_messages import DESCRIBE_TRANSACTIONS, ONGOING, TransactionDescription
from aioproducer._protocol.transaction_messages import ADD_OFFSETS_TO_TXN, END_TXN, FIND_COORDINATOR

if TYPE_CHECKING:
    from aioproducer._transactions.requests import OffsetsToSend, TransactionRequest


_OF_NO_TRANSACTION: Final = frozenset((FIND_COORDINATOR, INIT_PRODUCER_ID, DESCRIBE_TRANSACTIONS))


@dataclass(slots=True)
class OpenTransaction:
    is_flushed: bool = False  # every batch has ended; an abort under V2 does not wait for that
    is_known: bool = False  # the coordinator knows of the transaction, or brokers do that inform the coordinator
    is_commit_sent: bool = False  # EndTxn to commit was sent: only its response decides
    is_outdated: bool = False  # a leader has a newer epoch
    has_stray: bool = False  # a request was not answered: a copy of it may arrive late
    is_open_again: bool = False  # a late copy of a V1 request has begun another transaction under the same identity
    asked: int = 0  # number of requests to coordinators; brokers that got records may have informed them, too
    commits_in_doubt: int = 0  # number of EndTxn requests to commit without a response that excludes the commit
    _was_ended_again: bool = False

    def sent(self, request: TransactionRequest) -> None:
        self.asked += request.api not in _OF_NO_TRANSACTION
        if _is_commit(request):
            self.is_commit_sent = True
            self.commits_in_doubt += 1

    def may_be_done(self, request: TransactionRequest) -> None:
        """Note a request without a response, or with one that leaves open whether it was done."""
        self.has_stray = self.has_stray or request.api not in _OF_NO_TRANSACTION

    def was_answered(self, request: TransactionRequest) -> None:
        """Note a response that says whether the request was done."""
        # One response is for one attempt: PRODUCER_FENCED to a repeated EndTxn leaves open whether the first one
        # committed.
        self.commits_in_doubt -= _is_commit(request)

    def went_unseen(self) -> None:
        """Note that a request was refused before it changed the coordinator's transaction."""
        self.asked -= not self.has_stray

    def found(self, description: TransactionDescription | None) -> None:
        """Note the coordinator's description after the transaction has ended.

        InitProducerId would abort an open one under an epoch that no producer learns, and refuse the current one from
        then on.
        """
        self.is_open_again = description is not None and description.state == ONGOING and not self._was_ended_again

    def ended_again(self) -> None:
        """Note the response to the end of what a late copy began; it is ended only once."""
        self.is_open_again, self._was_ended_again = False, True

    def is_broken_promise(self, code: int, *, is_v2: bool, is_abort: bool) -> bool:
        """Whether EndTxn was refused because the coordinator lacks a transaction that it should have.

        V1 has no valid reason for that once the coordinator knows of it; nor is there one once a commit was sent before
        this abort.
        """
        is_known_to_v1 = self.is_known and not is_v2
        return code == ErrorCode.INVALID_TXN_STATE and (is_known_to_v1 or (is_abort and self.is_commit_sent))

    def downgraded(self) -> None:
        """Note that the transaction continues as V1, unknown to the coordinator."""
        self.is_known, self.has_stray = False, True


def _is_commit(request: TransactionRequest) -> bool:
    return request.api is END_TXN and request.subject is True


class PendingOffsets:
    """Queue of offsets to commit with the transaction.

    A request is repeated until it is answered, even if its caller no longer waits.
    """

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[OffsetsToSend] = deque()

    def put(self, offsets: OffsetsToSend) -> OffsetsToSend:
        """Add offsets, or return the queued request with the same offsets.

        A caller that timed out calls again, and should not have its offsets sent twice. Only the last queued request of
        the group may be joined: after others of that group the same offsets would have to be sent again.
        """
        for last in reversed(self._queue):
            if last.group.group_id == offsets.group.group_id:
                if (last.group, last.offsets) == (offsets.group, offsets.offsets):
                    return last
                break
        self._queue.append(offsets)
        return offsets

    @property
    def first(self) -> OffsetsToSend:
        return self._queue[0]

    def forward(self, request: TransactionRequest) -> None:
        """Note that a request for offsets was answered: their group is added, or they are committed."""
        offsets = cast("OffsetsToSend", request.subject)
        if request.api is ADD_OFFSETS_TO_TXN:
            offsets.is_added = True
            return
        offsets.is_done = True
        if offsets in self._queue:
            self._queue.remove(offsets)

    def clear(self) -> None:
        self._queue.clear()

    def __bool__(self) -> bool:
        return bool(self._queue)
