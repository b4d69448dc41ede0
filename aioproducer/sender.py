"""Sends what is ready, and applies what brokers answer.

One task. Each turn (`run_once`) does Kafka's steps: timers fire, memory that came back is granted, what is overdue
ends, what is missing (leaders, a producer id) is asked for, and every ready node gets its requests. Then it sleeps
until it is woken or the next deadline comes. Nothing here awaits anything else.

Answers arrive between turns: `decide` (`core/produce_outcome.py`) says what one means, `_apply` does it.

Source: Sender in Apache Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never

from aioproducer.completion import deadline_error
from aioproducer.core.batch_splitter import around, halves
from aioproducer.core.cluster import Node, PartitionView
from aioproducer.core.produce_outcome import (
    BatchFacts,
    Complete,
    Fail,
    Policy,
    ProduceOutcome,
    Refuse,
    Retry,
    Split,
    decide,
    decide_lost,
)
from aioproducer.core.producer_batch import BatchState
from aioproducer.errors import BrokerConnectionError, BrokerError, KafkaError, Outcome, ProtocolError
from aioproducer.network.outgoing_request import OutgoingRequest
from aioproducer.produce_request import ProduceRequest, topic_of
from aioproducer.protocol.messages import PRODUCE
from aioproducer.protocol.produce import decode_produce_response

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from aioproducer.completion import Completion
    from aioproducer.core.batch_splitter import BatchSplitter
    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.core.producer_identity import ProducerIdentity
    from aioproducer.core.record_accumulator import RecordAccumulator
    from aioproducer.core.retry_backoff import ExponentialBackoff
    from aioproducer.core.timer_heap import TimerHeap
    from aioproducer.core.waiting_lines import WaitingLines
    from aioproducer.network.metadata_refresher import MetadataRefresher
    from aioproducer.network.network_client import NetworkClient
    from aioproducer.protocol.produce import PartitionAnswer, ProduceResponse
    from aioproducer.sealing import Sealing


LONGEST_SLEEP_S: Final = 3600.0
"""Loops refuse times that are too far away, and options like `linger.ms` may be 2**63 - 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderSettings:
    """The values of the configuration that sending depends on."""

    policy: Policy
    request_timeout_ms: int
    delivery_timeout_s: float


@dataclass(slots=True, kw_only=True)
class SenderCounts:
    """Totals, under Kafka's meanings."""

    requests: int = 0
    records_retried: int = 0
    batches_split: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SendPath:
    """The parts that the sender drives."""

    accumulator: RecordAccumulator
    lines: WaitingLines
    splitter: BatchSplitter
    sealing: Sealing
    identity: ProducerIdentity
    timers: TimerHeap
    backoff: ExponentialBackoff
    completion: Completion
    client: NetworkClient
    metadata: MetadataRefresher


class Sender:
    """Drains ready batches to brokers and applies each outcome.

    Args:
        settings: see there.
        path: see there.
        loop: for time and sleep.
        ask_producer_id: called when records wait for a producer id.
        on_fatal: called with the error after which nothing can be sent any more.
    """

    def __init__(
        self,
        settings: SenderSettings,
        path: SendPath,
        loop: asyncio.AbstractEventLoop,
        *,
        ask_producer_id: Callable[[], None],
        on_fatal: Callable[[KafkaError], None],
    ) -> None:
        self.counts = SenderCounts()
        self._settings = settings
        self._accumulator = path.accumulator
        self._lines = path.lines
        self._splitter = path.splitter
        self._sealing = path.sealing
        self._identity = path.identity
        self._timers = path.timers
        self._backoff = path.backoff
        self._completion = path.completion
        self._client = path.client
        self._metadata = path.metadata
        self._loop = loop
        self._ask_producer_id = ask_producer_id
        self._on_fatal = on_fatal
        self._sleep: asyncio.Future[None] | None = None
        self._is_woken = True

    # The task

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self._is_woken = False
            self.run_once(self._loop.time())
            await self._sleep_until(self._timers.next_at())

    def wake(self) -> None:
        """Make the next turn come soon; cheap, and may be called from anywhere on the loop."""
        self._is_woken = True
        if self._sleep is not None and not self._sleep.done():
            self._sleep.set_result(None)

    def run_once(self, now: float) -> None:
        """Do one turn.

        Args:
            now: monotonic seconds.
        """
        self._timers.fire(now)
        for batch in self._accumulator.take_expired(now):
            self._expire(batch, now)
        self._lines.serve()
        self._ask_for_what_is_missing(now)
        for node_id in self._accumulator.ready.node_ids:
            self._send_to(node_id, now)
        self._seal(now)

    async def _sleep_until(self, when: float | None) -> None:
        if self._is_woken:
            self._is_woken = False
            when = self._loop.time()
        self._sleep = self._loop.create_future()
        longest = self._loop.time() + LONGEST_SLEEP_S
        alarm = self._loop.call_at(min(when, longest), self.wake) if when is not None else None
        try:
            await self._sleep
        finally:
            self._sleep = None
            if alarm is not None:
                alarm.cancel()

    # Sending

    def _ask_for_what_is_missing(self, now: float) -> None:
        for topic in {queue.topic_partition.topic for queue in self._accumulator.ready.leaderless}:
            self._metadata.add_topic(topic, now)
            self._metadata.request_update("no_leader")
        for topic in self._lines.unknown_topics:
            self._metadata.add_topic(topic, now)
        if self._identity.is_missing:
            self._ask_producer_id()

    def _send_to(self, node_id: int, now: float) -> None:
        self._client.connect(node_id)
        while self._client.is_ready(node_id):
            batches = self._accumulator.drain(node_id, self._client.connection_id(node_id), now)
            if not batches:
                return
            self._send(ProduceRequest(node_id, batches, self._metadata.cluster), now)

    def _send(self, request: ProduceRequest, now: float) -> None:
        acks = self._settings.policy.acks
        try:
            version = self._client.produce_version(request.node_id, request.highest_version)
            outgoing = OutgoingRequest(
                api_key=PRODUCE.key,
                version=version,
                flexible=request.is_flexible(version),
                buffers=request.encode(version, acks=acks, timeout_ms=self._settings.request_timeout_ms * 2 // 3),
                expects_response=acks != 0,
                on_response=partial(self._answered, request, version),
                on_lost=partial(self._lost, request),
                on_written=partial(self._written, request),
            )
            self.counts.requests += 1
            for topic in request.topics:
                self._metadata.add_topic(topic, now)
            self._client.send(request.node_id, outgoing)
        except KafkaError as error:
            self._lost(request, error)

    # Sealing: compression, in a thread where it is large

    def _seal(self, now: float) -> None:
        unsealed = self._accumulator.take_unsealed()
        if not unsealed:
            return
        self._sealing.seal(unsealed)
        for node_id in self._accumulator.ready.node_ids:
            self._send_to(node_id, now)

    # Answers

    def _answered(self, request: ProduceRequest, version: int, payload: memoryview, now: float) -> None:
        response = decode_produce_response(version, payload)  # what it raises closes the connection: _lost follows
        if response.throttle_time_ms:
            self._client.throttle(request.node_id, response.throttle_time_ms, now)
        answer_to = request.answers(response)
        for batch in request.batches:
            answer = answer_to(batch)
            self._apply(batch, decide(answer, self._facts(batch, answer), self._settings.policy), now)
            if answer is not None and answer.leader_id >= 0 and answer.error_code:
                self._take_hint(batch, answer, response)
            if answer is None:
                text = f"node {request.node_id} answered Produce without {batch.queue.topic_partition}"
                self._client.disconnect(request.node_id, ProtocolError(text))
        self._wake_if_held_back(request.node_id)

    def _wake_if_held_back(self, node_id: int) -> None:
        """A request has ended: there is work if something waited for its place on the wire, or for its memory."""
        if self._accumulator.ready.count(node_id) or self._lines.records:
            self.wake()

    def _written(self, request: ProduceRequest) -> None:
        now = self._loop.time()
        for batch in request.batches:
            self._apply(batch, Complete(-1), now)
        self._wake_if_held_back(request.node_id)

    def _lost(self, request: ProduceRequest, error: KafkaError) -> None:
        now = self._loop.time()
        for batch in request.batches:
            batch.last_error = error
            self._apply(batch, decide_lost(self._facts(batch, None), self._settings.policy), now)
        self._metadata.request_update("connection_lost")
        self.wake()

    def _take_hint(self, batch: ProducerBatch, answer: PartitionAnswer, response: ProduceResponse) -> None:
        place = batch.queue.topic_partition
        self._metadata.apply_leader_hint(
            place.topic,
            place.partition,
            leader=PartitionView(answer.leader_id, answer.leader_epoch),
            endpoints=[Node(node_id, *endpoint) for node_id, endpoint in response.nodes.items()],
        )

    def _facts(self, batch: ProducerBatch, answer: PartitionAnswer | None) -> BatchFacts:
        identity = batch.queue.identity
        return BatchFacts(
            attempts=batch.attempts,
            records=batch.count,
            maybe_written=batch.maybe_written,
            is_first_unresolved=answer is None or not answer.error_code or batch.queue.is_first_unresolved(batch),
            successor_acked=identity.last_acked_order > batch.order,
            repeats_offset=answer is not None and batch.is_stamped and identity.has_seen(answer.base_offset, batch),
        )

    # Outcomes

    def _apply(self, batch: ProducerBatch, outcome: ProduceOutcome, now: float) -> None:
        """Do what an outcome says to a batch that comes back from the wire."""
        queue = batch.queue
        queue.take_from_wire(batch)
        if isinstance(outcome, Complete):
            queue.identity.acknowledge(batch, outcome.base_offset, now)
        else:
            queue.identity.doubt()
        if batch.is_abandoned:
            self._end(batch)
        else:
            self._apply_to_waiting(batch, outcome, now)
        self._settle(batch, now)

    def _apply_to_waiting(self, batch: ProducerBatch, outcome: ProduceOutcome, now: float) -> None:
        match outcome:
            case Complete():
                batch.move_to(BatchState.DONE)
                self._completion.complete(batch, outcome, now)
                self._end_part(batch)
            case Retry():
                self._retry(batch, outcome, now)
            case Split():
                self._split(batch, now)
            case Refuse():
                self._refuse(batch, outcome, now)
            case Fail():
                self._fail_answered(batch, outcome, now)
            case _:
                assert_never(outcome)

    def _retry(self, batch: ProducerBatch, outcome: Retry, now: float) -> None:
        batch.maybe_written = batch.maybe_written or outcome.maybe_written
        self.counts.records_retried += batch.count
        if outcome.loses_producer_id:
            self._identity.discard(batch.identity.producer_id)
        if outcome.changes_epoch:
            batch.queue.identity.begin_change()
        if outcome.refresh_metadata:
            self._metadata.request_update("produce_refused", topic=topic_of(batch))
        self._accumulator.put_back(batch, not_before=now + self._backoff.delay_s(batch.attempts - 1))

    def _split(self, batch: ProducerBatch, now: float) -> None:
        self._accumulator.lower_limit(topic_of(batch), batch.size)
        self._take_apart(batch, keeps_sequences=True, now=now)

    def _take_apart(self, batch: ProducerBatch, *, keeps_sequences: bool, now: float) -> None:
        parts = self._splitter.split(batch, halves(batch), keeps_sequences=keeps_sequences)
        if not parts:
            text = f"the batch of {batch.wire_size} bytes is too large for the topic, and the buffer has no room to unpack it"
            self._fail(batch, KafkaError(text, outcome=Outcome.NOT_WRITTEN), now)
            return
        self.counts.batches_split += 1
        self._replace(batch, parts)

    def _refuse(self, batch: ProducerBatch, outcome: Refuse, now: float) -> None:
        """Fail the records that the broker named, and send the others again without them."""
        reasons = dict(outcome.records)
        ranges = around(batch, list(reasons))
        parts = self._splitter.split(batch, ranges, keeps_sequences=False)
        if not parts:
            text = "the broker refused a record of the batch, and the buffer has no room to take it out"
            self._fail(batch, KafkaError(text, outcome=Outcome.NOT_WRITTEN), now)
            return
        batch.queue.identity.begin_change()
        self._replace(batch, parts)
        for part, records in zip(parts, ranges, strict=True):
            if records.first in reasons:
                text = f"the broker refused the record: {reasons[records.first] or 'no reason given'}"
                batch.queue.remove(part)
                self._fail(part, BrokerError.of(87, text, outcome=Outcome.NOT_WRITTEN), now)

    def _replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        batch.move_to(BatchState.DONE)
        batch.queue.parts += len(parts) - (1 if batch.is_part else 0)
        for part in parts:
            part.is_sealed = True
            batch.queue.insert(part)

    def _fail_answered(self, batch: ProducerBatch, outcome: Fail, now: float) -> None:
        place = batch.queue.topic_partition
        text = f"{place.topic}-{place.partition}: {outcome.reason}"
        error: KafkaError = BrokerError.of(outcome.code, text, outcome=outcome.outcome)
        if isinstance(batch.last_error, BrokerConnectionError) and outcome.code == 13:
            error = BrokerConnectionError(f"{text} ({batch.last_error})", outcome=outcome.outcome)
        if outcome.loses_producer_id:
            self._identity.discard(batch.identity.producer_id)
        self._fail(batch, error, now)
        if outcome.is_fatal:
            self._on_fatal(error)

    def _fail(self, batch: ProducerBatch, error: KafkaError, now: float) -> None:
        """Fail a batch that no connection holds any more."""
        self._completion.fail(batch, error, now)
        self._end(batch)

    def _end(self, batch: ProducerBatch) -> None:
        """Let go of a batch whose caller knows already."""
        was_sealing = batch.state is BatchState.SEALING
        batch.move_to(BatchState.DONE)
        if batch.is_stamped:
            batch.queue.identity.begin_change()
        self._end_part(batch)
        if not was_sealing:  # else the thread that compresses it owns the memory
            self._completion.release(batch)

    def _end_part(self, batch: ProducerBatch) -> None:
        if batch.is_part:
            batch.queue.parts -= 1

    def _settle(self, batch: ProducerBatch, now: float) -> None:
        """Let the partition go on: a new epoch if it was waiting for this, then the next batch."""
        for overtaken in batch.queue.restamp_if_resolved():
            text = "a later batch was acknowledged before this one could be sent again, and order is kept"
            self._fail(overtaken, KafkaError(text, outcome=Outcome.NOT_WRITTEN), now)
        self._accumulator.offer(batch.queue)

    # Ends without an answer

    def _expire(self, batch: ProducerBatch, now: float) -> None:
        """Fail a batch at its deadline; one on the wire stays the wire's until its answer or the connection's loss."""
        self._give_up(batch, deadline_error(batch, self._settings.delivery_timeout_s, self._explain(batch)), now)
        self._accumulator.arm_expiry(batch.queue)

    def fail_everything(self, error: KafkaError) -> None:
        """Fail all that was accepted and has no end: the producer closes, or something it needs has died."""
        now = self._loop.time()
        self._lines.fail_all(error)
        for batch in self._accumulator.unfinished():
            if not batch.is_abandoned:
                outcome = Outcome.UNKNOWN if batch.is_unresolved else Outcome.NOT_WRITTEN
                self._give_up(batch, error.with_details(outcome=outcome), now)

    def _give_up(self, batch: ProducerBatch, error: KafkaError, now: float) -> None:
        if batch.state is BatchState.ON_WIRE:
            batch.is_abandoned = True
            self._completion.fail(batch, error, now)
            if batch.is_stamped:
                batch.queue.identity.begin_change()
            return
        batch.queue.remove(batch)
        self._fail(batch, error, now)
        self._settle(batch, now)

    def _explain(self, batch: ProducerBatch) -> str:
        """Say what a batch is waiting for."""
        node_id = batch.queue.leader_id
        if batch.state is BatchState.ON_WIRE:
            return f"node {node_id} has not answered"
        if node_id is None:
            return f"the partition has no leader ({self._metadata.last_error or 'as far as metadata says'})"
        if self._identity.is_missing and not batch.is_stamped:
            return "no broker has given the producer an id yet"
        error = batch.last_error or self._client.last_error(node_id)
        return f"node {node_id} could not be sent to ({error or 'it was busy with earlier requests'})"

    def __repr__(self) -> str:
        """Show what is ready and whether it sleeps."""
        return f"<Sender sleeping={self._sleep is not None} {self._accumulator.ready!r}>"
