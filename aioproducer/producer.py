"""The producer: what users hold.

`send` is the table of contents of a record's journey (docs/explanation/life_of_a_record.md): the user's own code
around it (`preparation.py`), one native append (`_native/append.pyx`), or a place in a waiting line
(`core/waiting_lines.py`). What happens then is the business of `running_producer.py` and below.

Source: KafkaProducer in Apache Kafka.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import warnings
import weakref
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn, Self

from aioproducer.admission import Admission
from aioproducer.config import ProducerConfig
from aioproducer.errors import (
    MetadataTimeoutError,
    ProducerClosedError,
    UndeliveredError,
)
from aioproducer.interceptors import InterceptorChain
from aioproducer.lifecycle import Lifecycle, ProducerState
from aioproducer.logs import event_log
from aioproducer.metrics import ProducerStatistics
from aioproducer.preparation import PreparedRecord
from aioproducer.records import check_topic_name, normalize_headers
from aioproducer.running_producer import RunningProducer

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Unpack

    from aioproducer._native.append import Headers, RecordAppender
    from aioproducer._native.delivery import Delivery, OnDelivery
    from aioproducer.config import ProducerOptions
    from aioproducer.records import RecordMetadata

    Append = Callable[
        [str, Any, Any, int | None, int | None, Headers | None, OnDelivery | None],
        Delivery | None,
    ]

CLOSE_AFTER_ERROR_S = 5.0
"""How long `async with` waits for deliveries when its body raised or was cancelled."""


class Producer:
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
        self._config = ProducerConfig.of(bootstrap_servers, options)
        self._lifecycle = Lifecycle(self._config.name_client())
        self._running: RunningProducer | None = None
        self._append: Append = self._not_started
        self._admission: Admission
        self._appender: RecordAppender
        self._closing: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[None] | None = None
        self._random = Random()  # noqa: S311  # jitter and partition choice, not secrets
        self._wall_clock: Callable[[], int] | None = None
        self._made_at = _caller()
        _PRODUCERS.add(self)

    # Start and end

    async def start(self, *, wait: bool = True) -> Self:
        """Connect; a second call does nothing.

        Args:
            wait: until a broker has answered, at most `max_block_ms`; False returns at once.

        Raises:
            MetadataTimeoutError: no broker answered; everything is cleaned up.
            ProducerClosedError: it was closed.
        """
        if self._lifecycle.state is ProducerState.CLOSED:
            raise ProducerClosedError(f"producer {self._lifecycle.name!r} was closed; make a new one")
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(
                self._start(wait=wait), name=f"aioproducer-start | {self._lifecycle.name}"
            )
        try:
            await asyncio.shield(self._starting)
        except asyncio.CancelledError:
            await self._abort_start()
            raise
        return self

    async def _start(self, *, wait: bool) -> None:
        self._lifecycle.move_to(ProducerState.STARTING)
        log = event_log(self._lifecycle.name)
        for adjustment in self._config.adjustments:
            log.info("option_adjusted", option=adjustment.option, value=adjustment.value, reason=adjustment.reason)
        running = RunningProducer(
            self._config,
            self._lifecycle,
            interceptors=InterceptorChain(self._config.interceptors, log),
            random=self._random,
            wall_clock=self._wall_clock,
            log=log,
        )
        self._running = running
        try:
            await running.start(wait=wait)
        except BaseException:
            await running.close(0)
            raise
        self._appender = running.appender
        self._admission = Admission(running)
        self._append = _prepare_first if running.preparation.is_needed else running.appender.append

    async def _abort_start(self) -> None:
        starting = self._starting
        if starting is not None and not starting.done():
            starting.cancel()
            await asyncio.wait([starting])

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # part of the promise: the rest fails
        """Deliver what was accepted, then let everything go; a second call joins the first.

        Cancelling ends the wait alone: closing goes on, and may be awaited again.

        Args:
            timeout: seconds for delivering, then what is left fails with its outcome; None is `close_timeout_ms`,
                0 fails it at once.

        Raises:
            UndeliveredError: records failed and nobody looked at their deliveries.
            ValueError: a negative timeout.
        """
        timeout_s = self._config.close_timeout_ms / 1000 if timeout is None else timeout
        if not timeout_s >= 0:
            raise ValueError(f"timeout must be 0 or more seconds, got {timeout}")
        if self._running is None:
            if self._lifecycle.state is ProducerState.NEW:
                self._lifecycle.move_to(ProducerState.CLOSED)
            return
        if self._closing is None:
            await self._abort_start()
            self._closing = self._running.loop.create_task(
                self._close(self._running, timeout_s), name=f"aioproducer-close | {self._lifecycle.name}"
            )
        await asyncio.shield(self._closing)

    async def _close(self, running: RunningProducer, timeout_s: float) -> None:
        if self._lifecycle.state is not ProducerState.CLOSED:
            await running.close(timeout_s)

    async def __aenter__(self) -> Self:
        """Start."""
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close. The body's own exception wins; records that were not delivered become its notes."""
        if error is None:
            await self.close()
            return
        try:
            await self.close(min(CLOSE_AFTER_ERROR_S, self._config.close_timeout_ms / 1000))
        except UndeliveredError as undelivered:
            error.add_note(f"aioproducer: {undelivered}")

    # Sending

    def send(  # noqa: PLR0913  # a record has that many parts
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
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
        value: bytes | None = None,
        *,
        key: bytes | None = None,
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

    async def enqueue(  # noqa: PLR0913  # as send
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Accept a record as soon as its topic is known and there is room; arguments and errors as `send`.

        First come, first served. Cancelled while it waits, it withdraws the record, which is then not written.

        Returns:
            The delivery, which need not be awaited: `flush` raises what failed.

        Raises:
            MetadataTimeoutError: the topic is still unknown after `max_block_ms`.
            BufferTimeoutError: no room within `max_block_ms`.
        """
        if headers is not None and not isinstance(headers, (list, tuple)):
            headers = normalize_headers(headers)
        delivery = self._append(topic, value, key, partition, timestamp, headers, on_delivery)
        if delivery is None:
            record = PreparedRecord(topic, value, key, partition, timestamp, headers, on_delivery)
            return await self._admission.enqueue(record)
        if self._appender.pause_wanted:
            await self._admission.let_sender_work()
        return delivery

    def send_nowait(  # noqa: PLR0913  # as send
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
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

    def send_threadsafe(  # noqa: PLR0913  # as send
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> concurrent.futures.Future[RecordMetadata]:
        """Send from any thread; arguments as `send`, errors by the returned future.

        Raises:
            IllegalStateError: not started.
        """
        if self._running is None:
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

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # part of the promise
        """Wait until exactly the records accepted before this call have ended; none of them waits out its linger.

        Args:
            timeout: seconds; None waits as long as `delivery_timeout_ms` lets records live.

        Raises:
            UndeliveredError: records failed and nobody looked at their deliveries.
            TimeoutError: the time is over; the records go on.
            ValueError: a negative timeout.
        """
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"timeout must be 0 or more seconds, got {timeout}")
        running = self._open_running()
        generation = running.close_generation()
        failed = running.completion.unseen.begin_flush(generation)
        try:
            async with asyncio.timeout(timeout):
                await running.wait_for_generation(generation)
            error = failed.take_error()
        except TimeoutError:
            text = f"flush: {running.generations.unfinished} batches and waiting records unfinished after {timeout} s"
            raise TimeoutError(text) from None
        finally:
            running.completion.unseen.end_flush(failed)
        if error is not None:
            raise error

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of a topic, asking a broker if need be.

        Raises:
            MetadataTimeoutError: the topic is still unknown after `max_block_ms`.
        """
        check_topic_name(topic)
        running = self._open_running()
        deadline = running.loop.time() + self._config.max_block_ms / 1000
        while (count := running.metadata.cluster.partition_count(topic)) is None:
            running.metadata.add_topic(topic, running.loop.time())
            error = running.topic_refusal(topic)
            if error is not None:
                raise error
            if not await running.next_metadata(deadline):
                raise MetadataTimeoutError(
                    f"topic {topic!r} is still unknown after max_block_ms={self._config.max_block_ms}: "
                    f"{running.explain_topic(topic)}",
                    topic=topic,
                )
        return list(range(count))

    # Looking

    def statistics(self) -> ProducerStatistics:
        """Return a frozen snapshot of counters and gauges; Kafka's names in its fields' docs."""
        if self._running is None:
            return ProducerStatistics(client_id=self._lifecycle.name)
        return self._running.statistics()

    @property
    def config(self) -> ProducerConfig:
        """The configuration in effect."""
        return self._config

    def mark_forked(self) -> None:
        """Refuse every call from now on: this process is a fork of the one that owns the connections."""
        self._lifecycle.is_forked = True
        if self._running is not None:
            self._running.appender.closed = True

    def __repr__(self) -> str:
        """Show state and load in one line."""
        statistics = self.statistics()
        return (
            f"<Producer {self._lifecycle.name!r} {self._lifecycle.state.value} "
            f"bootstrap={','.join(self._config.bootstrap_servers)} pending={statistics.records_pending} "
            f"waiting={statistics.records_waiting} acknowledged={statistics.records_acknowledged}>"
        )

    def __del__(self) -> None:
        """Warn when it was dropped without being closed."""
        running = getattr(self, "_running", None)
        if running is None or self._lifecycle.state in {ProducerState.CLOSED, ProducerState.CLOSING}:
            return
        warnings.warn(
            f"producer {self._lifecycle.name!r}, made at {self._made_at}, was dropped without close(): records that "
            "were not delivered yet are lost",
            ResourceWarning,
            stacklevel=2,
            source=self,
        )
        if not running.loop.is_closed() and not self._lifecycle.is_forked:
            running.loop.call_soon_threadsafe(running.abandon)

    # Inside

    def _not_started(self, *_: object) -> NoReturn:
        self._lifecycle.refuse(on_loop_thread=True)

    def _open_running(self) -> RunningProducer:
        running = self._running
        if running is None or running.appender.closed or not running.appender.on_loop_thread():
            self._lifecycle.refuse(on_loop_thread=running is None or running.appender.on_loop_thread())
        return running


def _prepare_first(*_: object) -> None:
    """Stands for the append of a producer whose records go through the user's code first."""


def _caller() -> str:
    frame = sys._getframe(2)  # noqa: SLF001  # the only way to say where a dropped producer was made
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _mark_as_coroutine_function() -> None:
    """Let frameworks that ask see that what `send` returns is to be awaited."""
    mark = getattr(inspect, "markcoroutinefunction", None)
    if mark is not None:
        mark(Producer.send)
    else:
        Producer.send._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]  # noqa: SLF001


_PRODUCERS: weakref.WeakSet[Producer] = weakref.WeakSet()


def _after_fork() -> None:
    for producer in list(_PRODUCERS):
        producer.mark_forked()


_mark_as_coroutine_function()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
