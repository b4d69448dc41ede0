"""The queue between threads and the loop: it keeps the order of calls, and it is bounded.

`enqueue` only puts its record here, so a loop of it costs no switch of threads a record; who finds the queue full
waits: that is the back-pressure of a stalled cluster, passed on.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from contextvars import copy_context
from typing import TYPE_CHECKING, Final, Protocol

from aioproducer._native.enqueue import Accepted
from aioproducer._native.locked import locked
from aioproducer._sender.completion import error_of_refused, tell
from aioproducer._threads.calls import LONGEST_SLEEP_S
from aioproducer._threads.real_threads import RealRLock, allocate_lock, wait_for_lock
from aioproducer.blocking.in_context import run_in_context
from aioproducer.errors import (
    MAX_SUB_ERRORS,
    BufferTimeoutError,
    IllegalStateError,
    KafkaError,
    NoTransactionError,
    Outcome,
    UndeliveredError,
)
from aioproducer.records import check_callback, check_partition, check_timestamp

if TYPE_CHECKING:
    import _thread
    from collections.abc import Awaitable, Callable

    from aioproducer._logs import EventLog
    from aioproducer._native.delivery import OnDelivery

QUEUE_RECORDS: Final = 4096
"""Records between a thread and the loop; past it `enqueue` waits."""

QUEUE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of them, as far as they are bytes; one record may exceed it."""


class Enqueue(Protocol):
    """`NonBlockingEnqueue.enqueue` with all of a record but who is told of its end."""

    def __call__(self, *, on_delivery: OnDelivery | None) -> Awaitable[object]:
        """Give the record to the producer."""
        ...


class Barrier:
    """A place in the queue: the event is set on the loop once everything before it was given to the producer."""

    __slots__ = ("turn", "upto")

    def __init__(self) -> None:
        self.turn = asyncio.Event()
        self.upto = 0
        """Bytes that were ever queued, its own included; the queue sets it."""


class QueuedRecord:
    """A record on its way to the loop, with the context of its call.

    Args:
        enqueue: gives it to the producer.
        size: bytes.
        on_delivery: is told what becomes of it, once: by the producer, or by us if the producer did not take it.
    """

    __slots__ = ("_enqueue", "context", "on_delivery", "size", "upto")

    def __init__(self, enqueue: Enqueue, size: int, on_delivery: OnDelivery | None) -> None:
        self._enqueue = enqueue
        self.size = size
        self.on_delivery = on_delivery
        self.context = copy_context()
        self.upto = 0
        """As of a `Barrier`."""

    def enqueue(self) -> Awaitable[object]:
        """Give it to the producer: interceptors, serializers and callbacks run in the context of its call."""
        enqueuing = self.context.run(self._enqueue, on_delivery=self.on_delivery)
        return enqueuing if isinstance(enqueuing, Accepted) else run_in_context(enqueuing, self.context)


class IdleWait:
    """The loop has nothing to do, until somebody calls it."""

    __slots__ = ("ended", "is_called")

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.is_called = False


def check_given(partition: object, timestamp: object, on_delivery: object) -> None:
    """Refuse at the call what the loop would refuse later.

    Raises:
        TypeError, ValueError: names the argument and what is allowed.
    """
    check_partition(partition)
    check_timestamp(timestamp)
    check_callback(on_delivery)


def size_of(payload: object) -> int:
    """Bytes, as far as it is bytes already."""
    return len(payload) if isinstance(payload, bytes | bytearray | memoryview) else 0


def time_of_call() -> int:
    """Milliseconds since the epoch: a record's time is that of its call, not that of the loop's turn."""
    return time.time_ns() // 1_000_000


class Handover:
    """The queue between threads and the loop.

    Ctrl-C may end a call between any two steps of the interpreter, so the loop never takes a lock that a caller holds,
    and callers hold only locks that it never leaves locked (`locked`).

    Args:
        max_wait_s: how long a thread waits for a place.
        reject: lets the open transaction be one that must be aborted; False: none takes records.
        log: of callbacks that raise, and of a task that ended although nobody closes.
    """

    def __init__(
        self,
        max_wait_s: float,
        *,
        reject: Callable[[KafkaError], bool],
        log: EventLog,
    ) -> None:
        self._max_wait_s = max_wait_s
        self._reject = reject
        self._log = log
        self._putting = RealRLock()  # of the callers alone; a signal's handler may be one more of them
        self._gates: dict[_thread.LockType, None] = {}
        self._queue: deque[QueuedRecord | Barrier] = deque()
        self._put_upto = 0  # bytes, written by callers alone
        self._taken_upto = 0  # bytes, written by the loop alone
        self._nap: IdleWait | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._refusal: KafkaError | None = None
        self._has_ended = False
        self._untold = 0  # records whose callbacks are about to be called
        self._refused = _Refused()
        self._refused_in_transaction = _Refused()

    # Any thread

    @property
    def records(self) -> int:
        """Records that the producer was not given yet."""
        return sum(isinstance(item, QueuedRecord) for item in tuple(self._queue))

    def put(self, given: QueuedRecord) -> None:
        """Queue a record; waits while the queue is full.

        Raises:
            BufferTimeoutError: it was full for too long.
            KafkaError: the producer takes nothing any more.
        """
        if not locked(self._putting, self._is_taken, given):
            self._wait_for_room(given)
        self._wake()

    def put_mark(self, mark: Barrier) -> None:
        """Queue a mark.

        Raises:
            KafkaError: nobody takes anything from the queue any more.
        """
        if self._has_ended and self._refusal is not None:
            raise self._refusal.fresh()
        locked(self._putting, self._append, mark, 0)
        self._wake()

    def put_last(self, mark: Barrier, error: KafkaError) -> None:
        """Queue a mark behind every record that was taken, and raise `error` in later calls and those that wait."""
        locked(self._putting, self._end_with, mark, error)
        self._open_gates()
        self._wake()

    def _end_with(self, mark: Barrier, error: KafkaError) -> None:
        self._refusal = self._refusal or error
        self._append(mark, 0)

    def _is_taken(self, given: QueuedRecord) -> bool:
        if self._refusal is not None:
            raise self._refusal.fresh()
        if not self._has_room(given.size):
            return False
        self._append(given, given.size)
        return True

    def _has_room(self, size: int) -> bool:
        is_small = self._put_upto - self._taken_upto + size <= QUEUE_BYTES
        return not self._queue or (is_small and len(self._queue) < QUEUE_RECORDS)

    def _append(self, item: QueuedRecord | Barrier, size: int) -> None:
        # Cut short between its steps, the sums are wrong by one record until that record is taken, and no longer.
        item.upto = self._put_upto + size
        self._queue.append(item)
        self._put_upto = item.upto

    def _wait_for_room(self, given: QueuedRecord) -> None:
        deadline = time.monotonic() + self._max_wait_s
        while True:
            gate = allocate_lock()
            gate.acquire()  # whoever opens it releases it: never this thread
            try:
                self._gates[gate] = None
                # Looked at once more with the gate in place: no opening is missed.
                if locked(self._putting, self._is_taken, given):
                    return
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise self._no_room()
                wait_for_lock(gate, min(left_s, LONGEST_SLEEP_S))
            finally:
                self._gates.pop(gate, None)

    def _no_room(self) -> BufferTimeoutError:
        text = (
            f"no room for the record within max_block_ms={round(self._max_wait_s * 1000)}: {len(self._queue)} "
            "records wait for the event loop, which waits for the brokers"
        )
        return BufferTimeoutError(text, outcome=Outcome.NOT_WRITTEN)

    def _open_gates(self) -> None:
        for gate in list(self._gates):
            if self._gates.pop(gate, gate) is None:  # not somebody else's to open, nor given up
                gate.release()

    def _wake(self) -> None:
        # The loop says that it naps before it looks at the queue once more: no record is ever left behind. Noted only
        # when it was called, and for this nap alone: cut short between the two, the next one calls again.
        nap = self._nap
        if self._has_ended:
            self._call(self._let_go)
        elif nap is not None and not nap.is_called:
            self._call(nap.ended.set)
            nap.is_called = True

    def _call(self, function: Callable[[], None]) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # closed since: it had given everything to the producer by then
                self._loop.call_soon_threadsafe(function)

    # The loop

    async def run(self) -> None:
        """Give the producer what was queued, until cancelled.

        However it ends, nobody is left waiting: what is queued then, and later, fails.
        """
        self._loop = asyncio.get_running_loop()
        try:
            await self._hand_over()
        except BaseException as cause:
            self._end(cause)
            raise

    async def _hand_over(self) -> None:
        while True:
            self._nap = IdleWait()
            if not self._queue:
                await self._nap.ended.wait()
            self._nap = None
            while self._queue:
                await self._give(self._take())

    def _end(self, cause: BaseException) -> None:
        if self._refusal is None:  # else it is closing
            text = f"the task that gives records to the producer has ended ({cause!r}): close it and make a new one"
            self.refuse(IllegalStateError(text))
            self._log.error("handover_ended", error=f"{type(cause).__name__}: {cause}")
        self._has_ended = True  # noted before the queue is emptied: who comes later sees it, and calls
        self._nap = None
        self._let_go()

    def _let_go(self) -> None:
        """Fail the records that are queued, and let those go on who wait for their turn, to be told."""
        assert self._refusal is not None
        while self._queue:
            first = self._take()
            if isinstance(first, Barrier):
                first.turn.set()
            else:
                self._note(self._refusal, first)

    def _take(self) -> QueuedRecord | Barrier:
        first = self._queue.popleft()
        self._taken_upto = first.upto
        if self._gates and len(self._queue) <= QUEUE_RECORDS // 2:
            self._open_gates()
        return first

    def refuse(self, error: KafkaError) -> None:
        """Raise `error` in every later call, and in those that wait."""
        self._refusal = self._refusal or error
        self._open_gates()

    async def _give(self, first: QueuedRecord | Barrier) -> None:
        if isinstance(first, Barrier):
            try:
                if self._untold:  # a callback that raises leaves its record to whoever waits for this turn
                    await asyncio.sleep(0)
            finally:
                first.turn.set()
            await asyncio.sleep(0)  # its task begins ...
            await asyncio.sleep(0)  # ... and does its part before the next record
            return
        try:
            await first.enqueue()
        except (Exception, asyncio.CancelledError) as error:  # the user's own code, whatever it raises
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self._note(error, first)

    def _note(self, raised: BaseException, given: QueuedRecord) -> None:
        error = error_of_refused(raised)
        if isinstance(raised, IllegalStateError) and not isinstance(raised, NoTransactionError):
            self.refuse(raised)  # as it was raised: later calls need not bring a record
        # Its call has returned: nobody else would keep the transaction from being committed without it.
        refused = self._refused_in_transaction if self._reject(error) else self._refused
        if given.on_delivery is not None:  # later, behind what the producer tells of those before
            self._untold += 1
            asyncio.get_running_loop().call_soon(self._tell, given.on_delivery, error, refused, context=given.context)
        else:
            refused.note(error)

    def _tell(self, on_delivery: OnDelivery, error: KafkaError, refused: _Refused) -> None:
        self._untold -= 1
        if not tell(on_delivery, None, error.fresh(), self._log):
            refused.note(error)

    @property
    def untold(self) -> int:
        """Records that the producer was not given yet, or did not take, and of which nothing was told."""
        return self.records + self._refused.count + self._refused_in_transaction.count

    def take_errors(
        self, undelivered: UndeliveredError | None, *, outside_too: bool = False
    ) -> UndeliveredError | None:
        """Forget the records of the transaction that the producer did not take; join them to what it did not deliver.

        Args:
            undelivered: what it did not deliver.
            outside_too: also those that belonged to no transaction, and must not fail a commit.
        """
        errors, failed = self._refused_in_transaction.take()
        if outside_too:
            outside, count = self._refused.take()
            errors, failed = [*outside, *errors], failed + count
        if undelivered is not None:
            errors = [*errors, *(error for error in undelivered.exceptions if isinstance(error, KafkaError))]
            failed += undelivered.count
        return UndeliveredError.of(errors, count=failed) if errors else None


class _Refused:
    """Records that the producer did not take, and of which nobody was told yet."""

    __slots__ = ("_errors", "count")

    def __init__(self) -> None:
        self._errors: list[KafkaError] = []
        self.count = 0

    def note(self, error: KafkaError) -> None:
        """Count one."""
        self.count += 1
        if len(self._errors) < MAX_SUB_ERRORS:
            self._errors.append(error)

    def take(self) -> tuple[list[KafkaError], int]:
        """Forget them; the first errors, and how many there were."""
        taken = self._errors, self.count
        self._errors, self.count = [], 0
        return taken
