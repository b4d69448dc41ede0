"""`BlockingProducer`: the producer's verbs, for callers without an event loop."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import sys
import threading
import time
import warnings
import weakref
from functools import partial
from typing import TYPE_CHECKING, Final, Self, TypeVar

from aioproducer.blocking.background_loop import BackgroundLoop, wait_for
from aioproducer.blocking.handover import Given, Handover
from aioproducer.errors import KafkaError, ProducerClosedError, UndeliveredError
from aioproducer.lifecycle import check_timeout
from aioproducer.lifetime import CLOSE_AFTER_ERROR_S, caller
from aioproducer.producer import Producer
from aioproducer.records import (
    check_callback,
    check_partition,
    check_payload,
    check_timestamp,
    check_topic_name,
    normalize_headers,
)

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from types import TracebackType
    from typing import Unpack

    from aioproducer._native.append import Headers
    from aioproducer._native.delivery import OnDelivery
    from aioproducer.bulk_delivery import BulkResult
    from aioproducer.config import ProducerConfig, ProducerOptions
    from aioproducer.metrics import ProducerStatistics
    from aioproducer.records import RecordMetadata

ResultT = TypeVar("ResultT")

_ALIVE: Final[weakref.WeakSet[BlockingProducer]] = weakref.WeakSet()


class BlockingProducer:  # noqa: PLR0904  # the verbs of a producer
    """Gets records into Apache Kafka from threads and scripts that have no event loop.

    ```python
    with BlockingProducer("localhost:9092") as producer:
        metadata = producer.send("orders", b"...", key=b"customer-7")    # delivered
        for order in orders:
            producer.enqueue("orders", order.body, key=order.id)         # waits only for room
        producer.flush()                                                 # raises if anything was not delivered
    ```

    Safe to share between threads. Ctrl-C ends the wait of the call it meets; leaving the `with` block then closes
    within five seconds. Callbacks run on the background thread, and may call none of this.

    Args:
        bootstrap_servers: as for `Producer`.
        **options: as for `Producer`.

    Raises:
        ConfigurationError: an option cannot be so; before any I/O.
    """

    def __init__(
        self, bootstrap_servers: str | Sequence[str] | ProducerConfig, **options: Unpack[ProducerOptions]
    ) -> None:
        self._producer = Producer(bootstrap_servers, **options)
        self._config = self._producer.config
        self._handover = Handover(self._config.max_block_ms / 1000)
        self._background = BackgroundLoop()
        self._made_at = caller()
        self._lock = threading.Lock()
        self._is_closed = False
        _ALIVE.add(self)

    # Start and end

    def start(self, *, wait: bool = True) -> Self:
        """Start the background loop and connect; a second call does nothing.

        Args:
            wait: until a broker has answered, at most `max_block_ms`.

        Raises:
            MetadataTimeoutError: no broker answered; everything is cleaned up.
            ProducerClosedError: it was closed.
        """
        with self._lock:
            if self._is_closed:
                raise ProducerClosedError("the producer was closed; make a new one")
            self._background.start(self._handover.run)
        try:
            self._background.call(partial(self._producer.start, wait=wait))
        except BaseException:
            self.close(0)
            raise
        return self

    def close(self, timeout: float | None = None) -> None:
        """Deliver what was accepted, then let everything go, the thread too; a second call does nothing.

        Args:
            timeout: seconds for delivering, then what is left fails; None is `close_timeout_ms`, 0 fails it at once.

        Raises:
            UndeliveredError: records failed, and nobody had been told.
        """
        check_timeout(timeout)
        timeout_s = self._config.close_timeout_ms / 1000 if timeout is None else timeout
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        if was_closed or not self._background.is_running:
            return
        try:
            self._background.call(partial(self._close, timeout_s))
        finally:
            self._handover.refuse(ProducerClosedError("the producer is closed: it takes no more records"))
            self._background.stop()

    async def _close(self, timeout_s: float) -> None:
        turn = asyncio.Event()
        self._handover.refuse(ProducerClosedError("the producer is closing: it takes no more records"))
        self._handover.put_mark(turn)  # after that, so that every record that was taken is before it
        deadline = asyncio.get_running_loop().time() + timeout_s
        undelivered: UndeliveredError | None = None
        with contextlib.suppress(TimeoutError):  # stuck behind a full buffer: closing fails what is left
            async with asyncio.timeout_at(deadline):
                await turn.wait()
        try:
            await self._producer.close(max(deadline - asyncio.get_running_loop().time(), 0.0))
        except UndeliveredError as error:
            undelivered = error
        await turn.wait()
        failed = self._handover.take_errors(undelivered)
        if failed is not None:
            raise failed

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close. The body's own exception wins; records that were not delivered become its notes."""
        if error is None:
            self.close()
            return
        try:
            self.close(min(CLOSE_AFTER_ERROR_S, self._config.close_timeout_ms / 1000))
        except KafkaError as failed:
            error.add_note(f"aioproducer: {failed}")

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
    ) -> RecordMetadata:
        """Send a record and wait for the broker's acknowledgement; arguments and errors as `Producer.send`.

        A KeyboardInterrupt ends the wait; a record that is in a batch already goes on.
        """
        return wait_for(
            self.send_threadsafe(
                topic,
                value,
                key=key,
                partition=partition,
                timestamp=timestamp,
                headers=headers,
                on_delivery=on_delivery,
            )
        )

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
        """Send without waiting; arguments as `send`, all errors by the future, which need not be looked at."""
        return self._in_turn(
            partial(
                self._producer.send_and_wait,
                topic,
                value,
                key=key,
                partition=partition,
                timestamp=timestamp,
                headers=headers,
                on_delivery=on_delivery,
            )
        )

    def enqueue(  # noqa: PLR0913  # as send
        self,
        topic: str,
        value: object = None,
        *,
        key: object = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        """Accept a record as soon as there is room.

        What becomes of it is told to `on_delivery`, on the background thread; without one a failure is raised by the
        next `flush` or `close`.

        Args:
            topic: as all arguments, see `Producer.send`.
            value: a `bytearray` or `memoryview` is copied.
            key: as `value`.
            partition: instead of the key's or a chosen one.
            timestamp: ms since the epoch; None is now.
            headers: (str, bytes | None) pairs.
            on_delivery: called with (metadata, None) or (None, error).

        Raises:
            TypeError, ValueError: an argument; names it and what is allowed.
            BufferTimeoutError: no room within `max_block_ms`.
            ProducerClosedError: closing or closed.
        """
        self._background.check_caller()
        check_topic_name(topic)
        check_partition(partition)
        check_timestamp(timestamp)
        check_callback(on_delivery)
        key = self._own("key", key, is_serialized=self._config.key_serializer is not None)
        value = self._own("value", value, is_serialized=self._config.value_serializer is not None)
        give = partial(
            self._producer.enqueue,
            topic,
            value,
            key=key,
            partition=partition,
            timestamp=time.time_ns() // 1_000_000 if timestamp is None else timestamp,
            headers=None if headers is None else normalize_headers(headers),
            on_delivery=on_delivery,
        )
        self._handover.put(Given(give, _size(key) + _size(value), on_delivery))

    def send_many(
        self,
        topic: str,
        values: Iterable[object],
        *,
        keys: Iterable[object] | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
    ) -> BulkResult:
        """Send one record for each value and wait until all have ended; arguments and errors as `Producer.send_many`.

        Returns:
            Counts, offsets and errors; failed records raise nothing.
        """

        async def send() -> BulkResult:
            return await (
                await self._producer.send_many(
                    topic, values, keys=keys, partition=partition, timestamp=timestamp, headers=headers
                )
            )

        return wait_for(self._in_turn(send))

    def flush(self, timeout: float | None = None) -> None:
        """Wait until the records accepted before this call have ended.

        Args:
            timeout: seconds; None waits as long as `delivery_timeout_ms` lets records live.

        Raises:
            UndeliveredError: records failed, and nobody had been told.
            TimeoutError: the time is over; the records go on.
        """
        check_timeout(timeout)
        wait_for(self._in_turn(partial(self._flush, timeout), timeout_s=timeout))

    async def _flush(self, timeout_s: float | None) -> None:
        undelivered: UndeliveredError | None = None
        try:
            await self._producer.flush(timeout_s)
        except UndeliveredError as error:
            undelivered = error
        failed = self._handover.take_errors(undelivered)
        if failed is not None:
            raise failed

    def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of a topic, asking a broker if need be; errors as `Producer.partitions_for`."""
        return self._background.call(partial(self._producer.partitions_for, topic))

    # Looking

    def statistics(self) -> ProducerStatistics:
        """Return a frozen snapshot of counters and gauges."""
        if not self._background.is_running:
            return self._producer.statistics()

        async def look() -> ProducerStatistics:
            return self._producer.statistics()

        return self._background.call(look)

    @property
    def config(self) -> ProducerConfig:
        """The configuration in effect."""
        return self._config

    def __repr__(self) -> str:
        """Show what the producer behind it shows."""
        return f"<BlockingProducer of {self._producer!r}>"

    def __del__(self) -> None:
        """Warn when it was dropped without being closed."""
        if getattr(self, "_background", None) is not None and not sys.is_finalizing():
            self.abandon()

    def abandon(self) -> None:
        """Warn unless it was closed, and let everything go at once: nobody will ever close it."""
        if not self._background.is_running or self._background.is_current_thread:
            return
        warnings.warn(
            f"BlockingProducer made at {self._made_at} was dropped without close(): records that were not delivered "
            "yet are lost",
            ResourceWarning,
            stacklevel=2,
            source=self,
        )
        with contextlib.suppress(KafkaError):
            self.close(0)

    # Inside

    def _in_turn(
        self, function: Callable[[], Awaitable[ResultT]], *, timeout_s: float | None = None
    ) -> concurrent.futures.Future[ResultT]:
        """Call a coroutine function when all that was queued before was given to the producer.

        Raises:
            ProducerClosedError: closing or closed.
        """
        turn = asyncio.Event()

        async def in_turn() -> ResultT:
            async with asyncio.timeout(timeout_s):
                await turn.wait()
            return await function()

        if self._is_closed:
            raise ProducerClosedError("the producer is closed: it takes no more records")
        future = self._background.submit(in_turn)
        self._handover.put_mark(turn)
        return future

    @staticmethod
    def _own(name: str, payload: object, *, is_serialized: bool) -> object:
        """The caller may change its own buffer as soon as the call has returned."""
        if is_serialized:
            return payload
        check_payload(name, payload)
        return bytes(payload) if isinstance(payload, bytearray | memoryview) else payload


def _size(payload: object) -> int:
    return len(payload) if isinstance(payload, bytes) else 0


@atexit.register
def _abandon_all() -> None:
    """Warn, and close the connections, while the threads still run."""
    for producer in list(_ALIVE):
        producer.abandon()
