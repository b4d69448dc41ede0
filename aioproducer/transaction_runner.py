"""Carries transactions out: begin, commit, abort and offsets, for whoever asks, and one task that asks the brokers.

Whoever commits or aborts waits beside that task, so that being cancelled ends the wait alone: what was begun goes
on, and the same call again joins it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NoReturn

from aioproducer.core.transaction_requests import OffsetsToSend
from aioproducer.core.transaction_states import TransactionState
from aioproducer.errors import (
    IllegalStateError,
    KafkaError,
    NoTransactionError,
    ProducerClosedError,
    TransactionAbortedError,
)
from aioproducer.transaction_turns import TransactionTurns
from aioproducer.transaction_waits import Ending, TransactionCounts, TransactionWaits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioproducer.coordinators import Coordinators
    from aioproducer.core.partition_queue import PartitionQueue
    from aioproducer.logs import EventLog
    from aioproducer.produce_request import ProduceTransaction
    from aioproducer.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
    from aioproducer.transaction_records import TransactionRecords

_STATE: Final = TransactionState
_NOT_YET: Final = frozenset((_STATE.UNINITIALIZED, _STATE.INITIALIZING))
_TAKING: Final = frozenset((_STATE.IN_TRANSACTION, _STATE.COMMITTING))
_HAS_BEGUN: Final = frozenset((_STATE.IN_TRANSACTION, _STATE.COMMITTING, _STATE.ABORTING, _STATE.ABORTABLE_ERROR))


class TransactionRunner:  # noqa: PLR0904  # the verbs, and what they are told
    """The transactions of one producer.

    Args:
        coordinators: are asked.
        records: of the open transaction.
        max_block_s: how long a call waits.
        on_fatal: called with the error after which nothing can succeed.
        log: one event a transaction that fails.
    """

    def __init__(
        self,
        coordinators: Coordinators,
        records: TransactionRecords,
        *,
        max_block_s: float,
        on_fatal: Callable[[KafkaError], None],
        log: EventLog,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.turns = TransactionTurns(self._loop)
        self.counts = TransactionCounts()
        self._coordinators = coordinators
        self._manager = coordinators.manager
        self._records = records
        self.waits = TransactionWaits(self._loop, max_block_s, lambda: coordinators.manager.pacing.trouble)
        self._on_fatal = on_fatal
        self._log = log
        self._wanted = asyncio.Event()
        self._ending: Ending | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._told: KafkaError | None = None  # the failure that the producer and its callers know of
        self._is_abandoned = self._is_closing = False
        self._manager.on_joined = records.offer
        records.listen(
            use=self._use, failed=self._record_failed, resolved=self._batch_resolved, renewed=self._topic_renewed
        )
        coordinators.when_nodes_change(self.wake)

    # The task

    async def run(self) -> None:
        """Serve until cancelled."""
        self._manager.initialize()
        try:
            while True:
                self._wanted.clear()
                looked_at = self._loop.time()
                request = self._coordinators.next_request()
                self._tell()
                if request is not None:
                    await self._coordinators.ask(request)
                    continue
                self._set_alarm(looked_at)
                await self._wanted.wait()
        finally:
            self._stop_alarm()

    def wake(self) -> None:
        """Look for something to ask soon."""
        self._wanted.set()

    def _stop_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _set_alarm(self, looked_at: float) -> None:
        """Look again when the pause is over that was not over at `looked_at`; it may be by now, and then at once."""
        self._stop_alarm()
        if (next_at := self._manager.next_at(looked_at)) > looked_at:
            self._alarm = self._loop.call_at(next_at, self.wake)

    # What happens to records

    def of_request(self) -> ProduceTransaction:
        """What a Produce request must say of the transaction that its batches belong to."""
        return self._coordinators.produce_transaction()

    def _use(self, queue: PartitionQueue) -> None:
        if not self._manager.use(queue, self._loop.time()):
            self.wake()

    def _record_failed(self, error: KafkaError) -> None:
        """A record that fails makes its transaction one that must be aborted."""
        if self._manager.state in _TAKING:
            self._manager.fail_transaction(error)
            self._loop.call_soon(self._changed)  # later: whoever failed it is in the middle of its own work

    def _topic_renewed(self, queue: PartitionQueue) -> None:
        """What the transaction had written to the partition is gone: it would be committed without it."""
        if queue.identity.is_in_transaction:
            topic = queue.topic_partition.topic
            text = f"topic {topic!r} was deleted and made again: records of the transaction are gone with it"
            self._record_failed(KafkaError(text, topic=topic, partition=queue.topic_partition.partition))

    def _batch_resolved(self) -> None:
        """Go on with an abort under V1, which waits until the wire holds nothing of the transaction."""
        if self._manager.state is _STATE.ABORTING and self._records.is_off_the_wire():
            self._manager.flushed()
            self.wake()

    # What becomes of transactions

    def reject(self, error: KafkaError) -> None:
        """Let the open transaction be one that must be aborted."""
        self._manager.fail_transaction(error)
        self._changed()

    def fail(self, error: KafkaError) -> None:
        """Note that the producer has failed or is closed: every call says why."""
        if self._flushing is not None:
            self._flushing.cancel()
        self._manager.fail(error)
        self._told = self._manager.error
        self.turns.let_all_go()
        self._changed()

    def _changed(self) -> None:
        self._tell()
        self.wake()

    def _tell(self) -> None:
        """Do what a new state asks for, and wake those who wait for one."""
        manager, ending = self._manager, self._ending
        if manager.state in {_STATE.ABORTABLE_ERROR, _STATE.FATAL_ERROR} and manager.error is not self._told:
            self._told = manager.error
            self._give_up()
        is_over = manager.has_ended or manager.error is not None
        if ending is not None and not ending.is_done and is_over:
            ending.is_done = True
            ending.error = manager.error
            if manager.error is None:
                self.counts.note(ending, self._loop.time())
                self._records.forget_failures()
        if self._is_abandoned and manager.state is _STATE.ABORTABLE_ERROR:
            self._begin_abort()
        self.waits.tell()

    def _give_up(self) -> None:
        error = self._manager.error
        assert error is not None
        self._log.warning("transaction_failed", error=f"{type(error).__name__}: {error}")
        if self._manager.state is _STATE.FATAL_ERROR:
            self._on_fatal(error)
            return
        self._records.close()
        self._records.give_up(self._left_behind("has failed", error))

    def _left_behind(self, why: str, cause: KafkaError | None) -> TransactionAbortedError:
        error = TransactionAbortedError(f"the transaction {why} before the record was acknowledged")
        error.__cause__ = cause
        return error

    # Beginning

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and has no end yet."""
        return self._manager.state in _HAS_BEGUN

    async def initialized(self, *, deadline: float) -> None:
        """Wait until there is an identity.

        Raises:
            TransactionTimeoutError: not yet.
            KafkaError: there never will be.
        """
        what = f"there is no identity for transactional_id {self._manager.transactional_id!r}"
        await self.waits.until(lambda: self._manager.state not in _NOT_YET, deadline, what)
        self._raise_fatal()

    async def begin(self, *, deadline: float) -> None:
        """Begin a transaction, once the one before is over on the brokers.

        Raises:
            IllegalStateError: one is open.
            TransactionTimeoutError: the coordinator has not let it begin yet.
            ProducerClosedError: the producer is closing.
            KafkaError: the last one must be aborted first, or the producer has failed.
        """
        while True:
            await self._end_of_last(deadline)
            await self.initialized(deadline=deadline)
            wait_s = self._manager.begin_at - self._loop.time()
            if wait_s > 0:
                await self.waits.pause(wait_s, deadline)
            elif self._is_closing:
                raise ProducerClosedError("the producer is closing: no transaction begins any more")
            elif self._manager.state is _STATE.READY:
                if self._manager.begin(self._coordinators.transaction_version):
                    break
                self.wake()
        self._told, self._ending, self._is_abandoned = None, None, False
        self._records.open()

    async def _end_of_last(self, deadline: float) -> None:
        if not self.is_open:
            return
        if self._is_abandoned:
            await self.waits.until(lambda: not self.is_open, deadline, "the last transaction is not over")
            return
        ending = self._ending
        if ending is None or self._manager.state is _STATE.IN_TRANSACTION:
            raise IllegalStateError("a transaction is open already: commit or abort it first")
        await self.waits.join(ending, deadline)

    # Ending

    async def commit(self, *, deadline: float) -> None:
        """Commit; join a commit that is under way, or was when its caller gave up.

        Raises:
            IllegalStateError, TransactionAbortableError: none is open; it must be aborted.
            TransactionTimeoutError: not committed yet.
            KafkaError: the producer has failed.
        """
        self._raise_fatal()
        ending = self._ending
        if ending is None or not ending.is_commit or not ending.may_be_joined:
            self._raise_abortable()
            self._check_open("commit")
            ending = self._begin_commit()
        await self.waits.join(ending, deadline)

    def _begin_commit(self) -> Ending:
        if self._manager.state is _STATE.ABORTING:
            raise IllegalStateError("the transaction is being aborted: await abort_transaction() again")
        ending = self._ending = Ending(is_commit=True, began_at=self._loop.time())
        self._manager.commit()
        generation = self._records.close()
        if self._records.is_flushed(generation):
            self._manager.flushed()
            self.wake()
        else:
            self._flushing = self._loop.create_task(self._flush(generation), name="aioproducer-commit")
        return ending

    async def _flush(self, generation: int) -> None:
        await self._records.flush(generation)
        if self._manager.state is _STATE.COMMITTING:
            self._manager.flushed()
            self.wake()

    async def abort(self, *, deadline: float) -> None:
        """Abort; join an abort that is under way, or was when its caller gave up.

        Raises:
            IllegalStateError: none is open, or it is being committed.
            TransactionTimeoutError: not aborted yet.
            KafkaError: the producer has failed.
        """
        self._raise_fatal()
        ending = self._ending
        if ending is None or ending.is_commit or not ending.may_be_joined:
            self._check_open("abort")
            ending = self._begin_abort()
        await self.waits.join(ending, deadline)

    def _begin_abort(self) -> Ending:
        if not self._manager.may_abort:
            raise IllegalStateError("the transaction is being committed: await commit_transaction() again")
        if self._flushing is not None:
            self._flushing.cancel()
        ending = self._ending = Ending(is_commit=False, began_at=self._loop.time())
        cause = self._manager.error
        self._manager.abort()
        self._records.close()
        self._records.give_up(self._left_behind("was aborted", cause))
        if self._manager.is_v2 or self._records.is_off_the_wire():
            self._manager.flushed()
        self.wake()
        return ending

    async def finish(self) -> None:
        """Abort the open transaction: the producer closes. One that is being committed may end."""
        self._is_closing = True
        while self.is_open:
            if self._manager.may_abort and self._manager.state is not _STATE.COMMITTING:
                self._begin_abort()
            await self.waits.until(lambda: not self.is_open or self._manager.error is not None, None, "")
        await self.waits.until(lambda: self._manager.has_ended, None, "")

    def abandon(self) -> None:
        """Let a transaction end in the background: nobody will ask for it again."""
        self._is_abandoned = True
        if self._manager.state in {_STATE.IN_TRANSACTION, _STATE.ABORTABLE_ERROR}:
            self._begin_abort()

    # Offsets

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
        *,
        deadline: float,
    ) -> None:
        """Commit offsets of a group with the transaction.

        Raises:
            NoTransactionError: none is open.
            TransactionAbortableError: it must be aborted.
            TransactionTimeoutError: no answer yet.
            KafkaError: the producer has failed.
        """
        self.check_taking()
        if not offsets:
            return
        manager, number = self._manager, self._manager.number
        sending = OffsetsToSend(offsets, group, is_added=manager.is_v2)
        manager.send_offsets(sending)
        self.wake()
        what = f"the offsets of group {group.group_id!r} are not committed with the transaction"
        await self.waits.until(
            lambda: sending.is_done or manager.number != number or manager.state not in _TAKING, deadline, what
        )
        if not sending.is_done:
            self._raise_fatal()
            self._raise_abortable()
            raise NoTransactionError("the transaction ended before its offsets were sent")

    # Refusing

    def check_taking(self) -> None:
        """Raise unless a transaction takes records and offsets."""
        if self._manager.state is not _STATE.IN_TRANSACTION:
            self.refuse()

    def refuse(self) -> NoReturn:
        """Raise what a call gets that needs an open transaction.

        Raises:
            NoTransactionError: none is open, or it is ending.
            KafkaError: it has failed, or the producer has.
        """
        self._raise_fatal()
        self._raise_abortable()
        if self.is_open:
            raise NoTransactionError("the transaction is ending: it takes nothing more")
        text = "no transaction is open: `async with producer.transaction() as txn`, or await begin_transaction() first"
        raise NoTransactionError(text)

    def _check_open(self, verb: str) -> None:
        if not self.is_open:
            text = f"there is nothing to {verb}: no transaction is open"
            raise IllegalStateError(text)

    def _raise_fatal(self) -> None:
        if self._manager.state is _STATE.FATAL_ERROR and self._manager.error is not None:
            raise self._manager.error.fresh()

    def _raise_abortable(self) -> None:
        if self._manager.state is _STATE.ABORTABLE_ERROR and self._manager.error is not None:
            raise self._manager.error.fresh()

    def __repr__(self) -> str:
        """Show the state."""
        return f"<TransactionRunner {self._manager!r} {self.turns!r}>"
