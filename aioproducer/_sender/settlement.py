"""Ends or requeues batches: applies outcomes, deadlines and the end of the producer.

An outcome changes the batch, the order and identity of its partition, its memory and its deliveries.
Step 10 of docs/explanation/life_of_a_record.md.

Source: Sender.completeBatch, reenqueueBatch, failBatch in Apache Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, assert_never

from aioproducer._accumulator.batch_splitter import BatchSplitter, around, halves, neighbours
from aioproducer._accumulator.partition import Batch, BatchState, Partition
from aioproducer._network.refusals import is_refusal, may_pass
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._sender.completion import Completion, deadline_error
from aioproducer._sender.produce_outcome import (
    BatchFacts,
    Complete,
    Fail,
    Policy,
    ProduceOutcome,
    Refuse,
    Retry,
    Split,
    decide,
)
from aioproducer._sender.why_waiting import WaitReasons
from aioproducer._timing.retry_backoff import SOON_AT_MOST, SOON_MS, ExponentialBackoff
from aioproducer.errors import (
    BrokerConnectionError,
    BrokerError,
    InvalidRecordError,
    KafkaError,
    MessageTooLargeError,
    Outcome,
    UnsupportedVersionError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioproducer._accumulator.events import ProducerEvents
    from aioproducer._accumulator.producer_identity import ProducerIdentity
    from aioproducer._accumulator.record_accumulator import RecordAccumulator
    from aioproducer._network.metadata_refresher import MetadataRefresher
    from aioproducer._protocol.produce import PartitionResponse

_new = tuple.__new__  # a named tuple's own is Python code


@dataclass(slots=True, kw_only=True)
class SettlementCounts:
    records_retried: int = 0
    batches_split: int = 0


class Settlement:
    """Applies outcomes to batches, and ends batches at deadlines and with the producer.

    `on_fatal` is called with an error after which nothing can be sent any more.
    """

    def __init__(  # noqa: PLR0913  # all that the end of a batch touches
        self,
        *,
        accumulator: RecordAccumulator,
        splitter: BatchSplitter,
        identity: ProducerIdentity,
        backoff: ExponentialBackoff,
        completion: Completion,
        clock: Callable[[], float],
        metadata: MetadataRefresher,
        events: ProducerEvents,
        on_fatal: Callable[[KafkaError], None],
    ) -> None:
        self.counts = SettlementCounts()
        self._accumulator = accumulator
        self._limits = accumulator.open_batches.limits
        self._splitter = splitter
        self._identity = identity
        self._backoff = backoff
        self._completion = completion
        self._clock = clock
        self._metadata = metadata
        self._events = events
        self._on_fatal = on_fatal
        self._soon = backoff.within(*SOON_MS)

    # Outcomes

    def outcome(self, batch: Batch, response: PartitionResponse | None, policy: Policy) -> ProduceOutcome:
        """Decide what a response means for a batch; the response is None if it left the batch's partition out."""
        identity = batch.partition.identity
        if (
            response is None
            or response.error_code
            or batch.maybe_written
            or identity.has_seen(response.base_offset, batch, log_append_time=response.log_append_time)
        ):
            return decide(response, self.facts(batch, response), policy)
        # Nearly every response: to collect all facts would cost as much as to complete the batch.
        return _new(Complete, (response.base_offset, response.log_append_time, response.log_start_offset))

    def facts(self, batch: Batch, response: PartitionResponse | None) -> BatchFacts:
        """Collect what is known of a batch; the response is None if it left the batch's partition out."""
        identity = batch.partition.identity
        return BatchFacts(
            attempts=batch.attempts - batch.put_off,
            records=batch.count,
            maybe_written=batch.maybe_written,
            is_first_unresolved=response is None
            or not response.error_code
            or batch.partition.is_first_unresolved(batch),
            successor_acked=identity.last_acked_order > batch.order,
            is_behind_gap=identity.is_changing,
            repeats_offset=response is not None
            and identity.has_seen(response.base_offset, batch, log_append_time=response.log_append_time),
            max_timestamp=batch.max_timestamp,
        )

    def apply(self, batch: Batch, outcome: ProduceOutcome, now: float) -> None:
        partition = batch.partition
        partition.on_wire.remove(batch)
        if isinstance(outcome, Complete):
            partition.identity.acknowledge(batch, outcome.base_offset, now, log_append_time=outcome.log_append_time)
            if partition.identity.has_lost_log:
                self._events.log_lost(partition)
        else:
            partition.identity.require_confirmation()
        if batch.is_abandoned:
            self._end(batch, is_acknowledged=isinstance(outcome, Complete))
            self._events.abandoned_batch_ended()
        elif isinstance(outcome, Complete):
            self._completion.complete(batch, outcome, now)
            partition.parts -= batch.keeps_sequences
            if self._limits.by_topic:
                self._limits.acknowledged(partition.topic_partition.topic)
        else:
            self._refuse_or_retry(batch, outcome, now)
        self._resume(partition, now)

    def _refuse_or_retry(self, batch: Batch, outcome: Retry | Split | Refuse | Fail, now: float) -> None:
        match outcome:
            case Retry():
                self._retry(batch, outcome, now)
            case Split():
                self._split(batch, now)
            case Refuse():
                self._refuse(batch, outcome, now)
            case Fail():
                self._fail_decided(batch, outcome, now)
            case _:
                assert_never(outcome)

    def _retry(self, batch: Batch, outcome: Retry, now: float) -> None:
        batch.maybe_written = batch.maybe_written or outcome.maybe_written
        self.counts.records_retried += batch.count
        topic = batch.partition.topic_partition.topic
        self._accumulator.measures.topics.of(topic).retries += batch.count
        batch.put_off += int(outcome.is_soon or outcome.is_consequence)  # not the batch's fault
        if outcome.loses_producer_id:
            self._identity.discard(batch.identity.producer_id)
        if outcome.changes_epoch:
            batch.partition.identity.begin_change()
        if outcome.refresh_metadata:
            self._metadata.request_update("produce_failed", topic=topic if outcome.suspects_topic else None)
        is_soon = outcome.is_soon and batch.attempts <= SOON_AT_MOST
        backoff = self._soon if is_soon else self._backoff
        # The pause of soon retries grows with each of them; the ordinary pause grows with real failures only.
        failures = batch.attempts - (0 if outcome.is_soon else batch.put_off)
        leader_moved = batch.partition.leader not in {None, batch.node}
        # The pause spares a node in trouble. A new leader is not, nor a node that refused the consequence of a failure.
        pause_s = 0.0 if leader_moved or outcome.is_consequence else backoff.delay_s(failures - 1)
        self._accumulator.put_back(batch, not_before=now + pause_s, is_healthy=is_soon or outcome.is_consequence)

    def take_back(self, batch: Batch, now: float) -> None:
        """Queue a drained batch again that no broker has processed; this counts as no attempt."""
        batch.partition.on_wire.remove(batch)
        self._accumulator.put_back(batch, not_before=now + self._backoff.delay_s(max(batch.attempts - 1, 0)))
        self._resume(batch.partition, now)

    def _split(self, batch: Batch, now: float) -> None:
        self._limits.refused(batch.partition.topic_partition.topic, batch.uncompressed_wire_size)
        self._split_into_parts(batch, keeps_sequences=True, now=now)

    def _split_into_parts(self, batch: Batch, *, keeps_sequences: bool, now: float) -> None:
        parts = self._splitter.split(batch, halves(batch), keeps_sequences=keeps_sequences)
        if not parts:
            text = f"a batch of {batch.wire_size} bytes is too large for the topic, and there is no room to unpack it"
            self._fail(batch, KafkaError(text, outcome=Outcome.NOT_WRITTEN), now)
            return
        self.counts.batches_split += 1
        self._replace(batch, parts)

    def _refuse(self, batch: Batch, outcome: Refuse, now: float) -> None:
        """Fail the records that the broker named, and send the others again."""
        reasons = dict(outcome.records)
        refused = neighbours(reasons)
        ranges = around(batch, refused)
        parts = self._splitter.split(batch, ranges, keeps_sequences=False)
        if not parts:
            text = "the broker refused a record of the batch, and the buffer has no room to take it out"
            self._fail(batch, KafkaError(text, outcome=Outcome.NOT_WRITTEN), now)
            return
        batch.partition.identity.begin_change()
        self._replace(batch, parts)
        for part, records in zip(parts, ranges, strict=True):
            if records in refused:
                text = f"the broker refused the record: {reasons[records.first] or 'no reason given'}"
                batch.partition.queued.remove(part)
                self._fail(part, BrokerError.of(outcome.code, text, outcome=Outcome.NOT_WRITTEN), now)

    def _replace(self, batch: Batch, parts: list[Batch]) -> None:
        batch.move_to(BatchState.DONE)
        batch.partition.parts += sum(part.keeps_sequences for part in parts) - batch.keeps_sequences
        for part in parts:
            batch.partition.insert(part)

    def _fail_decided(self, batch: Batch, failure: Fail, now: float) -> None:
        """Fail a batch that no other attempt can help: refused, lost, or not understood by the broker."""
        topic_partition = batch.partition.topic_partition
        text = f"{topic_partition.topic}-{topic_partition.partition}: {failure.reason}"
        row = ErrorCode.of(failure.code)
        if row is not None and row.split:
            text = f"{text}; the batch has {_size_of(batch)} and {batch.count} record{'s' * (batch.count != 1)}"
        error: KafkaError = BrokerError.of(
            failure.code, text, retriable=row is not None and row.retriable, outcome=failure.outcome
        )
        if isinstance(error, MessageTooLargeError):
            error.size_bytes, error.option = batch.wire_size, "max.message.bytes"
        if isinstance(error, InvalidRecordError):
            error.record_index = failure.record_index
        if isinstance(batch.last_error, BrokerConnectionError) and failure.code == ErrorCode.NETWORK_EXCEPTION:
            error = BrokerConnectionError(f"{text} ({batch.last_error})", outcome=failure.outcome)
        if isinstance(batch.last_error, UnsupportedVersionError):
            error = UnsupportedVersionError(text, outcome=failure.outcome)
        if failure.loses_producer_id:
            self._identity.discard(batch.identity.producer_id)
        self._fail(batch, error, now)
        if failure.is_fatal:
            self._on_fatal(error)

    def _fail(self, batch: Batch, error: KafkaError, now: float) -> None:
        self._completion.fail(batch, error, now)
        self._end(batch)

    def _end(self, batch: Batch, *, is_acknowledged: bool = False) -> None:
        was_sealing = batch.state is BatchState.SEALING
        batch.move_to(BatchState.DONE)
        if batch.is_stamped and not is_acknowledged:
            batch.partition.identity.leave_gap(batch)
        batch.partition.parts -= batch.keeps_sequences
        if not was_sealing:  # else the thread that compresses it owns the memory
            self._completion.release(batch)

    def _resume(self, partition: Partition, now: float) -> None:
        """Let the partition continue: with a new epoch if that was pending, then with the next batch."""
        if partition.identity.is_changing:
            for overtaken in partition.restamp_if_resolved():
                text = "a later batch was acknowledged before this one could be sent again, and order is kept"
                self._fail(overtaken, KafkaError(text, outcome=Outcome.NOT_WRITTEN), now)
        if partition.queued or partition.open_batch is not None:  # else nothing could be sent
            self._accumulator.offer(partition)

    def topic_recreated(self, partition: Partition, *, exists: bool) -> None:
        """Continue with a partition of a topic that was deleted and created again.

        Batches that may have been written fail, because they may be in the old log or in the new one. The others are
        kept if the partition still exists, with a new identity if the old log had batches of this producer.
        """
        now = self._clock()
        text = "the topic was deleted and made again"
        if exists:
            ended = [batch for batch in partition.queued if batch.maybe_written]
        else:
            self._accumulator.open_batches.close(partition)
            ended = [batch for batch in (*partition.on_wire, *partition.queued) if not batch.is_abandoned]
            text += " without the record's partition"
        for batch in ended:
            self._give_up(batch, KafkaError(text, outcome=batch.outcome), now)
        if ended or partition.on_wire or partition.identity.is_bound_to_log:
            partition.identity.forget_log()
            self._events.log_lost(partition)
        else:
            partition.identity.require_confirmation()
        self._resume(partition, now)

    # Ends without a response

    def expire(self, partition: Partition, overdue: Sequence[Batch], now: float) -> None:
        """Fail batches at their deadline; one on the wire stays there until it is answered or its connection lost.

        Records with a sooner deadline of their own fail too, apart from their batches.
        """
        reasons = WaitReasons(self._accumulator, self._identity, self._metadata, now)
        for batch in overdue:
            self._note_overdue(batch)
            timeout = f"delivery_timeout_ms={round(batch.options.delivery_timeout_s * 1000)}"
            self._give_up(batch, deadline_error(batch, timeout, reasons.in_words(batch), outcome=batch.outcome), now)
        for batch in self._accumulator.deadlines.with_due_records(partition, now):
            self._expire_records(batch, reasons.in_words(batch), now)
        # Once, after all of them: settling after each batch blocked the loop for 2 s with 8,000 batches.
        self._resume(partition, now)

    def _expire_records(self, batch: Batch, why: str, now: float) -> None:
        """Fail the records of a batch whose own deadlines are over: the whole batch if no other records are in it."""
        self._note_overdue(batch)
        due = batch.take_due(now)
        bounds = {f"deadline={deadline.seconds:g}" for deadline, _ in due}
        error = partial(deadline_error, batch, bounds.pop() if len(bounds) == 1 else "the deadline of each record", why)
        if len(due) == batch.callers:
            self._give_up(batch, error(outcome=batch.outcome), now)
            return
        positions = sorted(delivery._position for _, delivery in due)
        # The bytes of one that may be in the log never change, nor those of one that continues another's sequences.
        is_free = batch.state is BatchState.QUEUED and not (batch.maybe_written or batch.keeps_sequences)
        result = self._splitter.cut_out(batch, positions) if is_free else None
        if result is None:
            result, outcome = self._splitter.detach(batch, positions), Outcome.UNKNOWN
        else:
            outcome = Outcome.NOT_WRITTEN
            if batch.is_stamped:
                batch.partition.identity.leave_gap(batch)
                batch.unstamp()
        self._completion.fail_some(batch, result, error(outcome=outcome), count=len(due), now=now)

    def _note_overdue(self, batch: Batch) -> None:
        """Note that a partition is in trouble, and with a batch that was not sent, why."""
        batch.partition.topic.note_failure(batch.partition)
        if self._identity.is_missing and not batch.is_stamped:
            batch.last_error = batch.last_error or self._identity.last_error
        if batch.state is BatchState.ON_WIRE:
            return
        leader = batch.partition.leader
        error = self._metadata.last_error if leader is None else leader.connection.trouble
        if is_refusal(error) or may_pass(error):
            batch.last_error = error

    def fail_everything(self, error: KafkaError, now: float) -> None:
        for partition, batches in self._accumulator.unfinished():
            for batch in batches:
                if not batch.is_abandoned:
                    self._give_up(batch, error.with_details(outcome=batch.outcome), now)
            self._resume(partition, now)

    def fail_unstamped(self, error: KafkaError) -> None:
        now = self._clock()
        for partition, batches in self._accumulator.unfinished():
            for batch in batches:
                if not batch.is_stamped:
                    self._give_up(batch, error, now)
            self._resume(partition, now)

    def purge(self, topic: str | None, error: KafkaError) -> int:
        """Fail the records of a topic, or of all, that are known not to be in the log; return how many.

        A batch that may be in the log goes on, so that it is not written twice, nor reported as not written.
        """
        now = self._clock()
        purged = 0
        for partition in self._accumulator.partitions.in_use():
            if topic not in {None, partition.topic_partition.topic}:
                continue
            self._accumulator.open_batches.close(partition)
            for batch in [batch for batch in partition.queued if not batch.maybe_written]:
                purged += batch.callers
                self._give_up(batch, error, now)
            self._resume(partition, now)
        return purged

    def fail_lost_batches(self, batches: Sequence[Batch], defect: Exception, now: float) -> None:
        """Fail the batches that a defect of our own has lost: their waiters must be woken."""
        for batch in batches:
            partition = batch.partition
            is_lost = batch not in partition.on_wire and batch not in partition.queued and not batch.result.moved
            if is_lost and not batch.result.done:
                text = f"a defect of the producer: {type(defect).__name__}: {defect}"
                self._completion.fail(batch, KafkaError(text, outcome=Outcome.UNKNOWN), now)

    def _give_up(self, batch: Batch, error: KafkaError, now: float) -> None:
        """Fail the deliveries of a batch; call `_resume` once per partition afterwards: it looks at all its batches."""
        if batch.state is BatchState.ON_WIRE:
            batch.is_abandoned = True
            self._completion.fail(batch, error, now)
            if batch.is_stamped:
                batch.partition.identity.abandon(batch)
            return
        batch.partition.queued.remove(batch)
        self._fail(batch, error, now)


def _size_of(batch: Batch) -> str:
    # A topic with a codec of its own limits the size after the broker has compressed the batch.
    packed = f"{batch.wire_size} bytes"
    return f"{packed} ({batch.uncompressed_wire_size} uncompressed)" if batch.compression else packed
