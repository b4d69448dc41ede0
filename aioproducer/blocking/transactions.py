"""The transaction methods of a `BlockingProducer`."""

from __future__ import annotations

import contextlib
import threading
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

from aioproducer._threads.calls import transaction_timeout, wait_for
from aioproducer.blocking.lifecycle import BlockingLifecycle
from aioproducer.errors import IllegalStateError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from aioproducer._producer.arguments import GroupArgument, OffsetsArgument
    from aioproducer._producer.producer import Producer
    from aioproducer._transactions.commit_abort import TransactionHandle
    from aioproducer._transactions.prepared import PreparedTransaction

ResultT = TypeVar("ResultT")


class BlockingTransactions(BlockingLifecycle):
    """Base class of `BlockingProducer`: its transaction methods."""

    _thread_in_transaction: int | None = None
    """The thread whose `transaction()` block is open, or that began a transaction; None once any thread ends it."""

    def init_transactions(self) -> None:
        """Wait until the transactional id is this producer's; errors as `Producer.init_transactions`."""
        self._wait_in_turn(self._producer.init_transactions)

    _has_block = False
    """A `transaction()` block of any thread is open."""

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Self]:
        """Run a block that is one transaction; yields the producer itself, whose calls belong to the transaction.

        Calls of other threads belong to it too, and their `transaction()` waits until it ends. It commits at the end of
        the block and aborts on any exception, which is then raised.

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
                self._background.submit(block.leave, transaction_timeout(0))
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

    def complete_transaction(self, prepared: PreparedTransaction, *, commit: bool = True) -> None:
        """Commit or abort a prepared transaction, also of another process; as `Producer.complete_transaction`."""
        self._wait_in_turn(partial(self._producer.complete_transaction, prepared, commit=commit))

    def begin_transaction(self) -> None:
        """Begin a transaction; errors as `Producer.begin_transaction`."""
        self._wait_in_turn(self._producer.begin_transaction)
        self._thread_in_transaction = threading.get_ident()

    def commit_transaction(self) -> None:
        """Wait for every record since the transaction began, and commit; errors as `Producer.commit_transaction`.

        A record that was refused fails the commit, as one that could not be delivered does.
        """
        self._thread_in_transaction = None
        self._wait_in_turn(self._commit, records_too=True)

    def abort_transaction(self) -> None:
        """Abort the transaction and its records; errors as `Producer.abort_transaction`."""
        self._thread_in_transaction = None
        self._wait_in_turn(self._abort)

    def send_offsets(self, offsets: OffsetsArgument, group: GroupArgument) -> None:
        """Commit a group's offsets with the transaction; arguments and errors as `Producer.send_offsets`."""
        self._wait_in_turn(partial(self._producer.send_offsets, offsets, group))

    def _wait_in_turn(self, function: Callable[[], Awaitable[ResultT]], *, records_too: bool = False) -> ResultT:
        longest_s = self._max_block_s + (self._longest_delivery_s if records_too else 0)
        return wait_for(self._in_turn(function, call_timeout=transaction_timeout(longest_s)))

    async def _commit(self) -> None:
        self._reject_if_refused()
        await self._producer.commit_transaction()

    async def _prepare(self) -> PreparedTransaction:
        self._reject_if_refused()
        return await self._producer.prepare_transaction()

    def _reject_if_refused(self) -> None:
        failed = self._queue.take_errors(None)
        if failed is not None:
            self._producer._reject_commit(failed)

    async def _abort(self) -> None:
        self._queue.take_errors(None)
        await self._producer.abort_transaction()

    def _abort_because_of(self, error: BaseException, block: _Block) -> None:
        try:
            self._wait_in_turn(partial(self._abort_if_open, block))
        except IllegalStateError:
            pass  # it is being committed; `error` says so
        except KafkaError as failed:
            error.add_note(f"aioproducer: the transaction was not aborted: {failed}")

    async def _abort_if_open(self, block: _Block) -> None:
        if block.is_open:
            await self._abort()


class _Block:
    """The loop's record of one thread's `transaction()` block.

    Ctrl-C may end the thread's wait before or after the transaction begins. So the loop knows which transaction belongs
    to the block, and ends it once the thread has left.
    """

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._handle: TransactionHandle | None = None
        self._is_left = False

    @property
    def has_begun(self) -> bool:
        return self._handle is not None

    @property
    def is_open(self) -> bool:
        return self._handle is not None and self._handle.is_open

    async def begin(self) -> None:
        """Begin the transaction once others have ended; errors as `Producer.begin_transaction`."""
        await self._producer.begin_transaction(wait=True)
        self._handle = self._producer._transaction_handle()
        self._abandon_if_left()

    async def leave(self) -> None:
        """Let the transaction end in the background, also if it begins only later."""
        self._is_left = True
        self._abandon_if_left()

    def _abandon_if_left(self) -> None:
        if self._is_left and self._handle is not None:
            self._handle.abandon()
