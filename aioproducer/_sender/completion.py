"""Ends the producer's batches: completes or fails their deliveries, runs callbacks, and returns their memory.

Step 11 of docs/explanation/life_of_a_record.md. User code never runs inside the sender's step: ending a batch sets its
result and schedules one call that runs its callbacks and wakes its waiters, in record order.

Source: Batch.completeFutureAndFireCallbacks in Apache Kafka.
"""

from __future__ import annotations

import asyncio
from asyncio import sleep  # bound once: users' tests patch asyncio.sleep
from dataclasses import dataclass
from types import CoroutineType
from typing import TYPE_CHECKING, Final

from aioproducer._accumulator.flush_generations import FlushGenerations
from aioproducer._accumulator.partition import BatchState
from aioproducer._sender.unseen_failures import FailedBatches, UnseenFailures
from aioproducer.errors import DeliveryTimeoutError, KafkaError, Outcome, PurgedError, UndeliveredError

if TYPE_CHECKING:
    import contextvars
    from collections.abc import Iterator

    from aioproducer._accumulator.buffer_pool import BufferPool
    from aioproducer._accumulator.events import ProducerEvents
    from aioproducer._accumulator.partition import Batch
    from aioproducer._accumulator.waiting_record import WaitingRecord
    from aioproducer._logs import EventLog
    from aioproducer._native.delivery import BatchResult, OnDelivery
    from aioproducer._native.measures import LatencyHistogram, TopicTable
    from aioproducer._sender.produce_outcome import Complete
    from aioproducer.records import RecordMetadata


TURN_OF_CALLBACKS: Final = 1
"""Until `on_delivery` has been called; the callbacks of the deliveries are scheduled then, before the flush ends."""

TURNS_UNTIL_SEEN: Final = 3
"""Until a task that awaits a `BulkDelivery` has read a failed batch, which takes longest: callbacks run in the first
turn, the last callback wakes the task in the second, and the task reads its records in the third."""


@dataclass(slots=True)
class DeliveryCounts:
    """Totals of records and batches that ended, defined as in Kafka."""

    records_acknowledged: int = 0
    records_failed: int = 0
    batch_records_failed: int = 0
    records_filtered: int = 0
    batches: int = 0
    batch_bytes: int = 0


class Completion:
    """Ends batches, and records that never joined one.

    `latency` is from the call of a batch's oldest record to its acknowledgement.
    """

    def __init__(  # noqa: PLR0913  # all that the end of a record touches
        self,
        loop: asyncio.AbstractEventLoop,
        pool: BufferPool,
        generations: FlushGenerations,
        *,
        latency: LatencyHistogram,
        topics: TopicTable,
        events: ProducerEvents,
        log: EventLog,
    ) -> None:
        self._loop = loop
        self._pool = pool
        self._generations = generations
        self._latency = latency
        self._topics = topics
        self._events = events
        self._log = log
        self.unseen = UnseenFailures()
        self._trims_soon = False
        self.counts = DeliveryCounts()

    def complete(self, batch: Batch, outcome: Complete, now: float) -> None:
        """Complete the deliveries of a batch that is in the log, and give its memory back."""
        batch.move_to(BatchState.DONE)
        self.counts.batches += 1
        self.counts.batch_bytes += batch.wire_size
        latency_s = now - batch.called_at
        self.complete_result(batch.result, outcome, count=batch.count, callers=batch.callers, latency_s=latency_s)
        self._pool.give_back(batch.chunk)
        self._generations.leave(batch.generation)

    def complete_result(
        self, result: BatchResult, outcome: Complete, *, count: int, callers: int, latency_s: float
    ) -> None:
        """Complete `count` records that share a result; `callers` of them still wait for it."""
        self.counts.records_acknowledged += callers
        self._latency.record(latency_s, callers)
        result.complete(outcome.base_offset, outcome.log_append_time, outcome.log_start_offset, count)
        if result.has_callbacks:
            # Not now: the user's code may send, flush or close, and the sender is walking through its queues.
            self._loop.call_soon(self._notify, result)
        else:
            result.wake()  # runs no user code: it schedules the waiters

    def fail(self, batch: Batch, error: KafkaError, now: float) -> None:
        """Fail the deliveries of a batch with `error` and the details of the batch; `release` gives its memory back."""
        if batch.callers:
            self.fail_some(batch, batch.result, error, count=batch.callers, now=now)
        self._generations.leave(batch.generation)

    def fail_some(self, batch: Batch, result: BatchResult, error: KafkaError, *, count: int, now: float) -> None:
        """Fail `count` records of a batch, which share `result`, while the others go on."""
        topic_partition = batch.partition.topic_partition
        detailed = error.with_details(
            topic=topic_partition.topic,
            partition=topic_partition.partition,
            attempts=batch.attempts_before + batch.attempts,
            elapsed_s=now - batch.called_at,
            last_broker_error=batch.last_error if batch.last_error is not error else None,
        )
        write = self._log.debug if isinstance(error, PurgedError) else self._log.warning  # its caller knows
        write(
            "batch_failed",
            topic=topic_partition.topic,
            partition=topic_partition.partition,
            records=count,
            attempts=batch.attempts_before + batch.attempts,
            outcome=error.outcome.value if error.outcome is not None else None,
            error=f"{type(error).__name__}: {error}",
            # An exception of the user's code has a traceback that shows where
            exc_info=None if isinstance(error.__cause__, KafkaError) else error.__cause__,
        )
        self.counts.batch_records_failed += count
        self._topics.of(topic_partition.topic).errors += count
        self.fail_result(result, detailed, count=count, generation=batch.generation)

    def fail_result(
        self, result: BatchResult, error: KafkaError, *, count: int, generation: int, fails_transaction: bool = True
    ) -> None:
        """Fail `count` records that share a result; without `fails_transaction` if their own call raises the error."""
        if fails_transaction:
            self._events.records_failed(error)
        self.counts.records_failed += count
        result.fail(error, count)
        self.unseen.record(result, generation)
        self._loop.call_soon(self._notify, result)
        if not self._trims_soon:
            self._trims_soon = True
            self._loop.call_soon(self._loop.call_soon, self._trim)  # one turn after the waiters of this one

    def fail_waiting(self, record: WaitingRecord, error: KafkaError) -> None:
        is_raised = record.is_raised_by_its_call
        self._topics.of(record.topic).errors += 1
        self.fail_result(record.result, error, count=1, generation=record.generation, fails_transaction=not is_raised)

    def filter(self, result: BatchResult, error: KafkaError) -> None:
        self.counts.records_filtered += 1
        self.withdraw(result, error)

    def withdraw(self, result: BatchResult, error: KafkaError) -> None:
        """Fail a record that its caller withdrew; no flush raises this error, and it counts as no failure."""
        # Callbacks and interceptors are called all the same: applications use both to count the records in flight.
        result.fail(error, 1)
        self._loop.call_soon(self._notify, result)

    async def take_error(self, failed: FailedBatches) -> UndeliveredError | None:
        """Return the error that a flush raises, once callbacks and the tasks that await the records have run."""
        for _ in range(TURNS_UNTIL_SEEN if len(failed) else TURN_OF_CALLBACKS):
            await sleep(0)
        return failed.take_error()

    def release(self, batch: Batch) -> None:
        """Give the memory of a batch back; no connection or thread may use it any more."""
        self._pool.give_back(batch.chunk)

    def _trim(self) -> None:
        self._trims_soon = False
        self.unseen.trim()

    def _notify(self, result: BatchResult) -> None:
        self._call_back(result, iter(result.take_callbacks()))

    def _call_back(
        self, result: BatchResult, callbacks: Iterator[tuple[int, int, OnDelivery, contextvars.Context]]
    ) -> None:
        try:
            for index, timestamp, callback, context in callbacks:
                if result.error is None:
                    context.run(call_on_delivery, callback, result.metadata_of(index, timestamp), None, self._log)
                elif context.run(call_on_delivery, callback, None, result.error.fresh(), self._log):
                    result.note_retrieval_of(callback, index)
        except BaseException:  # such as KeyboardInterrupt, which stops the loop: it may be run again
            self._loop.call_soon(self._call_back, result, callbacks)  # the others
            raise
        result.wake()


def call_on_delivery(  # noqa: PLR0917  # the callback's own arguments
    callback: OnDelivery, metadata: RecordMetadata | None, error: KafkaError | None, log: EventLog
) -> bool:
    """Call an `on_delivery` callback; returns False if it raised, for example because of a wrong signature."""
    try:
        returned = callback(metadata, error)
        if returned is not None:
            _refuse_coroutine(returned)
    except (Exception, asyncio.CancelledError) as raised:  # any error of user code
        text = f"{type(raised).__name__}: {raised}"
        log.error("on_delivery_failed", error=text, exc_info=raised)  # noqa: TRY400  # events have no `exception`
        return False
    return True


def error_of_refused(error: BaseException) -> KafkaError:
    """Return the error of a refused record as a delivery reports it: the record is in no log."""
    if not isinstance(error, KafkaError):
        wrapped = KafkaError(f"{type(error).__name__}: {error}", outcome=Outcome.NOT_WRITTEN)
        wrapped.__cause__ = error
        return wrapped
    return error if error.outcome is not None else error.with_details(outcome=Outcome.NOT_WRITTEN)


def deadline_error(batch: Batch, bound: str, why: str, *, outcome: Outcome) -> DeliveryTimeoutError:
    """Return the error of records whose time is over; `bound` is the option or argument that says when."""
    attempts = batch.attempts_before + batch.attempts
    tried = f"{attempts} attempt{'s' * (attempts != 1)}"
    message = f"not acknowledged within {bound} after {tried}: {why}"
    return DeliveryTimeoutError(message, outcome=outcome)


def _refuse_coroutine(returned: object) -> None:
    if isinstance(returned, CoroutineType):
        returned.close()
        raise TypeError("on_delivery must not be async: it is not awaited")
