"""The transaction methods of `Producer`, the handle of an open transaction, and its `async with` block.

    async with producer.transaction() as txn:          # commits at the end, aborts on any exception
        await txn.enqueue("ledger", entry, key=account)
        await txn.send_offsets({("orders", 0): 1544}, "billing")

The methods other than `transaction()` are for code ported from Java, and mean what they mean there.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aioproducer._producer.admission import Admission
from aioproducer._producer.arguments import group_of, offsets_of
from aioproducer._producer.names_elsewhere import OF_TRANSACTIONS, explain_keyword, explains
from aioproducer._producer.send_methods import SendMethods
from aioproducer._shown_values import in_any_state
from aioproducer._transactions.prepared import PreparedTransaction
from aioproducer.errors import IllegalStateError, KafkaError, NoTransactionError, TransactionAbortableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from aioproducer._producer.arguments import GroupArgument, OffsetsArgument
    from aioproducer._producer.runtime import ProducerRuntime
    from aioproducer._producer.topic import KeyT, TopicRecords, ValueT
    from aioproducer._transactions.commit_abort import TransactionHandle
    from aioproducer._transactions.runner import TransactionRunner
    from aioproducer._transactions.waiting import LockHolder
    from aioproducer.config import TopicOptions


class TransactionMethods:
    """Mixin with the transaction methods, for a producer with a `transactional_id`."""

    _is_lent = False
    """Whether a `transaction()` block is open: its handle takes records, the producer does not."""

    async def init_transactions(self) -> None:
        """Wait until the transactional id is this producer's, and older ones are fenced; `start` does it already.

        Raises:
            TransactionTimeoutError: no coordinator answered within `max_block_ms`; the attempts continue.
            TransactionalIdAuthorizationError: no permission for the transactional id.
            IllegalStateError: the producer has no `transactional_id`.
        """
        running = self._open_running()
        runner = transactions_of(running)
        with _waiting(running, "init_transactions") as deadline:
            await runner.initialized(deadline=deadline)

    def transaction(self) -> AbstractAsyncContextManager[Transaction, None]:
        """Return a block that is one transaction: `async with producer.transaction() as txn`.

        It begins when no other task has one open, first come, first served. It commits at its end and aborts on any
        exception, which is then raised. Cancelled while it commits or aborts, it continues in the background, and the
        next transaction waits for it.

        Raises:
            IllegalStateError: the producer has no `transactional_id`; entering: the task has a transaction open.
            TransactionTimeoutError: entering: others were open for `max_block_ms`. At the end: no response by then.
            TransactionAbortableError: at the end: a record or offset failed; the transaction was aborted.
            ProducerFencedError: a newer producer has the transactional id, or the transaction timed out. On
                transactions V2 the loser's record fails first, with `BrokerError` (INVALID_PRODUCER_EPOCH), and its
                transaction with TransactionAbortableError; the next one, or `abort_transaction`, raises this.
        """
        return TransactionBlock(self._open_running(), make=self._lend, on_end=self._take_back)

    async def begin_transaction(self, *, wait: bool = False) -> None:
        """Begin a transaction; until its commit or abort, the producer's own methods belong to it.

        Args:
            wait: wait while another task has a transaction open; otherwise the call raises, as in Java.

        Raises:
            IllegalStateError: a transaction is open, or the producer has no `transactional_id`.
            TransactionTimeoutError: brokers have not ended the previous one after `max_block_ms`.
            ProducerFencedError: as `transaction`.
        """
        running = self._open_running()
        runner = transactions_of(running)
        holder = await _begin(running, runner, wait=wait)
        holder.transaction = runner.number
        self._enable_sending(running)

    async def commit_transaction(self) -> None:
        """Wait for every record since `begin_transaction`, and commit; no records are taken meanwhile.

        Cancelled or timed out, the commit continues, and another call joins it.

        Raises:
            TransactionAbortableError: a record or offset failed: nothing was committed, `abort_transaction` it.
            TransactionTimeoutError: not committed after `max_block_ms`.
            IllegalStateError: no transaction is open, or it is being aborted.
            ProducerFencedError: as `transaction`. After any error with `outcome` UNKNOWN it may be committed.
        """
        runner, running = self._unlent_runner(), self._open_running()
        self._disable_sending()
        with _waiting(running, "commit_transaction") as deadline:
            await runner.completer.commit(deadline=deadline)

    async def abort_transaction(self) -> None:
        """Abort the transaction and its records; those without a response yet fail.

        Cancelled or timed out, the abort continues, and another call joins it.

        Raises:
            TransactionTimeoutError: not aborted after `max_block_ms`.
            IllegalStateError: no transaction is open, or it is being committed.
            ProducerFencedError: as `transaction`.
        """
        runner, running = self._unlent_runner(), self._open_running()
        self._disable_sending()
        with _waiting(running, "abort_transaction") as deadline:
            await runner.completer.abort(deadline=deadline)

    async def prepare_transaction(self) -> PreparedTransaction:
        """Wait for every record since `begin_transaction`, and leave the transaction open for any process to complete.

        From then on the producer takes nothing more and only a call of `commit_transaction`, `abort_transaction` or
        `complete_transaction` ends the transaction: not `close`, nor the end of the process. The brokers abort it
        after `transaction_timeout_ms`, or when a new producer takes the transactional id. The name is KIP-939's.

        Cancelled or timed out, it goes on, and calling it again joins it; `close` aborts it if no call has returned.

        Returns:
            What `complete_transaction` needs, in this process or another.

        Raises:
            TransactionAbortableError: a record or offset failed: `abort_transaction` it.
            TransactionTimeoutError: not prepared after `max_block_ms`.
            IllegalStateError: no transaction is open, it has no records and no offsets, or it is ending.
            ProducerFencedError: as `transaction`.
        """
        runner, running = self._unlent_runner(), self._open_running()
        self._disable_sending()
        try:
            with _waiting(running, "prepare_transaction") as deadline:
                return await runner.completer.prepare(deadline=deadline)
        finally:
            if runner.state_checks.is_taking:  # refused, since there is nothing to prepare
                self._enable_sending(running)

    async def complete_transaction(self, prepared: PreparedTransaction, *, commit: bool = True) -> None:
        """Commit or abort a prepared transaction, also of another process; calling it again changes nothing.

        Any running producer of the same cluster can, with a `transactional_id` or without; that of the transaction can
        go on then. Complete no transaction after its producer has begun another one: before Kafka 4 (transactions V1)
        both have the same identity.

        Args:
            prepared: what `prepare_transaction` returned; `PreparedTransaction(*fields)` of stored fields.
            commit: or abort.

        Raises:
            ProducerFencedError: a newer producer has taken the transactional id, or the transaction timed out: it was
                aborted, unless an earlier call has completed it.
            TransactionAbortedError: to be committed, it was aborted before, by a call or its timeout.
            TransactionTimeoutError: no response within `max_block_ms`; call it again.
            TransactionError: to be aborted, it was committed before or has timed out; or its id has expired.
            TransactionalIdAuthorizationError: the right to the transactional id is missing.
            TypeError: not a `PreparedTransaction`.
        """
        if not isinstance(prepared, PreparedTransaction):
            raise TypeError(f"prepared must be a PreparedTransaction, not {type(prepared).__name__}")
        running = self._open_running()
        runner = running.transactions
        if runner is not None:
            with _waiting(running, "complete_transaction") as deadline:
                is_own = await runner.completer.complete(prepared, is_commit=commit, deadline=deadline)
            if is_own:
                return
        await self._complete_elsewhere(prepared, running, is_commit=commit)

    async def send_offsets(self, offsets: OffsetsArgument, group: GroupArgument) -> None:
        """Commit a consumer group's offsets with the open transaction; as `Transaction.send_offsets`."""
        checked, member = offsets_of(offsets), group_of(group)
        runner, running = self._unlent_runner(), self._open_running()
        with _waiting(running, "send_offsets") as deadline:
            await runner.send_offsets(checked, member, deadline=deadline)

    def _reject_commit(self, error: KafkaError) -> None:
        """Make the open transaction one that must be aborted, since `error` happened to a part of it elsewhere.

        Raises:
            NoTransactionError: none is open.
        """
        runner = self._unlent_runner()
        runner.state_checks.check_taking()
        runner.reject(error)

    def _transaction_handle(self) -> TransactionHandle:
        """Return the transaction begun by `begin_transaction`, for `BlockingProducer`.

        Raises:
            NoTransactionError: a `transaction()` block is open.
        """
        return self._unlent_runner().completer.handle()

    # Implemented by Producer

    if TYPE_CHECKING:

        def _open_running(self) -> ProducerRuntime: ...

        async def _complete_elsewhere(
            self, prepared: PreparedTransaction, running: ProducerRuntime, *, is_commit: bool
        ) -> None: ...

        def _enable_sending(self, running: ProducerRuntime) -> None: ...

        def _disable_sending(self) -> None: ...

        async def partitions_for(self, topic: str) -> list[int]: ...

    # Inside

    def _unlent_runner(self) -> TransactionRunner:
        runner = transactions_of(self._open_running())
        self._check_whose_transaction()
        return runner

    def _check_whose_transaction(self) -> None:
        if self._is_lent:
            raise NoTransactionError(
                "a transaction() block is open: its records and offsets are sent by its handle, txn.send(...) "
                "after `async with producer.transaction() as txn`, and its end is the end of the block"
            )

    def _lend(self) -> Transaction:
        lent = Transaction(self._open_running, partitions_of=self.partitions_for)
        self._is_lent = True  # only once there is a handle to take back
        return lent

    def _take_back(self, transaction: Transaction) -> None:
        self._is_lent = False
        transaction._end()


@contextmanager
def _waiting(running: ProducerRuntime, name: str, *, within_s: float = math.inf) -> Iterator[float]:
    """Count the block as a call that waits for the transaction; gives its deadline."""
    deadline = running.loop.time() + min(running.max_block_s, within_s)
    with running.waiting_calls.waiting(name, running.waiting_calls.transaction, deadline=deadline):
        yield deadline


async def _begin(running: ProducerRuntime, runner: TransactionRunner, *, wait: bool) -> LockHolder:
    """Begin a transaction when no other task has one open; without `wait`, refuse if one has."""
    calls, deadline = running.waiting_calls, runner.waits.deadline()
    with calls.waiting("begin_transaction", calls.other_transaction, deadline=deadline) as call:
        holder = await _acquire_lock(runner, deadline, wait=wait)
        call.why = calls.transaction
        try:
            await runner.begin(deadline=deadline)
        except BaseException:
            runner.lock.give(holder)
            raise
    return holder


async def _acquire_lock(runner: TransactionRunner, deadline: float, *, wait: bool) -> LockHolder:
    if wait:
        return await runner.lock.take(deadline)
    if runner.lock.ends_with_transaction:  # a commit or abort that its caller gave up releases the lock soon
        await runner.completer.end_of_last(deadline)
        runner.lock.pass_on()
    return runner.lock.take_now()


ABORT_AFTER_CANCEL_S = 5.0
"""Limit of the wait of a cancelled `async with producer.transaction()` for its abort, which continues anyway."""


@explains(OF_TRANSACTIONS)
class Transaction(SendMethods):
    """An open transaction: the send methods of the producer, for records that become visible together.

    Made by `async with producer.transaction()`. After the end of that block every method raises `IllegalStateError`, so
    that no record gets into the next transaction.
    """

    def __init__(
        self, open_running: Callable[[], ProducerRuntime], *, partitions_of: Callable[[str], Awaitable[list[int]]]
    ) -> None:
        self._look_up = open_running
        self._partitions_of = partitions_of
        self._is_over = False
        self._admission = Admission(open_running(), self._check_open)
        self._enable_sending(open_running())

    async def send_offsets(self, offsets: OffsetsArgument, group: GroupArgument) -> None:
        """Commit a consumer group's offsets with the transaction; returns when the group's coordinator has them.

        Args:
            offsets: (topic, partition) -> the *next* offset to read, or a tuple of it and a text to keep with it.
                An empty mapping does nothing.
            group: its id, or `ConsumerGroupMetadata`, with which a member of an older generation is refused.

        Raises:
            TypeError, ValueError: an argument; names it and what is allowed.
            TransactionAbortableError: the transaction must be aborted, for example because the group has rebalanced.
            TransactionTimeoutError: no response within `max_block_ms`.
            IllegalStateError: the transaction is over.
        """
        checked, member = offsets_of(offsets), group_of(group)
        self._open_admission()
        running = self._open_running()
        with _waiting(running, "send_offsets") as deadline:
            await transactions_of(running).send_offsets(checked, member, deadline=deadline)

    async def partitions_for(self, topic: str) -> list[int]:
        """As `Producer.partitions_for`."""
        self._open_admission()
        return await self._partitions_of(topic)

    def _end(self) -> None:
        self._is_over = True
        self._disable_sending()

    def _open_running(self) -> ProducerRuntime:
        return self._look_up()

    def _use_serializers(self, records: TopicRecords[KeyT, ValueT]) -> None:
        records.use_serializers(self._look_up().serializers)

    def _use_options(self, topic: str, options: TopicOptions) -> None:
        self._look_up().topic_options.add(topic, options)

    def _accepts_records(self) -> bool:
        return not self._is_over

    def _open_admission(self) -> Admission:
        self._check_open()
        return self._admission

    def _check_open(self) -> None:
        if self._is_over:
            raise NoTransactionError("this transaction is over: send by the handle of the one that is open")

    @in_any_state
    def __repr__(self) -> str:
        return f"<Transaction {'over' if self._is_over else 'open'}>"


def transactions_of(running: ProducerRuntime) -> TransactionRunner:
    """Return the runner of a producer's transactions."""
    if running.transactions is None:
        raise IllegalStateError("transactions need a name that survives a restart: Producer(..., transactional_id=...)")
    return running.transactions


@explains({}, other_block="__enter__")
class TransactionBlock:
    """Context manager of one transaction.

    Args:
        make: makes the handle, once the transaction has begun.
        on_end: called with the handle before its transaction ends.
    """

    def __init__(
        self, running: ProducerRuntime, *, make: Callable[[], Transaction], on_end: Callable[[Transaction], None]
    ) -> None:
        self._running = running
        self._runner = transactions_of(running)
        self._make = make
        self._on_end = on_end
        self._transaction: Transaction | None = None
        self._holder: LockHolder
        self._handle: TransactionHandle

    async def __aenter__(self) -> Transaction:
        """Wait until no other transaction is open, and begin; errors as `TransactionMethods.transaction`."""
        if self._transaction is not None:
            raise IllegalStateError("a transaction is entered once: call producer.transaction() for each")
        self._holder = await _begin(self._running, self._runner, wait=True)
        try:
            self._handle = self._runner.completer.handle()
            self._transaction = self._make_or_abandon()
        except BaseException:
            self._runner.lock.give(self._holder)
            raise
        return self._transaction

    def _make_or_abandon(self) -> Transaction:
        try:
            return self._make()
        except BaseException:  # it has begun, and would not end without a handle
            self._handle.abandon()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Commit, or abort if the body raised; the body's exception is raised in any case."""
        assert self._transaction is not None
        if error is not None:
            explain_keyword(error)
        self._on_end(self._transaction)
        try:
            if error is None:
                await self._commit()
            else:
                await self._abort_because_of(error)
        finally:
            self._handle.abandon()
            self._runner.lock.give(self._holder)

    async def _commit(self) -> None:
        try:
            with _waiting(self._running, "commit_transaction") as deadline:
                await self._runner.completer.commit(deadline=deadline)
        except TransactionAbortableError as failed:
            await self._abort_because_of(failed)
            raise

    async def _abort_because_of(self, error: BaseException) -> None:
        within_s = ABORT_AFTER_CANCEL_S if isinstance(error, asyncio.CancelledError) else math.inf
        if not self._handle.is_open:  # the producer has failed, or the body has ended it
            return
        try:
            with _waiting(self._running, "abort_transaction", within_s=within_s) as deadline:
                cause = error if isinstance(error, Exception) else None
                await self._runner.completer.abort(deadline=deadline, cause=cause)
        except KafkaError as failed:
            error.add_note(f"aioproducer: the transaction was not aborted: {failed}")
