"""Admits records that one native call could not append: appends them after all, queues them, or refuses them.

Their topic is unknown, memory is short, or other records of the partition wait already. The user's own code has run by
then: in the call itself, once per record.

Source: KafkaProducer.doSend in Apache Kafka, which blocks its caller instead.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from aioproducer._accumulator.partition import RecordDeadline
from aioproducer._accumulator.waiting_record import WaitingRecord
from aioproducer._native.delivery import Delivery
from aioproducer._native.record_pipeline import RecordArguments
from aioproducer._producer.arguments import CallDeadline
from aioproducer.errors import BufferFullError, KafkaError, MetadataNotReadyError, Outcome
from aioproducer.records import check_deadline, normalize_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioproducer._native.append import RecordArgs, RecordContent
    from aioproducer._native.delivery import BatchResult
    from aioproducer._native.record_pipeline import RecordPipeline
    from aioproducer._producer.awaited_serializers import UnfinishedRecord
    from aioproducer._producer.runtime import ProducerRuntime

TakenT = TypeVar("TakenT")


class Admission:
    """Admits records of a running producer; before each append `check` is called, and raises if none are taken."""

    def __init__(self, running: ProducerRuntime, check: Callable[[], object] | None = None) -> None:
        self._running = running
        self._check = check

    @property
    def pipeline(self) -> RecordPipeline:
        return self._running.record_hooks.pipeline

    def take(self, *arguments: *RecordArgs) -> Delivery | RecordArguments | UnfinishedRecord:
        """Run the user's code and append the record; without such code, keep the arguments for later."""
        return self.pipeline.append_or_wait(*arguments) if self.pipeline.has_hooks else RecordArguments(*arguments)

    def deadline(self, topic: str, seconds: float) -> RecordDeadline:
        """Return the deadline of a record that is sent now, or was by a call on another thread.

        Raises:
            TypeError, ValueError: not a number of seconds up to the topic's `delivery_timeout_ms`.
            DeliveryTimeoutError: it is over.
        """
        check_deadline(seconds, self._running.topic_options.config_of(topic).delivery_timeout_ms)
        left_s = seconds
        if isinstance(seconds, CallDeadline):
            left_s = seconds.left_s
            if left_s <= 0:
                raise seconds.over()
        return RecordDeadline(seconds, self._running.loop.time() + left_s)

    def with_deadline(self, taken: TakenT, deadline: RecordDeadline | None) -> TakenT:
        """Return what was taken; a record that was appended is given its deadline."""
        if deadline is not None and isinstance(taken, Delivery) and not taken.done():
            self._running.open_batches.set_deadline(taken, deadline)
        return taken

    def send(self, taken: Delivery | RecordArguments, deadline: RecordDeadline | None = None) -> Delivery:
        """Append a record, or queue it within the limits of `max_waiting_records` and `max_waiting_bytes`."""
        if isinstance(taken, RecordArguments):
            delivery = self._try_append(taken)
            if delivery is None:
                return self._queue(taken, deadline)
            taken = delivery
        return self.with_deadline(taken, deadline)

    async def enqueue(
        self, taken: Delivery | RecordArguments | UnfinishedRecord, deadline: RecordDeadline | None = None
    ) -> Delivery:
        """Append a record, waiting if necessary; cancelled while it waits, the record is withdrawn."""
        if not isinstance(taken, (Delivery, RecordArguments)):
            taken = await self._finish(taken, deadline)
        if isinstance(taken, RecordArguments):
            delivery = self._try_append(taken)
            if delivery is None:
                return await self._wait(taken, deadline)
            taken = self.with_deadline(delivery, deadline)
        await self._let_sender_work()
        return taken

    async def _finish(self, record: UnfinishedRecord, deadline: RecordDeadline | None) -> Delivery:
        """Append a record when its serializers have finished; a flush, commit or close that begins first waits for it.

        Source: Serializer of Apache Kafka, which blocks `send`; a flush of another thread does not wait for it there.
        """
        running = self._running
        generation = running.generations.enter()
        try:
            taken = await record.finish(*self._bound(deadline), self._check_open)
            if isinstance(taken, RecordArguments):
                return await self._wait(taken, deadline, generation)
            if not taken.done():
                running.open_batches.take_over_waiting_record(taken, generation, running.loop.time())
            return self.with_deadline(taken, deadline)
        finally:
            running.generations.leave(generation)

    def _bound(self, deadline: RecordDeadline | None) -> tuple[float, str]:
        """Return the seconds that serializers may take, and the option or argument that says so."""
        max_block_s = self._running.max_block_s
        if deadline is not None and (left_s := deadline.at - self._running.loop.time()) < max_block_s:
            return left_s, f"deadline={deadline.seconds:g}"
        return max_block_s, f"max_block_ms={max_block_s * 1000:.0f}"

    async def _wait(
        self, record: RecordArguments, deadline: RecordDeadline | None, generation: int | None = None
    ) -> Delivery:
        waiting = self._waiting(record, deadline)
        self._join(waiting, is_counted=False, generation=generation)
        waiting.is_raised_by_its_call = True
        await self._wait_until_left(waiting)
        if waiting.delivery.done() and (error := waiting.delivery.exception()) is not None:
            raise error
        return waiting.delivery

    def enqueue_bytes(self, *record: *RecordContent) -> Coroutine[object, None, Delivery]:
        """As `enqueue`, for keys and values that are bytes already; no serializer runs."""
        return self.enqueue(self.pipeline.take_bytes(*record, None))

    def send_nowait(self, taken: Delivery | RecordArguments, deadline: RecordDeadline | None = None) -> Delivery:
        """Append a record without waiting for anything."""
        if isinstance(taken, RecordArguments):
            delivery = self._try_append(taken)
            if delivery is None:
                delivery = self._append_among_old_partitions(taken)
            if delivery is None:
                error = self._why_not_now(taken)
                self._running.record_hooks.refused_later(taken, error)
                raise error
            taken = delivery
        return self.with_deadline(taken, deadline)

    def fail_unseen(self, error: KafkaError, count: int, *, is_open: Callable[[], bool]) -> BatchResult:
        """Fail records of a call that continues; the next flush raises the error, unless the result is read.

        A transaction must be aborted if it `is_open`, as after any failed record.
        """
        running = self._running
        result = running.new_result()
        generation = running.generations.current
        running.completion.fail_result(result, error, count=count, generation=generation, fails_transaction=is_open())
        return result

    def _check_open(self) -> None:
        if self._check is not None:
            self._check()
        self._running.appender.check()

    async def _let_sender_work(self) -> None:
        """Yield to the event loop after enough bytes: a loop of `enqueue` never waits otherwise."""
        if self._running.appender.pause_wanted:
            self._running.appender.pause_wanted = False
            await asyncio.sleep(0)

    def _try_append(self, record: RecordArguments) -> Delivery | None:
        running = self._running
        try:
            # Checked when awaited, not when called: by then the record's transaction may be over.
            self._check_open()
            if record.choose_partition is not None:
                if running.metadata.cluster.partition_count(record.topic) is None:
                    return None
                record.choose()
            return record.append_to(running.appender)
        except Exception as error:
            running.record_hooks.refused_later(record, error)
            raise

    def _queue(self, given: RecordArguments, deadline: RecordDeadline | None) -> Delivery:
        record = self._waiting(given, deadline, check_room=self._running.wait_queues.check_room)
        self._join(record, is_counted=True)
        return record.delivery

    def _join(self, record: WaitingRecord, *, is_counted: bool, generation: int | None = None) -> None:
        """Queue a record until its topic is known and memory is free."""
        running = self._running
        if record.topic not in running.appender.topics:
            running.metadata.add_topic(record.topic, record.called_at)
        running.wait_queues.join(record, is_counted=is_counted, generation=generation)
        running.wakeup.set()

    def _waiting(
        self,
        given: RecordArguments,
        deadline: RecordDeadline | None,
        check_room: Callable[[WaitingRecord], object] | None = None,
    ) -> WaitingRecord:
        try:
            record = self._measured(given)
            record.deadline = deadline
            if check_room is not None:
                check_room(record)
        except Exception as error:
            self._running.record_hooks.refused_later(given, error)
            raise
        return record

    def _measured(self, given: RecordArguments) -> WaitingRecord:
        running = self._running
        headers = None if given.headers is None else normalize_headers(given.headers)
        value, key, timestamp, size = running.appender.measure(
            given.topic, given.value, given.key, given.partition, given.timestamp, headers
        )
        result = running.new_result()
        record = WaitingRecord(given.topic, result, timestamp=timestamp, size=size, called_at=running.loop.time())
        record.value, record.key, record.headers = value, key, headers
        record.partition, record.choose_partition = given.partition, given.choose_partition
        if given.on_delivery is not None:
            result.add_callback(0, timestamp, given.on_delivery, given.context)
        return record

    def _append_among_old_partitions(self, record: RecordArguments) -> Delivery | None:
        """Append a record to the partitions known before its topic was forgotten; None if that is not possible.

        Otherwise `send_nowait` would refuse the first record after every long pause.
        """
        running, topic = self._running, record.topic
        topic_info = running.appender.topics.get(topic)
        if topic_info is None or record.choose_partition is not None:
            return None
        if not topic_info.waits_for_metadata_alone:
            return None  # it would overtake other records, or there is no room
        return topic_info.append_past_block(self._try_append, record)

    async def _wait_until_left(self, record: WaitingRecord) -> None:
        """Wait until a record has left its wait queue; a cancelled caller withdraws it unless it was accepted."""
        if not record.is_waiting:
            return
        left = self._running.loop.create_future()
        record.on_left = lambda: None if left.done() else left.set_result(None)
        try:
            await left
        except asyncio.CancelledError as cancelled:
            if self._running.wait_queues.withdraw(record):
                text = f"the record for topic {record.topic!r} was withdrawn: its caller was cancelled while it waited"
                error = KafkaError(text, topic=record.topic, partition=record.partition, outcome=Outcome.NOT_WRITTEN)
                self._running.completion.withdraw(record.result, error)
            elif record.result.error is None:
                cancelled.add_note(f"aioproducer: the record for topic {record.topic!r} had been accepted by then")
            self._running.wakeup.set()  # the record behind it may fit where this one did not
            raise

    def _why_not_now(self, record: RecordArguments) -> MetadataNotReadyError | BufferFullError:
        running, topic = self._running, record.topic
        topic_info = running.appender.topics.get(topic)
        # A topic that was idle for long still has partitions here, but its partitioner has not seen them again.
        if topic_info is None or topic_info.blocked_count or record.choose_partition is not None:
            running.metadata.add_topic(topic, running.loop.time())
            text = f"topic {topic!r} is not known yet; it is being asked for"
            return MetadataNotReadyError(text, topic=topic, outcome=Outcome.NOT_WRITTEN)
        running.wait_queues.exhausted += 1
        text = (
            f"no room for the record: {running.pool.available_bytes} of buffer_memory={running.pool.total_bytes} bytes "
            f"are available (a busy partition waits for a whole batch's), "
            f"and {running.wait_queues.records} records wait; use `await producer.enqueue(...)`"
        )
        return BufferFullError(text, topic=topic, outcome=Outcome.NOT_WRITTEN)


class NonBlockingAdmission(Admission):
    """Leaves a record in its queue, within the limits of `send`, instead of waiting for its room."""

    async def _wait(
        self, record: RecordArguments, deadline: RecordDeadline | None, generation: int | None = None
    ) -> Delivery:
        waiting = self._waiting(record, deadline)
        has_room = self._running.wait_queues.has_room(waiting.size)
        self._join(waiting, is_counted=has_room, generation=generation)
        if not has_room:
            await self._wait_until_left(waiting)
        return waiting.delivery
