# cython: language_level=3, auto_pickle=False
"""The handle of a record that a caller holds, and the result that all records of a batch share.

A batch has one `BatchResult`; a record has a `Delivery`, a pair of (result, index) that speaks the protocol of
`asyncio.Future` without being one, so that `gather`, `wait`, `wait_for` and `shield` take it without a Task.
Offsets and timestamps are computed on demand.

`await delivery` makes a private future for each waiter. That is what makes cancelling one waiter end that wait
alone: `asyncio.timeout` and cancel scopes cancel the future that a task waits on.
"""

from asyncio import CancelledError, InvalidStateError

cimport cython

from aioproducer.records import RecordMetadata

cdef extern from "Python.h":
    object PyContext_CopyCurrent()


cdef class BatchResult:

    def __cinit__(self, loop, topic_partition):
        self.loop = loop
        self.topic_partition = topic_partition
        self.base_offset = -1
        self.log_append_time = -1
        self.log_start_offset = -1

    # Filling

    cpdef add_callback(self, int index, int64_t timestamp, callback, context=None):
        if self.callbacks is None:
            self.callbacks = []
        self.callbacks.append((index, timestamp, callback, PyContext_CopyCurrent() if context is None else context))

    def delivery(self, int index, int64_t timestamp):
        return new_delivery(self, index, timestamp)

    # Ending

    def complete(self, int64_t base_offset, int64_t log_append_time, int64_t log_start_offset, int count):
        assert not self.done, "a batch ends once"
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self.log_start_offset = log_start_offset
        self.count = count
        self.done = True
        self.on_wanted = None

    def fail(self, error, int count):
        assert not self.done, "a batch ends once"
        self.error = error
        self.count = count
        self.done = True
        self.on_wanted = None

    def wake(self):
        """Runs after `complete` or `fail` and `on_delivery`: wakes waiters in record order, and schedules callbacks."""
        cdef Delivery delivery
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            for delivery in waiting:
                wake_delivery(delivery, self)

    @property
    def has_callbacks(self):
        return self.callbacks is not None

    def take_callbacks(self):
        callbacks, self.callbacks = self.callbacks, None
        return [] if callbacks is None else callbacks

    def note_retrieval_of(self, callback, int index):
        if self.error is not None and getattr(callback, "counts_as_retrieval", True):
            self.note_seen(index)

    def metadata_of(self, int index, int64_t timestamp):
        return make_metadata(self, index, timestamp)

    def unseen(self):
        if self.error is None:
            return 0
        return self.count - (0 if self.seen is None else len(self.seen))

    cdef void note_seen(self, int index):
        if self.seen is None:
            self.seen = set()
        elif index in self.seen:
            return
        self.seen.add(index)
        for failure_count in self.failure_counts or ():
            failure_count.records -= 1

    def count_in(self, failure_count):
        failure_count.records += self.unseen()
        if self.failure_counts is None:
            self.failure_counts = []
        self.failure_counts.append(failure_count)

    # Moving: a waiting record joins a batch, or a batch is split

    def move(self, list parts):
        """parts: (first index here, BatchResult, index there), ascending by the first."""
        cdef Delivery delivery
        cdef BatchResult part
        assert not self.done, "a batch that ended cannot move"
        self.parts = parts
        self.on_wanted = None
        waiting, self.waiting = self.waiting, None
        callbacks, self.callbacks = self.callbacks, None
        if callbacks is not None:
            for index, timestamp, callback, context in callbacks:
                first, result, there = find_part(parts, index)
                result.add_callback(index - first + there, timestamp, callback, context)
        if waiting is not None:
            for delivery in waiting:
                delivery._registered = False
                part = delivery.settle()
                if delivery._has_waiters():
                    delivery.register(part)

    @property
    def moved(self):
        return self.parts is not None

    cdef int want(self) except -1:
        if not self.wanted:
            self.wanted = True
            if self.on_wanted is not None:
                callback, self.on_wanted = self.on_wanted, None
                callback(self)
        return 0

    def __repr__(self):
        state = "moved" if self.parts is not None else "pending"
        if self.done:
            state = "failed" if self.error is not None else f"base_offset={self.base_offset}"
        return f"<BatchResult {self.topic_partition} {state}>"


cdef object find_part(list parts, int index):
    """The last part that begins at `index` or before; there may be thousands."""
    cdef Py_ssize_t low = 0
    cdef Py_ssize_t high = len(parts)
    cdef Py_ssize_t middle
    while high - low > 1:
        middle = (low + high) // 2
        if (<tuple>parts[middle])[0] > index:
            high = middle
        else:
            low = middle
    return parts[low]


cdef object make_metadata(BatchResult result, int index, int64_t timestamp):
    cdef tuple topic_partition = <tuple>result.topic_partition  # a named tuple, whose own indexing is slow
    cdef bint append_time = result.log_append_time >= 0
    # A named tuple is made here without its own __new__, which is Python code.
    return tuple.__new__(RecordMetadata, (
        topic_partition[0],
        topic_partition[1],
        topic_partition,
        result.base_offset + index if result.base_offset >= 0 else -1,
        result.log_append_time if append_time else timestamp,
        1 if append_time else 0,
        result.log_start_offset,
    ))


cdef Delivery new_delivery(BatchResult result, int index, int64_t timestamp):
    cdef Delivery delivery = Delivery.__new__(Delivery)
    delivery._result = result
    delivery._index = index
    delivery._timestamp = timestamp
    return delivery


cdef wake_delivery(Delivery delivery, BatchResult result):
    cdef Followers followers = delivery._followers
    looked = False
    if followers is None:
        return
    waiters, followers.waiters = followers.waiters, None
    for future in waiters or ():
        if not future.done():
            looked = True
            future.set_result(None)
    if delivery._cancelled:
        return
    callbacks, followers.callbacks = followers.callbacks, None
    for callback, context in callbacks or ():
        looked = looked or result.error is None or getattr(callback, "counts_as_retrieval", True)
        result.loop.call_soon(callback, delivery, context=context)
    if looked:
        delivery.look(result)


@cython.freelist(64)
@cython.final
cdef class Followers:
    """Waiters and callbacks of one delivery, in an object of their own because most deliveries have none."""


@cython.freelist(256)
@cython.final
@cython.no_gc  # there are millions; a cycle through one ends with its batch, by delivery_timeout_ms
cdef class Delivery:
    """The handle of one record: done when the broker answered for it, or when it failed for good.

    Awaiting it (also by `gather`, `wait`, `add_done_callback`) ends the linger of its batch. Cancelling a task that
    awaits it ends that wait alone; `cancel()` cancels the handle. The record goes on either way.
    """

    def __init__(self):
        raise TypeError("a Delivery is made by the methods of a producer: delivery = producer.send(...)")

    # State, as asyncio.Future has it

    @property
    def _asyncio_future_blocking(self):
        return False

    @property
    def _cancel_message(self):
        return None if self._followers is None else self._followers.cancel_message

    @property
    def _loop(self):
        return self._result.loop

    def get_loop(self):
        return self._result.loop

    def done(self):
        return self._cancelled or self.settle().done

    def cancelled(self):
        return self._cancelled

    def result(self):
        cdef BatchResult result = self.settle()
        if self._cancelled:
            raise self._make_cancelled_error()
        if not result.done:
            raise InvalidStateError("Result is not set: the record is not delivered yet")
        self.look(result)
        if result.error is not None:
            raise result.error.fresh()
        return self.metadata(result)

    def exception(self):
        cdef BatchResult result = self.settle()
        if self._cancelled:
            raise self._make_cancelled_error()
        if not result.done:
            raise InvalidStateError("Exception is not set: the record is not delivered yet")
        self.look(result)
        return None if result.error is None else result.error.fresh()

    def cancel(self, msg=None):
        cdef BatchResult result = self.settle()
        cdef Followers followers
        if self._cancelled or result.done:
            return False
        followers = self.followers()
        self._cancelled = True
        followers.cancel_message = msg
        waiters, followers.waiters = followers.waiters, None
        for future in waiters or ():
            future.cancel(msg)
        callbacks, followers.callbacks = followers.callbacks, None
        for callback, context in callbacks or ():
            result.loop.call_soon(callback, self, context=context)
        return True

    def _make_cancelled_error(self):
        return CancelledError() if self._cancel_message is None else CancelledError(self._cancel_message)

    # Callbacks

    def add_done_callback(self, callback, *, context=None):
        cdef BatchResult result = self.settle()
        cdef Followers followers
        if context is None:
            context = PyContext_CopyCurrent()
        if self._cancelled or result.done:
            if not self._cancelled:
                self.look(result)
            result.loop.call_soon(callback, self, context=context)
            return
        followers = self.followers()
        if followers.callbacks is None:
            followers.callbacks = []
        followers.callbacks.append((callback, context))
        self.register(result)

    def remove_done_callback(self, callback):
        cdef Followers followers = self._followers
        if followers is None or followers.callbacks is None:
            return 0
        kept = [pair for pair in followers.callbacks if pair[0] != callback]
        removed = len(followers.callbacks) - len(kept)
        followers.callbacks = kept or None
        return removed

    # Waiting

    def __await__(self):
        cdef DeliveryWaiter waiter = DeliveryWaiter.__new__(DeliveryWaiter)
        waiter._delivery = self
        return waiter

    __iter__ = __await__

    def _has_waiters(self):
        cdef Followers followers = self._followers
        return followers is not None and (followers.waiters is not None or followers.callbacks is not None)

    cdef Followers followers(self):
        if self._followers is None:
            self._followers = Followers.__new__(Followers)
        return self._followers

    cdef object add_waiter(self, BatchResult result):
        cdef object future = result.loop.create_future()
        cdef Followers followers = self.followers()
        if followers.waiters is None:
            followers.waiters = [future]
        else:
            # Waiters that gave up are dropped here, so that polling with time-outs does not grow the list.
            followers.waiters = [other for other in followers.waiters if not other.done()]
            followers.waiters.append(future)
        result.awaited = True
        self.register(result)
        return future

    cdef int register(self, BatchResult result) except -1:
        if not self._registered:
            self._registered = True
            if result.waiting is None:
                result.waiting = []
            result.waiting.append(self)
        if not result.wanted:
            result.want()
        return 0

    cdef BatchResult settle(self):
        """The record's current result: follows moves, and remembers where they led."""
        cdef BatchResult result = self._result
        while result.parts is not None:
            first, part, there = find_part(result.parts, self._index)
            self._index += there - first
            result = part
            self._result = result
        return result

    cdef void look(self, BatchResult result):
        if result.error is not None:
            result.note_seen(self._index)

    cdef object metadata(self, BatchResult result):
        return make_metadata(result, self._index, self._timestamp)

    @property
    def timestamp(self):
        return self._timestamp

    @property
    def _batch_result(self):
        return self.settle()

    @property
    def _position(self):
        self.settle()
        return self._index

    def __repr__(self):
        cdef BatchResult result = self.settle()
        if self._cancelled:
            state = "cancelled"
        elif not result.done:
            state = "pending: a future to await, not a coroutine for create_task"
        elif result.error is not None:
            state = f"failed: {type(result.error).__name__}"
        else:
            state = f"offset={self.metadata(result).offset}"
        return f"<Delivery {result.topic_partition} {state}>"


@cython.freelist(256)
@cython.final
cdef class DeliveryWaiter:
    """The iterator behind one `await delivery`."""

    def __iter__(self):
        return self

    def __next__(self):
        cdef Delivery delivery = self._delivery
        cdef BatchResult result = delivery.settle()
        if not self._waited and not delivery._cancelled and not result.done:
            self._waited = True
            future = delivery.add_waiter(result)
            future._asyncio_future_blocking = True
            return future
        raise StopIteration(delivery.result())
