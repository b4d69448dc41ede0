"""Consume, transform, produce: each record of the input has its effect in the output exactly once.

    async with exactly_once(consumer, producer) as batches:
        async for records, txn in batches:
            for record in records:
                await txn.enqueue("enriched", enrich(record.value), key=record.key)

One transaction per batch: records sent through `txn`, and the offsets of `records`, become visible together or not at
all. What the loop does after a failure::

    next batch ──▶ your code ──▶ offsets, commit ──▶ next batch
        ▲                            │
        │                            ├── rebalance: abort; the new owner reads the same records
        ├── from what is committed ──┼── abortable error: abort, pause, the same records again
        │                            ├── a record at fault: one record a transaction, until it is found
        └── poison hook ◀────────────┘   fenced, no right, unsupported: abort where possible, and raise

Source: KIP-98, KIP-447; the consume-transform-produce loop of Apache Kafka's examples, with what it leaves out.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from random import Random
from typing import TYPE_CHECKING, Final, Self

from aioproducer._logs import event_log
from aioproducer._timing.retry_backoff import ExponentialBackoff
from aioproducer.errors import IllegalStateError, KafkaError
from aioproducer.integrations.aiokafka.batch_transaction import BatchTransaction
from aioproducer.integrations.aiokafka.batches import BatchSize, Intake, OpenBatch
from aioproducer.integrations.aiokafka.consumer import LoopLimits, NotAwaitableError, check_consumer, sole_use, to_await
from aioproducer.integrations.aiokafka.failures import (
    Meaning,
    PoisonSearch,
    RebalancedError,
    left_in_the_middle,
    meaning_of,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType

    from aiokafka import AIOKafkaConsumer, ConsumerRecord

    from aioproducer._producer.producer import Producer
    from aioproducer.integrations.aiokafka.batches import RecordBatch

    OnPoison = Callable[[ConsumerRecord, Exception, BatchTransaction], Awaitable[object]]
    Transform = Callable[[Sequence[ConsumerRecord], BatchTransaction], Awaitable[object]]

FIRST_PAUSE_MS: Final = 100
LONGEST_PAUSE_MS: Final = 5_000
"""Between attempts at the same records, doubled from the first to this."""


class PoisonRecordError(KafkaError):
    """A record of the input fails whenever it is tried, also alone; `topic`, `partition` and `offset` say which.

    Its cause is what it failed with. Give `exactly_once` an `on_poison`, or handle such records in your own code.
    """

    offset: int = -1


def exactly_once(
    consumer: AIOKafkaConsumer,
    producer: Producer,
    *,
    max_records: int = 10_000,
    max_seconds: float = 0.1,
    shutdown_seconds: float = 10.0,
    on_poison: OnPoison | None = None,
) -> ExactlyOnce:
    """Process what a consumer reads in transactions of a producer, offsets included.

    Args:
        consumer: started, of a group, with `isolation_level="read_committed"` and `enable_auto_commit=False`. While
            the loop runs, no other code may read, seek or commit with it.
        producer: started, with a `transactional_id` of this worker's own.
        max_records: most records per batch.
        max_seconds: longest time from a batch's first record until the batch is returned.
        shutdown_seconds: after `stop`, how long the current batch may take; then it is aborted.
        on_poison: called with a record, its error and a transaction, when the record fails whenever it is tried. What
            it sends through that transaction (to a topic of dead letters) is committed together with the offset
            behind the record. If it raises, that ends the loop. None: `PoisonRecordError` ends it.

    Raises:
        ConfigurationError: an option of the consumer or the producer makes it impossible.
        IllegalStateError: the consumer is not started.
        TypeError: an argument of the wrong type.
        ValueError: an argument out of range.
    """
    check_consumer(consumer)
    limits = LoopLimits(max_records, max_seconds, shutdown_seconds)
    limits.check(producer)
    if on_poison is not None and not callable(on_poison):
        raise TypeError(f"on_poison must be a coroutine function or None, not {type(on_poison).__name__}")
    return ExactlyOnce(consumer, producer, limits, on_poison=on_poison)


class ExactlyOnce:
    """The loop; made by `exactly_once`.

    Leaving `async with` in the middle of a batch, by an exception or `break`, aborts that batch: the next owner of its
    partitions reads it again. To end after the current batch, call `stop`.

    A step of the loop, `await anext(batches)`, may be cancelled at any point, and the next step continues. A step
    commits the current batch, so put a time limit on the step only. If your code was cancelled while it processed a
    batch, start `async for` or `run` again: that aborts the batch, and returns its records again.
    """

    def __init__(
        self, consumer: AIOKafkaConsumer, producer: Producer, limits: LoopLimits, *, on_poison: OnPoison | None
    ) -> None:
        self._consumer = consumer
        self._producer = producer
        self._limits = limits
        self._on_poison = on_poison
        self._search = PoisonSearch()
        self._size = BatchSize(limits.max_records, producer.config.transaction_timeout_ms / 1000)
        self._backoff = ExponentialBackoff(FIRST_PAUSE_MS, LONGEST_PAUSE_MS, random=Random())  # noqa: S311  # jitter
        self._failures = 0
        """Failures in a row."""
        self._open: OpenBatch | None = None
        self._failure: Exception | None = None
        """The reason not to commit the open batch: an error of the user's code, or a loop left in the middle."""
        self._log = event_log(producer.statistics().client_id)
        # Set on entering.
        self._intake: Intake
        self._stopped: asyncio.Future[None]
        self._deadline: asyncio.Timeout
        self._exits: AsyncExitStack

    async def __aenter__(self) -> Self:
        """Begin; nothing is read yet.

        Raises:
            IllegalStateError: it was entered before, or another loop reads with its consumer.
        """
        if hasattr(self, "_stopped"):
            raise IllegalStateError("the loop was entered already: call exactly_once again")
        self._exits = AsyncExitStack()  # runs the last first, and passes each what those before it raised
        self._exits.enter_context(sole_use(self._consumer))
        self._stopped = asyncio.get_running_loop().create_future()
        self._intake = Intake(
            self._consumer, self._producer, max_seconds=self._limits.max_seconds, stopped=self._stopped
        )
        self._deadline = await asyncio.timeout(None).__aenter__()
        self._exits.push_async_exit(self._end_deadline)
        self._exits.push_async_callback(self._intake.close)
        self._exits.push_async_exit(self._abort_what_is_open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Abort what is open, and put the consumer back to what is committed.

        Raises:
            TimeoutError: the current batch was not finished in time after `stop`; it is aborted.
        """
        await self._exits.__aexit__(kind, error, traceback)

    async def _abort_what_is_open(self, _: object, error: BaseException | None, __: object) -> None:
        if self._open is not None:
            await self._abort(self._open, error or left_in_the_middle())

    async def _end_deadline(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._deadline.__aexit__(kind, error, traceback)
        except TimeoutError as late:
            text = f"the batch was not finished {self._limits.shutdown_seconds:g} s after stop(): it is aborted"
            raise TimeoutError(text) from late

    def stop(self) -> None:
        """End the loop after the current batch, from any thread or signal handler; repeated calls do nothing.

        The batch may take `shutdown_seconds`, commit included. Then the task that runs the loop is cancelled, the
        batch aborted, and `async with` raises `TimeoutError`.

        Raises:
            IllegalStateError: the loop has not begun.
        """
        if not hasattr(self, "_stopped"):
            raise IllegalStateError("the loop has not begun: enter it first")
        event_loop = self._stopped.get_loop()
        with suppress(RuntimeError):  # it has ended already, or the event loop has
            if asyncio._get_running_loop() is not event_loop:  # noqa: SLF001  # of another thread
                event_loop.call_soon_threadsafe(self.stop)
            elif not self._stopped.done():
                self._stopped.set_result(None)
                self._deadline.reschedule(event_loop.time() + self._limits.shutdown_seconds)

    async def run(self, transform: Transform) -> None:
        """Call `transform` with each batch until `stop`, and again with the same records after any error.

        Unlike in `async for`, an exception of your code does not end the loop: the batch is aborted and tried again,
        then each record alone, and a record that keeps failing alone is passed to `on_poison`.

        Args:
            transform: called with records and the transaction.

        Raises:
            PoisonRecordError: there is no `on_poison`.
            KafkaError: this producer will never commit: fenced, no right.
            NotAwaitableError: `transform` is not a coroutine function.
        """
        if not callable(transform):
            raise NotAwaitableError(f"transform must be a coroutine function, not {type(transform).__name__}")
        async for records, txn in self:
            try:
                await to_await("transform", transform(records, txn))
            except NotAwaitableError:
                raise
            except Exception as error:  # noqa: BLE001  # the user's own code may raise anything
                self._failure = error
            except BaseException:
                self._failure = left_in_the_middle()
                raise

    def __aiter__(self) -> Self:
        """Iterate over batches, from the committed offsets: a batch left in the middle is aborted."""
        if self._open is not None and self._failure is None:
            self._failure = left_in_the_middle()
        return self

    async def __anext__(self) -> tuple[Sequence[ConsumerRecord], BatchTransaction]:
        """Commit the current batch, and return the next with its transaction.

        After a cancellation it may be called again. It then returns the records that were read but not returned yet,
        or the last batch again unless its transaction, which may outlive the cancelled call, is committed.

        Raises:
            StopAsyncIteration: after `stop`.
            PoisonRecordError: a record fails whenever it is tried.
            KafkaError: this producer will never commit: fenced, no right.
        """
        await self._finish()
        while (batch := await self._next_batch()) is not None:
            self._search.keep(batch.membership.partitions)
            poison = self._search.error_of(batch.records[0])
            if not await self._begin(batch):
                continue
            if poison is None:
                assert self._open is not None
                return batch.records, BatchTransaction(self._open.txn, self._log)
            await self._hand_over(poison)
        with suppress(RuntimeError):  # the deadline expires right now
            self._deadline.reschedule(None)  # the limit was for the batch, not for the user's code after the loop
        raise StopAsyncIteration

    # One batch

    async def _next_batch(self) -> RecordBatch | None:
        """Return the next records, or None after `stop`.

        Raises:
            KafkaError: committed offsets will never be had.
        """
        while not self._stopped.done():
            try:
                batch = await self._intake.next_batch(self._search.limit(self._size.limit))
            except KafkaError as error:  # committed offsets cannot be had now
                if meaning_of(error) is Meaning.FATAL:
                    raise
                await self._pause(error)
            else:
                return batch
        return None

    async def _begin(self, batch: RecordBatch) -> bool:
        """Open a transaction; returns False if that is not possible now.

        Raises:
            KafkaError: this producer will never open one.
        """
        try:
            transaction = self._producer.transaction()
            txn = await transaction.__aenter__()
        except BaseException as error:
            self._intake.rewind()  # these records were not returned to the user
            if not isinstance(error, KafkaError) or meaning_of(error) is Meaning.FATAL:
                raise
            await self._pause(error)
            return False
        self._open = OpenBatch(batch, transaction, txn, began_at=asyncio.get_running_loop().time())
        return True

    async def _finish(self) -> None:
        """Commit what is open, or abort it and have its records read again.

        Raises:
            KafkaError: this producer will never commit.
        """
        if self._open is None:
            return
        opened, failure, self._failure = self._open, self._failure, None
        took_s = asyncio.get_running_loop().time() - opened.began_at
        is_late = self._size.worked(len(opened.batch.records), took_s, is_whole=failure is None)
        if failure is None and opened.batch.membership.is_current:
            failure = await self._commit(opened)
            if failure is None:
                self._done(opened.batch)
                return
        else:
            await self._abort(opened, failure or RebalancedError("partitions were reassigned"))
        if failure is not None:
            await self._consider(opened.batch, failure, is_late=is_late)

    async def _commit(self, opened: OpenBatch) -> Exception | None:
        """Commit with the offsets; returns the error if that failed and the transaction was aborted."""
        offsets = opened.batch.next_offsets()
        try:
            await opened.txn.send_offsets(offsets, opened.batch.membership.group)
        except KafkaError as error:
            await self._abort(opened, error)
            return error
        self._open = None  # the commit owns the transaction from here on: it continues if this call is cancelled
        if not self._search.is_on:
            self._intake.read_ahead(self._size.limit)
        try:
            await opened.transaction.__aexit__(None, None, None)
        except BaseException as error:
            self._intake.rewind()  # after a cancellation only the broker knows the outcome, and so what to read next
            if not isinstance(error, KafkaError):
                raise
            return error
        return None

    def _done(self, batch: RecordBatch) -> None:
        self._failures = 0
        self._intake.committed(batch)
        self._search.committed(batch.next_offsets())

    async def _abort(self, opened: OpenBatch, error: BaseException) -> None:
        """End the transaction as its context manager does for an exception; its records are read again."""
        self._open = None
        self._intake.rewind()  # first: the abort continues if this is cancelled, and its records must be read again
        await opened.transaction.__aexit__(type(error), error, error.__traceback__)

    # After a failure

    async def _consider(self, batch: RecordBatch, error: Exception, *, is_late: bool) -> None:
        """Raise if the error ends the loop; otherwise return when the same records may be tried again.

        Raises:
            KafkaError: this producer will never commit.
        """
        meaning = meaning_of(error)
        if not batch.membership.is_current:
            if meaning is Meaning.RECORD:
                self._log_attempt(error)
            return  # another worker may have these records now
        if meaning is Meaning.FATAL:
            raise error
        if meaning is Meaning.PASSING and is_late and len(batch.records) == 1:
            meaning = Meaning.RECORD  # no transaction is open for as long as this one takes
        if meaning is Meaning.RECORD:
            self._search.failed(batch, error)
        if meaning is Meaning.PASSING or len(batch.records) == 1:
            await self._pause(error)
        else:
            self._log_attempt(error)

    async def _pause(self, error: Exception) -> None:
        """Wait before the next attempt, unless stopped."""
        delay_s = self._backoff.delay_s(self._failures)
        self._failures += 1
        self._log_attempt(error, again_in_s=delay_s)
        await asyncio.wait((self._stopped,), timeout=delay_s)

    async def _hand_over(self, error: Exception) -> None:
        """Let the hook handle a poison record, within its transaction.

        Raises:
            PoisonRecordError: there is no hook.
        """
        assert self._open is not None
        self._failure = left_in_the_middle()  # until the hook has finished
        record = self._open.batch.records[0]
        if self._on_poison is None:
            text = f"record {record.topic}[{record.partition}]@{record.offset} fails whenever it is tried: {error}"
            poison = PoisonRecordError(text, topic=record.topic, partition=record.partition)
            poison.offset = record.offset
            raise poison from error
        self._log.warning(
            "poison_record",
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            error=f"{type(error).__name__}: {error}",
            exc_info=error,
        )
        await to_await("on_poison", self._on_poison(record, error, BatchTransaction(self._open.txn, self._log)))
        self._failure = None
        await self._finish()

    def _log_attempt(self, error: Exception, *, again_in_s: float = 0) -> None:
        """Log that a batch was not committed.

        A failure of the user's code has its traceback, which names file and line. That of trouble with the cluster
        would show this package only.
        """
        self._log.warning(
            "batch_not_committed",
            error=f"{type(error).__name__}: {error}",
            again_in_s=round(again_in_s, 3),
            exc_info=error if meaning_of(error) is Meaning.RECORD else None,
        )
