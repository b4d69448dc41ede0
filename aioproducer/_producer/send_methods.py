"""The methods that take records, of a producer, of an open transaction and of the task behind a `BlockingProducer`.

`send` is the table of contents of a record's journey (docs/explanation/life_of_a_record.md): the user's own code
(`_native/record_pipeline.pyx`), one native append (`_native/append.pyx`), or a wait queue
(`_accumulator/wait_queues.py`).

Source: KafkaProducer in Apache Kafka.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, overload

from aioproducer._native.append_many import BulkAppend
from aioproducer._native.arrow_append import ArrowAppend
from aioproducer._native.delivery import Delivery
from aioproducer._native.enqueue import EnqueueMethod
from aioproducer._native.record_pipeline import RecordArguments
from aioproducer._producer.admission import Admission, NonBlockingAdmission
from aioproducer._producer.arguments import mark_as_coroutine_functions
from aioproducer._producer.arrow import ArrowRecords, ColumnNames
from aioproducer._producer.bulk import BulkDelivery, Columns, append_all, enqueue_all
from aioproducer._producer.record_fields import ArrowFields, ColumnFields, check_names, shows_fields
from aioproducer._producer.topic import Topic, TopicRecords
from aioproducer.records import normalize_headers

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterable
    from typing import Unpack

    from aioproducer._accumulator.partition import RecordDeadline
    from aioproducer._native.append import Headers, RecordArgs
    from aioproducer._native.append_many import Row
    from aioproducer._native.delivery import OnDelivery
    from aioproducer._producer.awaited_serializers import UnfinishedRecord
    from aioproducer._producer.bulk import EnqueueRow
    from aioproducer._producer.record_fields import RecordFields
    from aioproducer._producer.runtime import ProducerRuntime
    from aioproducer._producer.topic import KeyT, ValueT
    from aioproducer._producer.topic_types import TypeOrSerializer
    from aioproducer.config import TopicOptions
    from aioproducer.records import RecordMetadata

    Append = Callable[[*RecordArgs], Delivery | RecordArguments | None]
    Admit = Callable[[Admission, Delivery | RecordArguments, RecordDeadline | None], Delivery]


class SendMethods(EnqueueMethod):
    """Mixin with the send methods. Subclasses implement `_open_admission`, which raises while no records are taken."""

    _append: Append
    """The native append; with hooks, the pipeline in front of it; while no records are taken, a method that raises."""

    # Sending

    def send(  # noqa: PLR0913  # a record has that many parts
        self,
        topic: str,
        value: object = None,
        *,
        key: object = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
        deadline: float | None = None,
    ) -> Delivery:
        """Accept a record; `await` the delivery for the broker's acknowledgement.

        Awaiting ends the linger. Not awaited, the record is sent all the same; the next `flush` or `close` raises its
        failure. Cancelling does not recall the record.

        Args:
            topic: name of the topic.
            value: bytes, or an object for `value_serializer`; None is a tombstone.
            key: bytes, or an object for `key_serializer`; equal keys go to the same partition.
            partition: number of the partition; None chooses one by the key, or any.
            timestamp: ms since the epoch; None is now.
            headers: (str, bytes | None) pairs.
            on_delivery: called with (metadata, None) or (None, error), in record order and in the caller's context;
                never ends the linger.
            deadline: seconds until the record fails unless it is acknowledged, for one that is of no use later; at most
                `delivery_timeout_ms`, which is the default. Records of the same batch go on. Above 0.

        Raises:
            TypeError, ValueError: an argument; names it and what is allowed.
            SerializationError: a serializer failed.
            RecordTooLargeError: larger than `max_request_size` allows.
            BufferFullError: too many records wait for metadata or memory; use `enqueue`.
            IllegalStateError: not started, on another thread, in a forked child.
            ProducerClosedError: closing or closed.
        """
        if headers is not None and not isinstance(headers, (list, tuple)):
            headers = normalize_headers(headers)
        taken = None
        if deadline is None:
            taken = self._append(topic, value, key, partition, timestamp, headers, on_delivery)
            if type(taken) is Delivery:
                return taken
        record = topic, value, key, partition, timestamp, headers, on_delivery
        return self._admit(Admission.send, taken, deadline, record)

    @shows_fields
    async def send_and_wait(
        self, topic: str, value: object = None, **fields: Unpack[RecordFields[object]]
    ) -> RecordMetadata:
        """Send, and wait for the acknowledgement; arguments and errors as `send`.

        A true coroutine function, for `create_task`, `start_soon` and `run_coroutine_threadsafe`. Cancelled while the
        record still waits for metadata or memory, it withdraws the record; an accepted record is still sent.
        """
        return await (await self.enqueue(topic, value, **fields))

    def send_nowait(  # noqa: PLR0913  # as send
        self,
        topic: str,
        value: object = None,
        *,
        key: object = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
        deadline: float | None = None,
    ) -> Delivery:
        """Accept a record if it can be appended now; arguments and errors as `send`.

        Raises:
            MetadataNotReadyError: the topic is not known yet; its metadata was requested.
            BufferFullError: no room, or other records wait for it; a partition with batches in flight needs room for a
                whole batch.
        """
        if headers is not None and not isinstance(headers, (list, tuple)):
            headers = normalize_headers(headers)
        taken = None
        if deadline is None:
            taken = self._append(topic, value, key, partition, timestamp, headers, on_delivery)
            if type(taken) is Delivery:
                return taken
        record = topic, value, key, partition, timestamp, headers, on_delivery
        return self._admit(Admission.send_nowait, taken, deadline, record)

    @shows_fields
    async def send_many(
        self,
        topic: str,
        values: Iterable[object] | AsyncIterable[object],
        **fields: Unpack[ColumnFields[object]],
    ) -> BulkDelivery:
        """Enqueue one record for each value; returns when all were accepted or refused.

        A record that `enqueue` would refuse does not stop the others: the result holds its error, by its position.
        An `enqueue` that a subclass overrides is called for each record.
        Cancelled, accepted records are still sent, and the rest is not enqueued.

        Args:
            topic: of all records.
            values: as `value` of `send`; an ordered iterable, read once: not a mapping, not a set. Of an asynchronous
                one each value is awaited, and enqueued before the next; then the other columns may be so too. It is not
                read on after an error that the records behind would meet too: closed, a failed transaction, a time-out.
            keys: as `key` of `send`, one for each value; None for records without keys.
            partition: of all records.
            timestamp: of all records.
            headers: of all records.
            timestamps: one for each value, instead of `timestamp`.
            record_headers: one list of headers, or None, for each value, instead of `headers`.

        Returns:
            A handle to await for counts, offsets and errors; it may be dropped.

        Raises:
            TypeError: a column is not an iterable, or is a mapping or set; nothing was enqueued.
            ValueError: not as many keys, timestamps or record_headers as values; the records before were enqueued.
            MetadataTimeoutError: the topic is still unknown after `max_block_ms`; nothing was enqueued.
            IllegalStateError: as `send`; nothing was enqueued.
        """
        check_names("Producer.send_many", fields, of=ColumnFields)
        columns = Columns(values, **fields)
        await self.partitions_for(topic)
        self._open_admission()
        if columns.is_async:
            return await self._enqueue_each(topic, columns.async_rows(), partial(self._enqueue_row, topic))
        many = BulkAppend(self._open_running().appender, str.__str__(topic), columns.rows())  # of a `StrEnum`, its text
        return await self._enqueue_rows(topic, many, partial(self._enqueue_row, topic))

    @shows_fields
    async def send_arrow(self, topic: str, batch: object, **columns: Unpack[ArrowFields]) -> BulkDelivery:
        """Enqueue one record for each row; as `send_many` otherwise. Needs the extra `arrow`; no serializer runs.

        On a producer with serializers, an `enqueue` that a subclass overrides is not called either.

        Args:
            topic: of all records.
            batch: a pyarrow `RecordBatch`, `Table` or `RecordBatchReader`, or anything with Arrow's PyCapsule
                interface (polars, pandas, DuckDB, arro3, nanoarrow). Read once, on the event loop, as room comes.
            value: name of the column; None is the one named `value`, which must be there then.
            key: name of the column; None is the one named `key`, if there is one. So with all that follow:
            partition: integers.
            timestamp: timestamps, or ms since the epoch.
            headers: lists of (name, value) structs, or maps.

        Raises:
            TypeError, ValueError: the batch, or a column by its name and type; nothing was given, but for the batches
                of a table or stream that stand before a damaged one.
            ModuleNotFoundError: pyarrow is not installed.
            MetadataTimeoutError, IllegalStateError: as `send_many`.
        """
        check_names("Producer.send_arrow", columns, of=ArrowFields)
        records = ArrowRecords(batch, ColumnNames(**columns))
        await self.partitions_for(topic)
        admission = self._open_admission()
        pipeline = admission.pipeline
        has_serializers = pipeline.key_serializer is not None or pipeline.value_serializer is not None
        enqueue = admission.enqueue_bytes if has_serializers else self._enqueue_row
        many = ArrowAppend(self._open_running().appender, str.__str__(topic), iter(records))
        return await self._enqueue_rows(topic, many, partial(enqueue, topic))

    @overload  # apart, since `bytes` is also a function that returns bytes
    def topic(
        self,
        name: str,
        *,
        key: type[bytes] = bytes,
        value: type[bytes],
        headers: Headers | None = None,
        **options: Unpack[TopicOptions],
    ) -> Topic[bytes, bytes]: ...

    @overload
    def topic(  # type: ignore[overload-overlap]  # where both are bytes, the first holds
        self,
        name: str,
        *,
        key: type[bytes] = bytes,
        value: TypeOrSerializer[ValueT],
        headers: Headers | None = None,
        **options: Unpack[TopicOptions],
    ) -> Topic[bytes, ValueT]: ...

    @overload
    def topic(
        self,
        name: str,
        *,
        key: TypeOrSerializer[KeyT],
        value: type[bytes],
        headers: Headers | None = None,
        **options: Unpack[TopicOptions],
    ) -> Topic[KeyT, bytes]: ...

    @overload
    def topic(
        self,
        name: str,
        *,
        key: TypeOrSerializer[KeyT],
        value: TypeOrSerializer[ValueT],
        headers: Headers | None = None,
        **options: Unpack[TopicOptions],
    ) -> Topic[KeyT, ValueT]: ...

    def topic(
        self,
        name: str,
        *,
        key: object = bytes,
        value: object,
        headers: Headers | None = None,
        **options: Unpack[TopicOptions],
    ) -> Topic[KeyT, ValueT]:
        """Return a handle for a topic whose keys and values have a type; may be made before the start.

        The producer's own serializers do not run for its records; interceptors and partitioner do.

        Args:
            name: of the topic.
            key: a type, one of bytes, str, uuid.UUID, dict, list, a TypedDict, dataclass, pydantic model or msgspec
                Struct; or a serializer, for anything else.
            value: as `key`.
            headers: of every record, before its own.
            **options: `linger_ms`, `compression_type` and `delivery_timeout_ms` of the topic, instead of the
                producer's. They hold for all its records, also those of `send(name, ...)`, from the next batch that is
                opened. A topic gets them once: later calls may repeat them, or give none.

        Raises:
            TypeError, ValueError: an argument; names it and what is allowed.
            ConfigurationError: an option is invalid, or not the one that the topic has already.
        """
        records: TopicRecords[KeyT, ValueT] = TopicRecords(name, key=key, value=value, headers=headers)
        self._use_options(name, options)
        return self._topic_of(records)

    def _topic_of(self, records: TopicRecords[KeyT, ValueT]) -> Topic[KeyT, ValueT]:
        self._use_serializers(records)
        has_own_methods = any(
            getattr(type(self), name) is not getattr(SendMethods, name) for name in ("send", "enqueue", "send_nowait")
        )
        return Topic(
            records,
            self,
            admission=self._open_admission,
            enqueue_each=partial(self._enqueue_each, records.name),
            asks_producer=has_own_methods,
        )

    # Implemented by subclasses; the first two raise while no records are taken

    if TYPE_CHECKING:

        def _open_admission(self) -> Admission: ...

        def _open_running(self) -> ProducerRuntime: ...

        async def partitions_for(self, topic: str) -> list[int]: ...

    def _use_serializers(self, records: TopicRecords[KeyT, ValueT]) -> None:
        """Configure the serializers of a topic, and close them with the producer."""

    def _use_options(self, topic: str, options: TopicOptions) -> None:
        """Let options hold for a topic of the producer."""

    def _accepts_records(self) -> bool:
        """Whether this object takes records; the append raises if the producer does not."""
        return True

    # Inside

    def _enable_sending(self, running: ProducerRuntime) -> None:
        pipeline = running.record_hooks.pipeline
        self._append = pipeline.take if pipeline.has_hooks else running.appender.append
        self._enqueue_natively(pipeline)

    def _disable_sending(self) -> None:
        """Take no records until `_enable_sending`: each call raises the error of `_open_admission`."""
        self._append = self._refuse_record
        self._enqueue_natively(None)

    def _refuse_record(self, *_: object) -> None:
        self._open_admission()
        self._open_running().raise_not_accepting()

    def _admit(  # noqa: PLR0917  # a step of `send` and `send_nowait` alone
        self, admit: Admit, taken: Delivery | RecordArguments | None, deadline: float | None, record: RecordArgs
    ) -> Delivery:
        """Admit a record that was not appended: it has a deadline of its own, or has to wait."""
        admission = self._open_admission()
        if deadline is None:
            return admit(admission, taken or RecordArguments(*record), None)
        record_deadline = admission.deadline(record[0], deadline)
        return admit(admission, admission.pipeline.take(*record), record_deadline)

    def _enqueue_slowly(self, *record: *RecordArgs) -> Coroutine[object, None, Delivery]:
        admission = self._open_admission()
        return admission.enqueue(admission.take(*record))

    def _enqueue_within(self, deadline: float, *record: *RecordArgs) -> Coroutine[object, None, Delivery]:
        admission = self._open_admission()
        record_deadline = admission.deadline(record[0], deadline)
        return admission.enqueue(
            admission.with_deadline(admission.pipeline.append_or_wait(*record), record_deadline), record_deadline
        )

    def _enqueue_arguments(self, record: RecordArguments | UnfinishedRecord) -> Coroutine[object, None, Delivery]:
        return self._open_admission().enqueue(record)

    async def _enqueue_rows(self, topic: str, many: BulkAppend, enqueue: EnqueueRow) -> BulkDelivery:
        """Enqueue rows natively, unless the user's code sees each: hooks, or an overridden `enqueue`."""
        admission = self._open_admission()
        if type(self).enqueue is not EnqueueMethod.enqueue or admission.pipeline.has_hooks:
            return await self._enqueue_each(topic, many.remaining(), enqueue)
        fail_unseen = partial(admission.fail_unseen, is_open=self._accepts_records)
        return await append_all(many, enqueue, is_open=self._accepts_records, fail_unseen=fail_unseen)

    async def _enqueue_each(
        self, topic: str, rows: Iterable[Row] | AsyncIterator[Row], enqueue: EnqueueRow
    ) -> BulkDelivery:
        fail_unseen = partial(self._open_admission().fail_unseen, is_open=self._accepts_records)
        with self._open_running().record_hooks.around_many(topic, enqueue) as enqueue_row:
            return await enqueue_all(rows, enqueue_row, fail_unseen=fail_unseen)

    def _enqueue_row(self, topic: str, *row: *Row) -> Coroutine[object, None, Delivery]:
        value, key, partition, timestamp, headers = row
        return self.enqueue(topic, value, key=key, partition=partition, timestamp=timestamp, headers=headers)


mark_as_coroutine_functions(SendMethods.send, SendMethods.enqueue)


class NonBlockingEnqueue(SendMethods):
    """Send methods for a task that passes on the records of many callers, as that of `BlockingProducer` does.

    Usable before the start. A record that must wait for its topic or for memory is left in its wait queue, within the
    limits of `send`, so that it does not hold up the next caller's. No call raises its failure: `on_delivery` gets it,
    or the next flush raises it, and its transaction must be aborted.

    Args:
        open_running: returns the parts of a running producer; raises otherwise.
    """

    def __init__(
        self, open_running: Callable[[], ProducerRuntime], *, partitions_of: Callable[[str], Awaitable[list[int]]]
    ) -> None:
        self._look_up = open_running
        self._partitions_of = partitions_of
        self._admission: NonBlockingAdmission | None = None
        self._disable_sending()

    async def partitions_for(self, topic: str) -> list[int]:
        """As `Producer.partitions_for`."""
        return await self._partitions_of(topic)

    def _open_running(self) -> ProducerRuntime:
        return self._look_up()

    def _open_admission(self) -> Admission:
        if self._admission is None:
            running = self._look_up()
            self._admission = NonBlockingAdmission(running)
            self._enable_sending(running)
        return self._admission
