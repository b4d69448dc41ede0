"""aiokafka's transactions, over those of a `Producer`: one at a time, and every record sent meanwhile belongs to it.

The states are the producer's. Where aiokafka asserts that a call fits the state, so does this. Where aiokafka leaves a
transaction that cannot be ended (after a commit that was cancelled, or failed in a block), this one can continue.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Self

from aiokafka.errors import IllegalOperation
from aiokafka.structs import TopicPartition
from aiokafka.util import commit_structure_validate

from aioproducer._producer.transaction import ABORT_AFTER_CANCEL_S
from aioproducer.compat.aiokafka.errors import IN_ORDER, TRANSLATED
from aioproducer.errors import KafkaError, TransactionAbortableError, TransactionTimeoutError
from aioproducer.records import TopicPartition as OwnTopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from aioproducer._producer.arguments import OffsetsArgument
    from aioproducer._producer.producer import Producer
    from aioproducer.config import ProducerConfig


class AIOKafkaTransactionMethods:
    """Mixin with the transaction methods; without a `transactional_id` each of them raises.

    `AIOKafkaProducer` has the producer and its configuration.
    """

    _config: ProducerConfig
    _producer: Producer
    _is_in_transaction = False

    async def begin_transaction(self) -> None:
        """Begin a transaction; every record sent until its end belongs to it.

        If the last one is still being committed or aborted, because that call was cancelled, this waits.

        Raises:
            aiokafka.errors.IllegalOperation: there is no `transactional_id`.
            AssertionError: one is open.
            aiokafka.errors.ProducerFenced: a newer producer has the id, or a transaction timed out: stop.
            aiokafka.errors.KafkaTimeoutError: the last one is not over after `request_timeout_ms`.
        """
        self._refuse_without_id()
        await asyncio.sleep(0)  # as in aiokafka: a task that is cancelled at once has begun nothing
        with IN_ORDER:
            await self._producer.begin_transaction()
        self._is_in_transaction = True

    async def commit_transaction(self) -> None:
        """Wait for every record since `begin_transaction`, and commit, however long it takes.

        The commit continues if this call is cancelled; calling it again waits for the same commit.

        Raises:
            aiokafka.errors.KafkaError: a record failed, of the class of its error. Nothing was committed: call
                `abort_transaction`.
            AssertionError: none is open.
            aiokafka.errors.ProducerFenced: as `begin_transaction`.
        """
        self._refuse_without_id()
        self._is_in_transaction = False
        with IN_ORDER:
            await _to_the_end(self._producer.commit_transaction)

    async def abort_transaction(self) -> None:
        """Abort, however long it takes; records that are not acknowledged yet fail.

        The abort continues if this call is cancelled; calling it again waits for the same abort.

        Raises:
            AssertionError: none is open, or it is being committed.
            aiokafka.errors.ProducerFenced: as `begin_transaction`.
        """
        self._refuse_without_id()
        self._is_in_transaction = False
        with IN_ORDER:
            await _to_the_end(self._producer.abort_transaction)

    def transaction(self) -> TransactionContext:
        """Return a block that is one transaction: `async with producer.transaction():`."""
        return TransactionContext(self)

    async def send_offsets_to_transaction(self, offsets: OffsetsArgument, group_id: str) -> None:
        """Commit offsets of a consumer group with the open transaction.

        Args:
            offsets: partition -> the next offset to read, or that and a text, or `OffsetAndMetadata`.
            group_id: the consumer group.

        Raises:
            aiokafka.errors.IllegalOperation: no transaction is open, or there is no `transactional_id`.
            ValueError: no offsets, or an invalid argument; a wrong type is a `TypeError`, as in aiokafka.
            aiokafka.errors.KafkaError: the transaction must be aborted, because of this or of a record that failed.
        """
        self._refuse_without_id()
        if not self._is_in_transaction:
            raise IllegalOperation("Not in the middle of a transaction")
        if not group_id or not isinstance(group_id, str):
            raise ValueError(group_id)
        checked = commit_structure_validate(_with_their_partitions(offsets))
        with TRANSLATED:
            await self._producer.send_offsets(checked, group_id)

    def _refuse_without_id(self) -> None:
        if self._config.transactional_id is None:
            raise IllegalOperation("You need to configure transaction_id to use transactions")

    def _reject_commit(self, error: BaseException) -> None:
        """Let the open transaction, if any, end without a commit: it has only a part of a batch."""
        rejected = KafkaError(f"a batch of the transaction was not taken to its end: {type(error).__name__}: {error}")
        with contextlib.suppress(KafkaError):  # none is open any more, or there are no transactions
            self._producer._reject_commit(rejected)


class TransactionContext:
    """One transaction of an `AIOKafkaProducer`: commits at the end of the block, aborts on any exception."""

    def __init__(self, producer: AIOKafkaTransactionMethods) -> None:
        self._producer = producer

    async def __aenter__(self) -> Self:
        """Begin."""
        try:
            await self._producer.begin_transaction()
        except Exception as error:
            if _must_be_aborted(error):  # an earlier block was cancelled during its commit, which then failed unseen
                await self._abort_because_of(error)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Commit, or abort if the body raised or a record failed; the first error wins."""
        if error is not None:
            await self._abort_because_of(error)
            return
        try:
            await self._producer.commit_transaction()
        except Exception as failed:
            if _must_be_aborted(failed):
                await self._abort_because_of(failed)
            raise

    async def _abort_because_of(self, error: BaseException) -> None:
        timeout_s = ABORT_AFTER_CANCEL_S if isinstance(error, asyncio.CancelledError) else None
        try:
            async with asyncio.timeout(timeout_s):
                await self._producer.abort_transaction()
        except Exception as failed:  # noqa: BLE001  # the first error says more than any other
            error.add_note(f"aioproducer: the transaction was not aborted: {type(failed).__name__}: {failed}")


def _must_be_aborted(error: Exception) -> bool:
    return isinstance(error.__cause__, TransactionAbortableError)


async def _to_the_end(call: Callable[[], Awaitable[None]]) -> None:
    """Commit or abort without a time limit: a program cannot handle an unknown outcome correctly."""
    while True:
        with contextlib.suppress(TransactionTimeoutError):
            await call()
            return


def _with_their_partitions(offsets: object) -> object:
    """Convert the partitions of this library's metadata to aiokafka's, whose type is checked."""
    if not isinstance(offsets, dict):
        return offsets
    return {
        TopicPartition(*key) if isinstance(key, OwnTopicPartition) else key: offset for key, offset in offsets.items()
    }
