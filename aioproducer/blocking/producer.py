"""`BlockingProducer`: the methods of `Producer`, for callers without an event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Sized
from functools import partial
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar, overload

from aioproducer._producer.arguments import CallDeadline, owned
from aioproducer._producer.bulk import is_async
from aioproducer._producer.lifecycle import caller
from aioproducer._producer.names_elsewhere import OF_PRODUCERS, explains
from aioproducer._producer.producer import Producer
from aioproducer._producer.producer_state import check_timeout
from aioproducer._producer.record_fields import (
    ArrowFields,
    BlockingColumnFields,
    check_names,
    owned_fields,
    shows_fields,
)
from aioproducer._producer.topic import TopicRecords
from aioproducer._shown_values import in_any_state
from aioproducer._threads.calls import CallTimeout, delivery_timeout, metadata_timeout, wait_for
from aioproducer.blocking._handoff_queue import Barrier, QueuedRecord, queued_record
from aioproducer.blocking.topic import BlockingTopic, SendMany
from aioproducer.blocking.transactions import BlockingTransactions
from aioproducer.errors import KafkaError, MetadataTimeoutError, UndeliveredError
from aioproducer.metrics import Health
from aioproducer.records import check_payload, check_topic_name
from aioproducer.security._cleared_frames import clears_frames

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Unpack

    from aioproducer._native.append import Headers
    from aioproducer._producer.bulk import BulkResult
    from aioproducer._producer.producer_metrics import LiveView
    from aioproducer._producer.record_fields import RecordFields
    from aioproducer._producer.topic import KeyT, ValueT
    from aioproducer._producer.topic_types import TypeOrSerializer
    from aioproducer.config import ProducerConfig, ProducerOptions, TopicOptions
    from aioproducer.explanation import Explanation
    from aioproducer.metrics import Metric, ProducerStatistics
    from aioproducer.records import RecordMetadata

ResultT = TypeVar("ResultT")

PURGE_AGAIN_S: Final = 0.001
"""How long `purge` waits for the records of the queue: those that the producer has taken meanwhile are in their way."""


@explains(OF_PRODUCERS, other_block="__aenter__")  # noqa: PLR0904  # as many as `Producer`
class BlockingProducer(BlockingTransactions):
    """Gets records into Apache Kafka from threads and scripts that have no event loop.

    ```python
    with BlockingProducer("localhost:9092") as producer:
        metadata = producer.send("orders", b"...", key=b"customer-7")  # delivered
        for number in range(1_000):
            producer.enqueue("orders", b"...", key=b"customer-%d" % number)  # waits only for room
        producer.flush()  # raises if anything was not delivered
    ```

    It need not be started: the first call that sends does it, in the process of that call, so that a server may make
    the producer before it forks its workers. It should be closed by each process that has used it.

    Safe to share between threads. Ctrl-C ends the wait of the current call; leaving the `with` block then closes
    within five seconds. Interceptors, serializers and callbacks run on the background thread, in the context
    (`contextvars`) of the call that sent the record, and must not call the producer. `sys.exit` in a callback is
    logged, and does not end the program.

    Each call ends at its limit, also while a callback blocks the background thread: it then raises a `TimeoutError`
    of its kind, such as `DeliveryTimeoutError` for `send`, with the outcome UNKNOWN.

    Works in programs that gevent or eventlet has patched: the background thread is a real one, and other greenlets
    run while one waits. Callbacks run on that thread, so they must not use patched locks or queues that the greenlets
    wait for.

    Events are logged on a thread of their own, so a logging handler may use it; see docs/reference/log_events.md.

    uvloop's event loop is used where it is installed, and asyncio's where standard input, output or error is closed:
    libuv would end the process.

    Args:
        bootstrap_servers: as for `Producer`.
        **options: as for `Producer`.

    Raises:
        ConfigurationError: an option is invalid; before any I/O.
    """

    @clears_frames
    def __init__(
        self, bootstrap_servers: str | Sequence[str] | ProducerConfig, **options: Unpack[ProducerOptions]
    ) -> None:
        super().__init__(Producer(bootstrap_servers, **options), made_at=caller())
        self._non_blocking = self._producer._non_blocking()

    # Sending

    @shows_fields
    def send(self, topic: str, value: object = None, **fields: Unpack[RecordFields[object]]) -> RecordMetadata:
        """Send a record and wait for the broker's acknowledgement; arguments and errors as `Producer.send`.

        A KeyboardInterrupt ends the wait; a record that is in a batch already is still sent.
        """
        return wait_for(self.send_threadsafe(topic, value, **fields))

    @shows_fields
    def send_threadsafe(
        self, topic: str, value: object = None, **fields: Unpack[RecordFields[object]]
    ) -> concurrent.futures.Future[RecordMetadata]:
        """Send without waiting; arguments as `enqueue`, errors by the future alone; `flush` and `close` wait too.

        Raises:
            ProducerClosedError: closing or closed.
        """
        check_names("BlockingProducer.send_threadsafe", fields)
        fields = owned_fields(fields, self._delivery_timeout_ms(topic))
        sending = partial(self._producer.send_and_wait, topic, owned(value), **fields)
        return self._send_in_turn(sending, fields.get("deadline"))

    @shows_fields
    def enqueue(self, topic: str, value: object = None, **fields: Unpack[RecordFields[object]]) -> None:
        """Accept a record as soon as there is room.

        `on_delivery` is called with the outcome, on the background thread; without it a failure is raised by the next
        `flush` or `close`. In a transaction a failure prevents the commit in either case.

        Args:
            topic: as all arguments, see `Producer.send`.
            value: a `bytearray` or `memoryview` is copied. The serializer gets other objects on the background thread:
                they must not change before.
            key: as `value`.
            partition: instead of the key's or a chosen one.
            timestamp: ms since the epoch; None is now.
            headers: (str, bytes | None) pairs.
            on_delivery: called with (metadata, None) or (None, error).
            deadline: seconds, from this call on.

        Raises:
            TypeError, ValueError: an argument; names it and what is allowed.
            BufferTimeoutError: no room within `max_block_ms`.
            ProducerClosedError: closing or closed.
        """
        check_names("BlockingProducer.enqueue", fields)
        check_topic_name(topic)
        if self._config.key_serializer is None:
            check_payload("key", fields.get("key"))
        if self._config.value_serializer is None:
            check_payload("value", value)
        enqueue = partial(self._non_blocking.enqueue, topic)
        self._put(queued_record(enqueue, value, fields, delivery_timeout_ms=self._delivery_timeout_ms(topic)))

    @shows_fields
    def send_many(
        self, topic: str, values: Iterable[object], **fields: Unpack[BlockingColumnFields[object]]
    ) -> BulkResult:
        """Send one record for each value and wait until all have ended; arguments and errors as `Producer.send_many`.

        An iterator is read to its end on the calling thread, before the first record is sent: pass a long one in parts.
        Failed records raise nothing.
        """
        check_names("BlockingProducer.send_many", fields, of=BlockingColumnFields)
        return self._send_columns(partial(self._producer.send_many, topic), values, fields)

    def _send_columns(
        self, send_many: SendMany[ValueT, KeyT], values: Iterable[ValueT | None], fields: BlockingColumnFields[KeyT]
    ) -> BulkResult:
        self._check_open()  # before anything is taken out of an iterator
        values = read_columns(values, fields)

        async def send() -> BulkResult:
            return await (await send_many(values, **fields))

        return wait_for(self._in_turn(send))

    @shows_fields
    def send_arrow(self, topic: str, batch: object, **columns: Unpack[ArrowFields]) -> BulkResult:
        """Send one record for each row and wait until all have ended; arguments and errors as `Producer.send_arrow`.

        A stream is read on the background thread, as there is room; other calls wait while it yields nothing. Failed
        records raise nothing.
        """

        async def send() -> BulkResult:
            return await (await self._producer.send_arrow(topic, batch, **columns))

        check_names("BlockingProducer.send_arrow", columns, of=ArrowFields)
        return wait_for(self._in_turn(send))

    @overload  # as Producer.topic
    def topic(
        self,
        name: str,
        *,
        key: type[bytes] = bytes,
        value: type[bytes],
        headers: Headers | None = None,
        **options: Unpack[TopicOptions],
    ) -> BlockingTopic[bytes, bytes]: ...

    @overload
    def topic(  # type: ignore[overload-overlap]  # where both are bytes, the first holds
        self,
        name: str,
        *,
        key: type[bytes] = bytes,
        value: TypeOrSerializer[ValueT],
        headers: Headers | None = None,
        **options: Unpack[TopicOptions],
    ) -> BlockingTopic[bytes, ValueT]: ...

    @overload
    def topic(
        self,
        name: str,
        *,
        key: TypeOrSerializer[KeyT],
        value: type[bytes],
        headers: Headers | None = None,
        **options: Unpack[TopicOptions],
    ) -> BlockingTopic[KeyT, bytes]: ...

    @overload
    def topic(
        self,
        name: str,
        *,
        key: TypeOrSerializer[KeyT],
        value: TypeOrSerializer[ValueT],
        headers: Headers | None = None,
        **options: Unpack[TopicOptions],
    ) -> BlockingTopic[KeyT, ValueT]: ...

    def topic(
        self,
        name: str,
        *,
        key: object = bytes,
        value: object,
        headers: Headers | None = None,
        **options: Unpack[TopicOptions],
    ) -> BlockingTopic[KeyT, ValueT]:
        """Return a handle for a topic whose keys and values have a type; arguments and errors as `Producer.topic`."""
        records: TopicRecords[KeyT, ValueT] = TopicRecords(name, key=key, value=value, headers=headers)
        self._topic_options.add(name, options)
        topic, non_blocking = self._producer._topic_of(records), self._non_blocking._topic_of(records)
        return BlockingTopic(self, records, topic=topic, non_blocking=non_blocking)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until the records accepted before this call have ended.

        Args:
            timeout: seconds; None waits as long as `delivery_timeout_ms` lets records live.

        Raises:
            UndeliveredError: records failed, and their failures were not reported yet.
            TimeoutError: the time is over; the records are still being sent.
        """
        check_timeout(timeout)
        self._check_open()
        if not self._is_started:
            return  # nothing was accepted, and nothing need be started for that
        deadline = None if timeout is None else monotonic() + timeout
        call_timeout = (
            delivery_timeout(self._longest_delivery_s) if timeout is None else CallTimeout(timeout, TimeoutError)
        )
        wait_for(self._in_turn(partial(self._flush, deadline), timeout_s=timeout, call_timeout=call_timeout))

    async def _flush(self, deadline: float | None) -> None:
        undelivered: UndeliveredError | None = None
        try:
            await self._producer.flush(None if deadline is None else max(0.0, deadline - monotonic()))
        except UndeliveredError as error:
            undelivered = error
        failed = self._queue.take_errors(undelivered, outside_too=True)
        if failed is not None:
            raise failed

    def purge(self, topic: str | None = None) -> int:
        """As `Producer.purge`, of all records accepted before this call, of all threads.

        Raises:
            TypeError, ValueError: an invalid topic name.
            ProducerClosedError: closing or closed.
        """
        if topic is not None:
            check_topic_name(topic)
        self._check_open()
        if not self._is_started:
            return 0
        barrier = Barrier()

        async def purge() -> int:
            purged = self._producer.purge(topic)
            while not barrier.reached.is_set():  # records that are handed over now, as others make room
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PURGE_AGAIN_S):
                        await barrier.reached.wait()
                purged += self._producer.purge(topic)
            return purged

        self._background.check_caller()
        self._queue.put_barrier(barrier)
        return self._background.call(purge, metadata_timeout(self._max_block_s))

    def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of a topic, asking a broker if need be; errors as `Producer.partitions_for`."""
        self._ensure_started()
        return self._background.call(partial(self._producer.partitions_for, topic), metadata_timeout(self._max_block_s))

    # Looking

    def client_instance_id(self, timeout: float | None = None) -> str:
        """Return the id by which operators find this producer's metrics; errors as `Producer.client_instance_id`.

        Args:
            timeout: seconds; None is `max_block_ms`.
        """
        check_timeout(timeout)
        call_timeout = CallTimeout(self._max_block_s if timeout is None else timeout, TimeoutError)
        return self._background.call(partial(self._producer.client_instance_id, timeout), call_timeout)

    def statistics(self) -> ProducerStatistics:
        """Return a frozen snapshot of counters and gauges."""
        try:
            return self._on_loop(self._producer.statistics)
        except MetadataTimeoutError:  # the loop's thread is blocked, so nothing changes
            return self._producer.statistics()

    def health(self) -> Health:
        """As `Producer.health`; starts the producer unless it was, as its first call that sends does."""
        try:
            return self._probe().health
        except (KafkaError, OSError, RuntimeError) as error:  # the latter: no more files or threads are allowed
            return Health(is_ready=False, reason=str(error))

    def explain(self, topic: str | None = None) -> Explanation:
        """As `Producer.explain`, of the records that were handed over to it.

        Raises:
            MetadataTimeoutError: the thread of the event loop does not run; else as `Producer.explain`.
        """
        return self._on_loop(partial(self._producer.explain, topic))

    def metrics(self) -> list[Metric]:
        """As `Producer.metrics`."""
        return self._producer.metrics()

    def _view(self, *, explained: bool) -> LiveView:
        """As `Producer._view`; raises as `explain`."""
        return self._on_loop(partial(self._producer._view, explained=explained))

    def _probe(self) -> LiveView:
        """As `Producer._probe`, started unless it was, as by the first call that sends; raises as `explain`."""
        view = self._on_loop(self._producer._probe)
        if view.state == "new":  # a server that is not ready gets no call that would start it
            self._check_open()
            self._ensure_started()
            view = self._on_loop(self._producer._probe)
        return view

    def _on_loop(self, read: Callable[[], ResultT]) -> ResultT:
        """Read something of the producer on its event loop; here if that does not run."""
        if not self._background.is_running:
            return read()

        async def look() -> ResultT:
            return read()

        return self._background.call(look, metadata_timeout(0))

    @in_any_state
    def __repr__(self) -> str:
        """Show what the producer behind it shows."""
        return f"<BlockingProducer of {self._producer!r}>"

    # Inside

    def _delivery_timeout_ms(self, topic: str) -> int:
        return self._topic_options.config_of(topic).delivery_timeout_ms

    def _send_in_turn(
        self, sending: Callable[[], Awaitable[RecordMetadata]], deadline: float | None
    ) -> concurrent.futures.Future[RecordMetadata]:
        self._check_time_left()
        if not isinstance(deadline, CallDeadline):  # none, or an invalid one, which `send` refuses
            future = self._in_turn(sending)
        else:
            future = self._in_turn(sending, deadline=deadline, call_timeout=delivery_timeout(deadline))
        self._deliver_at_the_end()
        return future

    def _put(self, record: QueuedRecord) -> None:
        self._check_time_left()
        self._ensure_started()
        self._background.check_caller()
        self._queue.put(record)
        self._deliver_at_the_end()


def read_columns(values: Iterable[ValueT], fields: BlockingColumnFields[KeyT]) -> Iterable[ValueT]:
    """Read iterators on the calling thread: they may belong to it, as a database's cursor does, or be slow.

    Those among the fields are replaced there; the values are returned.

    Keys may be endless, as those of `itertools.repeat`: one more than there are values is enough to refuse them.

    Raises:
        TypeError: the values are an asynchronous iterable, which no thread can read.
    """
    if is_async(values):
        raise TypeError(f"values must be an iterable of values, got {type(values).__name__}, which is asynchronous")
    if isinstance(values, Iterator):
        values = list(values)
    for name in ("keys", "timestamps", "record_headers"):
        column = fields.get(name)
        if isinstance(column, Iterator) and isinstance(values, Sized):
            fields[name] = list(islice(column, len(values) + 1))
    return values
