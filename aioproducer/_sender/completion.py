"""Ends batches: their deliveries complete or fail, callbacks run, memory goes back. Nothing else does.

Step 11 of docs/explanation/life_of_a_record.md. No code of the user runs inside the sender's step: ending a batch
sets its result and schedules one call that runs its callbacks and wakes those who wait, in record order.

Source: ProducerBatch.completeFutureAndFireCallbacks in Apache Kafka.
"""

from __future__ import annotations

from asyncio import CancelledError, sleep
from types import CoroutineType
from typing import TYPE_CHECKING, Final

from aioproducer._sender.unseen_failures import UnseenFailures
from aioproducer.errors import DeliveryTimeoutError, KafkaError, Outcome

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from aioproducer._accumulator.buffer_pool import BufferPool
    from aioproducer._accumulator.flush_generations import FlushGenerations
    from aioproducer._accumulator.producer_batch import ProducerBatch
    from aioproducer._accumulator.wait_queue import WaitingRecord
    from aioproducer._logs import EventLog
    from aioproducer._native.delivery import BatchResult, OnDelivery
    from aioproducer._sender.produce_outcome import Complete
    from aioproducer._sender.unseen_failures import FailedBatches
    from aioproducer.errors import UndeliveredError
    from aioproducer.metrics import LatencyHistogram
    from aioproducer.records import RecordMetadata

TURNS_UNTIL_SEEN: Final = 3
"""From the end of a batch until a task that awaits a `BulkDelivery` has read it, the longest way of all: the batch's
callbacks run in the first, the last of them wakes the task in the second, and it reads its records in the third."""


class DeliveryCounts:
    """Totals of records and batches that ended, under Kafka's meanings."""

    __slots__ = (
        "batch_bytes",
        "batch_records_failed",
        "batches",
        "records_acknowledged",
        "records_failed",
        "records_filtered",
    )

    def __init__(self) -> None:
        """Start at zero."""
        self.records_acknowledged = 0
        self.records_failed = 0
        self.batch_records_failed = 0
        self.records_filtered = 0
        self.batches = 0
        self.batch_bytes = 0


class Completion:
    """Ends batches.

    Args:
        loop: runs callbacks.
        pool: gets memory back.
        generations: told that a unit of work ended.
        latency: of deliveries, from the call of a batch's oldest record.
        log: one event a failed batch.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pool: BufferPool,
        generations: FlushGenerations,
        *,
        latency: LatencyHistogram,
        log: EventLog,
    ) -> None:
        self._loop = loop
        self._pool = pool
        self._generations = generations
        self._latency = latency
        self._log = log
        self.unseen = UnseenFailures()
        self.on_failure: Callable[[KafkaError], None] = _nothing
        """Called with the error of each batch, or record in line, that fails; not where a call raised it."""
        self._trims_soon = False
        self.counts = DeliveryCounts()

    def complete(self, batch: ProducerBatch, outcome: Complete, now: float) -> None:
        """Deliver the records of a batch that is in the log, and give its memory back."""
        self.counts.records_acknowledged += batch.count
        self.counts.batches += 1
        self.counts.batch_bytes += batch.wire_size
        self._latency.record(now - batch.called_at, batch.count)
        batch.result.complete(outcome.base_offset, outcome.log_append_time, outcome.log_start_offset, batch.count)
        if batch.result.has_callbacks:
            # Not now: the user's code may send, flush or close, and the sender is walking through its queues.
            self._loop.call_soon(self._tell, batch.result)
        else:
            batch.result.wake()  # runs nobody's code: it only schedules those who wait
        self.release(batch)
        self._generations.leave(batch.generation)

    def fail(self, batch: ProducerBatch, error: KafkaError, now: float) -> None:
        """Fail the records of a batch with `error`, completed by what is known of the batch.

        The memory stays with the batch; `release` gives it back when no connection owns it.
        """
        place = batch.queue.topic_partition
        detailed = error.with_details(
            topic=place.topic,
            partition=place.partition,
            attempts=batch.attempts_before + batch.attempts,
            elapsed_s=now - batch.called_at,
            last_broker_error=batch.last_error if batch.last_error is not error else None,
        )
        self._log.warning(
            "batch_failed",
            topic=place.topic,
            partition=place.partition,
            records=batch.count,
            attempts=batch.attempts_before + batch.attempts,
            outcome=error.outcome.value if error.outcome is not None else None,
            error=f"{type(error).__name__}: {error}",
            # An exception of the user's code has a traceback that shows where
            exc_info=None if isinstance(error.__cause__, KafkaError) else error.__cause__,
        )
        self.counts.batch_records_failed += batch.count
        self.fail_result(batch.result, detailed, count=batch.count, generation=batch.generation)
        self._generations.leave(batch.generation)

    def fail_result(
        self, result: BatchResult, error: KafkaError, *, count: int, generation: int, fails_transaction: bool = True
    ) -> None:
        """Fail `count` records that share a result; for those that never joined a batch, too.

        Args:
            result: of the records.
            error: of all of them.
            count: how many.
            generation: of flushes.
            fails_transaction: whether one that is open must be aborted for them: not if their call raises it.
        """
        if fails_transaction:
            self.on_failure(error)
        self.counts.records_failed += count
        result.fail(error, count)
        self.unseen.record(result, generation)
        self._loop.call_soon(self._tell, result)
        if not self._trims_soon:
            self._trims_soon = True
            self._loop.call_soon(self._loop.call_soon, self._trim)  # a turn later than all who are told in this one

    def fail_waiting(self, record: WaitingRecord, error: KafkaError) -> None:
        """Fail a record that never joined a batch."""
        is_told = record.is_raised_by_its_call
        self.fail_result(record.result, error, count=1, generation=record.generation, fails_transaction=not is_told)

    def filter(self, result: BatchResult, error: KafkaError) -> None:
        """Fail a record that an interceptor dropped; no flush raises that."""
        self.counts.records_filtered += 1
        self.withdraw(result, error)

    def withdraw(self, result: BatchResult, error: KafkaError) -> None:
        """Fail a record that its caller took back; no flush raises that, and it counts as no failure."""
        # Callbacks and interceptors are called all the same: applications use both to count the records in flight.
        result.fail(error, 1)
        self._loop.call_soon(self._tell, result)

    async def take_error(self, failed: FailedBatches) -> UndeliveredError | None:
        """Return what a flush has to raise, once the tasks that wait for the same records have read them."""
        if len(failed):
            for _ in range(TURNS_UNTIL_SEEN):
                await sleep(0)
        return failed.take_error()

    def release(self, batch: ProducerBatch) -> None:
        """Give the memory of a batch back; it must be owned by nobody else any more."""
        self._pool.give_back(batch.chunk)

    def _trim(self) -> None:
        self._trims_soon = False
        self.unseen.trim()

    def _tell(self, result: BatchResult) -> None:
        try:
            for index, timestamp, callback, context in result.take_callbacks():
                if result.error is None:
                    context.run(tell, callback, result.metadata_of(index, timestamp), None, self._log)
                elif context.run(tell, callback, None, result.error.fresh(), self._log):
                    result.note_look_of(callback, index)
        finally:
            result.wake()  # whatever a callback did, nobody may wait for ever


def tell(  # noqa: PLR0917  # what the user's callback takes, and where to say that it raised
    callback: OnDelivery, metadata: RecordMetadata | None, error: KafkaError | None, log: EventLog
) -> bool:
    """Call an `on_delivery` of the user's; False: it raised, as with a wrong signature, and has told nobody."""
    try:
        answer = callback(metadata, error)
        if answer is not None:
            _refuse_coroutine(answer)
    except (Exception, CancelledError) as raised:  # the user's own code, whatever it raises
        text = f"{type(raised).__name__}: {raised}"
        log.error("on_delivery_failed", error=text, exc_info=raised)  # noqa: TRY400  # events have no `exception`
        return False
    return True


def error_of_refused(error: BaseException) -> KafkaError:
    """The error of a record that was not taken, for those who hear of it later than its call: it is in no log."""
    if not isinstance(error, KafkaError):
        wrapped = KafkaError(f"{type(error).__name__}: {error}", outcome=Outcome.NOT_WRITTEN)
        wrapped.__cause__ = error
        return wrapped
    return error if error.outcome is not None else error.with_details(outcome=Outcome.NOT_WRITTEN)


def deadline_error(batch: ProducerBatch, timeout_s: float, why: str) -> DeliveryTimeoutError:
    """The error of a batch that was not acknowledged in time; `why` says what it was waiting for."""
    attempts = batch.attempts_before + batch.attempts
    message = f"not acknowledged within delivery_timeout_ms={round(timeout_s * 1000)} after {attempts} attempts: {why}"
    return DeliveryTimeoutError(message, outcome=batch.outcome)


def _refuse_coroutine(answer: object) -> None:
    if isinstance(answer, CoroutineType):
        answer.close()
        raise TypeError("on_delivery must not be async: nobody awaits it")


def _nothing(_: KafkaError) -> None:
    """Stands for a listener that nobody has set."""
