"""The verbs that begin and end transactions: what `Producer` has besides its other verbs.

`transaction()` is the main door; the others are for those who port Java code, and mean what they mean there.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from aioproducer.errors import KafkaError, NoTransactionError
from aioproducer.offset_arguments import group_of, offsets_of
from aioproducer.transaction import Transaction, TransactionBlock, transactions_of

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from aioproducer.offset_arguments import GroupArgument, OffsetsArgument
    from aioproducer.running_producer import RunningProducer
    from aioproducer.transactions.endings import TransactionInHand
    from aioproducer.transactions.runner import TransactionRunner
    from aioproducer.transactions.turns import Turn


class TransactionalVerbs:
    """What a producer with a `transactional_id` can do."""

    _is_lent = False
    """A `transaction()` block is open: its handle takes the records, the producer none."""

    async def init_transactions(self) -> None:
        """Wait until the transactional id is this producer's, and older ones are fenced; `start` does it already.

        Raises:
            TransactionTimeoutError: no coordinator answered within `max_block_ms`; it goes on.
            TransactionalIdAuthorizationError: the right is missing.
            IllegalStateError: the producer has no `transactional_id`.
        """
        runner = transactions_of(self._open_running())
        await runner.initialized(deadline=runner.waits.deadline())

    def transaction(self) -> AbstractAsyncContextManager[Transaction, None]:
        """Return a block that is one transaction: `async with producer.transaction() as txn`.

        It begins when no other task has one open, first come, first served. It commits at its end and aborts on any
        exception, which then goes on. Cancelled while it commits or aborts, that goes on in the background, and the
        next transaction waits for it.

        Raises:
            IllegalStateError: the producer has no `transactional_id`; entering: the task has a transaction open.
            TransactionTimeoutError: entering: others' were open for `max_block_ms`. At the end: no answer for so long.
            TransactionAbortableError: at the end: a record or offset failed; the transaction was aborted.
            ProducerFencedError: a newer producer has the transactional id, or the transaction timed out. On
                transactions V2 the loser's record fails first, with `BrokerError` (INVALID_PRODUCER_EPOCH), and its
                transaction with TransactionAbortableError; the next one, or `abort_transaction`, raises this.
        """
        runner = transactions_of(self._open_running())
        return TransactionBlock(runner, make=self._lend, on_end=self._take_back)

    async def begin_transaction(self, *, wait: bool = False) -> None:
        """Begin a transaction; until it is committed or aborted, the producer's own verbs belong to it.

        Args:
            wait: for the turn, when another task has a transaction open; else that is refused, as in Java.

        Raises:
            IllegalStateError: one is open, or the producer has no `transactional_id`.
            TransactionTimeoutError: the one before is not over on the brokers after `max_block_ms`.
            ProducerFencedError: as `transaction`.
        """
        running = self._open_running()
        runner = transactions_of(running)
        deadline = runner.waits.deadline()
        turn = await _take_turn(runner, deadline, wait=wait)
        try:
            await runner.begin(deadline=deadline)
        except BaseException:
            runner.turns.give(turn)
            raise
        turn.transaction = runner.number
        self._attach(running)

    async def commit_transaction(self) -> None:
        """Wait for every record since `begin_transaction`, and commit; nothing is sent meanwhile.

        Cancelled or timed out, it goes on, and calling it again joins it.

        Raises:
            TransactionAbortableError: a record or offset failed: nothing was committed, `abort_transaction` it.
            TransactionTimeoutError: not committed after `max_block_ms`.
            IllegalStateError: no transaction is open, or it is being aborted.
            ProducerFencedError: as `transaction`. Whatever is raised: with `outcome` UNKNOWN it may be committed.
        """
        runner = self._unlent_runner()
        self._detach()
        await runner.endings.commit(deadline=runner.waits.deadline())

    async def abort_transaction(self) -> None:
        """Give up every record since `begin_transaction`, and abort; those that have no answer yet fail.

        Cancelled or timed out, it goes on, and calling it again joins it.

        Raises:
            TransactionTimeoutError: not aborted after `max_block_ms`.
            IllegalStateError: no transaction is open, or it is being committed.
            ProducerFencedError: as `transaction`.
        """
        runner = self._unlent_runner()
        self._detach()
        await runner.endings.abort(deadline=runner.waits.deadline())

    async def send_offsets(self, offsets: OffsetsArgument, group: GroupArgument) -> None:
        """Commit a consumer group's offsets with the open transaction; as `Transaction.send_offsets`."""
        checked, member = offsets_of(offsets), group_of(group)
        runner = self._unlent_runner()
        await runner.send_offsets(checked, member, deadline=runner.waits.deadline())

    def reject_commit(self, error: KafkaError) -> None:
        """Let the open transaction be one that must be aborted: something that belongs to it failed elsewhere.

        Args:
            error: becomes the cause of what every commit raises.

        Raises:
            NoTransactionError: none is open.
        """
        runner = self._unlent_runner()
        runner.refusals.check_taking()
        runner.reject(error)

    def transaction_in_hand(self) -> TransactionInHand:
        """Return the transaction that `begin_transaction` has begun, for who may lose sight of it; `BlockingProducer`.

        Raises:
            NoTransactionError: a `transaction()` block is open.
        """
        return self._unlent_runner().endings.in_hand()

    # What whoever inherits does

    if TYPE_CHECKING:

        def _open_running(self) -> RunningProducer:
            """The parts of the producer, if it runs; raises otherwise."""

        def _attach(self, running: RunningProducer) -> None:
            """Let the producer's own verbs take records."""

        def _detach(self) -> None:
            """Let them take none."""

        async def partitions_for(self, topic: str) -> list[int]:
            """Return the partitions of a topic, asking a broker if need be."""

    # Inside

    def _unlent_runner(self) -> TransactionRunner:
        runner = transactions_of(self._open_running())
        self._check_whose_transaction()
        return runner

    def _check_whose_transaction(self) -> None:
        if self._is_lent:
            text = (
                "a transaction() block is open: its records and offsets are sent by its handle, txn.send(...) "
                "after `async with producer.transaction() as txn`, and its end is the end of the block"
            )
            raise NoTransactionError(text)

    def _lend(self) -> Transaction:
        lent = Transaction(self._open_running, partitions_of=partial(self.partitions_for))
        self._is_lent = True  # not before there is a handle to take it back from
        return lent

    def _take_back(self, transaction: Transaction) -> None:
        self._is_lent = False
        transaction.end()


async def _take_turn(runner: TransactionRunner, deadline: float, *, wait: bool) -> Turn:
    if wait:
        return await runner.turns.take(deadline)
    if runner.turns.ends_with_transaction:  # that of a commit or abort which nobody waits for any more is over soon
        await runner.endings.end_of_last(deadline)
        runner.turns.pass_on()
    return runner.turns.take_now()
