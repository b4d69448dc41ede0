# cython: language_level=3
"""What `enqueue` gives its caller to await when nothing has to be waited for: a coroutine that is already done.

It lets the loop run once when enough was written (`pause`), so that the sender works while a loop of `await enqueue`
goes on; else it costs no turn.

`await` asks a coroutine's type for `am_send` (CPython's bpo-41756), which returns a result without an
exception. Cython has no way to write that slot, so it is set here once the type exists; without it a `StopIteration`
would be raised and caught for every record, at the price of the whole append. CPython 3.12 and later use
`__next__` instead, which does the same.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF

from aioproducer._native.delivery cimport Delivery

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


cdef Accepted new_accepted(Delivery delivery, bint pause):
    cdef Accepted accepted = Accepted.__new__(Accepted)
    accepted._delivery = delivery
    accepted._pause = pause
    return accepted


cdef PySendResult go_on(PyObject* self, PyObject* value, PyObject** result) noexcept:
    cdef Accepted accepted = <Accepted>self
    cdef object answer
    cdef PySendResult end
    if accepted._pause:
        accepted._pause = False
        answer, end = None, PYGEN_NEXT
    else:
        answer, end = accepted._delivery, PYGEN_RETURN
    Py_INCREF(answer)
    result[0] = <PyObject*>answer
    return end


cdef void set_am_send(PyTypeObject* kind) noexcept:
    kind.tp_as_async.am_send = go_on
    PyType_Modified(kind)


set_am_send(<PyTypeObject*>Accepted)
