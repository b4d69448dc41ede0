"""Commit and abort, also without a caller, and the records that they wait for.

Callers wait beside the task that sends the requests. A cancelled call only stops waiting: the commit or abort goes
on, and the same call again joins it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from aioproducer._transactions.prepared import PreparedTransaction
from aioproducer._transactions.state_checks import TransactionStateChecks
from aioproducer._transactions.states import TransactionState
from aioproducer._transactions.verdicts import end_unknown_error
from aioproducer._transactions.waiting import TransactionCounts, TransactionLock, TransactionResult, TransactionWaits
from aioproducer.errors import (
    IllegalStateError,
    KafkaError,
    ProducerClosedError,
    TransactionAbortedError,
    TransactionError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from aioproducer._accumulator.partition import Partition
    from aioproducer._accumulator.record_accumulator import RecordAccumulator
    from aioproducer._accumulator.wait_queues import WaitQueues
    from aioproducer._native.append import RecordAppender
    from aioproducer._sender.completion import Completion
    from aioproducer._sender.flush_waiters import FlushWaiters
    from aioproducer._sender.settlement import Settlement
    from aioproducer._transactions.manager import TransactionManager

CLOSING: Final = "the producer is closing: no transaction begins any more"

MAY_ASK_AGAIN_S: Final = 1.0
"""Time that a caller whose commit or abort was cancelled has to call again before the next transaction begins."""

_STATE: Final = TransactionState


class TransactionCompleter:
    """Ends the transactions of one producer; `wake` is called when there may be a request to send."""

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
        self.state_checks = TransactionStateChecks(manager)
        self.is_closing = False
        self._manager = manager
        self._records = records
        self._waits = waits
        self.lock = TransactionLock(loop, self.is_open)
        self._loop = loop
        self._wake = wake
        self._result: TransactionResult | None = None
        self._flushing: asyncio.Future[None] | None = None
        self._is_abandoned = False
        self._patience: asyncio.TimerHandle | None = None

    # Commit

    async def commit(self, *, deadline: float) -> None:
        """Commit, or join the commit that is already running."""
        self.state_checks.raise_fatal()
        result = self._result
        if result is None or not result.is_commit or not result.may_be_joined:
            self.state_checks.raise_abortable()
            self.state_checks.check_open("commit")
            result = self._begin_commit()
        await self._join(result, deadline)

    def _begin_commit(self) -> TransactionResult:
        self._refuse_while_ending()
        self._manager.commit()
        result = self._result = TransactionResult(self._manager.number, is_commit=True, began_at=self._loop.time())
        self._flush()
        return result

    def _refuse_while_ending(self) -> None:
        match self._manager.state:
            case _STATE.COMMITTING:
                raise IllegalStateError("the transaction is being committed: await commit_transaction() again")
            case _STATE.PREPARING:
                raise IllegalStateError("the transaction is being prepared: await prepare_transaction() again")
            case _STATE.ABORTING:
                raise IllegalStateError("the transaction is being aborted: await abort_transaction() again")

    def _flush(self) -> None:
        """Accept nothing more, and report to the manager when what was accepted has ended."""
        generation = self._records.close()
        if self._records.is_flushed(generation):
            self._manager.flushed()
            self._wake()
        else:
            self._flushing = self._records.when_flushed(generation)
            self._flushing.add_done_callback(self._go_on)

    def _go_on(self, flushing: asyncio.Future[None]) -> None:
        """Go on with the commit or prepare after the last record has ended; those that failed have been reported."""
        if flushing is not self._flushing:
            return  # of an earlier commit, which was aborted as its last record ended
        self._flushing = None
        if self._manager.state in {_STATE.COMMITTING, _STATE.PREPARING}:
            self._manager.flushed()
            self._wake()

    # Prepare

    async def prepare(self, *, deadline: float) -> PreparedTransaction:
        """Wait for all records and offsets, and leave the transaction open at the coordinator."""
        self.state_checks.raise_fatal()
        result = self._result
        if result is None or not result.is_prepare:
            self.state_checks.raise_abortable()
            self.state_checks.check_open("prepare")
            result = self._begin_prepare()
        await self._join(result, deadline)
        prepared = self._manager.prepared
        if prepared is None:  # a commit or abort has begun since
            raise IllegalStateError("the transaction was ended while another call prepared it")
        return prepared

    def _begin_prepare(self) -> TransactionResult:
        self._refuse_while_ending()
        self._manager.prepare(is_empty=not self._records.taken)
        result = self._result = TransactionResult(
            self._manager.number, is_commit=False, is_prepare=True, began_at=self._loop.time()
        )
        self._flush()
        return result

    async def complete(self, prepared: PreparedTransaction, *, is_commit: bool, deadline: float) -> bool:
        """Commit or abort a transaction that this producer has prepared; False if another one has.

        Raises:
            IllegalStateError: this producer has begun another transaction since.
            TransactionError: it has ended otherwise.
            KafkaError: as `commit` and `abort`.
        """
        if self._manager.last_prepared != prepared:
            # Under V1 the next transaction has the same identity, and would be ended.
            if self._manager.has_identity_of(prepared):
                raise IllegalStateError("the prepared transaction has ended: this producer has begun another one since")
            return False
        if self.state_checks.is_open:
            await (self.commit(deadline=deadline) if is_commit else self.abort(deadline=deadline))
            return True
        self.state_checks.raise_fatal()
        if self._result is not None and self._result.is_commit is not is_commit:
            raise TransactionError(f"the prepared transaction was {'aborted' if is_commit else 'committed'} before")
        return True

    @property
    def _is_kept(self) -> bool:
        """Whether the transaction is prepared and a caller knows it: it outlives this producer."""
        result = self._result
        return self._manager.prepared is not None and result is not None and result.is_reported

    # Abort

    async def abort(self, *, deadline: float, cause: Exception | None = None) -> None:
        """Abort, or join the abort that is already running.

        Args:
            cause: exception that ended the body of the transaction; becomes `__cause__` of its records' errors, unless
                the transaction has failed by itself.
        """
        self.state_checks.raise_fatal()
        result = self._result
        if result is None or result.is_commit or result.is_prepare or not result.may_be_joined:
            self.state_checks.check_open("abort")
            result = self._begin_abort(cause)
        await self._join(result, deadline)

    def _begin_abort(self, cause: Exception | None = None) -> TransactionResult:
        # Refuse before storing anything: a later call would join the stored result of a refused one.
        if not self._manager.may_abort:
            raise IllegalStateError("the transaction is being committed: await commit_transaction() again")
        self.stop_flushing()
        reason = self._manager.error or cause
        self._manager.abort()
        self._end_replaced()
        result = self._result = TransactionResult(self._manager.number, is_commit=False, began_at=self._loop.time())
        self._records.close()
        self._records.give_up(_left_behind("was aborted", reason))
        if self._manager.is_v2 or self._records.is_off_the_wire():
            self._manager.flushed()
        self._wake()
        return result

    def _end_replaced(self) -> None:
        """Wake the callers of a commit, a prepare or `send_offsets` that an abort has replaced."""
        if self._result is not None and not self._result.is_done:
            what = "prepare" if self._result.is_prepare else "commit"
            text = f"the transaction was aborted while its {what} waited for records"
            self._result.end(TransactionAbortedError(text))
        self._waits.notify()

    def batch_resolved(self) -> None:
        """Continue an abort under V1, which waits until no batch of the transaction is on the wire."""
        if self._manager.state is _STATE.ABORTING and self._records.is_off_the_wire():
            self._manager.flushed()
            self._wake()

    def stop_flushing(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None

    def give_up_records(self, error: KafkaError) -> None:
        """Fail the records of a transaction that can no longer be committed."""
        self._records.close()
        self._records.give_up(_left_behind("has failed", error))

    # The next transaction

    async def _join(self, result: TransactionResult, deadline: float) -> None:
        try:
            await self._waits.join(result, deadline)
        finally:
            result.is_left = result.is_left or not result.is_reported
            if result.is_reported:
                self._forget_reported(result)
            if not self.is_open(result.number):
                self._release_lock(result)

    def _forget_reported(self, result: TransactionResult) -> None:
        """Keep `close` from raising the records' failures too, if the producer failed with the error just raised.

        In a `finally` they would hide that error. They are kept after a commit in doubt, because they say more.
        """
        if self._manager.state is _STATE.FATAL_ERROR and result.error is self._manager.error:
            self._records.forget_failures()

    def _release_lock(self, result: TransactionResult) -> None:
        """Let the next transaction begin once a caller has learnt the end of this one.

        A caller that gave up may call again, and must not meet the transaction of another task.
        """
        if result.is_reported or self._is_abandoned:
            self._stop_patience()
            self.lock.transaction_ended(result.number)
        elif result.is_left and self._patience is None and not self.is_closing:
            # Not at once: the second commit of a caller that gave up would commit what the next transaction has begun.
            self._patience = self._loop.call_later(MAY_ASK_AGAIN_S, self.lock.transaction_ended, result.number)

    def _stop_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    # Without a caller

    async def finish(self) -> None:
        """Abort the open transaction because the producer closes; a running commit may end."""
        self.is_closing = True
        self._stop_patience()
        self.lock.end(ProducerClosedError(CLOSING))
        self._waits.notify()
        while self.state_checks.is_open and not self._is_kept:
            if self._manager.may_abort and self._manager.state is not _STATE.COMMITTING:
                self._begin_abort()
            await self._waits.until(lambda: not self.state_checks.is_open or self._manager.error is not None, None, "")
        await self._waits.until(lambda: self._manager.has_ended, None, "")

    def abandon(self, number: int) -> None:
        """Let a transaction end in the background, because no caller will end it."""
        if not self.is_open(number):
            return
        self._is_abandoned = True
        if self._manager.state in {_STATE.IN_TRANSACTION, _STATE.ABORTABLE_ERROR}:
            self._begin_abort()

    def is_open(self, number: int) -> bool:
        """Whether the transaction with this number has not ended."""
        return self.state_checks.is_open and self._manager.number == number

    def handle(self) -> TransactionHandle:
        return TransactionHandle(self._manager.number, is_open=self.is_open, abandon=self.abandon)

    # Beginnings and ends

    def begun(self) -> None:
        """Note that a transaction has begun: the end of the previous one can no longer be joined."""
        self._stop_patience()
        self._result = None
        self._is_abandoned = False

    async def end_of_last(self, deadline: float) -> None:
        """Wait until no transaction is open, or the producer closes; raises if no caller is ending the open one."""
        if not self.state_checks.is_open:
            return
        result, is_abandoned = self._result, self._is_abandoned
        if self._is_kept:
            raise IllegalStateError("a transaction is prepared: commit or abort it first")
        if not is_abandoned and (result is None or self._manager.state is _STATE.IN_TRANSACTION):
            raise IllegalStateError("a transaction is open already: commit or abort it first")
        await self._waits.until(
            lambda: (
                not self.state_checks.is_open or self.is_closing or bool(not is_abandoned and result and result.is_done)
            ),
            deadline,
            "the last transaction is not over",
        )
        if not is_abandoned and result is not None and result.is_done:
            await self._waits.join(result, deadline)

    def settle(self) -> None:
        manager, result = self._manager, self._result
        is_over = manager.has_ended or manager.error is not None
        if result is not None and not result.is_done and is_over:
            result.end(self._error_of(result))
            if manager.error is None:
                self.counts.note(result, self._loop.time())
            if manager.error is None and not result.is_prepare:
                self._records.forget_failures()
        if result is not None and not self.state_checks.is_open:
            self._release_lock(result)
        if self._is_abandoned and manager.state is _STATE.ABORTABLE_ERROR:
            self._begin_abort()

    def _error_of(self, result: TransactionResult) -> KafkaError | None:
        """Return the error of a commit or abort; says so if a commit may have been done before the failure."""
        error, is_fatal = self._manager.error, self._manager.state is _STATE.FATAL_ERROR
        if error is None or not (result.is_commit and is_fatal and self._manager.is_commit_in_doubt):
            return error
        return end_unknown_error(error)


class TransactionRecords:
    """Accepts records while a transaction is open, and waits for their ends, or fails them.

    The native append checks the same flag in every producer, so to refuse records between transactions costs nothing.
    """

    def __init__(  # noqa: PLR0913  # all that records of a transaction wait in
        self,
        *,
        appender: RecordAppender,
        wait_queues: WaitQueues,
        accumulator: RecordAccumulator,
        completion: Completion,
        settlement: Settlement,
        flushes: FlushWaiters,
        unfinished: Collection[object],
        fail_unfinished: Callable[[KafkaError], object],
    ) -> None:
        """Take none until `open`; `unfinished` are the records that wait for their serializers."""
        self._unfinished = unfinished
        self._fail_unfinished = fail_unfinished
        self._appender = appender
        self._wait_queues = wait_queues
        self._accumulator = accumulator
        self._settlement = settlement
        self._flushes = flushes
        self._completion = completion
        self._records_before = 0  # by transactions that are over

    def open(self) -> None:
        self._appender.closed = False
        self._records_before = self._accumulator.open_batches.records

    @property
    def taken(self) -> int:
        """Number of records of the open transaction, or else of the last."""
        appended = self._accumulator.open_batches.records - self._records_before
        return appended + self._wait_queues.records + len(self._unfinished)

    def close(self) -> int:
        self._appender.closed = True
        generation = self._flushes.generations.close()
        self._accumulator.open_batches.close_soon()
        return generation

    def is_flushed(self, generation: int) -> bool:
        return self._flushes.generations.is_finished(generation)

    def when_flushed(self, generation: int) -> asyncio.Future[None]:
        return self._flushes.when_finished(generation)

    def give_up(self, error: KafkaError) -> None:
        """Fail all records without an end; batches on the wire stay there until they are answered or lost."""
        self._fail_unfinished(error)
        self._wait_queues.fail_all(error)
        self._settlement.fail_everything(error, asyncio.get_running_loop().time())

    def forget_failures(self) -> None:
        """Drop failures that commit and abort have reported, so that no later flush or close raises them."""
        unseen = self._completion.unseen
        if not unseen.keeps_any:
            return
        failed = unseen.begin_flush(self._flushes.generations.current)
        failed.take_error()
        unseen.end_flush(failed)

    def is_off_the_wire(self) -> bool:
        return not self._accumulator.partitions.is_any_on_wire()

    def offer(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self._accumulator.offer(partition)


class TransactionHandle:
    """Handle of one transaction, which does not affect later ones."""

    __slots__ = ("_abandon", "_is_open", "_number")

    def __init__(self, number: int, *, is_open: Callable[[int], bool], abandon: Callable[[int], None]) -> None:
        self._number = number
        self._is_open = is_open
        self._abandon = abandon

    @property
    def is_open(self) -> bool:
        return self._is_open(self._number)

    def abandon(self) -> None:
        self._abandon(self._number)


def _left_behind(why: str, cause: Exception | None) -> TransactionAbortedError:
    error = TransactionAbortedError(f"the transaction {why} before the record was acknowledged")
    error.__cause__ = cause
    return error
