"""Runs transactions: one task sends the requests, while callers begin transactions and give offsets.

`_transactions/commit_abort.py` ends them. `TransactionParts` wires what only a transactional producer has.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from aioproducer._timing.timers import TICK_S
from aioproducer._transactions.commit_abort import CLOSING, TransactionCompleter
from aioproducer._transactions.coordinators import Coordinators
from aioproducer._transactions.identity import TransactionalIdentity
from aioproducer._transactions.manager import TransactionManager
from aioproducer._transactions.records import TransactionRecords
from aioproducer._transactions.requests import OffsetsToSend
from aioproducer._transactions.states import TransactionState
from aioproducer._transactions.waiting import TransactionWaits
from aioproducer.errors import KafkaError, NoTransactionError, ProducerClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioproducer._accumulator.partition_queue import PartitionQueue
    from aioproducer._accumulator.producer_identity import ProducerIdentity
    from aioproducer._logs import EventLog
    from aioproducer._network.metadata_refresher import MetadataRefresher
    from aioproducer._network.network_client import NetworkClient
    from aioproducer._sender.produce_request import ProduceTransaction
    from aioproducer._timing.retry_backoff import ExponentialBackoff
    from aioproducer.config import ProducerConfig
    from aioproducer.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition


_STATE: Final = TransactionState
_NOT_YET: Final = frozenset((_STATE.UNINITIALIZED, _STATE.INITIALIZING))
_UNCOMMITTED: Final = frozenset(
    (
        _STATE.IN_TRANSACTION,
        _STATE.COMMITTING,
        _STATE.PREPARING,
        _STATE.ABORTING,
        _STATE.ABORTABLE_ERROR,
        _STATE.FATAL_ERROR,
    )
)
_TAKING: Final = frozenset((_STATE.IN_TRANSACTION, _STATE.COMMITTING, _STATE.PREPARING))


class TransactionRunner:
    """The transactions of one producer.

    Args:
        coordinators: send the requests.
        records: of the open transaction.
        max_block_s: how long a call waits.
        on_fatal: called with the error that ended the producer.
        log: gets one event per failed transaction.
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
        self._coordinators = coordinators
        self._manager = coordinators.manager
        self._records = records
        self.waits = TransactionWaits(self._loop, max_block_s, lambda: coordinators.manager.pacing.trouble)
        self.completer = TransactionCompleter(self._manager, records, self.waits, loop=self._loop, wake=self.wake)
        self.lock = self.completer.lock
        self.state_checks = self.completer.state_checks
        self._on_fatal = on_fatal
        self._log = log
        self._wanted = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None
        self._told: KafkaError | None = None
        coordinators.when_nodes_change(self.wake)

    # The task

    async def run(self) -> None:
        """Send requests until cancelled."""
        self._manager.initialize()
        try:
            while True:
                self._wanted.clear()
                looked_at = self._loop.time()
                request = self._coordinators.next_request()
                self._notify()
                if request is not None:
                    await self._coordinators.ask(request)
                    continue
                self._set_alarm(looked_at)
                await self._wanted.wait()
        finally:
            self._stop_alarm()

    def wake(self) -> None:
        """Have the task look for a request soon."""
        self._wanted.set()

    def _set_alarm(self, looked_at: float) -> None:
        """Wake the task when the pause is over that still ran at `looked_at`.

        The pause may be over by now: the alarm then rings at once, since the task found nothing to do at `looked_at`.
        """
        self._stop_alarm()
        if (next_at := self._manager.next_at(looked_at)) > looked_at:
            self._alarm = self._loop.call_later(max(next_at - looked_at, TICK_S), self.wake)

    def _stop_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    # Records

    def of_request(self) -> ProduceTransaction:
        """Return the transactional fields of a Produce request."""
        return self._coordinators.produce_transaction()

    def batch_opened(self, queue: PartitionQueue) -> None:
        """Add the partition of a new batch to the transaction."""
        if not self._manager.use(queue, self._loop.time()):
            self.wake()

    def records_failed(self, error: KafkaError) -> None:
        """Require the open transaction to be aborted."""
        if self._manager.state in _TAKING:
            self._manager.fail_transaction(error)  # does nothing once EndTxn was sent to commit
            self._loop.call_soon(self._changed)  # later: the caller is in the middle of failing a batch

    def log_lost(self, queue: PartitionQueue) -> None:
        """Fail the transaction if it has written to this partition: a commit would miss these records."""
        if queue.identity.is_send_allowed:
            topic = queue.topic_partition.topic
            text = f"topic {topic!r} was deleted and made again, or lost its end: records of the transaction are gone"
            self.records_failed(KafkaError(text, topic=topic, partition=queue.topic_partition.partition))

    # Failing

    def reject(self, error: KafkaError) -> None:
        """Require the open transaction to be aborted."""
        self._manager.fail_transaction(error)
        self._changed()

    def fail(self, error: KafkaError) -> None:
        """Note that the producer has failed or is closed; every later call raises the error."""
        self.completer.stop_flushing()
        self._manager.fail(error)
        self._told = self._manager.error
        self.lock.end(error)
        self._changed()

    def _changed(self) -> None:
        self._notify()
        self.wake()

    def _notify(self) -> None:
        """React to a new state, and wake the callers that wait for it."""
        error = self._manager.error
        if error is not None and error is not self._told:  # a fatal error may follow an abortable one
            self._told = error
            self._give_up(error)
        self.completer.settle()
        self.waits.notify()

    def _give_up(self, error: KafkaError) -> None:
        self._log.warning("transaction_failed", error=f"{type(error).__name__}: {error}")
        if self._manager.state is _STATE.FATAL_ERROR:
            self._on_fatal(error)
            return
        self.completer.give_up_records(error)

    # Beginning

    async def initialized(self, *, deadline: float) -> None:
        """Wait until there is an identity.

        Raises:
            TransactionTimeoutError: not yet.
            ProducerClosedError: the producer is closing.
            KafkaError: the producer has failed.
        """
        what = f"there is no identity for transactional_id {self._manager.transactional_id!r}"
        await self.waits.until(lambda: self._manager.state not in _NOT_YET or self.completer.is_closing, deadline, what)
        self.state_checks.raise_fatal()
        if self._manager.state in _NOT_YET:
            raise ProducerClosedError(CLOSING)

    @property
    def records_at_risk(self) -> int:
        """Number of records in the open transaction, none of which counts before its commit; 0 if none is open."""
        return self._records.taken if self._manager.state in _UNCOMMITTED else 0

    @property
    def number(self) -> int:
        """Number of the open transaction, or else of the last."""
        return self._manager.number

    async def begin(self, *, deadline: float) -> None:
        """Begin a transaction after the previous one has ended on the brokers.

        Raises:
            IllegalStateError: one is open.
            TransactionTimeoutError: the coordinator has not let it begin yet.
            ProducerClosedError: the producer is closing.
            KafkaError: the last one must be aborted first, or the producer has failed.
        """
        began_at = self._loop.time()
        while True:
            await self.completer.end_of_last(deadline)
            await self.initialized(deadline=deadline)
            wait_s = self._manager.late.begin_at - self._loop.time()
            if self.completer.is_closing:
                raise ProducerClosedError(CLOSING)
            if wait_s > 0:
                await self.waits.pause(wait_s, deadline)
            elif self._manager.state is _STATE.READY:
                if self._manager.begin(self._coordinators.transaction_version):
                    break
                self.wake()
        self.completer.counts.begin_time.record(self._loop.time() - began_at)
        self.completer.begun()
        self._records.open()

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
            TransactionTimeoutError: no response yet.
            KafkaError: the producer has failed.
        """
        self.state_checks.check_taking()
        if not offsets:
            return
        manager, number, began_at = self._manager, self._manager.number, self._loop.time()
        sending = manager.send_offsets(OffsetsToSend(offsets, group))
        self.wake()
        what = f"the offsets of group {group.group_id!r} are not committed with the transaction"
        await self.waits.until(
            lambda: sending.is_done or manager.number != number or manager.state not in _TAKING, deadline, what
        )
        if not sending.is_done:
            self.state_checks.raise_fatal()
            self.state_checks.raise_abortable()
            raise NoTransactionError("the transaction ended before its offsets were sent")
        self.completer.counts.send_offsets_time.record(self._loop.time() - began_at)


__all__ = ["TransactionParts", "TransactionRecords"]


class TransactionParts:
    """Makes the transactional parts of a producer, apart from the records.

    Args:
        config: validated.
        backoff: between attempts.
        client: sends requests.
        metadata: knows the nodes.
        loop: for the time.
        log: bound to the client id.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        backoff: ExponentialBackoff,
        client: NetworkClient,
        metadata: MetadataRefresher,
        loop: asyncio.AbstractEventLoop,
        log: EventLog,
    ) -> None:
        self._config = config
        self._backoff = backoff
        self._client = client
        self._metadata = metadata
        self._loop = loop
        self._log = log

    def runner(
        self,
        identity: ProducerIdentity,
        records: TransactionRecords,
        *,
        on_fatal: Callable[[KafkaError], None],
        coordinators: type[Coordinators] = Coordinators,
    ) -> TransactionRunner | None:
        """Return the runner; None without a transactional id.

        Args:
            coordinators: class of what sends the requests.
        """
        config = self._config
        if not isinstance(identity, TransactionalIdentity) or config.transactional_id is None:
            return None
        manager = TransactionManager(
            config.transactional_id,
            timeout_ms=config.transaction_timeout_ms,
            identity=identity,
            backoff=self._backoff,
            stray_delay_s=config.request_timeout_ms / 1000,
            on_joined=records.offer,
        )
        asking = coordinators(self._client, self._metadata, manager, clock=self._loop.time, log=self._log)
        max_block_s = config.max_block_ms / 1000
        return TransactionRunner(asking, records, max_block_s=max_block_s, on_fatal=on_fatal, log=self._log)
