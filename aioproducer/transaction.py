"""One transaction: the handle whose verbs take its records, and the `async with` around it.

async with producer.transaction() as txn:          # commits at the end, aborts on any exception
    await txn.enqueue("ledger", entry, key=account)
    await txn.send_offsets({("orders", 0): 1544}, "billing")
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioproducer.admission import Admission
from aioproducer.errors import IllegalStateError, KafkaError, NoTransactionError, TransactionAbortableError
from aioproducer.offset_arguments import group_of, offsets_of
from aioproducer.record_verbs import RecordVerbs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from aioproducer.offset_arguments import GroupArgument, OffsetsArgument
    from aioproducer.running_producer import RunningProducer
    from aioproducer.transactions.endings import TransactionInHand
    from aioproducer.transactions.runner import TransactionRunner
    from aioproducer.transactions.turns import Turn

ABORT_AFTER_CANCEL_S = 5.0
"""How long a cancelled `async with producer.transaction()` waits for its abort; the abort goes on in any case."""


class Transaction(RecordVerbs):
    """An open transaction: the producer's verbs, for records that become visible together.

    Made by `async with producer.transaction()`. Good until the end of that block: afterwards every verb raises
    `IllegalStateError`, so that nothing slips into the next transaction.

    Args:
        open_running: the parts of a producer that runs; raises otherwise.
        partitions_of: looks a topic up.
    """

    def __init__(
        self,
        open_running: Callable[[], RunningProducer],
        *,
        partitions_of: Callable[[str], Awaitable[list[int]]],
    ) -> None:
        self._look_up = open_running
        self._partitions_of = partitions_of
        self._is_over = False
        self._admission = Admission(open_running(), self._check_open)
        self._attach(open_running())

    async def send_offsets(self, offsets: OffsetsArgument, group: GroupArgument) -> None:
        """Commit a consumer group's offsets with the transaction; returns when the group's coordinator has them.

        Args:
            offsets: (topic, partition) -> the *next* offset to read, or (that, a text to keep with it). Of none:
                nothing happens.
            group: its id, or `ConsumerGroupMetadata`, with which a member of an older generation is refused.

        Raises:
            TypeError, ValueError: an argument; names it and what is allowed.
            TransactionAbortableError: the transaction must be aborted, for example because the group has rebalanced.
            TransactionTimeoutError: no answer within `max_block_ms`.
            IllegalStateError: the transaction is over.
        """
        checked, member = offsets_of(offsets), group_of(group)
        self._open_admission()
        runner = transactions_of(self._open_running())
        await runner.send_offsets(checked, member, deadline=runner.waits.deadline())

    async def partitions_for(self, topic: str) -> list[int]:
        """As `Producer.partitions_for`."""
        self._open_admission()
        return await self._partitions_of(topic)

    def end(self) -> None:
        """Take nothing more."""
        self._is_over = True
        self._detach()

    def _open_running(self) -> RunningProducer:
        return self._look_up()

    def _takes_records(self) -> bool:
        return not self._is_over

    def _open_admission(self) -> Admission:
        self._check_open()
        return self._admission

    def _check_open(self) -> None:
        if self._is_over:
            raise NoTransactionError("this transaction is over: send by the handle of the one that is open")

    def __repr__(self) -> str:
        """Show whether it is over."""
        return f"<Transaction {'over' if self._is_over else 'open'}>"


def transactions_of(running: RunningProducer) -> TransactionRunner:
    """Return what carries out a producer's transactions.

    Raises:
        IllegalStateError: it has no transactional id.
    """
    if running.transactions is None:
        raise IllegalStateError("transactions need a name that survives a restart: Producer(..., transactional_id=...)")
    return running.transactions


class TransactionBlock:
    """What `async with` runs around the body of a transaction.

    Args:
        runner: carries it out.
        make: makes the handle, once the transaction has begun.
        on_end: called with the handle before its transaction ends.
    """

    def __init__(
        self, runner: TransactionRunner, *, make: Callable[[], Transaction], on_end: Callable[[Transaction], None]
    ) -> None:
        self._runner = runner
        self._make = make
        self._on_end = on_end
        self._transaction: Transaction | None = None
        self._turn: Turn
        self._in_hand: TransactionInHand

    async def __aenter__(self) -> Transaction:
        """Wait for the turn, and begin.

        Raises:
            IllegalStateError: the block is over, or the task has another one open.
            KafkaError: as `TransactionalVerbs.transaction`.
        """
        if self._transaction is not None:
            raise IllegalStateError("a transaction is entered once: call producer.transaction() for each")
        runner, deadline = self._runner, self._runner.waits.deadline()
        self._turn = turn = await runner.turns.take(deadline)
        try:
            await runner.begin(deadline=deadline)
            self._in_hand = runner.endings.in_hand()
            self._transaction = self._make_or_abandon()
        except BaseException:
            runner.turns.give(turn)
            raise
        return self._transaction

    def _make_or_abandon(self) -> Transaction:
        try:
            return self._make()
        except BaseException:  # it has begun, and without a handle nobody would end it
            self._in_hand.abandon()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Commit, or abort if the body raised; its exception wins."""
        assert self._transaction is not None
        self._on_end(self._transaction)
        try:
            if error is None:
                await self._commit()
            else:
                await self._abort_because_of(error)
        finally:
            self._in_hand.abandon()
            self._runner.turns.give(self._turn)

    async def _commit(self) -> None:
        try:
            await self._runner.endings.commit(deadline=self._runner.waits.deadline())
        except TransactionAbortableError as failed:
            await self._abort_because_of(failed)
            raise

    async def _abort_because_of(self, error: BaseException) -> None:
        deadline = self._runner.waits.deadline()
        if isinstance(error, asyncio.CancelledError):
            deadline = min(deadline, asyncio.get_running_loop().time() + ABORT_AFTER_CANCEL_S)
        if not self._in_hand.is_open:  # the producer has failed, or the body has ended it
            return
        try:
            await self._runner.endings.abort(deadline=deadline, cause=error if isinstance(error, Exception) else None)
        except KafkaError as failed:
            error.add_note(f"aioproducer: the transaction was not aborted: {failed}")
