"""`BlockingProducer`: the producer for threads and scripts, with the same verbs.

    any thread ── send, flush, ... ──► queue ──► one background thread with an event loop ──► Producer

One queue keeps the order of each thread's calls, whatever the verb. `enqueue` only puts its record there, so a loop of
it costs no switch of threads a record; the queue is bounded, and who finds it full waits: that is the back-pressure of
a stalled cluster, passed on.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import importlib.util
import os
import sys
import threading
import time
import warnings
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeVar

from aioproducer.errors import (
    MAX_SUB_ERRORS,
    BufferTimeoutError,
    IllegalStateError,
    KafkaError,
    Outcome,
    ProducerClosedError,
    UndeliveredError,
)
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
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from types import TracebackType
    from typing import Unpack

    from anyio.from_thread import BlockingPortal

    from aioproducer._native.append import Headers
    from aioproducer._native.delivery import OnDelivery
    from aioproducer.bulk_delivery import BulkResult
    from aioproducer.config import ProducerConfig, ProducerOptions
    from aioproducer.metrics import ProducerStatistics
    from aioproducer.records import RecordMetadata

ResultT = TypeVar("ResultT")

QUEUE_RECORDS: Final = 4096
"""Records between a thread and the loop; past it `enqueue` waits."""

QUEUE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of them, as far as they are bytes; one record may exceed it."""


class _Given(NamedTuple):
    """A record on its way to the loop."""

    enqueue: Callable[[], Awaitable[object]]
    size: int
    on_delivery: OnDelivery | None


class _Handover:
    """The queue between threads and the loop.

    Args:
        max_wait_s: how long a thread waits for a place.
    """

    def __init__(self, max_wait_s: float) -> None:
        self._max_wait_s = max_wait_s
        self._room = threading.Condition()
        self._queue: deque[_Given | asyncio.Event] = deque()
        self._bytes = 0
        self._is_idle = False
        self._wakeup = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._refusal: KafkaError | None = None
        self._errors: list[KafkaError] = []
        self._failed = 0

    # Any thread

    def put(self, given: _Given) -> None:
        """Queue a record; waits while the queue is full.

        Raises:
            BufferTimeoutError: it was full for too long.
            KafkaError: the producer takes nothing any more.
        """
        with self._room:
            if not self._room.wait_for(lambda: self._has_room(given.size), self._max_wait_s):
                text = (
                    f"no room for the record within max_block_ms={round(self._max_wait_s * 1000)}: {len(self._queue)} "
                    "records wait for the event loop, which waits for the brokers"
                )
                raise BufferTimeoutError(text, outcome=Outcome.NOT_WRITTEN)
            if self._refusal is not None:
                raise self._refusal.fresh()
            self._bytes += given.size
            self._queue.append(given)
        self._wake()

    def put_mark(self, turn: asyncio.Event) -> None:
        """Queue a mark: the event is set on the loop once everything queued before was given to the producer."""
        with self._room:
            self._queue.append(turn)
        self._wake()

    def refuse(self, error: KafkaError) -> None:
        """Raise `error` in every later call, and in those that wait."""
        with self._room:
            self._refusal = self._refusal or error
            self._room.notify_all()

    def _has_room(self, size: int) -> bool:
        if self._refusal is not None or not self._queue:
            return True
        return len(self._queue) < QUEUE_RECORDS and self._bytes + size <= QUEUE_BYTES

    def _wake(self) -> None:
        # The loop says that it is idle before it looks at the queue once more: no record is ever left behind.
        if self._is_idle and self._loop is not None:
            self._is_idle = False
            self._loop.call_soon_threadsafe(self._wakeup.set)

    # The loop

    async def run(self) -> None:
        """Give the producer what was queued, for ever."""
        self._loop = asyncio.get_running_loop()
        while True:
            self._is_idle = not self._queue
            if self._is_idle and not self._queue:
                await self._wakeup.wait()
                self._wakeup.clear()
            while self._queue:
                await self._give(self._take())

    def _take(self) -> _Given | asyncio.Event:
        with self._room:
            first = self._queue.popleft()
            if isinstance(first, _Given):
                self._bytes -= first.size
            if len(self._queue) <= QUEUE_RECORDS // 2:
                self._room.notify_all()
            return first

    async def _give(self, first: _Given | asyncio.Event) -> None:
        if isinstance(first, asyncio.Event):
            first.set()
            await asyncio.sleep(0)  # its task begins ...
            await asyncio.sleep(0)  # ... and does its part before the next record
            return
        try:
            await first.enqueue()
        except (KafkaError, TypeError, ValueError) as error:
            self._note(error, first.on_delivery)

    def _note(self, error: KafkaError | TypeError | ValueError, on_delivery: OnDelivery | None) -> None:
        if not isinstance(error, KafkaError):
            wrapped = KafkaError(f"{type(error).__name__}: {error}", outcome=Outcome.NOT_WRITTEN)
            wrapped.__cause__ = error
            error = wrapped
        if isinstance(error, IllegalStateError):
            self.refuse(error)
        if on_delivery is not None:
            asyncio.get_running_loop().call_soon(on_delivery, None, error.fresh())
            return
        self._failed += 1
        if len(self._errors) < MAX_SUB_ERRORS:
            self._errors.append(error)

    def take_errors(self, undelivered: UndeliveredError | None) -> UndeliveredError | None:
        """Forget the records that the producer did not take, and join them to those that it could not deliver."""
        errors, failed = self._errors, self._failed
        self._errors, self._failed = [], 0
        if undelivered is not None:
            errors = [*errors, *(error for error in undelivered.exceptions if isinstance(error, KafkaError))]
            failed += undelivered.count
        return UndeliveredError.of(errors, count=failed) if errors else None


class BlockingProducer:
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
        self._handover = _Handover(self._config.max_block_ms / 1000)
        self._made_at = caller()
        self._lock = threading.Lock()
        self._portal: BlockingPortal | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0
        self._process_id = 0
        self._is_closed = False
        self._leave = contextlib.ExitStack()

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
            if self._portal is None:
                self._start_loop()
        try:
            self._call(partial(self._producer.start, wait=wait))
        except BaseException:
            self.close(0)
            raise
        return self

    def _start_loop(self) -> None:
        from anyio.from_thread import start_blocking_portal  # noqa: PLC0415  # only who uses it pays for it

        entering = start_blocking_portal("asyncio", {"use_uvloop": _has_uvloop()}, name="aioproducer")
        self._portal = self._leave.enter_context(entering)
        self._loop, self._thread_id = self._portal.call(_where)
        self._process_id = os.getpid()
        self._pump = self._portal.start_task_soon(self._handover.run)

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
        if was_closed or self._portal is None:
            return
        try:
            self._call(partial(self._close, timeout_s), is_in_turn=False)
        finally:
            self._handover.refuse(ProducerClosedError("the producer is closed: it takes no more records"))
            self._pump.cancel()
            self._leave.close()

    async def _close(self, timeout_s: float) -> None:
        turn = asyncio.Event()
        self._handover.put_mark(turn)
        self._handover.refuse(ProducerClosedError("the producer is closing: it takes no more records"))
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
        return self._call(
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
        return self._submit(
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
        self._check_caller()
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
        self._handover.put(_Given(give, _size(key) + _size(value), on_delivery))

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

        return self._call(send)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until the records accepted before this call have ended.

        Args:
            timeout: seconds; None waits as long as `delivery_timeout_ms` lets records live.

        Raises:
            UndeliveredError: records failed, and nobody had been told.
            TimeoutError: the time is over; the records go on.
        """
        check_timeout(timeout)
        self._call(partial(self._flush, timeout), timeout_s=timeout)

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
        return self._call(partial(self._producer.partitions_for, topic))

    # Looking

    def statistics(self) -> ProducerStatistics:
        """Return a frozen snapshot of counters and gauges."""
        if self._is_closed or self._loop is None:
            return self._producer.statistics()

        async def look() -> ProducerStatistics:
            return self._producer.statistics()

        return self._call(look, is_in_turn=False)

    @property
    def config(self) -> ProducerConfig:
        """The configuration in effect."""
        return self._config

    def __repr__(self) -> str:
        """Show what the producer behind it shows."""
        return f"<BlockingProducer of {self._producer!r}>"

    def __del__(self) -> None:
        """Warn when it was dropped without being closed."""
        if getattr(self, "_portal", None) is None or self._is_closed or self._process_id != os.getpid():
            return
        warnings.warn(
            f"BlockingProducer made at {self._made_at} was dropped without close(): records that were not delivered "
            "yet are lost",
            ResourceWarning,
            stacklevel=2,
            source=self,
        )
        if not sys.is_finalizing() and self._thread_id != threading.get_ident():
            with contextlib.suppress(KafkaError):
                self.close(0)

    # Inside

    def _call(
        self,
        function: Callable[[], Awaitable[ResultT]],
        *,
        is_in_turn: bool = True,
        timeout_s: float | None = None,
    ) -> ResultT:
        future = self._submit(function, is_in_turn=is_in_turn, timeout_s=timeout_s)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise ProducerClosedError("the producer was closed while this call waited") from None
        except BaseException:
            future.cancel()  # Ctrl-C: nobody waits any more
            raise

    def _submit(
        self,
        function: Callable[[], Awaitable[ResultT]],
        *,
        is_in_turn: bool = True,
        timeout_s: float | None = None,
    ) -> concurrent.futures.Future[ResultT]:
        loop = self._check_caller()
        with self._lock:  # what is submitted before the loop ends is ended by it
            if self._is_closed and is_in_turn:
                raise ProducerClosedError("the producer is closed: it takes no more records")
            if not is_in_turn:
                return asyncio.run_coroutine_threadsafe(_awaited(function), loop)
            turn = asyncio.Event()
            future = asyncio.run_coroutine_threadsafe(_in_turn(turn, function, timeout_s), loop)
            self._handover.put_mark(turn)
            return future

    def _check_caller(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            text = "the producer is not started: use `with BlockingProducer(...)`, or call start()"
            raise IllegalStateError(text)
        if self._process_id != os.getpid():
            text = "the producer was started before a fork: its thread and connections are the parent's; make one here"
            raise IllegalStateError(text)
        if self._thread_id == threading.get_ident():
            text = "a callback runs on the producer's own thread, where waiting for it would be for ever"
            raise IllegalStateError(text)
        return self._loop

    @staticmethod
    def _own(name: str, payload: object, *, is_serialized: bool) -> object:
        """The caller may change its own buffer as soon as the call has returned."""
        if is_serialized:
            return payload
        check_payload(name, payload)
        return bytes(payload) if isinstance(payload, bytearray | memoryview) else payload


async def _in_turn(
    turn: asyncio.Event, function: Callable[[], Awaitable[ResultT]], timeout_s: float | None
) -> ResultT:
    """Call `function` when all that was queued before it was given to the producer."""
    async with asyncio.timeout(timeout_s):
        await turn.wait()
    return await function()


async def _awaited(function: Callable[[], Awaitable[ResultT]]) -> ResultT:
    return await function()


async def _where() -> tuple[asyncio.AbstractEventLoop, int]:
    return asyncio.get_running_loop(), threading.get_ident()


def _has_uvloop() -> bool:
    return importlib.util.find_spec("uvloop") is not None


def _size(payload: object) -> int:
    return len(payload) if isinstance(payload, bytes) else 0
