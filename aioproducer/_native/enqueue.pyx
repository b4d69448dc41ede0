# cython: language_level=3
"""`Producer.enqueue`: the method that loops call, so that a record that need not wait is one native call.

What it gives its caller to await is a coroutine that is already done. It lets the loop run once when enough was
written, so that the sender works while a loop of `await enqueue` goes on; else it costs no turn.

`await` asks a coroutine's type for `am_send` (CPython's bpo-41756), which returns a result without an
exception. Cython has no way to write that slot, so it is set here once the type exists; without it a `StopIteration`
would be raised and caught for every record, at the price of the whole append. CPython 3.12 and later use
`__next__` instead, which does the same.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF

from aioproducer._native.append cimport RecordAppender
from aioproducer._native.delivery cimport Delivery
from aioproducer._native.record_pipeline cimport RecordPipeline

from aioproducer.records import normalize_headers

cdef extern from "Python.h":
    ctypedef enum PySendResult:
        PYGEN_RETURN
        PYGEN_ERROR
        PYGEN_NEXT
    ctypedef PySendResult (*sendfunc)(PyObject* self, PyObject* value, PyObject** result) noexcept
    ctypedef struct PyAsyncMethods:
        sendfunc am_send
    ctypedef struct PyTypeObject:
        PyAsyncMethods* tp_as_async
    void PyType_Modified(PyTypeObject* kind)


@cython.freelist(64)
@cython.final
@cython.no_gc  # only a frame that awaits it holds one
cdef class Accepted:

    def send(self, value):
        return self.__next__()

    def throw(self, kind, value=None, traceback=None):
        raise kind if value is None else value

    def close(self):
        pass

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        if self._pause:
            self._pause = False
            return None
        raise StopIteration(self._delivery)


cdef Accepted new_accepted(RecordAppender appender, Delivery delivery):
    cdef Accepted accepted = Accepted.__new__(Accepted)
    accepted._delivery = delivery
    accepted._pause = appender.pause_wanted
    appender.pause_wanted = False
    return accepted


cdef PySendResult go_on(PyObject* self, PyObject* value, PyObject** result) noexcept:
    cdef Accepted accepted = <Accepted>self
    cdef object answer = None
    cdef PySendResult end = PYGEN_NEXT
    if accepted._pause:
        accepted._pause = False
    else:
        answer, end = accepted._delivery, PYGEN_RETURN
    Py_INCREF(answer)
    result[0] = <PyObject*>answer
    return end


# A base class, not an attribute of each producer: the interpreter specialises the look-up of an inherited method.
@cython.auto_pickle(False)
cdef class EnqueueMethod:
    """Base class of `Producer` with its `enqueue`."""

    def _enqueue_natively(self, RecordPipeline pipeline):
        self._pipeline = pipeline
        self._appender = None if pipeline is None or pipeline.has_hooks else pipeline.appender

    def enqueue(self, topic, value=None, *, key=None, partition=None, timestamp=None, headers=None,
                on_delivery=None, deadline=None):
        """Accept a record as soon as its topic is known and there is room; arguments and errors as `send`.

        First come, first served. Cancelled while it waits, it withdraws the record, which is then not written. One
        that had its room by then goes on, though the call has not returned: `CancelledError` has a note that says so. A
        record that need not wait is accepted by the call itself, even if the event loop gets a turn before it returns.

        Returns:
            The delivery, which need not be awaited: `flush` raises what failed.

        Raises:
            MetadataTimeoutError: the topic is still unknown after `max_block_ms`.
            BufferTimeoutError: no room within `max_block_ms`.
        """
        cdef RecordAppender appender = self._appender
        cdef Delivery delivery
        cdef object taken
        if headers is not None and type(headers) is not list and type(headers) is not tuple:
            headers = normalize_headers(headers)
        if deadline is not None:
            return self._enqueue_within(deadline, topic, value, key, partition, timestamp, headers, on_delivery)
        if appender is not None:
            delivery = appender.append(topic, value, key, partition, timestamp, headers, on_delivery)
            if delivery is not None:
                return new_accepted(appender, delivery)
        elif self._pipeline is not None:
            taken = self._pipeline.run(
                topic, value, key, partition, timestamp, headers, on_delivery,
                self._pipeline.key_serializer, self._pipeline.value_serializer, True,
            )
            if type(taken) is Delivery:
                return new_accepted(self._pipeline.appender, <Delivery>taken)
            return self._enqueue_arguments(taken)
        return self._enqueue_slowly(topic, value, key, partition, timestamp, headers, on_delivery)


cdef void set_am_send(PyTypeObject* kind) noexcept:
    kind.tp_as_async.am_send = go_on
    PyType_Modified(kind)


set_am_send(<PyTypeObject*>Accepted)
