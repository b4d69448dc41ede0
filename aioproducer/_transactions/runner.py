"""Runs transactions: one task sends the manager's requests, while callers begin transactions and give offsets.

`_transactions/commit_abort.py` ends them.

Source: Sender.maybeSendAndPollTransactionalRequest in Apache Kafka.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from aioproducer._network.node_connection import label_of
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.transaction_messages import ADD_PARTITIONS_TO_TXN
from aioproducer._sender.sender import ProduceTransaction
from aioproducer._timing.timers import TICK_S
from aioproducer._transactions.commit_abort import CLOSING, TransactionCompleter, TransactionRecords
from aioproducer._transactions.identity import TransactionalIdentity
from aioproducer._transactions.manager import TransactionManager
from aioproducer._transactions.requests import OffsetsToSend, TransactionRequest, TransactionResponse
from aioproducer._transactions.states import FIRST_V2, MAY_STILL_COMMIT, TransactionState
from aioproducer._transactions.waiting import TransactionWait, TransactionWaits
from aioproducer.errors import KafkaError, NoTransactionError, ProducerClosedError, UnsupportedVersionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioproducer._accumulator.events import ProducerEvents
    from aioproducer._accumulator.partition import Partition
    from aioproducer._accumulator.producer_identity import ProducerIdentity
    from aioproducer._logs import EventLog
    from aioproducer._network.metadata_refresher import MetadataRefresher
    from aioproducer._network.network_client import NetworkClient
    from aioproducer._timing.retry_backoff import ExponentialBackoff
    from aioproducer.config import ProducerConfig
    from aioproducer.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition


_STATE: Final = TransactionState
_NOT_YET: Final = frozenset((_STATE.UNINITIALIZED, _STATE.INITIALIZING))
_UNCOMMITTED: Final = MAY_STILL_COMMIT | {_STATE.ABORTING, _STATE.ABORTABLE_ERROR, _STATE.FATAL_ERROR}


class TransactionRunner:
    """The transactions of one producer; `on_fatal` is called with the error that ended it."""

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
        self.of_request = coordinators.produce_transaction
        self._coordinators = coordinators
        self._manager = coordinators.manager
        self._records = records
        self.waits = TransactionWaits(self._loop, max_block_s, coordinators.trouble, last_error=coordinators.last_error)
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

    def answer(self, events: ProducerEvents) -> None:
        """Follow the records of transactions."""
        events.batch_opened = self.batch_opened
        events.records_failed = self.records_failed
        events.abandoned_batch_ended = self.completer.batch_resolved
        events.log_lost = self.log_lost

    def batch_opened(self, partition: Partition) -> None:
        """Add the partition of a new batch to the transaction."""
        if not self._manager.use(partition, self._loop.time()):
            self.wake()

    def records_failed(self, error: KafkaError) -> None:
        """Require the open transaction to be aborted."""
        if self._manager.state in MAY_STILL_COMMIT:
            self._manager.fail_transaction(error)  # does nothing once EndTxn was sent to commit
            self._loop.call_soon(self._changed)  # later: the caller is in the middle of failing a batch

    def log_lost(self, partition: Partition) -> None:
        """Fail the transaction if it has written to this partition: a commit would miss these records."""
        if partition.identity.is_send_allowed:
            topic = partition.topic_partition.topic
            text = f"topic {topic!r} was deleted and made again, or lost its end: records of the transaction are gone"
            self.records_failed(KafkaError(text, topic=topic, partition=partition.topic_partition.partition))

    # Failing

    def reject(self, error: KafkaError) -> None:
        self._manager.fail_transaction(error)
        self._changed()

    def fail(self, error: KafkaError) -> None:
        """Note that the producer has failed or is closed."""
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
        """Wait until there is an identity; raises if the producer closes or has failed, or the time is over."""
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
        """Begin a transaction after the previous one has ended on the brokers."""
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

    def wait(self, now: float) -> TransactionWait:
        """Return what calls of the transaction wait for now."""
        manager = self._manager
        until, why = manager.next_at(now), manager.pacing.trouble
        if until <= now and manager.state is _STATE.READY:
            until, why = manager.late.begin_at, "a request of the last transaction may still arrive"
        is_over = manager.has_ended and not self.state_checks.is_open
        pause_until = until if until > now else None
        return TransactionWait(is_over, manager.awaits_records, self._coordinators.asked, pause_until, why)

    # Offsets

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata, *, deadline: float
    ) -> None:
        """Commit offsets of a group with the transaction, and wait until they are accepted."""
        self.state_checks.check_taking()
        if not offsets:
            return
        manager, number, began_at = self._manager, self._manager.number, self._loop.time()
        sending = manager.send_offsets(OffsetsToSend(offsets, group))
        self.wake()
        what = f"the offsets of group {group.group_id!r} are not committed with the transaction"
        await self.waits.until(
            lambda: sending.is_done or manager.number != number or manager.state not in MAY_STILL_COMMIT, deadline, what
        )
        if not sending.is_done:
            self.state_checks.raise_fatal()
            self.state_checks.raise_abortable()
            raise NoTransactionError("the transaction ended before its offsets were sent")
        self.completer.counts.send_offsets_time.record(self._loop.time() - began_at)


class _CalledOffError(KafkaError):
    """A request became obsolete before it could be sent; the broker has not failed."""


class Coordinators:
    """Sends the requests that the manager asks for, one at a time, and reports the results to it."""

    def __init__(
        self,
        client: NetworkClient,
        metadata: MetadataRefresher,
        manager: TransactionManager,
        *,
        clock: Callable[[], float],
        log: EventLog,
    ) -> None:
        self.manager = manager
        self._client = client
        self._metadata = metadata
        self._clock = clock
        self._log = log
        self._asked: TransactionRequest | None = None  # under way, for texts

    @property
    def transaction_version(self) -> int:
        return self._client.transaction_version

    @property
    def asked(self) -> str:
        """Kafka's name of the request that is under way; empty if there is none."""
        return "" if self._asked is None else self._asked.api.name

    def last_error(self) -> KafkaError | None:
        """Error of the last request, while it must be repeated."""
        return self.manager.pacing.error or (None if self._metadata.cluster.nodes else self._metadata.last_error)

    def trouble(self) -> str:
        """Return what keeps the manager's requests from being done."""
        if self.manager.pacing.trouble:
            return self.manager.pacing.trouble
        if self._asked is not None:
            node = self.manager.node_of(self._asked)
            return f"{self._asked.api.name} waits for {'any broker' if node is None else label_of(node)}"
        error = self.last_error()
        return "" if error is None else f"Metadata: {error}"

    def when_nodes_change(self, listener: Callable[[], None]) -> None:
        self._metadata.on_update(lambda *_: listener())

    def produce_transaction(self) -> ProduceTransaction:
        """Return the transactional fields of a Produce request."""
        self._follow_cluster()
        return ProduceTransaction(self.manager.transactional_id, self.manager.is_v2)

    def _follow_cluster(self) -> None:
        """Continue the open transaction as V1 if the cluster is known to be downgraded below V2."""
        if self.manager.is_v2 and self._client.transaction_version < FIRST_V2:
            self.manager.downgrade()

    def next_request(self) -> TransactionRequest | None:
        self._follow_cluster()
        return self.manager.next_request(self._clock()) if self._metadata.cluster.nodes else None

    async def ask(self, request: TransactionRequest) -> None:
        """Send a request, and report its end to the manager."""
        self._asked = request
        try:
            await self._ask(request)
        finally:
            self._asked = None

    async def _ask(self, request: TransactionRequest) -> None:
        was_sent = False
        asked_in, speaks_v2 = self.manager.state, self.manager.is_v2

        def body(version: int) -> bytes:
            nonlocal was_sent
            self._check_wanted(asked_in, speaks_v2=speaks_v2)
            content = request.body(version)
            self.manager.sent(request)
            was_sent = True
            return content

        try:
            response = await self._client.request(
                request.api,
                body,
                lambda reply: request.decode(reply.version, reply.payload),
                coordinator=self.manager.node_of(request),
                at_most=request.at_most,
            )
        except UnsupportedVersionError as error:
            self.manager.unsupported(request, error)
        except _CalledOffError as error:
            self._log.debug("transaction_request_called_off", request=request.api.name, reason=str(error))
            self.manager.unanswered(request, None, was_sent=False, now=self._clock())
        except KafkaError as error:
            self._log.debug("transaction_request_failed", request=request.api.name, reason=str(error))
            self._metadata.request_update("coordinator_unreachable")
            self.manager.unanswered(request, error, was_sent=was_sent, now=self._clock())
        else:
            self._take(request, response)

    def _check_wanted(self, asked_in: TransactionState, *, speaks_v2: bool) -> None:
        """Call a request off that waited for a connection, if it has become obsolete."""
        # What was decided may be outdated once a connection is there: an EndTxn(commit) would end the abort asked for
        # since.
        self._follow_cluster()  # a new connection may be the first to show a downgrade
        if self.manager.is_v2 != speaks_v2:
            raise _CalledOffError("the cluster serves another version of transactions now")
        still_wanted = {asked_in, TransactionState.COMMITTING, TransactionState.PREPARING}
        if self.manager.state not in still_wanted:  # it may have to abort now
            raise _CalledOffError("the transaction took another turn while this waited for a connection")

    def _take(self, request: TransactionRequest, response: TransactionResponse) -> None:
        if request.api is ADD_PARTITIONS_TO_TXN:  # no leader reports it, since no record is sent before
            for topic_partition in request.partitions_with(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, response):
                self._metadata.request_update("partition_unknown", topic=topic_partition.topic)
        self.manager.answered(request, response, self._clock())


def transaction_runner(  # noqa: PLR0913  # all that it works with
    config: ProducerConfig,
    identity: ProducerIdentity,
    records: TransactionRecords,
    *,
    backoff: ExponentialBackoff,
    client: NetworkClient,
    metadata: MetadataRefresher,
    loop: asyncio.AbstractEventLoop,
    on_fatal: Callable[[KafkaError], None],
    log: EventLog,
    coordinators: type[Coordinators] = Coordinators,
) -> TransactionRunner | None:
    """Return the runner of a producer, and make its parts; None without a transactional id."""
    if not isinstance(identity, TransactionalIdentity) or config.transactional_id is None:
        return None
    manager = TransactionManager(
        config.transactional_id,
        timeout_ms=config.transaction_timeout_ms,
        identity=identity,
        backoff=backoff,
        stray_delay_s=config.request_timeout_ms / 1000,
        on_joined=records.offer,
    )
    asking = coordinators(client, metadata, manager, clock=loop.time, log=log)
    return TransactionRunner(asking, records, max_block_s=config.max_block_ms / 1000, on_fatal=on_fatal, log=log)
