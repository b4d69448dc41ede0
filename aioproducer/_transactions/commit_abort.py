"""Ends transactions: commit, abort, and what becomes of those whose end nobody waits for.

Whoever commits or aborts waits beside the task that asks the brokers, so that being cancelled ends the wait alone:
what was begun goes on, and the same call again joins it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer._transactions.errors import end_unknown_error
from aioproducer._transactions.state_checks import TransactionStateChecks
from aioproducer._transactions.states import TransactionState
from aioproducer._transactions.waiting import TransactionCounts, TransactionLock, TransactionResult
from aioproducer.errors import IllegalStateError, ProducerClosedError, TransactionAbortedError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from aioproducer._transactions.manager import TransactionManager
    from aioproducer._transactions.prepared import PreparedTransaction
    from aioproducer._transactions.records import TransactionRecords
    from aioproducer._transactions.waiting import TransactionWaits
    from aioproducer.errors import KafkaError

CLOSING: Final = "the producer is closing: no transaction begins any more"

MAY_ASK_AGAIN_S: Final = 1.0
"""How long the turn of a transaction whose caller gave up on its end is kept for that caller, once it has ended."""

_STATE: Final = TransactionState


class TransactionCompleter:
    """The ends of one producer's transactions.

    Args:
        manager: decides.
        records: of the open transaction.
        waits: of those who commit and abort.
        loop: for the time.
        wake: has what is to be asked looked at.
    """

    def __init__(
        self,
        manager: TransactionManager,
        records: TransactionRecords,
        waits: TransactionWaits,
        *,
        loop: asyncio.AbstractEventLoop,
        wake: Callable[[], None],
    ) -> None:
        self.counts = TransactionCounts()
        self.refusals = TransactionStateChecks(manager)
        self.is_closing = False
        self._manager = manager
        self._records = records
        self._waits = waits
        self.turns = TransactionLock(loop, self.is_open)
        self._loop = loop
        self._wake = wake
        self._ending: TransactionResult | None = None
        self._flushing: asyncio.Future[None] | None = None
        self._is_abandoned = False
        self._patience: asyncio.TimerHandle | None = None

    # Commit

    async def commit(self, *, deadline: float) -> None:
        """Commit; join a commit that is under way, or was when its caller gave up.

        Raises:
            IllegalStateError: none is open, or it is being aborted.
            TransactionAbortableError: it must be aborted.
            TransactionTimeoutError: not committed yet.
            KafkaError: the producer has failed.
        """
        self.refusals.raise_fatal()
        ending = self._ending
        if ending is None or not ending.is_commit or not ending.may_be_joined:
            self.refusals.raise_abortable()
            self.refusals.check_open("commit")
            ending = self._begin_commit()
        await self._join(ending, deadline)

    def _begin_commit(self) -> TransactionResult:
        self._refuse_while_ending()
        self._manager.commit()
        ending = self._ending = TransactionResult(self._manager.number, is_commit=True, began_at=self._loop.time())
        self._flush()
        return ending

    def _refuse_while_ending(self) -> None:
        match self._manager.state:
            case _STATE.COMMITTING:
                raise IllegalStateError("the transaction is being committed: await commit_transaction() again")
            case _STATE.PREPARING:
                raise IllegalStateError("the transaction is being prepared: await prepare_transaction() again")
            case _STATE.ABORTING:
                raise IllegalStateError("the transaction is being aborted: await abort_transaction() again")

    def _flush(self) -> None:
        """Accept nothing more, and tell the manager when what was accepted has ended."""
        generation = self._records.close()
        if self._records.is_flushed(generation):
            self._manager.flushed()
            self._wake()
        else:
            self._flushing = self._records.when_flushed(generation)
            self._flushing.add_done_callback(self._go_on)

    def _go_on(self, flushing: asyncio.Future[None]) -> None:
        """Go on with the commit that has waited for its records; each that failed has been told of by now."""
        if flushing is not self._flushing:
            return  # that commit was given up as its last record ended: this may be the next one
        self._flushing = None
        if self._manager.state in {_STATE.COMMITTING, _STATE.PREPARING}:
            self._manager.flushed()
            self._wake()

    # Prepare

    async def prepare(self, *, deadline: float) -> PreparedTransaction:
        """Wait for all records and offsets, and leave the transaction open at the coordinator.

        Raises:
            IllegalStateError: no transaction is open, it is empty, or it is being committed or aborted.
            TransactionAbortableError: it must be aborted.
            TransactionTimeoutError: not prepared yet.
            KafkaError: the producer has failed.
        """
        self.refusals.raise_fatal()
        ending = self._ending
        if ending is None or not ending.is_prepare:
            self.refusals.raise_abortable()
            self.refusals.check_open("prepare")
            ending = self._begin_prepare()
        await self._join(ending, deadline)
        prepared = self._manager.prepared
        if prepared is None:  # a commit or abort has begun since
            raise IllegalStateError("the transaction was ended while another call prepared it")
        return prepared

    def _begin_prepare(self) -> TransactionResult:
        self._refuse_while_ending()
        self._manager.prepare(is_empty=not self._records.taken)
        ending = self._ending = TransactionResult(
            self._manager.number, is_commit=False, is_prepare=True, began_at=self._loop.time()
        )
        self._flush()
        return ending

    @property
    def _is_kept(self) -> bool:
        """Whether the transaction is prepared and a caller knows it: it outlives this producer."""
        ending = self._ending
        return self._manager.prepared is not None and ending is not None and ending.is_told

    # Abort

    async def abort(self, *, deadline: float, cause: Exception | None = None) -> None:
        """Abort; join an abort that is under way, or was when its caller gave up.

        Args:
            deadline: of the event loop's clock.
            cause: the exception that ended the body of the transaction; the `__cause__` of its records' errors, unless
                the transaction has failed of itself.

        Raises:
            IllegalStateError: none is open, or it is being committed.
            TransactionTimeoutError: not aborted yet.
            KafkaError: the producer has failed.
        """
        self.refusals.raise_fatal()
        ending = self._ending
        if ending is None or ending.is_commit or ending.is_prepare or not ending.may_be_joined:
            self.refusals.check_open("abort")
            ending = self._begin_abort(cause)
        await self._join(ending, deadline)

    def _begin_abort(self, cause: Exception | None = None) -> TransactionResult:
        # Refuse before storing anything: a later call would join the stored result of a refused one.
        if not self._manager.may_abort:
            raise IllegalStateError("the transaction is being committed: await commit_transaction() again")
        self.stop_flushing()
        reason = self._manager.error or cause
        self._manager.abort()
        self._end_commit()
        ending = self._ending = TransactionResult(self._manager.number, is_commit=False, began_at=self._loop.time())
        self._records.close()
        self._records.give_up(_left_behind("was aborted", reason))
        if self._manager.is_v2 or self._records.is_off_the_wire():
            self._manager.flushed()
        self._wake()
        return ending

    def _end_commit(self) -> None:
        """Tell whoever waits for a commit, or for offsets, that an abort has taken its place; nobody else would."""
        if self._ending is not None and not self._ending.is_done:
            what = "prepare" if self._ending.is_prepare else "commit"
            text = f"the transaction was aborted while its {what} waited for records"
            self._ending.end(TransactionAbortedError(text))
        self._waits.tell()

    def batch_resolved(self) -> None:
        """Go on with an abort under V1, which waits until the wire holds nothing of the transaction."""
        if self._manager.state is _STATE.ABORTING and self._records.is_off_the_wire():
            self._manager.flushed()
            self._wake()

    def stop_flushing(self) -> None:
        """Wait for no record any more."""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None

    def give_up_records(self, error: KafkaError) -> None:
        """Fail the records of a transaction that cannot be committed any more."""
        self._records.close()
        self._records.give_up(_left_behind("has failed", error))

    # Whose turn it is then

    async def _join(self, ending: TransactionResult, deadline: float) -> None:
        try:
            await self._waits.join(ending, deadline)
        finally:
            ending.is_left = ending.is_left or not ending.is_told
            if ending.is_told:
                self._forget_what_was_told(ending)
            if not self.is_open(ending.number):
                self._give_turn(ending)

    def _forget_what_was_told(self, ending: TransactionResult) -> None:
        """Keep `close` from raising the records' failures too, if the producer failed with the error just raised.

        In a `finally` they would hide it. After a commit that may have been done they are kept: they say more.
        """
        if self._manager.state is _STATE.FATAL_ERROR and ending.error is self._manager.error:
            self._records.forget_failures()

    def _give_turn(self, ending: TransactionResult) -> None:
        """Let the next one begin, once the end of this one was told.

        A caller that gave up may ask again: what it asks must not meet the transaction of another.
        """
        if ending.is_told or self._is_abandoned:
            self._stop_patience()
            self.turns.transaction_ended(ending.number)
        elif ending.is_left and self._patience is None and not self.is_closing:
            # Not at once: the second commit of a caller that gave up would commit what the next transaction has begun.
            self._patience = self._loop.call_later(MAY_ASK_AGAIN_S, self.turns.transaction_ended, ending.number)

    def _stop_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    # Without anybody who waits

    async def finish(self) -> None:
        """Abort the open transaction: the producer closes. One that is being committed may end."""
        self.is_closing = True
        self._stop_patience()
        self.turns.end(ProducerClosedError(CLOSING))
        self._waits.tell()
        while self.refusals.is_open and not self._is_kept:
            if self._manager.may_abort and self._manager.state is not _STATE.COMMITTING:
                self._begin_abort()
            await self._waits.until(lambda: not self.refusals.is_open or self._manager.error is not None, None, "")
        await self._waits.until(lambda: self._manager.has_ended, None, "")

    def abandon(self, number: int) -> None:
        """Let a transaction end in the background: nobody will ask for it again. One that is over stays so."""
        if not self.is_open(number):
            return
        self._is_abandoned = True
        if self._manager.state in {_STATE.IN_TRANSACTION, _STATE.ABORTABLE_ERROR}:
            self._begin_abort()

    def is_open(self, number: int) -> bool:
        """Whether this transaction has no end yet."""
        return self.refusals.is_open and self._manager.number == number

    def in_hand(self) -> TransactionHandle:
        """Return the transaction that is open now."""
        return TransactionHandle(self._manager.number, is_open=self.is_open, abandon=self.abandon)

    # What becomes of them

    def begun(self) -> None:
        """Note that a transaction has begun: nobody can join the end of the one before any more."""
        self._stop_patience()
        self._ending = None
        self._is_abandoned = False

    async def end_of_last(self, deadline: float) -> None:
        """Wait until no transaction is open, or the producer closes.

        Raises:
            IllegalStateError: one is, and nobody ends it.
            TransactionTimeoutError: it is not over yet.
            KafkaError: what it ended in.
        """
        if not self.refusals.is_open:
            return
        ending, is_abandoned = self._ending, self._is_abandoned
        if self._is_kept:
            raise IllegalStateError("a transaction is prepared: commit or abort it first")
        if not is_abandoned and (ending is None or self._manager.state is _STATE.IN_TRANSACTION):
            raise IllegalStateError("a transaction is open already: commit or abort it first")
        await self._waits.until(
            lambda: (
                not self.refusals.is_open or self.is_closing or bool(not is_abandoned and ending and ending.is_done)
            ),
            deadline,
            "the last transaction is not over",
        )
        if not is_abandoned and ending is not None and ending.is_done:
            await self._waits.join(ending, deadline)

    def settle(self) -> None:
        """Do what a new state means for who ends, or has left, the transaction."""
        manager, ending = self._manager, self._ending
        is_over = manager.has_ended or manager.error is not None
        if ending is not None and not ending.is_done and is_over:
            ending.end(self._error_of(ending))
            if manager.error is None and not ending.is_prepare:
                self.counts.note(ending, self._loop.time())
                self._records.forget_failures()
        if ending is not None and not self.refusals.is_open:
            self._give_turn(ending)
        if self._is_abandoned and manager.state is _STATE.ABORTABLE_ERROR:
            self._begin_abort()

    def _error_of(self, ending: TransactionResult) -> KafkaError | None:
        """The error of an ending, or None; it says so if a commit may have been done before the producer failed."""
        error, is_fatal = self._manager.error, self._manager.state is _STATE.FATAL_ERROR
        if error is None or not (ending.is_commit and is_fatal and self._manager.is_commit_in_doubt):
            return error
        return end_unknown_error(error)

    def __repr__(self) -> str:
        """Show what decides."""
        return f"<TransactionEndings {self._manager!r}>"


class TransactionHandle:
    """One transaction, for whoever began it: what is asked of it happens to no later one.

    Args:
        number: of the transaction.
        is_open: says of a number whether that transaction has no end yet.
        abandon: lets the transaction of a number end in the background.
    """

    __slots__ = ("_abandon", "_is_open", "_number")

    def __init__(self, number: int, *, is_open: Callable[[int], bool], abandon: Callable[[int], None]) -> None:
        self._number = number
        self._is_open = is_open
        self._abandon = abandon

    @property
    def is_open(self) -> bool:
        """Whether it has no end yet."""
        return self._is_open(self._number)

    def abandon(self) -> None:
        """Let it end in the background, if it has no end yet: nobody will ask for it again."""
        self._abandon(self._number)

    def __repr__(self) -> str:
        """Show which it is."""
        return f"<TransactionInHand {self._number} open={self.is_open}>"


def _left_behind(why: str, cause: Exception | None) -> TransactionAbortedError:
    error = TransactionAbortedError(f"the transaction {why} before the record was acknowledged")
    error.__cause__ = cause
    return error
