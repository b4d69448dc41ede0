"""The transactional verbs of a `BlockingProducer`."""

from __future__ import annotations

import contextlib
import threading
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

from aioproducer._threads.calls import transaction_limit, wait_for
from aioproducer.blocking.lifecycle import BlockingLifetime
from aioproducer.errors import IllegalStateError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from aioproducer._producer.arguments import GroupArgument, OffsetsArgument
    from aioproducer._producer.producer import Producer
    from aioproducer._transactions.commit_abort import TransactionHandle
    from aioproducer._transactions.prepared import PreparedTransaction

ResultT = TypeVar("ResultT")


class BlockingTransactions(BlockingLifetime):
    """What a `BlockingProducer` with a `transactional_id` can do; see `Producer` for each."""

    _thread_in_transaction: int | None = None
    """Whose `transaction()` block is open, or who began one; None as soon as somebody ends it, however that goes."""

    def init_transactions(self) -> None:
        """Wait until the transactional id is this producer's; errors as `Producer.init_transactions`."""
        self._wait_in_turn(self._producer.init_transactions)

    _has_block = False
    """A `transaction()` block of any thread is open."""

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Self]:
        """Run a block that is one transaction; gives the producer itself, whose verbs belong to the transaction.

        So do those that other threads call meanwhile, and their `transaction()` waits its turn. It commits at the end
        of the block and aborts on any exception, which then goes on.

        Raises:
            IllegalStateError: the thread has one open, or the producer has no `transactional_id`.
            KafkaError: as `Producer.transaction`.
        """
        if self._thread_in_transaction == threading.get_ident():
            raise IllegalStateError("this thread has a transaction open already: a producer has one at a time")
        block = _Block(self._producer)
        try:
            self._wait_in_turn(block.begin)
            self._thread_in_transaction = threading.get_ident()
            self._has_block = True
            yield self
            self._has_block = False
            self._thread_in_transaction = None
            self.commit_transaction()
        except BaseException as error:
            self._has_block = False
            if self._thread_in_transaction == threading.get_ident():
                self._thread_in_transaction = None
            if block.has_begun:
                self._abort_because_of(error, block)
            with contextlib.suppress(KafkaError):  # the loop has ended, and the transaction with it
                self._background.submit(block.leave, transaction_limit(0))
            raise

    def prepare_transaction(self) -> PreparedTransaction:
        """Wait for every record, and leave the transaction open; as `Producer.prepare_transaction`.

        Raises:
            IllegalStateError: a `transaction()` block is open, whose end commits.
            KafkaError: as `Producer.prepare_transaction`.
        """
        if self._has_block:
            raise IllegalStateError("the end of the transaction() block commits: begin_transaction() to prepare one")
        prepared = self._wait_in_turn(self._prepare, records_too=True)
        self._thread_in_transaction = None
        return prepared

    def begin_transaction(self) -> None:
        """Begin a transaction; errors as `Producer.begin_transaction`."""
        self._wait_in_turn(self._producer.begin_transaction)
        self._thread_in_transaction = threading.get_ident()

    def commit_transaction(self) -> None:
        """Wait for every record since the transaction began, and commit; errors as `Producer.commit_transaction`.

        A record that could not be taken fails the commit, as one that could not be delivered does.
        """
        self._thread_in_transaction = None
        self._wait_in_turn(self._commit, records_too=True)

    def abort_transaction(self) -> None:
        """Give up every record since the transaction began; errors as `Producer.abort_transaction`."""
        self._thread_in_transaction = None
        self._wait_in_turn(self._abort)

    def send_offsets(self, offsets: OffsetsArgument, group: GroupArgument) -> None:
        """Commit a group's offsets with the transaction; arguments and errors as `Producer.send_offsets`."""
        self._wait_in_turn(partial(self._producer.send_offsets, offsets, group))

    def _wait_in_turn(self, function: Callable[[], Awaitable[ResultT]], *, records_too: bool = False) -> ResultT:
        limit_s = self._max_block_s + (self._config.delivery_timeout_ms / 1000 if records_too else 0)
        return wait_for(self._in_turn(function, limit=transaction_limit(limit_s)))

    async def _commit(self) -> None:
        failed = self._handover.take_errors(None)
        if failed is not None:
            self._producer.reject_commit(failed)
        await self._producer.commit_transaction()

    async def _prepare(self) -> PreparedTransaction:
        failed = self._handover.take_errors(None)
        if failed is not None:
            self._producer.reject_commit(failed)
        return await self._producer.prepare_transaction()

    async def _abort(self) -> None:
        self._handover.take_errors(None)
        await self._producer.abort_transaction()

    def _abort_because_of(self, error: BaseException, block: _Block) -> None:
        try:
            self._wait_in_turn(partial(self._abort_if_open, block))
        except IllegalStateError:
            pass  # it is being committed: the error says so
        except KafkaError as failed:
            error.add_note(f"aioproducer: the transaction was not aborted: {failed}")

    async def _abort_if_open(self, block: _Block) -> None:
        if block.is_open:
            await self._abort()


class _Block:
    """One thread's `transaction()` block, as the loop sees it.

    Ctrl-C ends a thread's wait between any two steps, when its transaction has begun already as when it will begin
    only then. So it is the loop that knows which transaction is the block's, and lets it end when the thread is gone.

    Args:
        producer: whose transaction it is.
    """

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._in_hand: TransactionHandle | None = None
        self._is_left = False

    @property
    def has_begun(self) -> bool:
        """Whether its transaction has."""
        return self._in_hand is not None

    @property
    def is_open(self) -> bool:
        """Whether its transaction has begun, and has no end yet."""
        return self._in_hand is not None and self._in_hand.is_open

    async def begin(self) -> None:
        """Begin it, when it is its turn; errors as `Producer.begin_transaction`."""
        await self._producer.begin_transaction(wait=True)
        self._in_hand = self._producer.transaction_in_hand()
        self._let_go()

    async def leave(self) -> None:
        """Let it end in the background, whatever the thread has left of it, and also if it begins only now."""
        self._is_left = True
        self._let_go()

    def _let_go(self) -> None:
        if self._is_left and self._in_hand is not None:
            self._in_hand.abandon()
