"""The producer: what users hold.

`send` is the table of contents of a record's journey (docs/explanation/life_of_a_record.md): the user's own code
around it (`preparation.py`), one native append (`_native/append.pyx`), or a place in a waiting line
(`core/waiting_lines.py`). What happens then is the business of `running_producer.py` and below.

Source: KafkaProducer in Apache Kafka.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NoReturn, overload

from aioproducer._native.enqueue import EnqueueVerb
from aioproducer.admission import Admission
from aioproducer.arrow_columns import ArrowRecords, ColumnNames
from aioproducer.bulk_delivery import BulkDelivery, append_all, enqueue_all, rows_of
from aioproducer.config import ProducerConfig
from aioproducer.coroutine_functions import mark_as_coroutine_functions
from aioproducer.lifetime import ProducerLifetime, caller
from aioproducer.metrics import ProducerStatistics
from aioproducer.preparation import PreparedRecord
from aioproducer.records import check_topic_name, normalize_headers
from aioproducer.snapshot import take_snapshot
from aioproducer.topic import Topic, TopicRecords
from aioproducer.topic_lookup import partitions_of

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Callable, Coroutine, Iterable, Sequence
    from typing import Unpack

    from aioproducer._native.append import Headers
    from aioproducer._native.append_many import Row
    from aioproducer._native.delivery import Delivery, OnDelivery
    from aioproducer.bulk_delivery import EnqueueRow
    from aioproducer.config import ProducerOptions
    from aioproducer.records import RecordMetadata
    from aioproducer.running_producer import RunningProducer
    from aioproducer.topic import KeyT, ValueT
    from aioproducer.type_serializers import TypeOrSerializer

    AppendArguments = tuple[str, object, object, int | None, int | None, Headers | None, OnDelivery | None]
    Append = Callable[[*AppendArguments], Delivery | None]


class Producer(EnqueueVerb, ProducerLifetime):
    """Gets records into Apache Kafka.

    ```python
    async with Producer("localhost:9092") as producer:
        metadata = await producer.send("orders", b"...", key=b"customer-7")
    ```

    May be constructed anywhere; it belongs to the event loop that starts it, and to that loop's thread.

    Args:
        bootstrap_servers: `"host:port,host:port"`, a sequence of such, or a whole `ProducerConfig`.
        **options: Kafka's names with `_` for `.`; see docs/reference/configuration.md.

    Raises:
        ConfigurationError: an option cannot be so; before any I/O.
    """

    def __init__(
        self, bootstrap_servers: str | Sequence[str] | ProducerConfig, **options: Unpack[ProducerOptions]
    ) -> None:
        super().__init__(ProducerConfig.of(bootstrap_servers, options), made_at=caller())
        self._append: Append = self._not_started
        self._admission: Admission

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
    ) -> Delivery:
        """Accept a record; `await` the delivery for the broker's acknowledgement.

        Awaiting never waits out the linger. Not awaited, the record is sent all the same; its failure is raised by
        the next `flush` or `close`. Cancelling recalls nothing.

        Args:
            topic: where it goes.
            value: bytes, or what `value_serializer` takes; None is a tombstone.
            key: bytes, or what `key_serializer` takes; equal keys go to the same partition.
            partition: instead of the key's or a chosen one.
            timestamp: ms since the epoch; None is now.
            headers: (str, bytes | None) pairs.
            on_delivery: called with (metadata, None) or (None, error), in record order; never ends the linger.

        Raises:
            TypeError, ValueError: an argument; names it and what is allowed.
            SerializationError: a serializer failed.
            RecordTooLargeError: larger than `max_request_size` allows.
            BufferFullError: too many records wait that nobody awaits; use `enqueue`.
            IllegalStateError: not started, on another thread, in a forked child.
            ProducerClosedError: closing or closed.
        """
        if headers is not None and not isinstance(headers, (list, tuple)):
            headers = normalize_headers(headers)
        delivery = self._append(topic, value, key, partition, timestamp, headers, on_delivery)
        if delivery is not None:
            return delivery
        return self._admission.send(PreparedRecord(topic, value, key, partition, timestamp, headers, on_delivery))

    async def send_and_wait(  # noqa: PLR0913  # as send
        self,
        topic: str,
        value: object = None,
        *,
        key: object = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> RecordMetadata:
        """Send, and wait for the acknowledgement; arguments and errors as `send`.

        A true coroutine function, for `create_task`, `start_soon` and `run_coroutine_threadsafe`. Cancelled while
        the record still waits for metadata or memory, it withdraws it.
        """
        delivery = await self.enqueue(
            topic,
            value,
            key=key,
            partition=partition,
            timestamp=timestamp,
            headers=headers,
            on_delivery=on_delivery,
        )
        return await delivery

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
    ) -> Delivery:
        """Accept a record if it can be appended now; arguments and errors as `send`.

        Raises:
            MetadataNotReadyError: the topic is not known yet; it is being asked for.
            BufferFullError: no room, or others wait for it.
        """
        if headers is not None and not isinstance(headers, (list, tuple)):
            headers = normalize_headers(headers)
        delivery = self._append(topic, value, key, partition, timestamp, headers, on_delivery)
        if delivery is not None:
            return delivery
        record = PreparedRecord(topic, value, key, partition, timestamp, headers, on_delivery)
        return self._admission.send_nowait(record)

    async def send_many(
        self,
        topic: str,
        values: Iterable[object],
        *,
        keys: Iterable[object] | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
    ) -> BulkDelivery:
        """Enqueue one record for each value; returns when all were accepted, or refused.

        A record that `enqueue` would refuse does not keep the others back: it is in the result, by its position.
        A subclass that overrides `enqueue` is asked for each.
        Cancelled, what was accepted goes on and the rest is never given.

        Args:
            topic: of all records.
            values: as `value` of `send`; taken once, in order.
            keys: as `key` of `send`, one for each value; None is no keys.
            partition: of all records.
            timestamp: of all records.
            headers: of all records.

        Returns:
            What to await for counts, offsets and errors; it need not be.

        Raises:
            ValueError: not as many keys as values; the records before were given.
            MetadataTimeoutError: the topic is still unknown after `max_block_ms`; nothing was given.
            IllegalStateError: as `send`; nothing was given.
        """
        await self.partitions_for(topic)
        rows = rows_of(
            values, keys, partition=partition, timestamp=timestamp, headers=normalize_headers(headers) or None
        )
        return await self._enqueue_rows(topic, rows, partial(self._enqueue_row, topic))

    async def send_arrow(  # noqa: PLR0913  # one for each part of a record
        self,
        topic: str,
        batch: object,
        *,
        value: str | None = None,
        key: str | None = None,
        partition: str | None = None,
        timestamp: str | None = None,
        headers: str | None = None,
    ) -> BulkDelivery:
        """Enqueue one record for each row; as `send_many` otherwise. Needs the extra `arrow`; no serializer runs.

        For the same reason a producer that has serializers does not ask an `enqueue` of its subclass.

        Args:
            topic: of all records.
            batch: a pyarrow `RecordBatch`, `Table` or `RecordBatchReader`, or what exports itself as Arrow (polars,
                pandas, DuckDB). Read once, on the event loop, as room comes.
            value: name of the column; None is the one named `value`, which must be there then.
            key: name of the column; None is the one named `key`, if there is one. So with all that follow:
            partition: integers.
            timestamp: timestamps, or ms since the epoch.
            headers: lists of (name, value) structs, or maps.

        Raises:
            TypeError, ValueError: the batch, or a column by its name and type; nothing was given.
            ModuleNotFoundError: pyarrow is not installed.
            MetadataTimeoutError, IllegalStateError: as `send_many`.
        """
        rows = ArrowRecords(batch, ColumnNames(value, key, partition, timestamp, headers))
        await self.partitions_for(topic)
        has_serializers = self._config.key_serializer is not None or self._config.value_serializer is not None
        enqueue = self._open_admission().enqueue_bytes if has_serializers else self._enqueue_row
        return await self._enqueue_rows(topic, rows, partial(enqueue, topic))

    def send_threadsafe(  # noqa: PLR0913  # as send
        self,
        topic: str,
        value: object = None,
        *,
        key: object = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> concurrent.futures.Future[RecordMetadata]:
        """Send from any thread; arguments as `send`, errors by the returned future.

        Raises:
            IllegalStateError: not started.
        """
        if self._running is None or self._running.appender.closed:
            self._lifecycle.refuse(on_loop_thread=True)
        sending = self.send_and_wait(
            topic,
            value,
            key=key,
            partition=partition,
            timestamp=timestamp,
            headers=headers,
            on_delivery=on_delivery,
        )
        return asyncio.run_coroutine_threadsafe(sending, self._running.loop)

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of a topic, asking a broker if need be.

        Raises:
            MetadataTimeoutError: the topic is still unknown after `max_block_ms`.
        """
        check_topic_name(topic)
        return await partitions_of(topic, open_running=self._open_running, max_block_ms=self._config.max_block_ms)

    @overload  # `bytes` is a type, and a function that returns bytes
    def topic(
        self, name: str, *, key: type[bytes] = bytes, value: type[bytes], headers: Headers | None = None
    ) -> Topic[bytes, bytes]: ...

    @overload
    def topic(  # type: ignore[overload-overlap]  # where both are bytes, the first holds
        self, name: str, *, key: type[bytes] = bytes, value: TypeOrSerializer[ValueT], headers: Headers | None = None
    ) -> Topic[bytes, ValueT]: ...

    @overload
    def topic(
        self, name: str, *, key: TypeOrSerializer[KeyT], value: type[bytes], headers: Headers | None = None
    ) -> Topic[KeyT, bytes]: ...

    @overload
    def topic(
        self, name: str, *, key: TypeOrSerializer[KeyT], value: TypeOrSerializer[ValueT], headers: Headers | None = None
    ) -> Topic[KeyT, ValueT]: ...

    def topic(
        self, name: str, *, key: object = bytes, value: object, headers: Headers | None = None
    ) -> Topic[KeyT, ValueT]:
        """Return a handle for a topic whose keys and values have a type; may be made before the start.

        The producer's own serializers do not run for its records; interceptors and partitioner do.

        Args:
            name: of the topic.
            key: a type (`type_serializers.py` lists them), or a serializer.
            value: as `key`.
            headers: of every record, before its own.

        Raises:
            TypeError, ValueError: an argument; names it and what is allowed.
        """
        return self.topic_of(TopicRecords(name, key=key, value=value, headers=headers))

    def topic_of(self, records: TopicRecords[KeyT, ValueT]) -> Topic[KeyT, ValueT]:
        """As `topic`, of what its records have in common."""
        return Topic(records, self, admission=self._open_admission)

    # Looking

    def statistics(self) -> ProducerStatistics:
        """Return a frozen snapshot of counters and gauges; Kafka's names in its fields' docs."""
        if self._running is None:
            return ProducerStatistics(client_id=self._lifecycle.name)
        return take_snapshot(self._running)

    def __repr__(self) -> str:
        """Show state and load in one line."""
        statistics = self.statistics()
        return (
            f"<Producer {self._lifecycle.name!r} {self._lifecycle.state.value} "
            f"bootstrap={','.join(self._config.bootstrap_servers)} pending={statistics.records_pending} "
            f"waiting={statistics.records_waiting} acknowledged={statistics.records_acknowledged}>"
        )

    # Inside

    def _opened(self, running: RunningProducer) -> None:
        self._admission = Admission(running)
        if running.preparation.is_needed:
            self._append = _prepare_first
            return
        self._append = running.appender.append
        self._enqueue_natively(running.appender)

    def _enqueue_slowly(self, *arguments: *AppendArguments) -> Coroutine[object, None, Delivery]:
        return self._open_admission().enqueue(PreparedRecord(*arguments))

    async def _enqueue_rows(self, topic: str, rows: Iterable[Row], enqueue: EnqueueRow) -> BulkDelivery:
        """Enqueue rows natively, unless code of the user's is to see each: a subclass's own verb is such code."""
        if type(self).enqueue is not EnqueueVerb.enqueue or self._open_admission().runs_code_of_the_user:
            return await enqueue_all(rows, enqueue)
        return await append_all(rows, enqueue, appender=self._open_running().appender, topic=topic)

    def _enqueue_row(  # noqa: PLR0917  # of a table
        self,
        topic: str,
        value: object,
        key: object,
        partition: int | None,
        timestamp: int | None,
        headers: Headers | None,
    ) -> Coroutine[object, None, Delivery]:
        return self.enqueue(topic, value, key=key, partition=partition, timestamp=timestamp, headers=headers)

    def _open_admission(self) -> Admission:
        if not hasattr(self, "_admission"):  # new, still starting, or its start has failed
            self._not_started()
        return self._admission

    def _not_started(self, *_: object) -> NoReturn:
        self._lifecycle.refuse(on_loop_thread=True)


def _prepare_first(*_: object) -> None:
    """Stands for the append of a producer whose records go through the user's code first."""


mark_as_coroutine_functions(Producer.send, Producer.enqueue)
