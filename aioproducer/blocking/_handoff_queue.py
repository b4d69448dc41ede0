"""The bounded queue between the calling threads and the event loop; it keeps the order of calls.

`enqueue` only appends to it, so a loop of `enqueue` switches no thread per record. A caller that finds the queue full
waits, which passes on the back-pressure of a stalled cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import types
from collections import deque
from contextvars import copy_context
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast

from aioproducer._native.enqueue import Accepted
from aioproducer._native.locked import locked
from aioproducer._producer.arguments import CallDeadline, deadline_arguments, owned
from aioproducer._sender.completion import call_on_delivery, error_of_refused
from aioproducer._threads.calls import LONGEST_SLEEP_S
from aioproducer._threads.real_threads import RealRLock, allocate_lock, wait_for_lock
from aioproducer.errors import (
    MAX_SUB_ERRORS,
    BufferTimeoutError,
    IllegalStateError,
    KafkaError,
    NoTransactionError,
    Outcome,
    UndeliveredError,
)
from aioproducer.records import check_callback, check_partition, check_timestamp, normalize_headers

if TYPE_CHECKING:
    import _thread
    from collections.abc import Awaitable, Callable, Generator
    from contextvars import Context
    from typing import Unpack

    from aioproducer._logs import EventLog
    from aioproducer._native.delivery import OnDelivery
    from aioproducer._producer.record_fields import RecordFields

KeyT = TypeVar("KeyT")
KeyT_contra = TypeVar("KeyT_contra", contravariant=True)
ResultT = TypeVar("ResultT")

QUEUE_RECORDS: Final = 4096  # records in the queue beyond which `enqueue` waits

QUEUE_BYTES: Final = 4 * 1024 * 1024
"""Limit on queued bytes; only keys and values given as bytes count, and one record may exceed it."""


LATE_S: Final = 0.005
"""How long after its deadline a queued record may end, so that records with deadlines close together end at once."""


class Enqueue(Protocol):
    """`enqueue` of a producer or a topic, with all arguments but the callback."""

    def __call__(self, *, on_delivery: OnDelivery | None, deadline: float = ...) -> Awaitable[object]: ...


class EnqueueRecord(Protocol[KeyT_contra]):
    """`enqueue` of a producer or a topic."""

    def __call__(self, value: object, **fields: Unpack[RecordFields[KeyT_contra]]) -> Awaitable[object]: ...


class Barrier:
    """A place in the queue; the event is set on the loop once the producer has everything before it."""

    __slots__ = ("reached", "upto")

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.upto = 0  # bytes ever queued, up to and including this item; the queue sets it


class QueuedRecord:
    """A record in the queue, with the context of its call; the queue calls `on_delivery` if the producer refuses it."""

    __slots__ = ("_enqueue", "context", "deadline", "has_ended", "on_delivery", "size", "upto")

    def __init__(
        self, enqueue: Enqueue, size: int, on_delivery: OnDelivery | None, *, deadline: CallDeadline | None = None
    ) -> None:
        self._enqueue = enqueue
        self.deadline = deadline
        self.size = size
        self.on_delivery = on_delivery
        self.context = copy_context()
        self.upto = 0  # as in Barrier
        self.has_ended = False  # in the queue, at its deadline

    def enqueue(self) -> Awaitable[object]:
        """Give the record to the producer; interceptors, serializers and callbacks run in the context of its call."""
        enqueuing = self.context.run(self._enqueue, on_delivery=self.on_delivery, **deadline_arguments(self.deadline))
        return enqueuing if isinstance(enqueuing, Accepted) else run_in_context(enqueuing, self.context)


class IdleWait:
    """One wait of the loop for the next item."""

    __slots__ = ("ended", "is_called")

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.is_called = False


def queued_record(
    enqueue: EnqueueRecord[KeyT], value: object, fields: RecordFields[KeyT], *, delivery_timeout_ms: int
) -> QueuedRecord:
    """Check the arguments of an `enqueue` and copy those that the caller may change."""
    check_partition(fields.get("partition"))
    check_timestamp(fields.get("timestamp"))
    on_delivery, seconds = fields.pop("on_delivery", None), fields.pop("deadline", None)
    check_callback(on_delivery)
    deadline = None if seconds is None else CallDeadline.of(seconds, delivery_timeout_ms)
    if fields.get("timestamp") is None:
        fields["timestamp"] = time.time_ns() // 1_000_000  # of the call, not of the loop's turn
    if fields.get("headers") is not None:
        fields["headers"] = normalize_headers(fields["headers"])
    fields["key"] = owned(fields.get("key"))
    value = owned(value)
    size = _size_of(fields["key"]) + _size_of(value)
    return QueuedRecord(partial(enqueue, value, **fields), size, on_delivery, deadline=deadline)


def _size_of(payload: object) -> int:
    return len(payload) if isinstance(payload, bytes | bytearray | memoryview) else 0


@types.coroutine
def run_in_context(awaitable: Awaitable[ResultT], context: Context) -> Generator[object, object, ResultT]:
    """Await, running each step in `context`."""
    steps = cast("Generator[object, object, ResultT]", awaitable.__await__())
    try:
        waits_for = context.run(steps.send, None)
        while True:
            try:
                response = yield waits_for
            except BaseException as error:  # noqa: BLE001  # the awaitable's: a cancellation, for example
                waits_for = context.run(steps.throw, error)
            else:
                waits_for = context.run(steps.send, response)
    except StopIteration as end:
        return cast("ResultT", end.value)


class HandoffQueue:
    """The queue between threads and the loop.

    Ctrl-C may end a call between any two steps of the interpreter. So the loop takes no lock that a caller holds, and
    callers hold only locks that Ctrl-C never leaves locked (`locked`).

    Args:
        max_wait_s: how long a thread waits for room.
        abort_transaction: makes the open transaction abort; returns False if no transaction takes records.
        log: of callbacks that raise, and of a loop task that ended early.
    """

    def __init__(self, max_wait_s: float, *, abort_transaction: Callable[[KafkaError], bool], log: EventLog) -> None:
        self._max_wait_s = max_wait_s
        self._abort_transaction = abort_transaction
        self._log = log
        self._putting = RealRLock()  # of the callers only; reentrant, since a signal handler may be a caller too
        self._gates: dict[_thread.LockType, None] = {}
        self._queue: deque[QueuedRecord | Barrier] = deque()
        self._put_upto = 0  # bytes, written by callers only
        self._read_upto = 0  # bytes, written by the loop only
        self._idle: IdleWait | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop_error: KafkaError | None = None
        self._has_ended = False
        self._next_deadline = inf  # at which the loop looks at the queue; written by the loop only
        self._timer: asyncio.TimerHandle | None = None  # of that
        self._pending_callbacks = 0  # callbacks of refused records, scheduled but not called yet
        self._failed = _FailedRecords()
        self._failed_in_transaction = _FailedRecords()

    # Any thread

    @property
    def records(self) -> int:
        """Records that the producer does not have yet."""
        return sum(isinstance(item, QueuedRecord) and not item.has_ended for item in tuple(self._queue))

    def put(self, record: QueuedRecord) -> None:
        """Queue a record; waits while the queue is full."""
        if not locked(self._putting, self._try_put, record):
            self._wait_for_room(record)
        if record.deadline is not None and record.deadline.at < self._next_deadline:
            self._call(partial(self._watch, record.deadline.at))
        self._wake()

    def put_barrier(self, barrier: Barrier) -> None:
        if self._has_ended and self._stop_error is not None:
            raise self._stop_error.fresh()
        locked(self._putting, self._append, barrier, 0)
        self._wake()

    def put_last(self, barrier: Barrier, error: KafkaError) -> None:
        """Queue a barrier behind every accepted record, and raise `error` in later and waiting calls."""
        locked(self._putting, self._end_with, barrier, error)
        self._open_gates()
        self._wake()

    def _end_with(self, barrier: Barrier, error: KafkaError) -> None:
        self._stop_error = self._stop_error or error
        self._append(barrier, 0)

    def _try_put(self, record: QueuedRecord) -> bool:
        if self._stop_error is not None:
            raise self._stop_error.fresh()
        is_small = self._put_upto - self._read_upto + record.size <= QUEUE_BYTES
        if self._queue and not (is_small and len(self._queue) < QUEUE_RECORDS):
            return False
        self._append(record, record.size)
        return True

    def _append(self, item: QueuedRecord | Barrier, size: int) -> None:
        # If Ctrl-C ends the thread between these steps, the sums are wrong until that one record is taken.
        item.upto = self._put_upto + size
        self._queue.append(item)
        self._put_upto = item.upto

    def _wait_for_room(self, record: QueuedRecord) -> None:
        until = time.monotonic() + self._max_wait_s
        if record.deadline is not None:
            until = min(until, record.deadline.at)
        while True:
            gate = allocate_lock()
            gate.acquire()  # another thread releases it
            try:
                self._gates[gate] = None
                # Tried again with the gate in place, so that no opening is missed.
                if locked(self._putting, self._try_put, record):
                    return
                left_s = until - time.monotonic()
                if left_s <= 0:
                    raise self._no_room(record.deadline)
                wait_for_lock(gate, min(left_s, LONGEST_SLEEP_S))
            finally:
                self._gates.pop(gate, None)

    def _no_room(self, deadline: CallDeadline | None) -> BufferTimeoutError:
        bound = f"max_block_ms={round(self._max_wait_s * 1000)}"
        if deadline is not None and deadline < self._max_wait_s:
            bound = f"deadline={deadline:g}"
        text = (
            f"no room for the record within {bound}: {len(self._queue)} "
            "records wait for the event loop, which waits for the brokers"
        )
        return BufferTimeoutError(text, outcome=Outcome.NOT_WRITTEN)

    def _open_gates(self) -> None:
        for gate in list(self._gates):
            if self._gates.pop(gate, gate) is None:  # else another thread opens it, or its waiter has left
                gate.release()

    def _wake(self) -> None:
        # The loop announces its wait before it looks at the queue again, so no record is left behind. `is_called` is
        # set only after the call, and for this wait only: if Ctrl-C comes between the two, the next caller calls again.
        idle = self._idle
        if self._has_ended:
            self._call(self._fail_queued)
        elif idle is not None and not idle.is_called:
            self._call(idle.ended.set)
            idle.is_called = True

    def _call(self, function: Callable[[], None]) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # closed since: the queue was empty by then
                self._loop.call_soon_threadsafe(function)

    # The loop

    async def run(self) -> None:
        """Give queued records to the producer until cancelled; then fail what is queued, and what comes later."""
        self._loop = asyncio.get_running_loop()
        self._end_overdue()  # and watches the records that were queued before
        try:
            await self._hand_over()
        except BaseException as cause:
            self._end(cause)
            raise

    async def _hand_over(self) -> None:
        while True:
            self._idle = IdleWait()
            if not self._queue:
                await self._idle.ended.wait()
            self._idle = None
            while self._queue:
                await self._give(self._take())

    def _end(self, cause: BaseException) -> None:
        if self._stop_error is None:  # else it is closing
            text = f"the task that gives records to the producer has ended ({cause!r}): close it and make a new one"
            self.stop_accepting(IllegalStateError(text))
            self._log.error("handover_ended", error=f"{type(cause).__name__}: {cause}")
        self._has_ended = True  # set before the queue is emptied: a later caller sees it, and calls `_fail_queued`
        self._idle = None
        self._fail_queued()

    def _fail_queued(self) -> None:
        assert self._stop_error is not None
        while self._queue:
            first = self._take()
            if isinstance(first, Barrier):
                first.reached.set()
            elif not first.has_ended:
                self._note(self._stop_error, first)

    def _take(self) -> QueuedRecord | Barrier:
        first = self._queue.popleft()
        self._read_upto = first.upto
        if self._gates and len(self._queue) <= QUEUE_RECORDS // 2:
            self._open_gates()
        return first

    def stop_accepting(self, error: KafkaError) -> None:
        self._stop_error = self._stop_error or error
        self._open_gates()

    async def _give(self, first: QueuedRecord | Barrier) -> None:
        if isinstance(first, Barrier):
            try:
                if self._pending_callbacks:  # one that raises leaves its error to the call behind this barrier
                    await asyncio.sleep(0)
            finally:
                first.reached.set()
            # First step: the task behind the barrier begins. Second: it does its part, before the next record.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return
        if first.has_ended:
            return
        try:
            await first.enqueue()
        except (Exception, asyncio.CancelledError, SystemExit, KeyboardInterrupt) as error:  # of the user's code too
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self._note(error, first)

    def _watch(self, at: float) -> None:
        if at >= self._next_deadline or self._has_ended:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._next_deadline = at
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(at - time.monotonic(), 0.0) + LATE_S, self._end_overdue)

    def _end_overdue(self) -> None:
        """End queued records at their deadlines, which may be long before their turn; watch the other deadlines."""
        self._next_deadline = inf  # set before the look: of a record that is queued meanwhile, the caller tells
        now, first = time.monotonic(), inf
        for item in self._queue.copy():
            if isinstance(item, Barrier) or item.deadline is None or item.has_ended:
                continue
            if item.deadline.at <= now:
                item.has_ended = True  # it keeps its place: only the callers' threads change the queue's other end
                self._note(item.deadline.over(), item)
            else:
                first = min(first, item.deadline.at)
        self._watch(first)

    def _note(self, raised: BaseException, record: QueuedRecord) -> None:
        error = error_of_refused(raised)
        if isinstance(raised, IllegalStateError) and not isinstance(raised, NoTransactionError):
            self.stop_accepting(raised)
        # The record's call has returned, so only this keeps the transaction from being committed without it.
        failed = self._failed_in_transaction if self._abort_transaction(error) else self._failed
        if record.on_delivery is None:
            failed.note(error)
            return
        self._pending_callbacks += 1  # called later, after the callbacks of the records before it
        loop = asyncio.get_running_loop()
        loop.call_soon(self._call_back, record.on_delivery, error, failed, context=record.context)

    def _call_back(self, on_delivery: OnDelivery, error: KafkaError, failed: _FailedRecords) -> None:
        self._pending_callbacks -= 1
        if not call_on_delivery(on_delivery, None, error.fresh(), self._log):
            failed.note(error)

    @property
    def unreported(self) -> int:
        """Records that are queued, or that the producer refused, and whose failure was not reported."""
        return self.records + self._failed.count + self._failed_in_transaction.count

    def take_errors(
        self, undelivered: UndeliveredError | None, *, outside_too: bool = False
    ) -> UndeliveredError | None:
        """Return the errors of refused records of the transaction, joined to `undelivered`, and forget them.

        With `outside_too` also those outside of transactions, which must not fail a commit.
        """
        errors, failed = self._failed_in_transaction.take()
        if outside_too:
            outside, count = self._failed.take()
            errors, failed = [*outside, *errors], failed + count
        if undelivered is not None:
            errors = [*errors, *(error for error in undelivered.exceptions if isinstance(error, KafkaError))]
            failed += undelivered.count
        return UndeliveredError.of(errors, count=failed) if errors else None


class _FailedRecords:
    """Records that the producer refused and whose failure was not reported: their number, and the first errors."""

    __slots__ = ("_errors", "count")

    def __init__(self) -> None:
        self._errors: list[KafkaError] = []
        self.count = 0

    def note(self, error: KafkaError) -> None:
        self.count += 1
        if len(self._errors) < MAX_SUB_ERRORS:
            self._errors.append(error)

    def take(self) -> tuple[list[KafkaError], int]:
        taken = self._errors, self.count
        self._errors, self.count = [], 0
        return taken
