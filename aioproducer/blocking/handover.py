"""The queue between threads and the loop: it keeps the order of calls, and it is bounded.

`enqueue` only puts its record here, so a loop of it costs no switch of threads a record; who finds the queue full
waits: that is the back-pressure of a stalled cluster, passed on.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.errors import (
    MAX_SUB_ERRORS,
    BufferTimeoutError,
    IllegalStateError,
    KafkaError,
    Outcome,
    UndeliveredError,
)
from aioproducer.records import check_callback, check_partition, check_timestamp

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioproducer._native.delivery import OnDelivery

QUEUE_RECORDS: Final = 4096
"""Records between a thread and the loop; past it `enqueue` waits."""

QUEUE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of them, as far as they are bytes; one record may exceed it."""


class Given(NamedTuple):
    """A record on its way to the loop."""

    enqueue: Callable[[], Awaitable[object]]
    size: int
    on_delivery: OnDelivery | None


def check_given(partition: object, timestamp: object, on_delivery: object) -> None:
    """Refuse at the call what the loop would refuse later.

    Raises:
        TypeError, ValueError: names the argument and what is allowed.
    """
    check_partition(partition)
    check_timestamp(timestamp)
    check_callback(on_delivery)


def owned(payload: object) -> object:
    """Copy what the caller may change as soon as the call has returned."""
    return bytes(payload) if isinstance(payload, bytearray | memoryview) else payload


def size_of(payload: object) -> int:
    """Bytes, as far as it is bytes already."""
    return len(payload) if isinstance(payload, bytes) else 0


def time_of_call() -> int:
    """Milliseconds since the epoch: a record's time is that of its call, not that of the loop's turn."""
    return time.time_ns() // 1_000_000


class Handover:
    """The queue between threads and the loop.

    Args:
        max_wait_s: how long a thread waits for a place.
    """

    def __init__(self, max_wait_s: float) -> None:
        self._max_wait_s = max_wait_s
        self._room = threading.Condition()
        self._queue: deque[Given | asyncio.Event] = deque()
        self._bytes = 0
        self._is_idle = False
        self._wakeup = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._refusal: KafkaError | None = None
        self._errors: list[KafkaError] = []
        self._failed = 0

    # Any thread

    def put(self, given: Given) -> None:
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

    def _take(self) -> Given | asyncio.Event:
        with self._room:
            first = self._queue.popleft()
            if isinstance(first, Given):
                self._bytes -= first.size
            if len(self._queue) <= QUEUE_RECORDS // 2:
                self._room.notify_all()
            return first

    async def _give(self, first: Given | asyncio.Event) -> None:
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
